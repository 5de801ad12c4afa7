"""Secrets of every kind in every text: no output of any command holds one."""

import json
import stat
import sys
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest

from dissector.codecs.redaction import secrets
from dissector.dissection import Options
from dissector.dissection.redactor import Redactor
from dissector.evidence.redacted import RAW_BYTES
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.cli.conftest import Command
from tests.hard.tape import Tape, capture, dissected
from tests.wire.secrets import (
    TAPES,
    Garden,
    cursus_tape,
    fragments_in,
    lossy,
    pulsar_tape,
)

SAMPLES = Path(__file__).resolve().parents[3] / "captures"
MAKERS = (pulsar_tape, cursus_tape)
# {in}: the capture, which holds a connection of each maker; {out}: a folder.
COMMANDS = (
    "land {in} --lake {out}/lake --properties",
    "summary {in}",
    "summary {in} --json",
    "connections {in} -T jsonl",
    *(f"frames {{in}} {more}" for more in ("", "-V", "-T jsonl", "-T csv", "-T fields -e topic")),
    "frames {in} -T jsonl -e detail -e error_text -V",
    *(
        f"follow {{in}} --connection {number} -T {form}"
        for number in range(len(MAKERS))
        for form in ("text", "hex", "jsonl")
    ),
    "frames {in} -w {out}/part.pcapng --redact",
    "tap --replay {in} --lake {out}/tapped --record {out}/kept --redact",
)

MORE_COMMANDS = (
    *(f"follow {{in}} --connection {len(MAKERS)} -T {form}" for form in ("text", "hex", "jsonl")),
    "anonymize {in} -o {out}/kept.pcap --keep-names --keep-addresses",
    "anonymize {in} -o {out}/other.pcap",
    "evidence {in} -o {out}/bundle.zip --keep-names",
    "report --lake {out}/lake -o {out}/report",
    "findings {in} --json",
)


def leaks(garden: Garden, text: bytes) -> list[str]:
    leaks = []
    for each in garden.planted:
        secret = each.secret.encode()
        forms = (secret, secret.hex().encode(), secret.replace(b"\n", b"\\n"))
        if any(form in text for form in forms):
            leaks.append(each.text or each.secret)
    return leaks


def together(tapes: Iterable[Tape]) -> bytes:
    """A capture of several connections at the same time."""
    return capture(sorted(chain.from_iterable(tape.records() for tape in tapes)))


@pytest.mark.parametrize("seed", [101, 102] if LOOKS_AT_ALL else [101])
def test_no_output_holds_a_planted_secret(command: Command, tmp_path: Path, seed: int) -> None:
    garden = Garden(seed)
    path = tmp_path / "planted.pcap"
    path.write_bytes(together(make(garden) for make in MAKERS))
    out = tmp_path / "out"
    out.mkdir()
    for line in COMMANDS:
        words = [word.format(**{"in": path, "out": out}) for word in line.split()]
        result = command(*words)
        assert result.code == 0, (line, result.err)
        assert not leaks(garden, (result.out + result.err).encode()), line
    files = [each for each in out.rglob("*") if each.is_file()]
    assert len(files) > 20
    for each in files:
        assert not leaks(garden, each.read_bytes()), each
    for table in ("frames", "exchanges", "messages", "producers"):
        assert not leaks(garden, rows_of(out / "lake" / table)), table


# With segments missing, and with the smallest ones.
WAYS = [(201, 23, 0.2), (203, 7, 0.0), *([(202, 61, 0.3)] if LOOKS_AT_ALL else [])]


@pytest.mark.parametrize(("seed", "mss", "share"), WAYS)
def test_nothing_of_a_secret_is_shown_where_segments_cut_it_and_some_are_missing(
    command: Command,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    seed: int,
    mss: int,
    share: float,
) -> None:
    if share:  # where nothing is missing, plots show most
        request.getfixturevalue("no_plots")
    garden = Garden(seed)
    path, out = tmp_path / "lossy.pcap", tmp_path / "out"
    tapes = (lossy(make(garden, mss), garden.chance, share) for make in TAPES)
    path.write_bytes(together(tapes))
    out.mkdir()
    for line in COMMANDS + MORE_COMMANDS:
        words = [word.format(**{"in": path, "out": out}) for word in line.split()]
        result = command(*words)
        assert result.code in (0, 1), (line, result.err)
        shown = (result.out + result.err).encode()
        if "follow" in line and "jsonl" in line:
            shown += b"".join(
                bytes.fromhex(row["data"] or "") for row in map(json.loads, result.lines)
            )
        assert not fragments_in(garden, shown), line
    for each in out.rglob("*"):
        if each.is_file():
            data = each.read_bytes()
            if each.suffix == ".zip":
                with zipfile.ZipFile(each) as bundle:
                    data = b"".join(map(bundle.read, bundle.namelist()))
            assert not fragments_in(garden, data), each
            if each.suffix == ".pcapng" and data:
                told = dissected(data, redact=False, want_detail="all", properties=True)
                assert not fragments_in(garden, repr(told).encode()), each
    assert not fragments_in(garden, rows_of(out)), "lake"


