"""The flight recorder keeps the packets behind findings, says why, and stays within bounds."""

from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.dissection import Options
from dissector.errors import UsageError
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from dissector.tap import recorder as module
from dissector.tap.balances import Stall
from dissector.tap.playback import FilePlayback
from dissector.tap.recorder import Recorder
from dissector.tap.service import Tap, TapSettings
from dissector.tap.sums import Sums
from dissector.tap.triggers import (
    CHECKSUM,
    ERROR,
    LATENCY,
    NAMES,
    STALL,
    Trigger,
    Triggers,
    of_stall,
)
from dissector.tap.windows import Windows
from tests.dissector.observed import CAPTURES, tables_of

CORRUPT = CAPTURES / "pulsar-apache" / "java-j74_corrupt.pcap"
ERRORS = CAPTURES / "pulsar-apache" / "java-j23_errors.pcap"


def recorded(path: Path, folder: Path, triggers: Triggers, **options: int) -> Recorder:
    """Replay a capture beside a recorder."""
    (chain,) = chains([str(path)]).chains
    tap = Tap(FilePlayback(chain), TapSettings(Options()))
    recorder = Recorder(folder, triggers, lambda c: tap.dissection.ends_of(c), tap.link_types,
                        **options)  # fmt: skip
    tap.listen(recorder)
    recorder.sums = Sums(is_of_permits=True)
    windows = Windows(tap, True, [recorder.sums])
    recorder.ask = windows.flush
    tap.listen(windows)
    tap.run()
    windows.close()
    recorder.close()
    assert not list(folder.glob("*.unfinished")) and recorder.problem is None
    return recorder


def triggers_in(path: Path, *wanted: str, latency_ns: int = 10**9) -> list[Trigger]:
    found = []
    triggers = Triggers(wanted or NAMES, latency_ns)
    (chain,) = chains([str(path)]).chains
    for block in dissect(chain, Options()):
        found += triggers.of(block)
    return found


def test_each_wrong_checksum_refusal_and_slow_send_is_a_trigger():
    tables = tables_of(str(CORRUPT))
    wrong = [row for row in tables["frames"] if row["checksum"] == "mismatch"]
    triggers = triggers_in(CORRUPT, CHECKSUM)
    assert [(each.connection_id, each.packet) for each in triggers] == [
        (row["connection_id"], row["last_packet"]) for row in wrong
    ]
    assert triggers[0].text == (
        f"checksum mismatch: connection {wrong[0]['connection_id']}, frame {wrong[0]['frame_no']}"
    )
    refused = [row for row in tables_of(str(ERRORS))["exchanges"] if row["error_code"]]
    triggers = triggers_in(ERRORS, ERROR)
    assert len(triggers) == len(refused) > 0 and refused[0]["error_code"] in triggers[0].text
    latencies = sorted(
        row["latency_ns"]
        for row in tables["exchanges"]
        if row["kind"] == "publish" and row["latency_ns"] is not None
    )
    middle = latencies[len(latencies) // 2]
    triggers = triggers_in(CORRUPT, LATENCY, latency_ns=middle)
    assert len(triggers) == sum(each > middle for each in latencies)


def test_a_stall_is_recorded_when_it_is_over(tmp_path):
    path = CAPTURES / "pulsar-apache" / "java-j40_slow_consumer.pcap"
    recorder = recorded(path, tmp_path, Triggers((STALL,)))
    (file,) = tmp_path.glob("tap-*-stall-connection-0.pcapng")
    assert recorder.kept == 1 and b"no permits for 1.0" in file.read_bytes()[:200]
    assert tables_of(str(file))["permits"], "packets of the time before its end are there"


def test_stalls_are_asked_for_where_one_may_have_ended():
    path = CAPTURES / "pulsar-apache" / "java-j40_slow_consumer.pcap"
    (chain,) = chains([str(path)]).chains
    blocks = [block for block in dissect(chain, Options()) if block.table == "permits"]
    assert any(map(Triggers((STALL,)).may_end_stall, blocks))
    assert not any(map(Triggers((ERROR,)).may_end_stall, blocks))
    text = of_stall(Stall(3, 4, 5, 1_000_000, 1_500_000)).text
    assert text == "no permits for 1.500 s: connection 3, consumer 4, up to frame 5"


def test_an_unknown_trigger_is_refused():
    with pytest.raises(UsageError, match="choose of checksum, latency"):
        Triggers(("slowness",))


def test_the_packets_of_the_connection_are_kept_with_the_reason(tmp_path):
    recorder = recorded(CORRUPT, tmp_path, Triggers((CHECKSUM,)))
    files = sorted(tmp_path.glob("*.pcapng"))
    assert len(files) == recorder.kept >= 1
    kept, whole = tables_of(str(files[0])), tables_of(str(CORRUPT))
    assert b"checksum mismatch: connection" in files[0].read_bytes()[:200]
    wrong = [row for row in kept["frames"] if row["checksum"] == "mismatch"]
    first = next(row for row in whole["frames"] if row["checksum"] == "mismatch")
    assert first["crc32c_stored"] in {row["crc32c_stored"] for row in wrong}
    assert len(kept["connections"]) == 1
    assert first["first_ts_ns"] in {row["first_ts_ns"] for row in wrong}
    stamps = [row["first_ts_ns"] for row in kept["frames"]]
    assert min(stamps) >= first["first_ts_ns"] - module.BEFORE_NS


def test_recordings_of_one_kind_are_few_and_the_rest_is_counted(tmp_path):
    asked = triggers_in(ERRORS, ERROR)
    recorder = recorded(ERRORS, tmp_path, Triggers((ERROR,)))
    connections = {each.connection_id for each in asked}
    assert recorder.kept + recorder.limited == len(asked)
    assert recorder.kept <= min(len(connections), module.PER_MINUTE)


def test_memory_and_folder_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAME_NS", 0)
    recorder = recorded(ERRORS, tmp_path, Triggers((ERROR,)), memory_bytes=20_000, keep_bytes=5_000)
    assert recorder.kept > 2
    files = list(tmp_path.glob("*.pcapng"))
    assert len(files) == 1 or sum(path.stat().st_size for path in files) <= 5_000


def test_a_folder_that_went_away_is_a_problem_not_an_end(tmp_path, monkeypatch):
    (chain,) = chains([str(CORRUPT)]).chains
    tap = Tap(FilePlayback(chain), TapSettings(Options()))
    folder = tmp_path / "gone"
    recorder = Recorder(folder, Triggers(), lambda c: tap.dissection.ends_of(c), tap.link_types)
    folder.rmdir()
    tap.listen(recorder)
    tap.run()
    recorder.close()
    assert recorder.kept == 0 and "No such file" in (recorder.problem or "")
    outcomes = recorder.outcomes()
    assert outcomes["kept"] == 0 and outcomes["failed"] > 0


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path, capsys):
    assert run(["tap", "--replay", str(CORRUPT), "--record", "/proc/kept"]) == 4
    assert "--record /proc/kept: " in capsys.readouterr().err


def test_the_command_records(tmp_path, capsys):
    arguments = ["--record", str(tmp_path / "kept"), "--trigger", "checksum"]
    assert run(["tap", "--replay", str(CORRUPT), *arguments]) == 0
    assert list((tmp_path / "kept").glob("tap-*-checksum-connection-*.pcapng"))
    assert run(["tap", "--replay", str(CORRUPT), *arguments[:2], "--trigger", "x"]) == 1
