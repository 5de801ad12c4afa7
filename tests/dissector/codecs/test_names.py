"""Names: one code per distinct name, in order of first sight, within bounds."""

from mmap import PAGESIZE
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.names import NameTable, intern
from dissector.limits import MAX_NAME_LENGTH, NULL


def intern_all(table: NameTable, names: list[bytes]) -> list[int]:
    """Codes of names that lie one behind the other in a buffer."""
    data = np.frombuffer(bytearray(b"".join(names) + b"\0"), np.uint8)
    codes = []
    position = 0
    for name in names:
        codes.append(int(intern(table.columns, data, position, len(name))))
        position += len(name)
    return codes


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([b"", b"\0", b"\0\0", b"a" * 8]), max_size=60)
)
@settings(max_examples=60, deadline=None)
def test_codes_are_those_of_a_dictionary_filled_in_the_same_order(names: list[bytes]) -> None:
    table = NameTable(100, 4000)
    plain: dict[bytes, int] = {}
    expected = [plain.setdefault(name, len(plain)) for name in names]
    assert intern_all(table, names) == expected
    assert table.names == list(plain)
    assert [table.find(name) for name in plain] == list(plain.values())
    assert table.drain_refused() == 0


def test_a_full_table_refuses_new_names_and_finds_the_old_ones() -> None:
    table = NameTable(max_names=3, max_bytes=1000)
    assert intern_all(table, [b"a", b"b", b"c", b"d", b"b", b"e"]) == [0, 1, 2, NULL, 1, NULL]
    assert table.drain_refused() == 2
    assert table.drain_refused() == 0
    assert table.code_of(b"d") == NULL
    assert table.drain_refused() == 1
    assert table.names == [b"a", b"b", b"c"]


def test_a_name_that_does_not_fit_is_refused_and_a_shorter_one_is_kept() -> None:
    table = NameTable(max_names=10, max_bytes=10)
    assert intern_all(table, [b"123456", b"12345", b"1234"]) == [0, NULL, 1]
    assert table.names == [b"123456", b"1234"]


def test_many_names_keep_their_codes() -> None:
    table = NameTable(5000, 200_000)
    names = [b"persistent://public/default/topic-%d" % k for k in range(5000)]
    assert intern_all(table, names) == list(range(5000))
    assert intern_all(table, names[::-1]) == list(range(5000))[::-1]


def test_tables_take_memory_as_names_come() -> None:
    """Each one is 88 MB for the bound, one behind the other in memory that was used before, too."""
    intern_all(NameTable(10, 100), [b"compiled"])
    before = resident_bytes()
    tables = [NameTable() for _ in range(8)]
    del tables[::2]
    tables += [NameTable() for _ in range(4)]
    assert [intern_all(table, [b"a", b"b", b"a"]) for table in tables] == [[0, 1, 0]] * 8
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE


def test_the_list_of_names_grows_in_place() -> None:
    table = NameTable(10, 100)
    table.code_of(b"first")
    names = table.names
    table.code_of(b"second")
    table.update()
    assert names == [b"first", b"second"]
    assert table.name_of(1) == b"second"
    assert table.name_of(NULL) is None
    assert table.find(b"third") == NULL


def test_a_long_name_keeps_its_beginning_its_length_and_what_tells_it_apart() -> None:
    table = NameTable(max_names=10, max_bytes=20_000)
    longest = b"x" * MAX_NAME_LENGTH
    names = [b"a" * 5_000_000 + b"1", b"a" * 5_000_000 + b"2", longest, b"b" * 5000]
    codes = intern_all(table, [*names, *names])
    assert codes == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [table.find(name) for name in names] == [0, 1, 2, 3]
    assert table.find(b"a" * 5_000_000 + b"3") == NULL
    assert table.names[2] == longest
    for shown, size in zip(table.names[:2], (5_000_001, 5_000_001), strict=True):
        assert len(shown) <= MAX_NAME_LENGTH
        assert shown.startswith(b"a" * 4000) and f"…({size} bytes, ".encode() in shown
    assert table.drain_cut() == 6 and table.drain_cut() == 0 and table.drain_refused() == 0


def test_a_long_name_is_not_cut_inside_a_character() -> None:
    for shift in range(4):
        table = NameTable(max_names=2, max_bytes=20_000)
        intern_all(table, [b"x" * shift + "€".encode() * 3000])
        assert "\ufffd" not in table.names[0].decode()
