"""Requests as they come: who sent a ping, the steps of setting up, and bounds."""

import pytest

from dissector.report import lifetimes, round_trips
from dissector.report.names import no_names
from dissector.report.parts import FILES
from dissector.report.rows import Rows
from tests.dissector.report import made


def frame(frame_no: int, direction: str) -> made.Row:
    return {"connection_id": 1, "frame_no": frame_no, "command": "PING", "direction": direction}


def exchange(command: str, frame_no: int, **more: object) -> made.Row:
    return made.publish(
        connection_id=1, kind="ping" if command == "PING" else "request", request_command=command,
        request_frame_no=frame_no, **more,
    )  # fmt: skip


def added(frames: list[made.Row], exchanges: list[made.Row]) -> round_trips.RoundTrips:
    found = round_trips.RoundTrips()
    found.add_frames(Rows(made.batch("frames", frames), "c"))
    found.add(Rows(made.batch("exchanges", exchanges), "c"))
    return found


def test_the_frames_say_who_sent_a_ping() -> None:
    found = added(
        [frame(1, "to_broker"), frame(2, "to_client")],
        [exchange("PING", 1), exchange("PING", 2), exchange("LOOKUP", 3), made.publish()],
    )
    rows = found.tables()["requests"].to_pylist()
    assert {(row["request_command"], row["asked_by"]) for row in rows} == {
        ("PING", "client"), ("PING", "broker"), ("LOOKUP", None),
    }  # fmt: skip
    assert [row["request_command"] for row in found.tables()["setup"].to_pylist()] == ["LOOKUP"]


def test_bounds_leave_out_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_trips, "MAX_STEPS", 1)
    monkeypatch.setattr(round_trips, "MAX_PINGS", 1)
    frames = [frame(number, "to_broker") for number in range(3)]
    found = added(frames, [exchange("LOOKUP", 5), exchange("LOOKUP", 6), exchange("PING", 0)])
    assert found.tables()["setup"].num_rows == 1
    assert found.limits()["summary_setup_limit"] == 1


def test_entries_are_distinct_however_often_they_are_seen() -> None:
    rows = [{"connection_id": 1, "ledger_id": 7, "entry_id": number % 5, "topic": topic,
             "message_count": 1, "outcome": "acked", "redelivery_count": 0}
            for number in range(20)
            for topic in ("persistent://a", "non-persistent://a", None)]  # fmt: skip
    found = lifetimes.Entries()
    found.add(Rows(made.batch("deliveries", rows), "c"), "delivered")
    files = made.batch("capture_files", [{"cluster": "x"}])
    kept = Rows(files, "c").kept(FILES)
    (row,) = found.table(no_names(), kept).to_pylist()
    assert row == {"cluster": "x", "confirmed": 0, "delivered": 5, "either": 5}
    assert found.left_out == 0
