"""frames, connections, fields: what they print, against what an independent decoder counted."""

import csv
import gzip
import io
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.cli import reading
from dissector.cli.exits import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE
from dissector.cli.show import column_kinds, make_listing
from dissector.errors import UsageError
from dissector.schemas import OF_REPORTS, TABLES
from tests.dissector.cli.conftest import SAMPLES, Command, truth


@pytest.fixture
def cut(nacks: Path, tmp_path: Path) -> Path:
    """The sample without its last bytes."""
    path = tmp_path / "cut.pcap"
    path.write_bytes(nacks.read_bytes()[:-5])
    return path


def test_frames_are_those_of_the_manifest(command: Command, nacks: Path) -> None:
    result = command("frames", nacks, "-T", "fields", "-e", "direction,command", "-e", "status")
    assert result.code == EXIT_OK
    rows = [line.split("\t") for line in result.lines]
    counted = Counter(f"{direction} {name}" for direction, name, _ in rows)
    assert dict(counted) == truth(nacks)["frames"]
    assert {status for _, _, status in rows} == {"complete"}


def test_every_format_has_the_same_rows(command: Command, nacks: Path) -> None:
    chosen = ("-e", "frame_no", "-e", "command", "-e", "topic", "-e", "ts")
    fields = command("frames", nacks, "-T", "fields", *chosen)
    as_csv = command("frames", nacks, "-T", "csv", *chosen)
    as_json = command("frames", nacks, "-T", "jsonl", *chosen)
    cells = [line.split("\t") for line in fields.lines]
    heading, *read = list(csv.reader(io.StringIO(as_csv.out)))
    assert heading == ["frame_no", "command", "topic", "ts"]
    assert read == cells
    objects = [json.loads(line) for line in as_json.lines]
    assert [[str(each["frame_no"]), each["command"], each["topic"] or "", each["ts"]] for each in
            objects] == cells  # fmt: skip
    text = command("frames", nacks)
    assert len(text.lines) == len(cells) + 1
    assert [line.split()[0] for line in text.lines[1:]] == [row[0] for row in cells]


def test_all_columns_are_printed_unless_some_are_named(command: Command, nacks: Path) -> None:
    result = command("frames", nacks, "-T", "csv", "-c", "1")
    heading = next(csv.reader(io.StringIO(result.out)))
    assert heading == [column.name for column in TABLES["frames"].columns[:-2]]


def test_a_selection_keeps_what_fits(command: Command, nacks: Path) -> None:
    chosen = ("-T", "fields", "-e", "command")
    result = command("frames", nacks, "-Y", 'command == "SEND" and sequence_id < 5', *chosen)
    assert result.lines == ["SEND"] * 5
    nothing = command("frames", nacks, "-Y", "frame_no < 0")
    assert nothing.code == EXIT_USAGE and "no row of frames matches" in nothing.err


