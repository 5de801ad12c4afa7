"""Verdicts by capture: those of each one alone, the worst first, within a bound."""

import json

import pyarrow as pa
import pytest

from dissector.queries.catalogue import catalogue
from dissector.report import by_capture
from dissector.report.by_capture import SCHEMA, rows_to_judge, verdict_rows
from dissector.report.headlines import CAPTURE_WORDS, WRONG, headlines
from dissector.report.merged_tables import MergedTables, tables_by_capture
from dissector.report.numbers import grouped, high, low
from dissector.report.result import JUDGED, SECTIONS, build
from tests.dissector.report import made
from tests.numbers import Numbers, empty_report, engine

# What rules found in captures, by the numbers of the rules and their variants.
FOUND = {"b-lossy": ["R01 lasting"], "c-all": ["R01 lasting", "D15"]}


def summed(tables_of: dict[str, made.Tables]) -> Numbers:
    summary = Numbers()
    for name, tables in tables_of.items():
        for table in sorted(tables, key=lambda table: table != "frames"):
            summary.add(table, made.batch(table, tables[table]), name)
        for rule in FOUND.get(name, ()):
            summary.add_incident(rule.partition(" ")[0], name, rule.partition(" ")[2])
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


@pytest.fixture(scope="module")
def numbers(several: dict[str, made.Tables]) -> Numbers:
    """What is counted of them; tests only ask for it."""
    return summed(several)


@pytest.fixture(scope="module")
def verdicts(numbers: Numbers) -> made.Row:
    found: made.Row = numbers.result()["verdicts"]
    return found


def test_the_worst_capture_stands_first_with_the_number_that_decides(verdicts: made.Row) -> None:
    assert [row["capture"] for row in verdicts["by_capture"]] == ["c-all", "b-lossy", "a-fine"]
    assert [row["verdict"] for row in verdicts["by_capture"]][:2] == ["bad", "look"]
    lossy = verdicts["by_capture"][1]
    assert lossy["sections"]["errors"] == "look" and lossy["bad"] == 0
    assert lossy["decided_by"]["send_latency"] == 2 and lossy["sends"] == 3
    assert lossy["latency_p50_ms"] == lossy["latency_p99_ms"] == 5.0
    assert lossy["reasons"][0]["text"].startswith("R01 A client is refused again and again")
    assert verdicts["total"]["captures"] == 3 == sum(verdicts["total"]["by_verdict"].values())


def test_verdicts_in_company_are_those_that_each_capture_gets_alone(
    several: dict[str, made.Tables], verdicts: made.Row
) -> None:
    rows = {row["capture"]: row for row in verdicts["by_capture"]}
    for name, tables in several.items():
        alone = summed({name: tables}).result()
        (row,) = alone["verdicts"]["by_capture"]
        assert rows[name] == row, name
        said = [
            (each.section, each.sentence, each.next_step)
            for each in headlines(alone)
            if each.word in WRONG
        ]
        told = [(each["section"], each["text"], each["next_step"]) for each in row["reasons"]]
        assert sorted(said) == sorted(told)


def test_every_word_and_section_is_one_that_the_page_knows(verdicts: made.Row) -> None:
    for row in verdicts["by_capture"]:
        assert tuple(row["sections"]) == tuple(JUDGED) == tuple(row["decided_by"])
        assert {row["verdict"], *row["sections"].values()} - {None} <= set(CAPTURE_WORDS)


def test_the_list_is_bounded_and_the_total_says_of_how_many(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_capture, "MAX_VERDICTS", 2)
    verdicts = numbers.result()["verdicts"]
    assert [row["capture"] for row in verdicts["by_capture"]] == ["c-all", "b-lossy"]
    assert verdicts["total"]["captures"] == 3


def test_a_report_of_nothing_and_of_some_sections_has_no_verdicts_to_give() -> None:
    found = empty_report()["verdicts"]
    assert found["by_capture"] == [] and found["total"]["captures"] == 0
    assert "verdicts" not in build(Numbers().parts(), ["errors"])


