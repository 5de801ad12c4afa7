"""Verdicts by capture: those of each one alone, the worst first, within a bound."""

from typing import Any

import pytest

from dissector.report import captures
from dissector.report.captures import JUDGED, WORDS, captures_judged, each_capture
from dissector.report.outlook import remarks
from dissector.report.parts import Parts
from dissector.report.result import SECTIONS, build, settle
from tests.numbers import Numbers
from dissector.report.verdict import BAD, LOOK
from tests.dissector.report import made


def summed(tables_of: dict[str, made.Tables]) -> Numbers:
    summary = Numbers()
    for name, tables in tables_of.items():
        for table in sorted(tables, key=lambda table: table != "frames"):
            summary.add(table, made.batch(table, tables[table]), name)
    return summary


def of_sends(*rows: made.Row) -> made.Tables:
    """A small capture of one connection and some publishes."""
    tables = made.RandomCapture(1, 0, 0).tables
    kept: made.Tables = {name: tables[name] for name in ("capture_files", "connections")}
    whole = {"gaps_to_broker": 0, "gaps_to_client": 0, "handshake_rtt_ns": 5}
    for way in ("to_broker", "to_client"):
        whole |= {f"{name}_{way}": 500 for name in ("packets", "stream_bytes", "decoded_bytes")}
    kept["connections"] = [kept["connections"][0] | whole]
    kept["exchanges"] = [
        row | {"request_frame_no": 2 * at + 1, "response_frame_no": 2 * at + 2, "sequence_id": at}
        for at, row in enumerate(rows)
    ]
    return kept | {"frames": [frame("PING", "to_broker", 900), frame("PONG", "to_client", 901)]}


def frame(command: str, direction: str, frame_no: int) -> made.Row:
    return {"connection_id": 0, "frame_no": frame_no, "protocol": "pulsar", "command": command,
            "direction": direction, "status": "complete"}  # fmt: skip


GOOD_SEND = made.publish()
LOST_SEND = made.publish(outcome="conn_closed", latency_ns=None)


@pytest.fixture(scope="module")
def several() -> dict[str, made.Tables]:
    """Captures of which each is worse than the one before."""
    return {
        "a-fine": of_sends(GOOD_SEND, GOOD_SEND),
        "b-lossy": of_sends(GOOD_SEND, LOST_SEND, LOST_SEND),
        "c-all": made.RandomCapture(5).tables,
    }


def test_the_worst_capture_stands_first_with_the_number_that_decides(
    several: dict[str, made.Tables],
) -> None:
    found = summed(several).result()["verdicts"]
    assert [row["capture"] for row in found["by_capture"]] == ["c-all", "b-lossy", "a-fine"]
    assert [row["verdict"] for row in found["by_capture"]][:2] == ["bad", "look"]
    lossy = found["by_capture"][1]
    assert lossy["sections"]["send_latency"] == "look"
    assert lossy["decided_by"]["send_latency"] == 2 and lossy["sends"] == 3
    assert lossy["latency_p50_ms"] == lossy["latency_p99_ms"] == 5.0
    assert any("2 of " in reason["text"] for reason in lossy["reasons"])
    assert found["total"]["captures"] == 3 == sum(found["total"]["by_verdict"].values())


def test_verdicts_in_company_are_those_that_each_capture_gets_alone(
    several: dict[str, made.Tables],
) -> None:
    found = {row["capture"]: row for row in summed(several).result()["verdicts"]["by_capture"]}
    for name, tables in several.items():
        alone = summed({name: tables}).result()
        (row,) = alone["verdicts"]["by_capture"]
        assert found[name] == row, name
        said = [
            (each.section, each.text, each.next_step)
            for each in remarks(alone)
            if each.mark in (LOOK, BAD)
        ]
        told = [(each["section"], each["text"], each["next_step"]) for each in row["reasons"]]
        assert sorted(said) == sorted(told)


def test_every_word_and_section_is_one_that_the_page_knows(
    several: dict[str, made.Tables],
) -> None:
    for row in summed(several).result()["verdicts"]["by_capture"]:
        assert tuple(row["sections"]) == JUDGED == tuple(row["decided_by"])
        assert {row["verdict"], *row["sections"].values()} - {None} <= set(WORDS)
    assert set(JUDGED) <= set(SECTIONS)


def test_the_list_is_bounded_and_the_total_says_of_how_many(
    several: dict[str, made.Tables], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "MAX_VERDICTS", 2)
    found = summed(several).result()["verdicts"]
    assert [row["capture"] for row in found["by_capture"]] == ["c-all", "b-lossy"]
    assert found["total"]["captures"] == 3


def test_a_report_of_nothing_and_of_some_sections_has_no_verdicts_to_give() -> None:
    found = Numbers().result()["verdicts"]
    assert found["by_capture"] == [] and found["total"]["captures"] == 0
    assert "verdicts" not in build(Numbers().parts(), ["errors"])


def test_a_capture_without_an_id_has_a_verdict_too() -> None:
    found = summed({"": of_sends(GOOD_SEND)}).result()["verdicts"]
    assert [row["capture"] for row in found["by_capture"]] == [None]


def test_what_goes_on_from_one_capture_in_the_next_is_not_taken_for_unread() -> None:
    """Its frames lie in the second capture, what was read of them counts in the first."""

    def delivery(frame_no: int) -> dict[str, Any]:
        return {"connection_id": 0, "frame_no": frame_no, "ts": 5, "consumer_id": 0,
                "ledger_id": 1, "entry_id": frame_no, "outcome": "acked",
                "is_redelivered": False, "message_count": 1}  # fmt: skip

    first, second = of_sends(), of_sends()
    messages = [frame("MESSAGE", "to_client", frame_no) for frame_no in (1, 2)]
    first |= {"frames": messages[:1], "deliveries": [delivery(1), delivery(2)]}
    second |= {"frames": messages[1:]}
    parts = settle(summed({"c-1": first, "c-2": second}).parts())

    def redelivery(parts: Parts) -> dict[str, Any]:
        listed = captures_judged(parts, {"sources": []}, SECTIONS)["by_capture"]
        return {row["capture"]: row["sections"]["redelivery"] for row in listed}

    assert redelivery(parts)["c-2"] == "note"
    joined = parts._replace(heads={("c-2", 0): ("c-1", 0)})
    assert redelivery(joined) == {"c-1": "ok", "c-2": None}


def test_each_capture_has_its_rows_and_no_others(several: dict[str, made.Tables]) -> None:
    parts = settle(summed(several).parts())
    rows = dict.fromkeys(parts.tables, 0)
    for name, mine in each_capture(parts):
        for table, found in mine.tables.items():
            if "capture" in found.schema.names:
                assert set(found.column("capture").to_pylist()) <= {name}
                rows[table] += found.num_rows
    counted = {name: table.num_rows for name, table in parts.tables.items()
               if "capture" in table.schema.names}  # fmt: skip
    assert counted == {name: rows[name] for name in counted}
