"""evidence, verify, anonymize: one command, one file, and whoever gets it can check and read it.

Here are tested through the commands: dissector.cli.anonymize, bundling.
"""

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import dpkt
import pyarrow.parquet as pq
import pytest

from dissector.cli import anonymize, bundling  # noqa: F401 - see above
from dissector.cli.evidence import FINDING_NAMES
from dissector.evidence.frame_selection import FINDINGS
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.cli.conftest import SAMPLES, wait_until_read

UNLOAD = SAMPLES / "java-j24_unload.pcap"
CORRUPT = SAMPLES / "java-j74_corrupt.pcap"
CURSUS = SAMPLES.parent / "cursus" / "go-crash_redelivery_streaming.pcap"
DOCS = SAMPLES.parents[1] / "docs"
PARTS = {
    *("manifest.json", "packets.pcapng", "README.md", "redaction.txt", "numbers.json"),
    *("frames.jsonl", "frames.txt", "exchanges.parquet", "exchanges.txt"),
    *("permits.parquet", "permits.txt", "deliveries.parquet", "deliveries.txt"),
}


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dissector.cli.main import run

    path = tmp_path_factory.mktemp("evidence") / "lost.zip"
    assert run(["evidence", str(UNLOAD), "--finding", "lost_receipt", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of UNLOAD: bundles that are chosen from it need not read all of it again."""
    from dissector.cli.main import run

    path = tmp_path_factory.mktemp("evidence") / "lake"
    assert run(["land", str(UNLOAD), "--lake", str(path)]) == 0
    return path


def test_findings_are_those_of_the_help() -> None:
    assert tuple(FINDINGS) == FINDING_NAMES


@pytest.mark.usefixtures("without_numbers")
def test_a_rule_chooses_the_frames_that_show_what_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dissector.cli.main import run

    blocked, out = SAMPLES / "java-j17_blocked_unacked.pcap", tmp_path / "blocked.zip"
    lake = str(tmp_path / "lake")
    assert run(["land", str(blocked), "--lake", lake]) == 0
    asked = ["evidence", str(blocked), "--lake", lake, "-o", str(out), "--force", "--finding"]
    assert run([*asked, "D06"]) == 0
    told = json.loads(parts_of(out)["manifest.json"])
    assert len(told["roles"]["selected"]) == 4 and "--finding D06" in told["command"]
    # Nothing is found, and there is no such rule.
    for name, code in (("D15", 1), ("D99", 1)):
        assert run([*asked, name]) == code
    capsys.readouterr()
    assert run([*asked, "V10"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "it judges the numbers of a whole report" in line and "dissector anonymize" in line


def test_a_bundle_holds_what_is_needed_and_its_own_account(lost: Path) -> None:
    parts = parts_of(lost)
    assert parts.keys() == PARTS
    told = json.loads(parts["manifest.json"])
    assert told["parts"].keys() == PARTS - {"manifest.json"}
    assert len(told["roles"]["selected"]) == 5
    assert told["command"] == "dissector evidence INPUT --finding lost_receipt -o BUNDLE.zip"
    assert re.fullmatch("[0-9a-f]{64}", told["capture"]["sources"][0]["sha256"])
    rows = [json.loads(line) for line in parts["frames.jsonl"].splitlines()]
    chosen = [row for row in rows if row.get("role") == "selected"]
    assert [row["sequence_id"] for row in chosen] == [146, 147, 217, 218, 219]
    table = pq.read_table(io.BytesIO(parts["exchanges.parquet"])).to_pylist()
    numbers = {row["frame_no"] for row in chosen}
    outcomes = [row["outcome"] for row in table if row["request_frame_no"] in numbers]
    assert outcomes == ["dropped_after_close"] * 5
    page = parts["README.md"].decode()
    assert "| SEND | dropped_after_close | 5 |" in page and "5 of 5 selected frames" in page
    again = [row["sequence_id"] for row in rows if row.get("role") == "sent again"]
    assert again == [146, 147, 217, 218, 219]
    assert len(parts["packets.pcapng"]) < 180_000


def test_nothing_of_the_capture_that_names_something_is_in_a_bundle(lost: Path) -> None:
    whole = b"".join(parts_of(lost).values()) + lost.read_bytes()
    for name in (b"j24", b"standalone-0", b"Al8ih", b"public/default", b"java-j24", b"captures/"):
        assert name not in whole
    # Time to live, TCP, checksum, both addresses: elsewhere these bytes may stand by chance.
    matches = re.findall(rb"\x40\x06..(....)(....)", parts_of(lost)["packets.pcapng"], re.DOTALL)
    assert len(matches) > 10
    assert not {b"\x7f\0\0\1", bytes((10, 99, 0, 1))} & {one for pair in matches for one in pair}


def test_a_bundle_is_verified_and_read_as_a_capture(command, lost: Path) -> None:
    assert "its packets say the same" in command("verify", lost).err
    frames = command("frames", lost, "-Y", 'command == "SEND"', "-T", "jsonl")
    sent = [json.loads(line)["sequence_id"] for line in frames.lines]
    assert frames.code == 0 and {146, 147, 217, 218, 219} <= set(sent)
    assert len(sent) == 174, "all from the first to the last"
    assert command("summary", lost).code == command("connections", lost).code == 0
    query = "select string_agg(sequence_id, ' ' order by sequence_id) from lost_receipts"
    answer = command("sql", lost, query, "--format", "csv")
    assert answer.lines[-1] == "146 147 217 218 219"


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize(
    ("options", "least"),
    [
        (["--frames", "100-110"], 11),
        (["--frames", "40"], 1),
        (["--slowest", "3"], 6),
        (["--connection", "0", "-Y", 'command == "CLOSE_PRODUCER"'], 2),
        (["--topic", "j24", "--since", "2026-11-21T09:47:46.9", "-Y", 'command == "PRODUCER"'], 2),
        (["--subscription", "sub", "-Y", 'command == "SUBSCRIBE"'], 3),
        (["--finding", "error"], 2),
        (["--until", "2026-11-21T09:47:45.35"], 5),
    ],
)
def test_every_selection_selects(
    command, lake: Path, tmp_path: Path, options: list[str], least: int
) -> None:
    path = tmp_path / "b.zip"
    assert command("evidence", UNLOAD, "--lake", lake, *options, "-o", path, "-q").code == 0
    told = json.loads(parts_of(path)["manifest.json"])
    assert len(told["roles"]["selected"]) >= least
    assert "Of " not in " ".join(told["shown"])  # nothing of it needs the rest of the capture
    assert "j24" not in told["command"] and "PRODUCER" not in told["command"]
    assert command("verify", path).code == 0


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize(
    ("capture", "finding"),
    [
        (CORRUPT, "checksum_mismatch"),
        (SAMPLES / "java-j12_nack.pcap", "redelivery_loop"),
        (SAMPLES / "java-j40_slow_consumer.pcap", "stall"),
        (CURSUS, "error"),
    ],
)
def test_every_finding_is_found_or_said_not_to_be(
    command, tmp_path: Path, capture: Path, finding: str
) -> None:
    path = tmp_path / "b.zip"
    result = command("evidence", capture, "--finding", finding, "-o", path)
    if result.code == 0:
        assert command("verify", path).code == 0
        wrong = command("sql", path, "select count(*) as n from wrong_checksums", "--format", "csv")
        assert wrong.lines[-1] == ("1" if capture == CORRUPT else "0"), "damaged there and here"
    else:
        assert (result.code, "nothing was written" in result.err) == (1, True)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_numbers")
def test_a_bundle_of_a_lake_takes_packets_from_its_files(command, tmp_path: Path) -> None:
    lake, files = tmp_path / "lake", tmp_path / "files"
    files.mkdir()
    copy = files / "night.pcap"
    shutil.copy(SAMPLES / "java-j12_nack.pcap", copy)
    assert command("land", copy, "--lake", lake).code == 0
    path = tmp_path / "b.zip"
    asked = ("evidence", "--lake", lake, "--frames", "5", "-o", path)
    missing = command(*asked)
    assert missing.code == 2 and "are not at hand" in missing.err
    assert command(*asked[:1], files, *asked[1:]).code == 0
    shutil.copy(copy, tmp_path / "night.pcap")
    assert command(*asked, "--force").code == 0
    (tmp_path / "night.pcap").write_bytes(CORRUPT.read_bytes())
    assert command(*asked, "--force").code == 2
    (second,) = command("land", UNLOAD, "--lake", lake).lines
    several = command(*asked, "--force")
    assert several.code == 1 and "2 captures" in several.err and "--capture" in several.err
    asked = ("evidence", UNLOAD, *asked[1:], "--force")
    assert command(*asked, "--capture", second).code == 0
    assert command("verify", path).code == 0
    unknown = command(*asked, "--capture", "c-x")
    assert unknown.code == 1 and "no capture c-x in the lake" in unknown.err


def test_wrong_usage_is_one_line_and_nothing_is_written(command, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    for arguments, sentence in (
        ([UNLOAD], "say what is to be shown"),
        (["--slowest", "3"], "name captures"),
        ([UNLOAD, "--frames", "9-3"], "first frame"),
        ([UNLOAD, "--frames", "5000-6000"], "nothing was written"),
        ([UNLOAD, "-Y", "nonsense == 3"], "no column"),
        ([UNLOAD, "--finding", "checksum_mismatch"], "what is found: dissector findings INPUT"),
        ([UNLOAD, "--finding", "D06"], "what is found: dissector findings INPUT"),
        ([UNLOAD, CORRUPT, "--slowest", "500"], "2 captures"),
    ):
        result = command("evidence", *arguments, "-o", path)
        assert (result.code, sentence in result.err) == (1, True), result.err
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"mine")
    result = command("evidence", UNLOAD, "--frames", "5", "-o", path)
    assert result.code == 4 and "--force" in result.err and path.read_bytes() == b"mine"


def changed(path: Path, target: Path, name: str, data: bytes) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for each, content in {**parts_of(path), name: data}.items():
            archive.writestr(each, content)
    return target


def test_what_is_not_as_it_was_is_found(command, lost: Path, tmp_path: Path) -> None:
    parts = parts_of(lost)
    other = changed(lost, tmp_path / "a.zip", "frames.txt", parts["frames.txt"] + b" ")
    assert "frames.txt has another SHA-256" in command("verify", other).err
    more = changed(lost, tmp_path / "b.zip", "more.txt", b"x")
    assert "more.txt is not in the manifest" in command("verify", more).err
    packets = bytearray(parts["packets.pcapng"])
    packets[1200] ^= 1
    told = json.loads(parts["manifest.json"])
    import hashlib

    told["parts"]["packets.pcapng"]["sha256"] = hashlib.sha256(packets).hexdigest()
    forged = changed(lost, tmp_path / "c.zip", "packets.pcapng", bytes(packets))
    forged = changed(forged, tmp_path / "d.zip", "manifest.json", json.dumps(told).encode())
    assert "packets do not say what" in command("verify", forged).err
    for path in (other, more, forged, UNLOAD, tmp_path / "none.zip", tmp_path):
        result = command("verify", path)
        assert result.code == 2 and result.err.count("\n") == 1 and "Traceback" not in result.err


def test_a_copy_gives_the_same_summary_and_can_be_kept_alike(command, tmp_path: Path) -> None:
    key = tmp_path / "key"
    for name in ("a", "b"):
        done = command("anonymize", UNLOAD, "-o", tmp_path / f"{name}.pcapng", "--key-file", key)
        assert done.code == 0, done.err
    assert key.stat().st_mode & 0o777 == 0o600
    one, other = (tmp_path / f"{name}.pcapng" for name in "ab")
    assert one.read_bytes() == other.read_bytes()
    counts = "select command, count(*) as n from frames group by all order by all"
    mine, theirs = (command("sql", each, counts, "--format", "csv").out for each in (UNLOAD, one))
    assert mine == theirs
    key.chmod(0o644)
    refused = command("anonymize", UNLOAD, "-o", one, "--force", "--key-file", key)
    assert refused.code == 1 and "chmod 600" in refused.err
    key.chmod(0o600)
    key.write_text("short")
    assert command("anonymize", UNLOAD, "-o", one, "--force", "--key-file", key).code == 1


def test_anonymize_refuses_its_input_several_captures_and_no_capture(command, tmp_path) -> None:
    copy = tmp_path / "night.pcap"
    shutil.copy(UNLOAD, copy)
    assert command("anonymize", copy, "-o", copy, "--force").code == 4
    assert copy.read_bytes() == UNLOAD.read_bytes()
    out = tmp_path / "out.pcapng"
    assert command("anonymize", UNLOAD, CORRUPT, "-o", out).code == 1
    (tmp_path / "text").write_text("no capture")
    assert command("anonymize", tmp_path / "text", "-o", out).code == 2
    assert not out.exists()
    damaged = tmp_path / "cut.pcap.gz"
    damaged.write_bytes(gzip.compress(UNLOAD.read_bytes())[:-2000])
    assert command("anonymize", damaged, "-o", out).code == 3 and out.exists()


def test_a_copy_of_a_damaged_file_says_once_what_is_missing_or_is_not_written(
    command, tmp_path: Path
) -> None:
    damaged, out = tmp_path / "cut.pcap.gz", tmp_path / "out.pcapng"
    damaged.write_bytes(gzip.compress(UNLOAD.read_bytes())[:-2000])
    refused = command("anonymize", damaged, "-o", out, "--strict")
    assert refused.code == 2 and "--strict: nothing written" in refused.err and not out.exists()
    partial = command("anonymize", damaged, "-o", out)
    assert partial.code == 3 and partial.err.count("all before was read") == 1
    named_too = command("anonymize", UNLOAD, tmp_path / "none.pcap", "-o", out, "--force")
    assert named_too.code == 3 and "none.pcap: there is no such file" in named_too.err


def test_names_and_addresses_can_stay(command, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    done = command("anonymize", UNLOAD, "-o", out, "--keep-names", "--keep-addresses")
    assert done.code == 0
    data = out.read_bytes()
    assert b"persistent://public/default/j24" in data
    columns = "select client_ip, broker_ip from connections"
    mine, theirs = (command("sql", each, columns, "--format", "csv").out for each in (UNLOAD, out))
    assert mine == theirs


def test_an_interrupted_run_leaves_nothing(process, tmp_path: Path) -> None:
    import signal
    import sys

    out = tmp_path / "out.pcapng"
    running = subprocess.Popen(
        [sys.executable, "-m", "dissector", "anonymize", "-", "-o", str(out)],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdin is not None
    running.stdin.write(UNLOAD.read_bytes()[:5000])
    wait_until_read(running)
    running.send_signal(signal.SIGINT)
    running.communicate()
    assert running.returncode == 130 and list(tmp_path.iterdir()) == []


def test_the_story_of_the_docs_is_in_the_project(command) -> None:
    bundle = DOCS / "bug-reports" / "swallowed-sends.zip"
    assert command("verify", bundle).code == 0
    page = parts_of(bundle)["README.md"].decode()
    story = (DOCS / "bug-reports.md").read_text("utf-8")
    assert page.split("\n")[0] in story
    for line in page.split("\n"):
        if line.startswith("| SEND"):
            assert line in story
    assert bundle.stat().st_size < 200_000


@pytest.mark.skipif(shutil.which("tshark") is None, reason="there is no tshark")
def test_wireshark_agrees(lost: Path, tmp_path: Path) -> None:
    path = tmp_path / "packets.pcapng"
    path.write_bytes(parts_of(lost)["packets.pcapng"])
    fields = ("frame.number", "_ws.malformed", "frame.comment", "tcp.checksum.status")
    # Without a dissector of Pulsar, some other protocol would guess that the bytes are its own;
    # Apache's plugin, where it is installed, reads every packet and calls some of them malformed.
    guess_nothing = ("-d", "tcp.port==6650,data", "--disable-protocol", "apache.pulsar")
    out = subprocess.run(
        [
            *("tshark", "-r", str(path), "-T", "fields", "-o", "tcp.check_checksum:TRUE"),
                *guess_nothing,
            *(word for field in fields for word in ("-e", field)),
        ],
        capture_output=True, check=True, text=True, env={**os.environ, "LC_ALL": "C"},
    ).stdout  # fmt: skip
    rows = [line.split("\t") for line in out.splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    assert not any(row[1] for row in rows)
    assert all("of the capture" in row[2] for row in rows)
    assert {row[3] for row in rows} <= {"1", "Good"}


@pytest.mark.parametrize("seed", [1, 2] if LOOKS_AT_ALL else [1])
def test_no_planted_name_secret_or_marker_is_in_any_byte_of_a_bundle(
    command, tmp_path: Path, seed: int
) -> None:
    import random

    from tests.dissector.evidence.test_anonymizing import planted
    from tests.hard.tape import capture
    from tests.wire.secrets import Garden, pulsar_tape

    raw, hidden = planted(random.Random(seed), 48)
    garden = Garden(seed)
    secret = capture(pulsar_tape(garden).records())
    hidden_too = [each.secret.encode() for each in garden.planted]
    for name, data, gone in (("named", raw, hidden), ("secret", secret, hidden_too)):
        source, path = tmp_path / f"{name}-acme.pcap", tmp_path / f"{name}.zip"
        source.write_bytes(data)
        result = command("evidence", source, "--connection", "0", "-o", path)
        assert result.code == 0, result.err
        whole = path.read_bytes() + b"".join(parts_of(path).values()) + result.out.encode()
        words = [each for each in gone if len(each) > 4]
        assert [each for each in [*words, b"-acme.pcap", b"10.0.0."] if each in whole] == []
        # Four bytes may stand anywhere by chance but in packets: where one ends with 0a, its
        # padding and the option behind it may read 10.0.0.1.
        copy = io.BytesIO(parts_of(path)["packets.pcapng"])
        packets = [data for _, data in dpkt.pcapng.Reader(copy)]
        assert packets and [each for each in gone for data in packets if each in data] == []
    assert command("verify", path).code == 0


def test_a_copy_of_a_capture_that_was_cut_says_so(command, tmp_path: Path) -> None:
    whole = SAMPLES / "java-j12_nack.pcap"
    (tmp_path / "cut.pcap").write_bytes(whole.read_bytes()[:9000])
    result = command("anonymize", tmp_path / "cut.pcap", "-o", tmp_path / "copy.pcapng")
    assert result.code == 3 and "cut.pcap ends inside a record at byte 8925" in result.err
