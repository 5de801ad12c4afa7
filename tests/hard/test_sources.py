"""Odd files: every format is read, and damage costs only what it covers."""

import gzip
import io
import itertools
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import dpkt
import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_OK, EXIT_OUTPUT, EXIT_PARTIAL
from dissector.cli.main import run
from dissector.dissection import Options
from dissector.errors import InputError
from dissector.lake.land import land_chain
from dissector.lake.reader import open_lake
from dissector.sources.files import Buffer, ChainReader
from dissector.sources.rings import chains
from tests.hard import source_cases as made
from tests.hard.cases import Case, all_cases
from tests.hard.tape import START_NS, STEP_NS, Tables, capture, codes, commands, dissected
from tests.wire.captures import Record, enhanced_packet, interface, pcap_header, section

COMMANDS = ("land", "summary", "frames", "connections")


def cases(id: str, *words: str) -> list[Case]:
    """The captures of a case, of this page's module: all, or those with these words."""
    return [
        each
        for each in all_cases()
        if each.id == id
        and each.words in vars(made).keys() | NAMED
        and (not words or each.words in words)
    ]


NAMED = (
    {f"{magic}_{side}" for magic in made.MAGICS.values() for side in made.ORDERS.values()}
    | set(made.COMPRESSORS)
    | {f"ring_{number}" for number in range(made.RING_FILES)}
)


def content(id: str, words: str) -> bytes:
    (found,) = cases(id, words)
    return found.make()


def whole() -> Tables:
    """What comes of the undamaged conversation."""
    return dissected(capture(made.records()))


def same(found: Tables, other: Tables) -> bool:
    """Whether all rows are equal but those about files and about the capture as a whole."""
    return {name: found[name] for name in found if name != "capture_files"} == {
        name: other[name] for name in other if name != "capture_files"
    }


