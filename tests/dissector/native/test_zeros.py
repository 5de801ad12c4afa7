"""Arrays of zeros with pages of their own."""

import mmap

import numpy as np
import pytest

from dissector.native.zeros import zeros


@pytest.mark.parametrize("shape", [0, 3, (4, 2), 1 << 16, (1 << 17, 4)])
@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_they_are_what_numpy_gives(shape, kind):
    found, expected = zeros(shape, kind), np.zeros(shape, kind)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert not found.any() and found.flags.c_contiguous and found.flags.writeable
    found[...] = 7
    assert (found == 7).all() and not zeros(shape, kind).any()


def test_a_system_without_large_pages_gives_small_ones(monkeypatch):
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 99_999)  # advice that no kernel knows
    with pytest.raises(OSError), mmap.mmap(-1, 4096) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
    assert not zeros(1 << 20).any()
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert not zeros(1 << 20).any()


def resident_pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def test_a_large_one_takes_no_memory_until_it_is_written():
    size = 1 << 21  # 16 MB, which a process gets again from what it freed
    for _ in range(2):
        freed = np.ones(size, np.int64)
        del freed
    before = resident_pages()
    kept = [zeros(size) for _ in range(4)]
    assert resident_pages() - before < size * 8 // 4096 // 2
    assert sum(int(each[-1]) for each in kept) == 0