@pytest.mark.parametrize(
    "asked",
    [
        ("frames", "-Y", 'topic contains "nope" and frame_no > 3'),
        ("frames", "-Y", "frame_no < 0"),
        ("frames", "-Y", 'ts < "2020-01-01"'),
        ("connections", "-Y", "vlan_ids contains 7"),
        ("frames", "--topic", "nope"),
        ("summary", "--client", "10.9.9.9"),
        ("findings", "--subscription", "nope"),
        ("sql", "select 1", "--since", "2030-01-01"),
        ("evidence", "-o", "x.zip", "-Y", 'producer_name == "nope"'),
        ("evidence", "-o", "x.zip", "--topic", "nope"),
        ("evidence", "-o", "x.zip", "--connection", "99"),
    ],
)
def test_where_nothing_matches_a_command_says_what_is_there(
    command: Command,
    nacks: Path,
    asked: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command(asked[0], nacks, *asked[1:])
    assert result.code == EXIT_USAGE and result.out == ""
    (hint,) = re.findall("; what is there: dissector sql INPUT '(.*)'\n", result.err)
    shown = command("sql", nacks, hint)
    assert shown.code == 0 and len(shown.lines) > 2


@pytest.mark.parametrize(
    "options", [[], ["-T", "csv"], ["-T", "jsonl"], ["-T", "fields", "-e", "protocol"]]
)
@pytest.mark.parametrize("table", ["frames", "connections"])
def test_a_selection_without_a_hit_prints_nothing(
    command: Command, nacks: Path, table: str, options: list[str]
) -> None:
    result = command(table, nacks, "-Y", "connection_id == 99", *options)
    assert (result.code, result.out) == (EXIT_USAGE, "")
    assert f"no row of {table} matches the selection" in result.err
    assert command(table, nacks, "-Y", "connection_id == 0", *options).out


def test_a_folder_that_is_no_capture_is_explained(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    assert command("land", nacks, "--lake", lake).code == 0
    for name in ("summary", "frames", "connections"):
        result = command(name, lake)
        assert (result.code, result.out) == (EXIT_INPUT, "")
        assert "this is a lake, not a capture" in result.err, name
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("no capture")
    assert "its only file is no capture" in command("summary", tmp_path / "texts").err
    # One of several inputs: the others are read, and the folder is named.
    result = command("summary", nacks, lake)
    assert result.code == EXIT_PARTIAL and "this is a lake" in result.err
    assert command("summary", nacks, nacks.parent / nacks.name).code == 0


def test_a_count_ends_early_and_says_so(command: Command, nacks: Path) -> None:
    result = command("frames", nacks, "-c", "3")
    assert result.code == EXIT_OK and len(result.lines) == 4
    assert "stopped after 3 rows" in result.err


def test_long_shows_every_decoded_field(command: Command, nacks: Path) -> None:
    result = command("frames", nacks, "-V", "-c", "1", "-Y", 'command == "SEND"')
    assert "      command = SEND" in result.lines
    assert any(line.startswith("      detail") for line in result.lines)


def test_words_go_to_stderr_and_say_what_was_read_kept_and_lost(
    command: Command, nacks: Path
) -> None:
    result = command("frames", nacks)
    frames = sum(truth(nacks)["frames"].values())
    packets = truth(nacks)["packets"]
    assert result.err.splitlines()[-1].startswith(
        f"dissector: read {packets} packets in 1 file: 1 connection, {frames} frames"
    )
    assert command("frames", nacks, "-q").err == ""


def test_standard_input_and_compression_make_no_difference(
    command: Command, process: Command, nacks: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "wrong.name"
    packed.write_bytes(gzip.compress(nacks.read_bytes()))
    outputs = {
        command("frames", "-T", "jsonl", nacks).out,
        command("frames", "-T", "jsonl", packed).out,
        process("frames", "-T", "jsonl", "-", stdin=nacks.read_bytes()).out,
    }
    assert len(outputs) == 1 and outputs != {""}


def test_a_cut_tail_is_partial_and_named(command: Command, cut: Path) -> None:
    result = command("frames", cut, "-T", "fields", "-e", "frame_no")
    assert result.code == EXIT_PARTIAL and result.lines
    assert "cut" in result.err and "1 part of the input not read" in result.err
    assert "part of the input not read" in command("frames", cut, "-q").err


def test_strictly_a_cut_tail_prints_nothing(command: Command, cut: Path, nacks: Path) -> None:
    result = command("frames", cut, "--strict")
    assert (result.code, result.out) == (EXIT_INPUT, "")
    assert "--strict" in result.err
    assert command("frames", nacks, "--strict").out == command("frames", nacks).out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.pcap", b"", "empty"),
        ("text.pcap", b"GET / HTTP/1.1\r\n\r\n" * 10, "not a capture"),
        ("missing.pcap", None, "no such file"),
    ],
    ids=["empty", "text", "missing"],
)
def test_input_that_is_no_capture_is_one_line(
    command: Command, tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for arguments in (["frames", path], ["connections", path], ["summary", path],
                      ["land", path, "--lake", tmp_path / "lake"],
                      ["follow", path, "--connection", "0"]):  # fmt: skip
        result = command(*arguments)
        assert (result.code, result.out) == (EXIT_INPUT, "")
        assert result.err.count("\n") == 1 and words in result.err and name in result.err


def test_one_unreadable_input_of_several_is_partial(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    result = command("frames", nacks, tmp_path / "missing.pcap", "-T", "fields", "-e", "frame_no")
    assert result.code == EXIT_PARTIAL
    assert len(result.lines) == sum(truth(nacks)["frames"].values())
    assert "missing.pcap" in result.err


def test_a_header_without_packets_counts_as_read(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    path = tmp_path / "header.pcap"
    path.write_bytes(nacks.read_bytes()[:24])
    result = command("frames", path, "-T", "fields", "-e", "frame_no")
    assert (result.code, result.out) == (EXIT_OK, "")


def test_rows_of_several_captures_are_told_apart(command: Command, nacks: Path) -> None:
    other = SAMPLES / "java-j61_txn_abort.pcap"
    as_json = command("frames", nacks, other, "-T", "jsonl", "-e", "frame_no")
    names = Counter(json.loads(line)["capture"] for line in as_json.lines)
    assert names == {
        "java-j12_nack-pcap": sum(truth(nacks)["frames"].values()),
        "java-j61_txn_abort-pcap": sum(truth(other)["frames"].values()),
    }
    text = command("frames", nacks, other)
    assert [line for line in text.lines if line.startswith("# ")] == [
        "# java-j12_nack-pcap",
        "# java-j61_txn_abort-pcap",
    ]


def test_connections_have_a_line_each(command: Command, nacks: Path) -> None:
    result = command("connections", nacks)
    heading, *rows = result.lines
    cells = rows[0].split()
    assert heading.startswith("#conn ") and len(cells) > len(heading.split())
    assert cells[5] == "pulsar" and cells[4].endswith(":6650")
    frames = [sum(count for name, count in truth(nacks)["frames"].items() if name.startswith(way))
              for way in ("to_broker", "to_client")]  # fmt: skip
    assert f"{frames[0]}/{frames[1]}" in cells


def test_fields_names_every_table_and_column(command: Command) -> None:
    result = command("fields")
    words = set(result.out.replace(":", " ").split())
    tables = (TABLES | OF_REPORTS).values()
    for table in tables:
        assert table.name in words
        assert {column.name for column in table.columns} <= words
    objects = [json.loads(line) for line in command("fields", "--json").lines]
    assert len(objects) == sum(len(table.columns) for table in tables)
    assert not [each for each in objects if "wire" in each], "what the program makes rows from"
    assert [line for line in command("fields", "permits").lines if not line.startswith(" ")] == [
        "permits: " + TABLES["permits"].row
    ]


def test_listings_are_checked_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="did you mean topic"):
        make_listing("frames", "text", ["topc"], None, None)
    with pytest.raises(UsageError, match="at least one -e"):
        make_listing("frames", "fields", [], None, None)
    with pytest.raises(UsageError, match="is text"):
        make_listing("frames", "text", [], "topic == 5", None)
    assert make_listing(
        "frames", "text", ["a,b".replace("a,b", "topic, command")], None, 5
    ).columns == (
        "topic",
        "command",
    )


def test_every_type_of_column_can_be_selected_by() -> None:
    kinds = {kind for table in TABLES for kind in column_kinds(table).values()}
    assert kinds == {"number", "flag", "text", "time", "list"}


def test_colour_is_asked_for(command: Command, nacks: Path) -> None:
    assert "\x1b[" not in command("frames", nacks).out
    coloured = command("frames", nacks, "--color", "always").out
    assert "\x1b[1mSEND\x1b[0m" in coloured


class Live:
    """A command that reads what is written to it, and its lines as they come."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dissector", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.decode())

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._thread.join()
        self.process.communicate()


def packets_of(path: Path) -> list[bytes]:
    """The file's header, then each of its packets with its own."""
    data = path.read_bytes()
    found, position = [data[:24]], 24
    while position < len(data):
        end = position + 16 + int.from_bytes(data[position + 8 : position + 12], "little")
        found.append(data[position:end])
        position = end
    return found


@pytest.mark.parametrize(
    ("sample", "is_packed", "options"),
    [
        ("pulsar-apache/java-j12_nack.pcap", False, ("-l",)),
        ("pulsar-apache/java-j12_nack.pcap", True, ()),
        ("cursus/raw-commands_all.pcap", False, ()),
    ],
)
def test_a_frame_from_a_pipe_is_printed_before_the_next_packet_comes(
    command: Command, sample: str, is_packed: bool, options: tuple[str, ...]
) -> None:
    path = SAMPLES.parent / sample
    listed = ("-T", "fields", "-e", "last_packet,frame_no,command,topic", *options)
    whole = command("frames", path, *listed).lines
    # A frame whose bytes came before those in front of it waits for these.
    places = [int(line.split("\t")[0]) for line in whole]
    due = Counter(max(places[: number + 1]) for number in range(len(places)))
    packer = zlib.compressobj(wbits=31)
    came, waits = [], []
    with Live("frames", "-", "-q", *listed) as live:
        for number, packet in enumerate(packets_of(path)):
            data = packet
            if is_packed:
                data = packer.compress(packet) + packer.flush(zlib.Z_SYNC_FLUSH)
            live.write(data)
            written = time.monotonic()
            for _ in range(due[number]):
                came.append(live.lines.get(timeout=120).rstrip("\n"))
                waits.append(time.monotonic() - written)
    assert came == whole
    # The first one waits for the program to start; a busy machine delays a few.
    assert sorted(waits)[len(waits) // 2] < 1


def test_whoever_stops_reading_ends_a_command_that_waits_for_packets(nacks: Path) -> None:
    header, *packets = packets_of(nacks)
    with subprocess.Popen(
        [sys.executable, "-m", "dissector", "frames", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdout.close()
        process.stdin.write(header + b"".join(packets[:6]))
        assert process.stderr is not None
        said = process.stderr.read()  # until it ends; its input is still open
        assert process.wait(timeout=60) == -signal.SIGPIPE and said == b""


def test_an_interrupt_writes_no_packets_of_a_part(
    command: Command, nacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = reading.Reading.blocks

    def interrupted(self: reading.Reading, *given: object, **core: object) -> Iterator[object]:
        for chain, block in whole(self, *given, **core):
            yield chain, block
            if block.table == "frames":
                raise KeyboardInterrupt

    monkeypatch.setattr(reading.Reading, "blocks", interrupted)
    done = command("frames", nacks, "-w", tmp_path / "part.pcapng")
    assert done.code == EXIT_INTERRUPTED and len(done.lines) > 1
    assert "dissector: interrupted; what was closed by then: read 0 packets" in done.err
    assert "internal error" not in done.err and list(tmp_path.iterdir()) == []
