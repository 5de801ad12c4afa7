"""Odd files: every format is read, and damage costs only what it covers."""

import io
import itertools
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import dpkt
import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_OK, EXIT_PARTIAL
from dissector.dissection import Options
from dissector.errors import InputError
from dissector.lake.reader import open_lake
from dissector.schemas.quantities import duration_text
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.cli.conftest import Command
from tests.hard import source_cases as made
from tests.hard.cases import Case
from tests.hard.odd import COMMANDS, cases, check_codes, content, same, whole, without_times
from tests.hard.tape import START_NS, STEP_NS, capture, codes, commands, dissected
from tests.wire.captures import Record, enhanced_packet, interface, section

# -- B09


@pytest.mark.parametrize("each", cases("B09"), ids=lambda each: each.words)
def test_b09_every_kind_of_pcap_is_the_same(each: Case) -> None:
    tables = dissected(each.make())
    assert same(tables, whole())
    (file,) = tables["capture_files"]
    codec = each.words if each.words in made.COMPRESSORS else None
    assert (file["format"], file["compressed"]) == ("pcap", codec)
    assert file["link_types"] == ["ETHERNET"]


def test_b09_nanoseconds_are_kept() -> None:
    (first, *_) = made.records()
    odd = first._replace(ts_ns=START_NS + 123_456_789)
    assert dissected(capture([odd]))["capture_files"][0]["first_ts_ns"] == START_NS + 123_456_789


def damaged(packed: bytes) -> bytes:
    middle = len(packed) * 2 // 3
    return (
        packed[:middle]
        + bytes(byte ^ 0x5A for byte in packed[middle : middle + 50])
        + (packed[middle + 50 :])
    )


