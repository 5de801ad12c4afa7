"""The key of hash tables is drawn for each run, reaches every table, and no row depends on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dissector.blocks import TableBlock
from dissector.codecs.keyed_hash import new_secret
from dissector.codecs.names import NameTable
from dissector.dissection import Dissection
from dissector.options import Options
from dissector.packet.walk import HeaderWalk
from dissector.stream.state import StreamState
from dissector.tables import HashTable
from tests.anycut import bytes_of
from tests.dissector.observed import CAPTURES
from tests.hard.floods import FLOODS, as_pcap
from tests.hard.tape import capture, talk
from tests.plain import rows_of_block

KEYS = (3, (1 << 127) + 12_345)
SAMPLES = [
    *sorted(CAPTURES.glob("pulsar/*.pcap"))[::4],
    *sorted(CAPTURES.glob("pulsar-apache/java-*.pcap"))[::4],
    *sorted(CAPTURES.glob("cursus/*.pcap"))[::3],
]


def rows_of(data: bytes, key: int) -> dict[str, list[dict[str, Any]]]:
    """All rows by table, in their order, and those of what is open before the end."""
    array = np.frombuffer(bytearray(data), np.uint8)
    dissection = Dissection(Options(properties=True, want_detail="all", hash_key=key))
    dissection.start_file()
    blocks: list[TableBlock] = list(dissection.feed(array, 0, len(array), True)[1])
    dissection.end_file()
    _, _, rest = dissection.rotate()
    blocks += [*rest, *dissection.open_rows(), *dissection.finish()]
    tables: dict[str, list[dict[str, Any]]] = {}
    for block in blocks:
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_rows_and_their_order_are_the_same_under_two_keys(path: Path) -> None:
    data = bytes_of(path)
    one, other = (rows_of(data, key) for key in KEYS)
    assert one == other


@pytest.mark.parametrize("name", ["syns", "reused ports", "half open"])
def test_floods_give_the_same_rows_under_two_keys(name: str) -> None:
    data = as_pcap(FLOODS[name](6_000))
    one, other = (rows_of(data, key) for key in KEYS)
    assert one == other


def secrets_in(value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The secrets of all that is hashed somewhere in an object, and what has them."""
    if id(value) in seen or isinstance(value, np.ndarray | str | bytes | int | float | type(None)):
        return
    seen.add(id(value))
    if isinstance(value, HashTable | StreamState | HeaderWalk):
        yield type(value).__name__, value.secret
    elif isinstance(value, NameTable):
        yield "NameTable", value.columns.secret
    if isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    elif type(value).__module__.startswith("dissector"):
        inner = list(vars(value).values())
    else:
        return
    for each in inner:
        yield from secrets_in(each, seen)


def test_every_table_of_a_dissection_has_its_key() -> None:
    data = np.frombuffer(bytearray(capture(talk(3).records())), np.uint8)
    dissection = Dissection(Options(hash_key=KEYS[1]))
    dissection.start_file()
    dissection.feed(data, 0, len(data), True)
    found = list(secrets_in(dissection, set()))
    assert {name for name, _ in found} == {"HashTable", "NameTable", "StreamState", "HeaderWalk"}
    assert len(found) >= 18
    expected = new_secret(KEYS[1])
    assert all((secret == expected).all() for _, secret in found)


def test_each_run_draws_a_key_that_is_never_written() -> None:
    one, other = Options(), Options()
    assert one.hash_key != other.hash_key and one == other
    assert one.hash_key.bit_length() > 64
    assert "hash_key" not in one.as_json() and "hash_key" not in repr(one)
