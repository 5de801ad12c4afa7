"""Counting as rows come: in any pieces, within bounds, names and legs settled at the end."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.report import consumption, frame_rows, parts, sends, summary, tallies
from dissector.report.foremost import Foremost, foremost, ranks
from dissector.report.names import (
    CONSUMERS,
    LEGS,
    PRODUCERS,
    Names,
    name_consumers,
    name_producers,
    twin_count,
    without_twins,
)
from dissector.report.rows import Rows, codes, nullable
from dissector.report.sequences import SequenceRuns, messages, runs_of
from dissector.report.summary import Summary
from dissector.report.tallies import CONNECTION, OTHERS, Accumulator, Tally, add_up, count
from dissector.report.time_cells import TimeCells
from tests.dissector.report import made

TALLY = Tally("t", (("name", "text"), ("number", "number")), ("n",), ("x",), ("x",))


def summed(tables: made.Tables, rows_at_once: int, is_coded: bool = True) -> dict[str, Any]:
    found = Summary()
    for name in sorted(tables, key=lambda name: name != "frames"):
        rows = tables[name]
        for start in range(0, len(rows), rows_at_once):
            part = made.batch(name, rows[start : start + rows_at_once], is_coded=is_coded)
            found.add(name, part, "c-one")
    return found.result()


@pytest.mark.parametrize(("size", "rows_at_once", "is_coded"), [(40, 1, True), (200, 37, False)])
def test_numbers_do_not_depend_on_how_rows_come(
    size: int, rows_at_once: int, is_coded: bool
) -> None:
    tables = made.RandomCapture(11, size, size).tables
    assert summed(tables, rows_at_once, is_coded) == summed(tables, 10**6)


def test_sends_without_a_sequence_id_count_each() -> None:
    counts = {7: (2, 2), 9: (1,), None: (1, 1, 3, None)}
    rows = [
        made.publish(connection_id=0, sequence_id=number, message_count=count, outcome="ok",
                     topic="t", producer_name="p")
        for number, found in counts.items()
        for count in found
    ]  # fmt: skip
    latency = summed({"exchanges": rows}, 3)["send_latency"]
    assert latency["total"]["messages"] == 2 + 1 + 5
    assert [row["messages"] for row in latency["by_topic"]] == [8]


def test_producers_that_number_each_partition_are_counted_by_first_attempts() -> None:
    sends = [(1, 1, 50), (1, 1, 50), (51, 1, 50), (51, 2, 50), (1, None, 4)]
    rows = [
        made.publish(connection_id=0, producer_id=None, sequence_id=first, attempt=attempt,
                     message_count=count)
        for first, attempt, count in sends
    ]  # fmt: skip
    assert summed({"exchanges": rows}, 2)["send_latency"]["total"]["messages"] == 154


def test_what_cursus_lacks_is_not_applicable_instead_of_zero() -> None:
    legs = [{"connection_id": 0, "protocol": "cursus", "packets_to_broker": 1},
            {"connection_id": 1, "protocol": "tls"}]  # fmt: skip
    alone = summed({"connections": legs}, 9)
    for section, reason in (
        ("permit_utilization", "consumers of Cursus grant no permits"),
        ("checksum_failures", "frames of Cursus carry no checksum"),
    ):
        total = dict(alone[section]["total"])
        assert total.pop("not_applicable") == reason
        assert numbers_in(total) == []
        assert alone[section]["about"] == f"Not applicable: {reason}."
    legs.append({"connection_id": 2, "protocol": "pulsar"})
    both = summed({"connections": legs}, 9)
    assert both["checksum_failures"]["total"]["mismatch"] == 0
    assert both["permit_utilization"]["total"]["not_applicable"] is None


def numbers_in(value: Any) -> list[Any]:
    """Whatever is known somewhere in nested rows."""
    if isinstance(value, dict):
        return [found for each in value.values() for found in numbers_in(each)]
    return [] if value is None else [value]


def test_rows_of_other_tables_are_ignored() -> None:
    found = Summary()
    found.add("nothing", made.batch("messages", [{"connection_id": 1}]))
    found.add("messages", made.batch("messages", []))
    assert found.result() == Summary().result()


def test_captures_get_the_names_that_are_known_at_the_end() -> None:
    found = Summary()
    found.add("capture_files", made.batch("capture_files", [{"file_name": "a"}]), "one")
    found.add("capture_files", made.batch("capture_files", [{"file_name": "b"}]), "two")
    result = found.result({"one": "c-one"})
    assert [row["capture"] for row in result["sources"]] == ["c-one", "two"]


@pytest.mark.parametrize(
    ("module", "bound", "limit"),
    [
        (summary, "MAX_NAMED", "summary_names_limit"),
        (sends, "MAX_KEYS", "summary_keys_limit"),
        (sends, "MAX_RUNS", "summary_sequence_runs_limit"),
        (frame_rows, "MAX_KEYS", "summary_keys_limit"),
        (frame_rows, "MAX_MISMATCHES", "summary_mismatches_limit"),
        (consumption, "MAX_CONSUMERS", "summary_consumers_limit"),
    ],
)
def test_bounds_are_told_when_they_are_hit(
    monkeypatch: pytest.MonkeyPatch, module: Any, bound: str, limit: str
) -> None:
    monkeypatch.setattr(module, bound, 2)
    tables = made.RandomCapture(12, 100, 40).tables
    hit = summed(tables, 50)["coverage"]["total"]["limits_hit"]
    assert hit.get(limit, 0) > 0, hit


# -- rows


def test_columns_of_rows_as_numbers_and_masks() -> None:
    rows = Rows(made.batch("permits", [
        {"event": "grant", "delta": 5, "ts": 1, "baseline_known": True},
        {"event": None, "delta": None, "ts": 2, "baseline_known": None},
    ]), "c")  # fmt: skip
    assert rows.numbers("delta").tolist() == [5, NULL] and rows.numbers("ts").tolist() == [1, 2]
    assert rows.equals("event", "grant", "reset").tolist() == [True, False]
    assert rows.flags("baseline_known").tolist() == [True, False]
    assert rows.known("delta").tolist() == [True, False]
    assert len(rows.where(rows.known("delta"))) == 1
    assert rows.take(np.array([1, 0])).numbers("delta").tolist() == [NULL, 5]
    assert nullable(np.array([1, NULL])).to_pylist() == [1, None]


@given(st.lists(st.tuples(st.sampled_from(("a", "b", None)), st.sampled_from((1, 2, None)))))
def test_combinations_are_numbered(pairs: list[tuple[str | None, int | None]]) -> None:
    texts = pa.array([pair[0] for pair in pairs], pa.string())
    numbers = pa.array([pair[1] for pair in pairs], pa.int64())
    for first in (texts, texts.dictionary_encode()):
        code, where = codes(first, numbers)
        assert len(where) == len(set(pairs))
        assert [pairs[where[each]] for each in code.tolist()] == pairs


# -- tallies


def columns_of(rows: list[tuple[str | None, int, int]]) -> dict[str, pa.Array]:
    return {
        "name": pa.array([row[0] for row in rows], pa.string()),
        "number": pa.array([row[1] for row in rows], pa.int64()),
        "n": pa.array([1] * len(rows), pa.int64()),
        "x": pa.array([row[2] for row in rows], pa.int64()),
    }


ROWS = st.lists(st.tuples(st.sampled_from(("a", "b", None)), st.integers(0, 2),
                          st.integers(-9, 9)), max_size=40)  # fmt: skip


def by_hand(rows: list[tuple[str | None, int, int]]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    keys = {row[:2] for row in rows}
    return {
        key: (sum(row[:2] == key for row in rows), min(row[2] for row in rows if row[:2] == key),
              max(row[2] for row in rows if row[:2] == key))
        for key in keys
    }  # fmt: skip


@given(ROWS, st.integers(1, 7))
def test_a_tally_grows_to_the_same_sums(rows: list[tuple[str | None, int, int]], step: int) -> None:
    grown = Accumulator(TALLY, 100)
    for start in range(0, len(rows), step):
        grown.add(columns_of(rows[start : start + step]))
        grown.settle()
    found = {
        (row["name"], row["number"]): (row["n"], row["x_min"], row["x_max"])
        for row in grown.settle().to_pylist()
    }
    assert found == by_hand(rows)
    if rows:
        names = add_up(count(columns_of(rows), TALLY), TALLY, ["name"]).to_pylist()
        assert {row["name"]: row["n"] for row in names} == {
            name: sum(row[0] == name for row in rows) for name in {row[0] for row in rows}
        }


def test_keys_beyond_the_bound_are_counted() -> None:
    grown = Accumulator(TALLY, 2)
    for number in range(5):
        grown.add(columns_of([("a", number, 0)]))
    assert grown.settle().num_rows == 2 and grown.left_out == 3


def test_connections_beyond_the_bound_are_summed_as_others() -> None:
    """The bound takes away who it was, and no number."""
    tally = Tally("t", (*CONNECTION, ("topic", "text"), ("outcome", "text")), ("n",))
    grown = Accumulator(tally, 3)
    for start in range(0, 30, 5):
        numbers = range(start, start + 5)
        grown.add(
            {
                "capture": pa.array(["c"] * 5), "connection_id": pa.array(numbers, pa.int64()),
                "topic": pa.array([f"t{n}" for n in numbers]),
                "outcome": pa.array(["ok" if n % 2 else "error" for n in numbers]),
                "n": pa.array([1] * 5),
            }
        )  # fmt: skip
        grown.settle()
    found = grown.settle().to_pylist()
    assert [row["topic"] for row in found] == ["t0", "t1", "t2", OTHERS, OTHERS]
    assert {row["outcome"]: row["n"] for row in found[3:]} == {"ok": 14, "error": 13}
    assert all(row["connection_id"] is None for row in found[3:]) and grown.left_out == 27


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=50))
def test_finer_points_add_up_to_coarser_ones(times: list[int]) -> None:
    tally = Tally("t", (("point", "number"),), ("n",))
    cells = TimeCells(tally, 10**6)
    for time in times:
        cells.add({"n": pa.array([1])}, np.array([time]))
    step = max(cells.step, 10**10)
    found = {row["point"]: row["n"] for row in cells.table(step).to_pylist()}
    assert found == {
        point: sum(time // cells.step == point for time in times)
        for point in {time // cells.step for time in times}
    }
    assert cells.rows == len(found) and cells.step % step == 0


# -- the foremost of each group


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=60), st.integers(1, 4))
def test_only_the_foremost_of_each_group_are_kept(rows: list[tuple[int, int]], limit: int) -> None:
    schema = pa.schema([("group", pa.int64()), ("value", pa.int64())])
    order = (("value", "descending"),)
    kept = Foremost(schema, ("group",), order, limit)
    for group, value in rows:
        kept.add(pa.table({"group": [group], "value": [value]}, schema=schema))
    found = kept.table().to_pylist()
    for group in range(3):
        values = sorted((value for each, value in rows if each == group), reverse=True)
        assert [row["value"] for row in found if row["group"] == group] == values[:limit]
    assert foremost(schema.empty_table(), ("group",), order, limit).num_rows == 0
    assert ranks(np.array([4, 4, 7, 7, 7])).tolist() == [0, 1, 0, 1, 2]


# -- distinct messages


SENT = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 5)), max_size=60)


@settings(max_examples=200)
@given(SENT, st.integers(1, 20))
def test_messages_by_distinct_ids_with_their_largest_count(
    sent: list[tuple[int, int, int]], step: int
) -> None:
    runs = SequenceRuns(1000)
    for start in range(0, len(sent), step):
        part = np.array(sent[start : start + step], np.int64).T
        runs.add(*part)
    largest: dict[tuple[int, int], int] = {}
    for leaf, sequence, size in sent:
        largest[leaf, sequence] = max(largest.get((leaf, sequence), 0), size)
    expected = {}
    for leaf in {leaf for leaf, _ in largest}:
        expected[leaf] = sum(size for (each, _), size in largest.items() if each == leaf)
    assert runs.messages(np.arange(3)) == expected
    assert runs.left_out == 0


def test_a_long_run_is_one_row() -> None:
    ids = np.arange(0, 10**6, 10)
    runs = runs_of(np.zeros(len(ids), np.int64), ids, np.full(len(ids), 10))
    assert runs.shape == (4, 1) and messages(runs) == 10**6


# -- names and legs


def names_of(**tables: list[dict[str, Any]]) -> Names:
    schemas = {"legs": LEGS, "producers": PRODUCERS, "consumers": CONSUMERS}
    return Names(*(
        pa.Table.from_pylist(tables.get(name, []), schema) for name, schema in schemas.items()
    ))  # fmt: skip


def test_what_was_learnt_late_is_filled_in_and_what_is_known_stays() -> None:
    names = names_of(
        producers=[{"capture": "c", "connection_id": 1, "producer_id": 2, "incarnation": 0,
                    "topic": "late", "name": "p"}],
        consumers=[{"capture": "c", "connection_id": 1, "consumer_id": 3, "incarnation": 0,
                    "topic": "late", "name": "r", "subscription": "s",
                    "subscription_type": "Shared"}],
    )  # fmt: skip
    keys = {"capture": ["c"] * 3, "connection_id": [1, 1, 9], "incarnation": [0, 0, 0]}
    rows = pa.table({**keys, "producer_id": [2, 2, 2], "topic": [None, "early", None]})
    assert name_producers(rows, names).column("topic").to_pylist() == ["late", "early", None]
    rows = pa.table({**keys, "consumer_id": [3, 3, 3], "topic": [None, "early", None],
                     "subscription": pa.nulls(3, pa.string())})  # fmt: skip
    named = name_consumers(rows, names)
    assert named.column("topic").to_pylist() == ["late", "early", None]
    assert named.column("subscription").to_pylist() == ["s", "s", None]


def test_the_second_leg_of_a_proxy_is_left_out_only_where_its_twin_is_there() -> None:
    def leg(connection: int, leg: str | None, twin: int | None) -> dict[str, Any]:
        return {"capture": "c", "connection_id": connection, "leg": leg,
                "twin_connection_id": twin}  # fmt: skip

    names = names_of(legs=[leg(1, "client", 2), leg(2, "broker", 1), leg(3, "broker", None),
                           leg(4, None, None)])  # fmt: skip
    rows = pa.table({"capture": ["c"] * 4 + ["d"], "connection_id": [4, 3, 2, 1, 2]})
    kept = without_twins(rows, names)
    assert kept.column("connection_id").to_pylist() == [4, 3, 1, 2]
    assert twin_count(names) == 1


def test_every_table_of_the_parts_has_a_schema() -> None:
    nothing = parts.no_parts()
    assert set(tallies.TALLIES) <= set(nothing.tables)
    assert all(table.num_rows == 0 for table in nothing.tables.values())