@pytest.mark.parametrize("codec", made.COMPRESSORS)
@pytest.mark.parametrize("how", ["cut", "damaged"])
def test_b09_of_damaged_compression_the_good_part_is_read(
    command: Command, written: Callable[..., Path], codec: str, how: str
) -> None:
    chance = random.Random(5)
    many = [Record(START_NS + n, chance.randbytes(1000)) for n in range(500)]
    packed = made.COMPRESSORS[codec](capture([*made.records(), *many]))
    bad = packed[: len(packed) * 2 // 3] if how == "cut" else damaged(packed)
    tables = dissected(bad)
    assert commands(tables) == commands(whole())
    assert "damaged_compression" in codes(tables)
    assert tables["capture_files"][0]["is_truncated"]
    # What reads a file reads it for all of them.
    names = COMMANDS if LOOKS_AT_ALL or codec == "gzip" else COMMANDS[:1]
    check_codes(
        command, written(bad), EXIT_PARTIAL, "is cut or corrupt; all before was read", names
    )


@pytest.mark.parametrize("codec", made.COMPRESSORS)
def test_b09_members_one_after_the_other_are_one_stream(codec: str) -> None:
    data, compress = capture(made.records()), made.COMPRESSORS[codec]
    edges = [0, 10, 1000, 1000, len(data)]
    parts = [compress(data[start:end]) for start, end in itertools.pairwise(edges)]
    assert same(dissected(b"".join(parts)), whole())


def test_b09_a_small_file_of_much_nothing_needs_little_memory(tmp_path: Path) -> None:
    """160 MB of zeros behind a capture: read through in pieces, never held, whatever packed it."""
    bomb = capture(made.records()) + bytes(160 << 20)
    for codec, compress in made.COMPRESSORS.items():
        (tmp_path / codec).write_bytes(compress(bomb))
    del bomb
    program = (
        "import resource, sys\n"
        "from dissector.sources.rings import chains\n"
        "from dissector.sources.dissect import dissect\n"
        "from dissector.dissection import Options\n"
        "from tests.hard.tape import capture\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    (chain,) = chains([path]).chains\n"
        "    rows = sum(b.rows for b in dissect(chain, Options()) if b.table == 'frames')\n"
        "    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    paths = [tmp_path / codec for codec in made.COMPRESSORS]
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True
    )
    frames = len(whole()["frames"])
    for codec, line in zip(made.COMPRESSORS, done.stdout.splitlines(), strict=True):
        found, kilobytes = map(int, line.split())
        assert found == frames, codec
        assert kilobytes < 140_000, codec


# -- B10, B11


@pytest.mark.parametrize("each", cases("B10"), ids=lambda each: each.words)
def test_b10_each_interface_has_its_clock_and_link_type(each: Case) -> None:
    tables = dissected(each.make())
    assert without_times(tables)["frames"] == without_times(whole())["frames"]
    (file,) = tables["capture_files"]
    assert file["link_types"] == ["ETHERNET", "RAW", "LINUX_SLL"]
    assert (file["snaplen"], file["format"]) == (65_535, "pcapng")
    # The stamps have whole milliseconds, which only the binary clock cannot say exactly.
    for mine, right in zip(tables["frames"], whole()["frames"], strict=True):
        assert 0 <= mine["first_ts_ns"] - right["first_ts_ns"] < 10**9 >> 20
        assert 0 <= mine["last_ts_ns"] - right["last_ts_ns"] < 10**9 >> 20
    assert tables["notices"] == []


@pytest.mark.parametrize(
    "each", cases("B11", "sections_of_both_orders", "blocks_of_all_kinds"), ids=lambda c: c.words
)
def test_b11_blocks_and_sections_change_nothing(each: Case) -> None:
    assert same(dissected(each.make()), whole())


def test_b11_statistics_without_drops_say_none(written: Callable[..., Path]) -> None:
    tables = dissected(content("B11", "blocks_of_all_kinds"))
    assert tables["capture_files"][0]["dropped_by_interface"] == 0
    assert whole()["capture_files"][0]["dropped_by_interface"] is None


def test_b11_secrets_are_never_copied_and_comments_are_kept(
    command: Command, written: Callable[..., Path], tmp_path: Path
) -> None:
    path = written(content("B11", "blocks_of_all_kinds"), "night.pcapng")
    assert made.SECRET in path.read_bytes()
    part = tmp_path / "part.pcapng"
    shown = [command(name, path) for name in ("frames", "connections")]
    shown += [command("frames", path, "-V"), command("summary", path, "--json")]
    shown += [command("land", path, "--lake", tmp_path / "lake")]
    assert command("frames", path, "-Y", 'command == "SEND"', "-w", part).code == EXIT_OK
    written_files = [part, *(each for each in (tmp_path / "lake").rglob("*") if each.is_file())]
    outputs = [each.read_bytes() for each in written_files]
    outputs += [(ended.out + ended.err).encode() for ended in shown]
    assert all(ended.code == EXIT_OK for ended in shown)
    for output in outputs:
        assert made.SECRET not in output and made.SECRET[-20:] not in output
    packets = len(list(dpkt.pcapng.Reader(io.BytesIO(part.read_bytes()))))
    assert packets >= made.SENDS
    assert part.read_bytes().count(made.COMMENT.encode()) == packets
    assert b"tap0" in part.read_bytes() and b"of the mirror" in part.read_bytes()


def test_b11_packets_without_time_have_none(command: Command, written: Callable[..., Path]) -> None:
    data = content("B11", "packets_without_time")
    tables = dissected(data)
    assert commands(tables) == commands(whole())
    assert {row["last_ts_ns"] for row in tables["frames"]} == {None}
    assert {row["latency_ns"] for row in tables["exchanges"]} == {None}
    assert tables["connections"][0]["first_ts_ns"] is None
    assert tables["capture_files"][0]["first_ts_ns"] is None
    assert without_times(tables)["frames"] == without_times(whole())["frames"]
    (notice,) = tables["notices"]
    assert (notice["code"], notice["packet"], notice["ts"]) == (
        "packets_without_timestamp",
        1,
        None,
    )
    check_codes(command, written(data), EXIT_OK)


# -- B12


@pytest.mark.parametrize("words", ["cut_tail", "cut_tail_of_blocks"])
def test_b12_a_cut_tail_costs_one_packet(
    command: Command, written: Callable[..., Path], words: str
) -> None:
    data = content("B12", words)
    tables = dissected(data)
    assert commands(tables) == commands(whole())
    assert codes(tables) == ["truncated_tail"]
    (file,) = tables["capture_files"]
    assert file["packets"] == len(made.records()) - 1 and file["is_truncated"]
    said = "night.pcap ends inside a record at byte"
    names = COMMANDS if LOOKS_AT_ALL or words == "cut_tail" else COMMANDS[:1]
    check_codes(command, written(data), EXIT_PARTIAL, said, names)


def test_b12_more_captured_than_was_on_the_wire_is_said_once() -> None:
    tables = dissected(content("B12", "captured_longer_than_the_wire"))
    assert commands(tables) == commands(whole())
    (notice,) = tables["notices"]
    assert (notice["code"], notice["packet"]) == ("captured_longer", 1)
    assert str(len(made.records())) in notice["text"]


def test_b12_packets_beyond_the_snap_length_are_read() -> None:
    tables = dissected(content("B12", "captured_beyond_the_snap_length"))
    assert same(tables, whole())
    assert tables["capture_files"][0]["snaplen"] == 60


def test_b12_packets_of_no_bytes_are_counted() -> None:
    tables = dissected(content("B12", "nothing_captured"))
    assert commands(tables) == commands(whole())
    (file,) = tables["capture_files"]
    assert file["packets"] == len(made.records()) + 2
    assert sum(count for _, count in file["packets_ignored_by_reason"]) == 2


@pytest.mark.parametrize(
    ("words", "lost"),
    [("huge_record", 1), ("swallowing_record", 1), ("hole_of_zeros", 4), ("huge_block", 1)],
)
def test_b12_damage_in_the_middle_costs_only_what_it_covers(
    command: Command, written: Callable[..., Path], words: str, lost: int
) -> None:
    data = content("B12", words)
    tables = dissected(data)
    records = made.records()
    expected = records[: made.DAMAGED_RECORD] + records[made.DAMAGED_RECORD + lost :]
    of_streams = [n for n in tables["notices"] if n["connection_id"] is not None]
    assert same({**tables, "notices": of_streams}, dissected(capture(expected)))
    of_files = [n["code"] for n in tables["notices"] if n["connection_id"] is None]
    assert of_files == ["corrupt_record", "skipped_section"]
    assert tables["capture_files"][0]["packets"] == len(expected)
    names = COMMANDS if LOOKS_AT_ALL or words == "huge_record" else COMMANDS[:1]
    check_codes(command, written(data), EXIT_PARTIAL, "is damaged from byte", names)


# -- B13


@pytest.mark.parametrize(
    ("words", "said"),
    [("empty", "is empty"), ("text", "begins with text"), ("html", "begins with text")],
)
def test_b13_what_is_no_capture_is_an_error(
    command: Command, written: Callable[..., Path], words: str, said: str
) -> None:
    path = written(content("B13", words))
    check_codes(command, path, EXIT_INPUT, said)
    good = written(capture(made.records()), "good.pcap")
    assert command("summary", path, good).code == EXIT_PARTIAL


@pytest.mark.parametrize("words", ["header_only", "header_only_of_blocks"])
def test_b13_a_header_alone_is_a_capture_without_rows(
    command: Command, written: Callable[..., Path], words: str, tmp_path: Path
) -> None:
    path = written(content("B13", words))
    check_codes(command, path, EXIT_OK)
    with open_lake(tmp_path / "lake") as lake:
        for table in ("connections", "frames", "messages", "exchanges", "notices"):
            assert lake.table(table).num_rows == 0
        assert lake.table("capture_files").to_pylist()[0]["packets"] == 0


# -- B14


@pytest.mark.parametrize(
    ("words", "start_ns"),
    [
        ("year_2038", made.Y2038_NS - 20 * STEP_NS),
        ("year_2106", made.Y2106_NS - 20 * STEP_NS),
        ("before_1970", -1_000_000 * 10**9),
    ],
)
def test_b14_years_far_off_are_years_like_others(
    command: Command, written: Callable[..., Path], words: str, start_ns: int
) -> None:
    data = content("B14", words)
    tables = dissected(data)
    usual = whole()
    shift = start_ns - START_NS
    assert without_times(tables)["exchanges"] == without_times(usual)["exchanges"]
    for mine, right in zip(tables["frames"], usual["frames"], strict=True):
        assert mine["first_ts_ns"] - right["first_ts_ns"] == shift
        assert mine["last_ts_ns"] - right["last_ts_ns"] == shift
    latencies = [row["latency_ns"] for row in tables["exchanges"]]
    assert latencies == [row["latency_ns"] for row in usual["exchanges"]]
    assert tables["notices"] == []
    check_codes(command, written(data), EXIT_OK)


def test_b14_a_clock_set_back_is_counted_and_its_times_are_kept() -> None:
    tables = dissected(content("B14", "clock_steps_back"))
    assert commands(tables) == commands(whole())
    (step,) = [notice for notice in tables["notices"] if notice["code"] == "clock_unsteady"]
    half = len(made.records()) // 2
    assert step["packet"] == half + 1
    assert duration_text((made.STEP_BACK_NS - STEP_NS) / 1_000_000) in step["text"]
    (file,) = tables["capture_files"]
    assert file["clock_steps"] == 1
    assert file["first_ts_ns"] == made.records()[half].ts_ns - made.STEP_BACK_NS
    # Nothing was lost, so nothing is given up however time goes.
    (connection,) = tables["connections"]
    assert connection["gaps_to_broker"] == connection["gaps_to_client"] == 0
    assert connection["stream_bytes_to_broker"] == connection["decoded_bytes_to_broker"]


def test_b14_packets_out_of_time_order_are_not_sorted() -> None:
    tables = dissected(content("B14", "times_out_of_order"))
    assert without_times(tables)["frames"] == without_times(whole())["frames"]
    records = made.records()
    assert tables["capture_files"][0]["clock_steps"] == len(records) // 2
    stamps = {each["last_packet"]: each["last_ts_ns"] for each in tables["frames"]}
    for packet, stamp in stamps.items():
        assert stamp >= records[packet - 1].ts_ns - 2 * STEP_NS


def test_b14_a_fraction_of_a_second_and_more_is_added_and_said() -> None:
    tables = dissected(content("B14", "fractions_of_a_second_and_more"))
    assert tables["frames"] == whole()["frames"]
    (notice,) = tables["notices"]
    assert (notice["code"], notice["packet"]) == ("long_fraction", 1)


def test_b14_times_that_cannot_be_are_not_used() -> None:
    tables = dissected(content("B14", "times_beyond_all_years"))
    assert commands(tables) == commands(whole())
    (notice,) = [each for each in tables["notices"] if each["code"] == "unusable_time"]
    assert notice["packet"] == 5 and notice["text"].startswith("3 packets")


def test_b13_nothing_readable_raises_for_a_driver() -> None:
    with pytest.raises(InputError, match="is empty"):
        dissected_alone(b"")


def dissected_alone(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "night.pcap"
        path.write_bytes(data)
        list(dissect(Chain((str(path),), "night"), Options()))


def test_b12_an_enhanced_packet_of_no_bytes_is_a_packet() -> None:
    data = section() + interface() + enhanced_packet(1, b"", wire_bytes=60)
    assert dissected(data)["capture_files"][0]["packets"] == 1