def test_what_is_kept_says_how_bad_it_is_without_its_text(numbers: Numbers) -> None:
    """So that the worst of ten thousand are found without reading what all of them say."""
    rows = verdict_rows(numbers.tallies(), engine())
    assert rows.schema == SCHEMA
    for row in rows.to_pylist():
        said = json.loads(row.pop("row_json"))
        assert row == {name: said[name] for name in row}


def test_rows_of_one_capture_do_not_depend_on_others(numbers: Numbers) -> None:
    rows = dict.fromkeys(catalogue(), 0)
    tables = numbers.tallies()
    for name, merged_tables in tables_by_capture(tables):
        for query in catalogue():
            found = merged_tables.rows(query)
            assert {row["capture"] for row in found} <= {name}
            rows[query] += len(found)
    assert rows == {name: tables[name].num_rows for name in catalogue()}


def test_what_is_left_out_for_verdicts_changes_none(numbers: Numbers) -> None:
    """Lists, series over time, and which name a histogram belongs to."""
    whole = numbers.tallies()
    brief = {name: numbers.asked_of(rows_to_judge(catalogue()[name], "kept_rows"), rows)
             if name in catalogue() else rows for name, rows in whole.items()}  # fmt: skip
    assert verdict_rows(brief, engine()).equals(verdict_rows(whole, engine()))
    for capture, merged_tables in tables_by_capture(whole):
        for name in JUDGED:
            total = SECTIONS[name].build(merged_tables)["total"]
            of_all = SECTIONS[name].build(merged_tables._replace(only_totals=False))["total"]
            differ = {key for key in of_all if total[key] != of_all[key]}
            assert differ <= {"per_minute", "per_hour", "per_day", "over_time"}, (capture, name)


def test_rows_that_are_merged_before_are_those_that_a_section_adds_up() -> None:
    """Rows of one capture come as they are, many rows of a report merged: the same numbers."""
    query = catalogue()["sends"]
    rows = [
        {name: (at % 3 or None) if name in query.keys else (None if at % 4 == 0 else at)
         for name in query.columns}
        for at in range(60)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    for keys in ((), ("topic",), ("topic", "outcome")):
        few = grouped(MergedTables({"sends": rows}, 1).rows("sends", keys), keys)
        merged = MergedTables({"sends": table}, 1).rows("sends", keys)
        assert [tuple(row[key] for key in keys) for row in merged] == [*few]
        for row, found in zip(merged, few.values(), strict=True):
            assert all(row[name] == sum(each[name] for each in found) for name in query.sums)
            assert all(row[name] == low(each[name] for each in found) for name in query.least)
            assert all(row[name] == high(each[name] for each in found) for name in query.greatest)
    assert MergedTables({"sends": rows}, 1).rows("sends") == MergedTables({"sends": table}, 1).rows(
        "sends"
    )


def test_a_judgement_that_fails_is_a_line_in_its_capture(
    numbers: Numbers, verdicts: made.Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = verdicts
    build_errors = SECTIONS["errors"].build

    def breaks(merged_tables: MergedTables) -> made.Row:
        if any(row["capture"] == "b-lossy" for row in merged_tables.rows("files")):
            raise KeyError("what no row has")
        return build_errors(merged_tables)

    broken = SECTIONS | {"errors": SECTIONS["errors"]._replace(build=breaks)}
    monkeypatch.setattr(by_capture, "SECTIONS", broken)
    after = numbers.result()["verdicts"]
    assert before["total"]["failed"] == 0 and after["total"]["failed"] == 1
    rows = {row["capture"]: row for row in after["by_capture"]}
    for row in before["by_capture"]:
        if row["capture"] != "b-lossy":
            assert rows[row["capture"]] == row and row["failed"] == 0
    lossy = rows["b-lossy"]
    assert lossy["failed"] == 1 and lossy["verdict"] == "look" and lossy["sends"] is None
    (reason,) = lossy["reasons"]
    assert "failed to judge" in reason["text"] and "KeyError" in reason["text"]
