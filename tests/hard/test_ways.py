"""The same bytes give the same rows: whole, over files, in pieces, through a pipe, compressed."""

import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.dissection import Options
from dissector.sources import files as source_files
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.choosing import covering, examples
from tests.fuzz.targets import rows_of
from tests.hard import source_cases as made
from tests.hard.cases import Case, all_cases
from tests.hard.scratches import scratched
from tests.hard.tape import STEP_NS, Tables, capture, talk
from tests.plain import rows_of_block
from tests.wire.captures import Record

SNAPLEN = 70
each_case = pytest.mark.parametrize("case", all_cases(), ids=lambda each: each.file_name)
SCRATCHED = covering({case.file_name: [case.id] for case in all_cases()})


def _moved(records: list[Record], draw: Callable[..., Any]) -> list[Record]:
    """One packet is captured later, among those that are near."""
    at = draw(st.integers(0, len(records) - 1))
    to = min(len(records) - 1, at + draw(st.integers(1, 6)))
    late = records.pop(at)
    records.insert(to, late._replace(ts_ns=records[to - 1].ts_ns + 1))
    return records


def _doubled(records: list[Record], draw: Callable[..., Any]) -> list[Record]:
    """One packet is there again: a copy by the tap, or sent again later with another IP id."""
    at = draw(st.integers(0, len(records) - 1))
    to = min(len(records), at + draw(st.integers(1, 8)))
    again = records[at]._replace(ts_ns=records[to - 1].ts_ns + draw(st.sampled_from([1, STEP_NS])))
    if draw(st.booleans()):
        again = again._replace(data=again.data[:18] + b"\x77\x77" + again.data[20:])
    records.insert(to, again)
    return records


def _lost(records: list[Record], draw: Callable[..., Any]) -> list[Record]:
    at = draw(st.integers(0, len(records) - 1))
    del records[at : at + draw(st.integers(1, 3))]
    return records


def _contradicted(records: list[Record], draw: Callable[..., Any]) -> list[Record]:
    """A packet with payload comes again with another last byte."""
    long = [n for n, each in enumerate(records) if len(each.data) > 70]
    if not long:
        return records
    at = draw(st.sampled_from(long))
    other = records[at].data[:-1] + bytes([records[at].data[-1] ^ 1])
    records.insert(at + 1, records[at]._replace(data=other))
    return records


def _cut(records: list[Record], draw: Callable[..., Any]) -> list[Record]:
    """Some packets are kept only in part."""
    share = draw(st.integers(1, 4))
    return [
        Record(each.ts_ns, each.data[:SNAPLEN], len(each.data)) if n % share == 0 else each
        for n, each in enumerate(records)
    ]


def _clock(records: list[Record], draw: Callable[..., Any]) -> list[Record]:
    """The clock is set, back or forth."""
    at = draw(st.integers(0, len(records)))
    by = draw(st.sampled_from([-(10**12), -3 * STEP_NS, 10**9, 10**13]))
    return records[:at] + [each._replace(ts_ns=each.ts_ns + by) for each in records[at:]]


DAMAGES = (_moved, _doubled, _lost, _contradicted, _cut, _clock)


@st.composite
def damaged(draw: Any) -> list[Record]:
    """The packets of two conversations in turns, resegmented, with any damage."""
    mss = draw(st.sampled_from([90, 500, 1448, 9000]))
    one = talk(4, seed=draw(st.integers(0, 3)), mss=mss).records()
    other = talk(3, seed=5, client=("10.0.0.9", 41_000)).records()
    records = sorted(one + other, key=lambda each: each.ts_ns)
    for damage in draw(st.lists(st.sampled_from(DAMAGES), max_size=8)):
        if records:
            records = damage(list(records), draw)
    return records


def rows(paths: Sequence[str]) -> Tables:
    """The rows of a chain of files, in this order."""
    tables: Tables = {}
    for block in dissect(Chain(tuple(paths), "tap"), Options()):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


def without_files(tables: Tables) -> Tables:
    return {name: found for name, found in tables.items() if found and name != "capture_files"}


def piped(data: bytes, folder: Path) -> Tables:
    """The rows of bytes that come through a named pipe, a few at a time."""
    path = folder / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with open(path, "wb", buffering=0) as pipe:
            for at in range(0, len(data), 997):
                pipe.write(data[at : at + 997])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return rows([str(path)])
    finally:
        writer.join()


def check_ways(data: bytes, whole: Tables, folder: Path) -> None:
    """Pieces, pipe and compression give the rows that the file gives."""
    assert without_files(piped(data, folder)) == whole
    for codec, compress in made.COMPRESSORS.items():
        path = folder / f"tap.{codec}"
        path.write_bytes(compress(data))
        assert without_files(rows([str(path)])) == whole, codec


@given(records=damaged(), data=st.data())
@settings(max_examples=examples(40, 15))
def test_files_cut_at_any_packet_are_the_whole(records: list[Record], data: Any) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=6))
    edges = [0, *sorted(cuts), len(records)]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, (start, end) in enumerate(itertools.pairwise(edges)):
            paths.append(f"{folder}/tap{number}")
            Path(paths[-1]).write_bytes(capture(records[start:end]))
        Path(f"{folder}/whole").write_bytes(capture(records))
        found, whole = rows(paths), rows([f"{folder}/whole"])
        assert without_files(found) == without_files(whole)
        for name in ("packets", "packets_tcp", "clock_steps"):
            assert sum(row[name] for row in found["capture_files"]) == sum(
                row[name] for row in whole["capture_files"]
            )


@given(records=damaged(), steps=st.lists(st.integers(1, 3000), min_size=1, max_size=4))
@settings(max_examples=examples(60, 20))
def test_reads_that_end_at_any_byte_are_the_whole(records: list[Record], steps: list[int]) -> None:
    data = capture(records)
    assert rows_of(data, steps=steps) == rows_of(data)


@given(records=damaged())
@settings(max_examples=examples(15, 6))
def test_pipes_and_compression_change_nothing(records: list[Record]) -> None:
    data = capture(records)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole"
        path.write_bytes(data)
        check_ways(data, without_files(rows([str(path)])), Path(folder))


@pytest.mark.parametrize("buffer_bytes", [64, 5000])
@given(records=damaged())
@settings(max_examples=examples(15, 6))
def test_small_buffers_change_nothing(buffer_bytes: int, records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole"
        path.write_bytes(capture(records))
        whole = rows([str(path)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source_files, "READ_BUFFER_BYTES", buffer_bytes)
            assert rows([str(path)]) == whole


@each_case
def test_every_case_is_the_same_in_pieces(case: Case) -> None:
    """Also with scratches; of the captures of one kind it is one, by day."""
    data = case.make()
    seeds = (len(data), len(data) + 1) if case.file_name in SCRATCHED else ()
    for each in (data, *(scratched(data, seed) for seed in seeds)):
        if len(each) < 300_000:
            assert rows_of(each, steps=(61, 1, 4099, 7)) == rows_of(each)
