"""Key logs as users give them: every command, lakes, slices, taps. Secrets stay where they are."""

import gzip
import re
import threading
import time
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OK, EXIT_USAGE
from dissector.lake.reader import open_lake
from dissector.options import Options
from dissector.sources.rings import chains
from dissector.tap.packet_batches import NEVER_NS
from dissector.tap.playback import FilePlayback
from dissector.tap.service import Tap, TapSettings
from tests.dissector.cli.conftest import Command
from tests.dissector.tls.seen import CAPTURES, SAMPLES
from tests.wire import captures, tls

CAPTURE = CAPTURES / "tls13-aes256gcm-keyupdate.pcap"
KEYS = CAPTURES / "tls13-aes256gcm-keyupdate.keys"
PLAIN = SAMPLES / "pulsar-apache" / "java-j12_nack.pcap"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The key log, which nobody else reads."""
    path = tmp_path / "keys.txt"
    path.write_bytes(KEYS.read_bytes())
    path.chmod(0o600)
    return path


def fields(command: Command, *arguments: object) -> list[str]:
    """Commands and sizes of frames."""
    result = command("frames", *arguments, "-T", "fields", "-e", "command", "-e", "frame_bytes")
    assert result.code == EXIT_OK, result.err
    return result.lines


def test_frames_are_those_of_the_plain_twin(command: Command, keys: Path) -> None:
    twin = fields(command, PLAIN)
    assert sorted(fields(command, CAPTURE, "--keylog", keys)) == sorted(twin)
    assert fields(command, CAPTURE) == []


def test_the_environment_names_a_key_log_too(
    command: Command, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    assert len(fields(command, CAPTURE)) == 93
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys) + ".gone")
    assert fields(command, CAPTURE) == []


def test_a_key_log_that_is_not_there_is_an_error(command: Command, tmp_path: Path) -> None:
    result = command("summary", CAPTURE, "--keylog", tmp_path / "none")
    assert result.code == 2 and "key log cannot be read" in result.err


def test_others_may_not_read_it_and_broken_lines_are_named(command: Command, keys: Path) -> None:
    keys.write_text("nonsense\n" + keys.read_text())
    keys.chmod(0o644)
    result = command("connections", CAPTURE, "--keylog", keys)
    assert "others can read these keys" in result.err and "line 1" in result.err
    assert "1 TLS connection decrypted" in result.err


def test_a_lake_keeps_what_was_decrypted(command: Command, keys: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for arguments, decrypted in (((), False), (("--keylog", keys), True), ((), True)):
        result = command("land", CAPTURE, "--lake", lake, *arguments)
        assert result.code == EXIT_OK
        with open_lake(lake) as opened:
            (fate,) = opened.table("connections").column("tls_decryption").to_pylist()
        assert fate == ("decrypted" if decrypted else "no_key_log")
    assert "more TLS connections decrypted" in result.err


def test_a_slice_has_its_packets_and_with_secrets_its_keys(
    command: Command, keys: Path, tmp_path: Path
) -> None:
    path = tmp_path / "slice.pcapng"
    chosen = ("-Y", 'command == "SEND"', "-c", "3")
    result = command("frames", CAPTURE, "--keylog", keys, *chosen, "-w", path, "--with-secrets")
    assert result.code == EXIT_OK, result.err
    assert path.stat().st_mode & 0o077 == 0
    again = command("frames", path, *chosen, "-T", "fields", "-e", "sequence_id")
    assert again.lines == ["0", "1", "2"]
    bare = tmp_path / "bare.pcapng"
    command("frames", CAPTURE, "--keylog", keys, *chosen, "-w", bare)
    assert fields(command, bare) == [] and len(fields(command, bare, "--keylog", keys)) > 3
    assert not secrets_in(bare.read_bytes())
    for arguments in (("--with-secrets",), ("-w", tmp_path / "x", "--with-secrets", "--redact")):
        refused = command("frames", CAPTURE, "--keylog", keys, *arguments)
        assert refused.code == 1


def secrets_in(data: bytes) -> list[str]:
    """Secrets of the key log in some bytes, as they are or in hexadecimal digits."""
    secrets = [line.split()[2] for line in KEYS.read_text().splitlines()]
    return [
        secret for secret in secrets
        if bytes.fromhex(secret) in data or secret.encode() in data.lower()
    ]  # fmt: skip


def test_no_secret_is_in_anything_that_is_written(
    command: Command, keys: Path, tmp_path: Path
) -> None:
    lake, report = tmp_path / "lake", tmp_path / "report"
    keys.write_text(keys.read_text().upper().replace("0X", "0x") + keys.read_text()[:-20] + "zz\n")
    said = ""
    for arguments in (
        ("land", CAPTURE, "--lake", lake, "--keylog", keys, "--debug", "-v"),
        ("report", "--lake", lake, "-o", report, "--engine", "duckdb"),
        ("anonymize", CAPTURE, "--keylog", keys, "-o", tmp_path / "anonymous.pcapng"),
        ("findings", CAPTURE, "--keylog", keys),
        ("follow", CAPTURE, "--keylog", keys, "--connection", "0", "-T", "jsonl"),
        ("tap", "--replay", CAPTURE, "--keylog", keys, "--lake", tmp_path / "taplake",
         "--record", tmp_path / "record"),
    ):  # fmt: skip
        result = command(*arguments)
        assert result.code == EXIT_OK, result.err
        said += result.err + "\n".join(result.lines)
    assert not secrets_in(said.encode())
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != keys]
    assert len(written) > 20
    for path in written:
        data = path.read_bytes()
        assert not secrets_in(data), path
        if data[:2] == b"\x1f\x8b":
            assert not secrets_in(gzip.decompress(data))


def test_a_bundle_of_frames_inside_tls_is_refused_with_what_shows_them(
    command: Command, keys: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "evidence.zip"
    result = command("evidence", CAPTURE, "--keylog", keys, "--frames", "3-5", "-o", bundle)
    assert result.code == EXIT_USAGE and not bundle.exists()
    assert "3 of the selected frames came out of TLS, and a bundle holds no keys" in result.err
    assert "--with-secrets" in result.err and not secrets_in(result.err.encode())


def test_copies_keep_tls_encrypted(command: Command, keys: Path, tmp_path: Path) -> None:
    """A copy that is redacted has the records as they were, and one that is anonymous none."""
    redacted = tmp_path / "redacted.pcapng"
    command("frames", CAPTURE, "--keylog", keys, "-w", redacted, "--redact")
    assert len(fields(command, redacted, "--keylog", keys)) == 93
    anonymous = tmp_path / "anonymous.pcapng"
    command("anonymize", CAPTURE, "--keylog", keys, "-o", anonymous)
    assert fields(command, anonymous, "--keylog", keys) == []


def test_a_copy_of_a_capture_that_holds_its_keys_is_one_of_its_records(
    command: Command, keys: Path, tmp_path: Path
) -> None:
    """Streams are those of the packets, not what is inside, which lies at other offsets."""
    opened, copy = tmp_path / "opened.pcapng", tmp_path / "copy.pcapng"
    command("frames", CAPTURE, "--keylog", keys, "-w", opened, "--with-secrets")
    assert len(fields(command, opened)) == 93
    assert command("anonymize", opened, "-o", copy).code == EXIT_OK
    query = "SELECT protocol, length(tls_sni), stream_bytes_to_client FROM connections"
    (_, before), (_, after) = (
        command("sql", each, query, "--format", "csv").lines for each in (CAPTURE, copy)
    )
    assert before == after and before.startswith("tls,")


def test_the_report_has_the_numbers_of_the_plain_twin(
    command: Command, keys: Path, tmp_path: Path
) -> None:
    said = tls.conversation_of(PLAIN)
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    wire = tls.carried(begun, said)
    log = tmp_path / "log"
    log.write_text(begun.keys)
    log.chmod(0o600)
    plain = tls.write(tmp_path / "plain.pcap", tls.packets_of(said))
    coded = tls.write(tmp_path / "coded.pcap", tls.packets_of(wire))
    found = [
        [re.sub(r"\S*(plain|coded)\.pcap\S*( --keylog \S+)?", "", line) for line in lines]
        for lines in (
            command("sql", plain, QUERY).lines,
            command("sql", coded, QUERY, "--keylog", log).lines,
        )
    ]
    assert found[0] == found[1] and len(found[0]) > 3


QUERY = (
    "SELECT request_command, outcome, latency_ns, request_bytes FROM exchanges "
    "ORDER BY request_frame_no"
)


def test_a_tap_follows_a_key_log_that_grows(tmp_path: Path) -> None:
    """The key comes when the replay runs: bytes wait for it."""
    said = tls.conversation_of(PLAIN)[:30]
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    wire = tls.carried(begun, said)
    path = tls.write(tmp_path / "slow.pcap", tls.packets_of(wire, step_ns=20_000_000))
    log = tmp_path / "log"
    log.write_text("# begun\n")
    (chain,) = chains([str(path)], "auto").chains
    tap = Tap(
        FilePlayback(chain, speed=1.0),
        TapSettings(Options(keylog=str(log)), NEVER_NS >> 1, NEVER_NS),
    )

    def write() -> None:
        time.sleep(0.3)
        with log.open("a") as file:
            file.write(begun.keys)

    writer = threading.Thread(target=write)
    writer.start()
    tap.run()
    writer.join()
    assert tap.account.tls_decrypted == 1 and tap.account.rows["frames"] > 20


def test_secrets_in_the_file_need_no_option(command: Command, tmp_path: Path) -> None:
    begun = tls.begun_12("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    records = tls.packets_of(tls.carried(begun, tls.conversation_of(PLAIN)))
    made = [captures.enhanced_packet(record.ts_ns, record.data) for record in records]
    whole = captures.section() + captures.interface(resolution=9)
    whole += tls.secrets_block(begun.keys) + b"".join(made)
    for name, data in (("a.pcapng", whole), ("a.pcapng.gz", gzip.compress(whole))):
        (tmp_path / name).write_bytes(data)
        assert len(fields(command, tmp_path / name)) == 93