def without_times(tables: Tables) -> Tables:
    """The rows without what is a time or a duration."""
    return {
        name: [
            {key: value for key, value in row.items() if key != "ts" and "_ns" not in key}
            for row in rows
        ]
        for name, rows in tables.items()
    }


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run_here(*arguments: object) -> Ended:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return Ended(code, found.out, found.err)

    return run_here


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Puts bytes into a file."""

    def write(data: bytes, name: str = "night.pcap") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def check_codes(
    command: Command, path: Path, code: int, words: str = "", but: tuple[str, ...] = ()
) -> None:
    """Every command that reads captures ends with this code and says these words."""
    lake = path.parent / "lake"
    for name in COMMANDS:
        ended = command(name, path, *(["--lake", lake] if name == "land" else []))
        assert ended.code == code, (name, ended)
        assert "Traceback" not in ended.err
        assert words in ended.err
    assert len(list(lake.glob("_manifest/*.json"))) == (code != EXIT_INPUT)


# -- B09


@pytest.mark.parametrize("each", cases("B09"), ids=lambda each: each.words)
def test_b09_every_kind_of_pcap_is_the_same(each: Case) -> None:
    found = dissected(each.make())
    assert same(found, whole())
    (file,) = found["capture_files"]
    codec = each.words if each.words in made.COMPRESSORS else None
    assert (file["format"], file["compressed"]) == ("pcap", codec)
    assert file["link_types"] == ["ETHERNET"]


def test_b09_nanoseconds_are_kept() -> None:
    (first, *_) = made.records()
    odd = first._replace(ts_ns=START_NS + 123_456_789)
    assert dissected(capture([odd]))["capture_files"][0]["first_ts_ns"] == START_NS + 123_456_789


def damaged(packed: bytes) -> bytes:
    middle = len(packed) * 2 // 3
    return packed[:middle] + bytes(byte ^ 0x5A for byte in packed[middle : middle + 50]) + (
        packed[middle + 50 :]
    )


@pytest.mark.parametrize("codec", made.COMPRESSORS)
@pytest.mark.parametrize("how", ["cut", "damaged"])
def test_b09_of_damaged_compression_the_good_part_is_read(
    command: Command, written: Callable[..., Path], codec: str, how: str
) -> None:
    chance = random.Random(5)
    many = [Record(START_NS + n, chance.randbytes(1000)) for n in range(1500)]
    packed = made.COMPRESSORS[codec](capture([*made.records(), *many]))
    bad = packed[: len(packed) * 2 // 3] if how == "cut" else damaged(packed)
    tables = dissected(bad)
    assert commands(tables) == commands(whole())
    assert "damaged_compression" in codes(tables)
    assert tables["capture_files"][0]["is_truncated"]
    check_codes(command, written(bad), EXIT_PARTIAL, "is cut or corrupt; all before was read")


@pytest.mark.parametrize("codec", made.COMPRESSORS)
def test_b09_members_one_after_the_other_are_one_stream(codec: str) -> None:
    data, compress = capture(made.records()), made.COMPRESSORS[codec]
    edges = [0, 10, 1000, 1000, len(data)]
    parts = [compress(data[start:end]) for start, end in itertools.pairwise(edges)]
    assert same(dissected(b"".join(parts)), whole())


@pytest.mark.parametrize("codec", made.COMPRESSORS)
def test_b09_a_small_file_of_much_nothing_needs_little_memory(codec: str, tmp_path: Path) -> None:
    """400 MB of zeros behind a capture: read through in pieces, never held."""
    path = tmp_path / "bomb"
    bomb = capture(made.records()) + bytes(400 << 20)
    path.write_bytes(made.COMPRESSORS[codec](bomb))
    del bomb
    program = (
        "import resource, sys\n"
        "from dissector.sources.rings import chains\n"
        "from dissector.sources.dissect import dissect\n"
        "from dissector.dissection import Options\n"
        "from tests.hard.tape import capture\n"
        "(chain,) = chains([sys.argv[1]]).chains\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "rows = sum(b.rows for b in dissect(chain, Options()) if b.table == 'frames')\n"
        "print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        ["python", "-c", program, path], capture_output=True, text=True, check=True
    )
    frames, kilobytes = map(int, done.stdout.split())
    assert frames == len(whole()["frames"])
    assert kilobytes < 350_000


# -- B10, B11


@pytest.mark.parametrize("each", cases("B10"), ids=lambda each: each.words)
def test_b10_each_interface_has_its_clock_and_link_type(each: Case) -> None:
    found = dissected(each.make())
    assert without_times(found)["frames"] == without_times(whole())["frames"]
    (file,) = found["capture_files"]
    assert file["link_types"] == ["ETHERNET", "RAW", "LINUX_SLL"]
    assert (file["snaplen"], file["format"]) == (65_535, "pcapng")
    # The stamps have whole milliseconds, which only the binary clock cannot say exactly.
    for mine, right in zip(found["frames"], whole()["frames"], strict=True):
        assert 0 <= mine["first_ts_ns"] - right["first_ts_ns"] < 10**9 >> 20
        assert 0 <= mine["last_ts_ns"] - right["last_ts_ns"] < 10**9 >> 20
    assert found["notices"] == []


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
    check_codes(command, written(data), EXIT_PARTIAL, "night.pcap ends inside a record at byte")


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
    found = made.records()
    expected = found[: made.DAMAGED_RECORD] + found[made.DAMAGED_RECORD + lost :]
    assert same(
        {**tables, "notices": [n for n in tables["notices"] if n["connection_id"] is not None]},
        rows_with_lost(expected),
    )
    assert codes(tables)[:2] == ["corrupt_record", "skipped_section"] or {
        "corrupt_record",
        "skipped_section",
    } <= set(codes(tables))
    assert tables["capture_files"][0]["packets"] == len(expected)
    check_codes(command, written(data), EXIT_PARTIAL, "is damaged from byte")


def rows_with_lost(records: list[Record]) -> Tables:
    """What comes of a good file with these packets."""
    return dissected(capture(records))


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
    (step,) = [notice for notice in tables["notices"] if notice["code"] == "clock_step"]
    half = len(made.records()) // 2
    assert step["packet"] == half + 1
    assert str(made.STEP_BACK_NS - STEP_NS) in step["text"]
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
    found = made.records()
    assert tables["capture_files"][0]["clock_steps"] == len(found) // 2
    stamps = {each["last_packet"]: each["last_ts_ns"] for each in tables["frames"]}
    for packet, stamp in stamps.items():
        assert stamp >= found[packet - 1].ts_ns - 2 * STEP_NS


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


# -- B54


def ring(folder: Path, names: list[str], contents: list[bytes]) -> list[str]:
    paths = [folder / name for name in names]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    return [str(path) for path in paths]


def pieces() -> list[bytes]:
    return [content("B54", f"ring_{number}") for number in range(made.RING_FILES)]


RING_NAMES = ["tap.pcap1", "tap.pcap2", "tap.pcap0"]  # the ring went round: 1 is the oldest


def tables_of(paths: list[str]) -> list[Tables]:
    """The rows of each capture that the files make up."""
    from dissector.schemas.rows import arrow_batch
    from dissector.sources.dissect import dissect

    found = []
    for chain in chains(paths).chains:
        tables: Tables = {}
        for part in dissect(chain, Options()):
            tables.setdefault(part.table, []).extend(arrow_batch(part).to_pylist())
        found.append(tables)
    return found


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_b54_ring_files_in_any_order_are_the_whole(tmp_path: Path, order: list[int]) -> None:
    paths = ring(tmp_path, RING_NAMES, pieces())
    (found,) = tables_of([paths[number] for number in order])
    assert same(found, whole())
    assert [row["file_name"] for row in found["capture_files"]] == RING_NAMES


@pytest.mark.parametrize("name", ["copy.pcap", "tap.pcap1.gz", "tap (1).pcap1", "tap.pcap7"])
def test_b54_a_file_that_is_there_twice_counts_once(tmp_path: Path, name: str) -> None:
    paths = ring(tmp_path, RING_NAMES, pieces())
    data = pieces()[0]
    twice = gzip.compress(data) if name.endswith(".gz") else data
    paths += ring(tmp_path, [name], [twice])
    for mode_paths in (paths, paths[::-1]):
        (found,) = tables_of(mode_paths)
        assert same(found, whole())
    assert "read once" in chains(paths).repeated[0]


def test_b54_a_copy_made_while_the_file_grew_counts_once(tmp_path: Path) -> None:
    data = capture(made.records())
    for size in (len(data) // 2, 24 + 16 + len(made.records()[0].data) + 40):
        paths = ring(tmp_path, ["early.pcap", "night.pcap"], [data[:size], data])
        for order in (paths, paths[::-1]):
            (found,) = tables_of(order)
            assert same(found, whole())


def test_b54_a_file_still_being_written_is_landed_again_when_it_has_grown(tmp_path: Path) -> None:
    data, path, lake = capture(made.records()), tmp_path / "night.pcap", tmp_path / "lake"
    found = []
    for size in (len(data) // 3, len(data) // 2, len(data)):
        path.write_bytes(data[:size])
        (chain,) = chains([str(path)]).chains
        account, landed = land_chain(chain, lake, Options())
        found.append(landed.capture_id)
        assert account.is_partial == (size < len(data))
        with open_lake(lake) as opened:
            assert [each.capture_id for each in opened.captures] == [landed.capture_id]
    assert len(set(found)) == 3


def test_b54_damage_in_the_middle_file_leaves_the_others_whole(
    tmp_path: Path, command: Command
) -> None:
    parts = pieces()
    parts[1] = parts[1][:24] + bytes(len(parts[1]) - 24)
    paths = ring(tmp_path, RING_NAMES, parts)
    (found,) = tables_of(paths)
    records = made.records()
    edges = [len(records) * n // 3 for n in range(4)]
    (expected,) = tables_of(
        ring(tmp_path, ["tap.cap0"], [capture(records[: edges[1]] + records[edges[2] :])])
    )
    assert [row["command"] for row in found["frames"]] == commands(expected)
    assert "corrupt_record" in codes(found)
    assert command("summary", *paths).code == EXIT_PARTIAL


def test_b54_files_of_a_chain_may_be_compressed_each_in_its_way(tmp_path: Path) -> None:
    packed = [compress(data) for compress, data in zip(
        (made.COMPRESSORS["gzip"], made.COMPRESSORS["zstd"], bytes), pieces(), strict=True
    )]  # fmt: skip
    names = ["tap.pcap1.gz", "tap.pcap2.zst", "tap.pcap3"]
    (found,) = tables_of(ring(tmp_path, names, packed))
    assert same(found, whole())
    assert [row["compressed"] for row in found["capture_files"]] == ["gzip", "zstd", None]


@pytest.mark.parametrize("arguments", [["summary", "--json"], ["land", "--lake", "LAKE"]])
def test_b54_numbers_of_a_doubled_file_are_those_of_one(
    tmp_path: Path, command: Command, arguments: list[str]
) -> None:
    (tmp_path / "other").mkdir()
    data = capture(made.records())
    paths = ring(tmp_path, ["night.pcap", "other/night.pcap", "third.pcap"], [data] * 3)
    given = [tmp_path / "lake" if each == "LAKE" else each for each in arguments]
    ended = command(*given, *paths)
    alone = command(*given, paths[0])
    assert ended.code == EXIT_OK and ended.out == alone.out
    assert ended.err.count("read once") == 2


# -- B61


def test_b61_drops_of_the_interface_are_told(
    command: Command, written: Callable[..., Path]
) -> None:
    data = content("B61", "interface_drops")
    tables = dissected(data)
    assert tables["capture_files"][0]["dropped_by_interface"] == made.DROPPED
    (notice,) = [each for each in tables["notices"] if each["code"] == "interface_drops"]
    assert str(made.DROPPED) in notice["text"]
    (connection,) = tables["connections"]
    assert connection["gaps_to_broker"] == 1
    path = written(data)
    report = json.loads(command("summary", path, "--json").out)
    assert report["coverage"]["total"]["dropped_by_interface"] == made.DROPPED
    assert str(made.DROPPED) in command("summary", path).out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.root
def test_b61_a_full_disk_leaves_whole_captures_or_none(
    command: Command, written: Callable[..., Path], small_disk: Path
) -> None:
    lake = small_disk / "lake"
    ended = command("land", written(capture(made.records())), "--lake", lake)
    assert ended.code == EXIT_OUTPUT and "No space left" in ended.err
    assert not list(lake.glob("_manifest/*")) and not list(lake.glob("_tmp/*"))


def test_b61_a_slow_consumer_holds_the_reader_back(tmp_path: Path) -> None:
    """While nobody takes buffers, only the two that there are get filled."""
    path = tmp_path / "large.pcap"
    chance = random.Random(1).randbytes(1 << 16)
    path.write_bytes(capture(Record(START_NS + n, chance) for n in range(500)))
    with ChainReader([str(path)]) as source:
        events = iter(source)
        next(events)
        buffer = next(events)
        assert isinstance(buffer, Buffer)
        for thread in threading.enumerate():
            if thread.name == "reading":
                thread.join(0.3)
        held = source.stored_bytes
        assert buffer.end - buffer.start <= held <= 2 * (buffer.end - buffer.start)
        assert held < os.path.getsize(path) / 2


def test_b61_a_reader_that_goes_ends_the_command_quietly(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    many = b"".join(made.records()[0].data for _ in range(2))
    path = written(capture([*made.records()] + [Record(START_NS, many)] * 3))
    program = f"python -m dissector frames {path} -T jsonl | head -c 10"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.stderr == "" or "Traceback" not in done.stderr


# -- B62


def test_b62_a_capture_filter_that_let_nothing_pass_is_told(
    command: Command, written: Callable[..., Path]
) -> None:
    data = content("B62", "filter_without_packets")
    tables = dissected(data)
    assert codes(tables) == ["filter_matched_nothing"]
    assert "tagged" in tables["notices"][0]["text"]
    check_codes(command, written(data), EXIT_OK)
    assert "filter_matched_nothing" in command("summary", written(data), "--json").out


def test_b62_tagged_packets_are_read_without_any_filter() -> None:
    tables = dissected(content("B62", "filter_with_tags"))
    assert commands(tables) == commands(whole())
    assert tables["connections"][0]["vlan_ids"] == [7]
    assert tables["notices"] == []
    # An empty file without a filter is only empty.
    assert codes(dissected(section() + interface())) == []
    assert "frames" not in dissected(pcap_header())


def test_b13_nothing_readable_raises_for_a_driver() -> None:
    with pytest.raises(InputError, match="is empty"):
        dissected_alone(b"")


def dissected_alone(data: bytes) -> Tables:
    from tempfile import TemporaryDirectory

    from dissector.sources.dissect import dissect
    from dissector.sources.rings import Chain

    with TemporaryDirectory() as folder:
        path = Path(folder) / "night.pcap"
        path.write_bytes(data)
        list(dissect(Chain((str(path),), "night"), Options()))
    return {}


def test_b12_an_enhanced_packet_of_no_bytes_is_a_packet() -> None:
    data = section() + interface() + enhanced_packet(1, b"", wire_bytes=60)
    assert dissected(data)["capture_files"][0]["packets"] == 1
