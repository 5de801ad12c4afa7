"""How far groups lag behind their logs: the last and the highest lag, and what was not judged."""

from typing import Any

import pytest

from dissector.report import lags as lags_module
from tests.numbers import Numbers
from dissector.report.tallies import OTHERS
from tests.dissector.report import made


def ack(frame_no: int, partition: int, lag: int | None, **values: Any) -> dict[str, Any]:
    return {
        "connection_id": 0, "frame_no": frame_no, "ts": 1000 * frame_no, "topic": "t",
        "subscription": "g", "action": "ack", "partition": partition, "lag": lag, **values,
    }  # fmt: skip


def delivery(frame_no: int, lag: int | None, **values: Any) -> dict[str, Any]:
    return ack(frame_no, 0, lag, **{"entry_id": frame_no, "message_count": 1, **values})


def latency_of(
    acks: list[dict[str, Any]], deliveries: list[dict[str, Any]], capture: str = "c-one"
) -> dict[str, Any]:
    summary = Numbers()
    summary.add("acks", made.batch("acks", acks), capture)
    found = [{key: row[key] for key in row if key != "action"} for row in deliveries]
    summary.add("deliveries", made.batch("deliveries", found), capture)
    section: dict[str, Any] = summary.result()["ack_latency"]
    return section


def lags(row: dict[str, Any]) -> list[int | None]:
    return [row[name] for name in row if name.startswith("lag_")]


def test_the_last_lags_of_all_partitions_and_the_highest_of_one() -> None:
    acks = [ack(3, 0, 9), ack(7, 0, 4), ack(5, 1, 2), ack(6, 1, None)]
    section = latency_of(acks, [delivery(2, 30), delivery(4, 12)])
    assert lags(section["by_subscription"][0]) == [4 + 2, 9, 12, 30, 1]
    assert lags(section["total"]) == [6, 9, 12, 30, 1]


def test_unknown_is_not_nothing() -> None:
    section = latency_of([ack(1, 0, None)], [delivery(2, None)])
    assert lags(section["total"]) == [None, None, None, None, 2]


def test_other_protocols_empty_batches_and_readers_without_a_group_have_no_lag() -> None:
    others = [
        delivery(2, None, consumer_id=4),
        delivery(3, None, entry_id=None),
        delivery(4, 7, subscription=None),
    ]
    section = latency_of([ack(1, 0, None, consumer_id=4)], others)
    assert lags(section["total"]) == [None] * 5


def test_logs_beyond_the_bound_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lags_module, "MAX_KEYS", 2)
    for count, limits in ((2, {}), (5, {"summary_keys_limit": 3})):
        summary = Numbers()
        for partition in range(count):
            rows = [ack(1 + partition, partition, 7)]
            summary.add("acks", made.batch("acks", rows), "c-one")
        found = summary.parts()
        topics = found.tables["lags"].column("topic").to_pylist()
        assert len([topic for topic in topics if topic != OTHERS]) == 2
        assert {name: hit for name, hit in found.limits.items() if hit} == limits
