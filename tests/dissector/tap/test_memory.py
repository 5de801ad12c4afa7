"""Limits of memory: what is free is given back first, and what is needed is given up only once."""

import mmap

from dissector.tap.memory import MemoryLimit, give_back, resident_bytes

MEGABYTE = 1 << 20


def test_what_is_free_is_given_back_before_anything_is_given_up():
    in_use = [900]
    freed = []

    def free() -> None:
        freed.append(in_use[0])
        in_use[0] -= 500

    limit = MemoryLimit(1000, lambda: in_use[0], free)
    assert limit.passed() is None and freed == []
    in_use[0] = 1400
    assert limit.passed() is None and freed == [1400]
    in_use[0] = 1600
    assert limit.passed() == 1100


def test_a_limit_below_what_is_needed_gives_up_once_and_then_for_growth():
    in_use = [2000]
    limit = MemoryLimit(1000, lambda: in_use[0], lambda: None)
    assert limit.passed() == 2000
    limit.begin_anew()
    for in_use[0] in (2000, 2400):
        assert limit.passed() is None
    in_use[0] = 2600
    assert limit.passed() == 2600
    in_use[0] = 100
    limit.begin_anew()
    in_use[0] = 2400
    assert limit.passed() is None


def test_memory_is_what_the_system_says():
    before = resident_bytes()
    # Of the system itself: memory of the heap may be what other tests have left there.
    data = mmap.mmap(-1, 64 * MEGABYTE)
    for place in range(0, len(data), 4096):
        data[place] = 1
    assert resident_bytes() > before + 32 * MEGABYTE
    data.close()
    give_back()
    assert 0 < resident_bytes() < before + 32 * MEGABYTE