def rows_of(folder: Path) -> bytes:
    """What a table's files hold once they are unpacked."""
    import pyarrow.parquet as pq

    return b"\n".join(
        repr(pq.ParquetFile(each).read().to_pylist()).encode() for each in folder.rglob("*.parquet")
    )


def test_redaction_is_counted_and_can_be_turned_off(command: Command, tmp_path: Path) -> None:
    garden = Garden(103)
    path = tmp_path / "planted.pcap"
    path.write_bytes(capture(pulsar_tape(garden).records()))
    said = command("land", path, "--lake", tmp_path / "lake")
    assert "of secrets hidden" in said.err
    import json

    total = json.loads(command("summary", path, "--json").out)["coverage"]["total"]
    assert total["redacted"]["captures"] == 1 == total["notices_by_code"]["redacted"]
    assert f"{total['redacted']['bytes']:,} bytes of secrets hidden" in said.err
    plain = command("frames", path, "-T", "jsonl", "--no-redact")
    assert leaks(garden, plain.out.encode()) and "hidden" not in plain.err
    for line in ("land {} --lake {} --no-redact", "tap --replay {} --lake {} --no-redact"):
        lake = tmp_path / line.split()[0]
        assert command(*line.format(path, lake).split()).code == 0
        assert leaks(garden, rows_of(lake / "exchanges"))


def test_files_of_packets_say_what_they_hold(command: Command, tmp_path: Path) -> None:
    garden = Garden(104)
    path = tmp_path / "planted.pcap"
    path.write_bytes(capture(pulsar_tape(garden).records()))
    raw, clean = tmp_path / "raw.pcapng", tmp_path / "clean.pcapng"
    said = command("frames", path, "-w", raw)
    assert RAW_BYTES in said.err and leaks(garden, raw.read_bytes())
    said = command("frames", path, "-w", clean, "--redact")
    assert "bytes of secrets hidden" in said.err and not leaks(garden, clean.read_bytes())
    for each in (raw, clean):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    said = command("tap", "--replay", path, "--record", tmp_path / "kept")
    assert RAW_BYTES in said.err
    kept = list((tmp_path / "kept").glob("*.pcapng"))
    assert kept and all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in kept)
    for name in ("frames", "tap"):
        assert "--redact" in command(name, "--help").out.replace("--redact/--no-redact", "")


def test_raw_bytes_never_lie_on_the_disk_where_they_shall_be_hidden(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "planted.pcap"
    path.write_bytes(capture(pulsar_tape(Garden(105)).records()))

    def stop(*_: object) -> int:
        assert not [each for each in tmp_path.iterdir() if each != path and each.stat().st_size]
        raise OSError(28, "full")

    monkeypatch.setattr(sys.modules["dissector.evidence.redacted"], "redact_capture", stop)
    assert command("frames", path, "-w", tmp_path / "x.pcapng", "--redact").code == 4
    assert [each for each in tmp_path.iterdir()] == [path]


def test_in_the_sample_captures_nothing_else_is_hidden() -> None:
    """Reviewed: texts of real brokers and clients stay as they are, by value nothing is a secret;
    tokens that commands name (Cursus, handshakes) are hidden by their name."""
    hidden: set[bytes] = set()

    class Watching(Redactor):
        def _count(self, texts: int, size: int) -> None:
            hidden.add(b"%d" % size)

    for path in sorted(SAMPLES.rglob("*.pcap*")):
        for files in chains([str(path)]).chains:
            redactor = Watching()
            for block in dissect(files, Options(redact=False, properties=True)):
                if block.table in ("frames", "exchanges", "messages", "connections"):
                    redactor.clean([block])
    assert hidden == set()
    assert secrets(b"token=abc")
