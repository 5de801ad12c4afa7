"""Round trips, acks and deliveries: against naive counts, and what is not known."""

import pytest

from dissector.report.sections import ack_latency
from tests.dissector.report import made
from tests.dissector.report.sections.test_sections import reports, tables_of
from tests.naive import report as naive
from tests.numbers import Numbers

CASES = ("21", "22", "java-j74_corrupt.pcap", "java-j24_unload.pcap", "java-j61_txn_abort.pcap",
         "cpp-s08_nack-proxy-any.pcap")  # fmt: skip
each = pytest.mark.parametrize("name", CASES)
SECOND = 1_000_000_000


def timed_of(section: made.Row, key: str) -> tuple[int, float | None, float | None]:
    return section[key]["count"], section[key]["min"], section[key]["max"]


def spread(values: list[int]) -> tuple[int, float | None, float | None]:
    """Count, least and greatest of durations in ns, as a report prints them."""
    if not values:
        return 0, None, None
    low, high = ((2 * each + 1000) // 2000 / 1000 for each in (min(values), max(values)))
    return len(values), low, high


@each
def test_round_trips_are_those_of_all_requests(name: str) -> None:
    rows = naive.settled(tables_of(name))["exchanges"]
    asked = [row for row in rows if row["kind"] != "publish"]
    section = reports(*CASES)[name]["requests"]
    timed = [row["latency_ns"] for row in asked
             if row["outcome"] in ("ok", "error") and row["latency_ns"] is not None]  # fmt: skip
    assert timed_of(section["total"], "latency_ms") == spread(timed)
    for row in section["by_command"]:
        mine = [each for each in asked if each["request_command"] == row["request_command"]]
        if row["request_command"] is not None:
            assert row["requests"] == len(mine)
    sent = {
        (row["connection_id"], row["frame_no"]): row["direction"]
        for row in tables_of(name)["frames"] if row["command"] == "PING"
    }  # fmt: skip
    for asker, way in (("client", "to_broker"), ("broker", "to_client")):
        pings = [row for row in asked if row["request_command"] == "PING"
                 and sent[row["connection_id"], row["request_frame_no"]] == way]  # fmt: skip
        found = [row["requests"] for row in section["pings"] if row["asked_by"] == asker]
        assert sum(found) == len(pings)


@each
def test_acks_and_the_time_until_they_came(name: str) -> None:
    tables = naive.settled(tables_of(name))
    section = reports(*CASES)[name]["ack_latency"]
    acked = [row for row in tables["deliveries"] if row["outcome"] == "acked"]
    timed = [row["ack_latency_ns"] for row in acked if row["ack_latency_ns"] is not None]
    assert section["total"]["acked"] == len(acked)
    assert timed_of(section["total"], "ack_latency_ms") == spread(timed)
    acks = [row for row in tables["acks"] if row["action"] == "ack"]
    frames = {(row["connection_id"], row["frame_no"]) for row in acks}
    assert section["total"]["ack_commands"] == len(frames)
    single = [row for row in acks if row["ack_type"] != "Cumulative"]
    assert section["total"]["ids_acked"] == len(single)
    assert sum(row["acked"] for row in section["by_subscription"]) == len(acked)


@each
def test_requests_for_more_are_timed_from_the_delivery_and_to_the_next(name: str) -> None:
    tables = naive.settled(tables_of(name))
    given: dict[tuple[object, ...], list[int]] = {}
    for row in tables["deliveries"]:
        id_ = (row["topic"], row["subscription"], row["ledger_id"], row["entry_id"])
        given.setdefault(id_, []).append(row["ts"])
    asked, came = [], []
    for row in tables["acks"]:
        if row["action"] == "redeliver" and row["ledger_id"] is not None:
            # What has no name cannot be told from what others call so.
            id_ = (row["topic"], row["subscription"], row["ledger_id"], row["entry_id"])
            at = row["ts"]
            mine = [] if None in id_ else given.get(id_, [])
            before = [each for each in mine if each <= at]
            behind = [each for each in mine if each > at]
            asked += [(at - max(before)) * 1000] if before else []
            came += [(min(behind) - at) * 1000] if before and behind else []
    total = reports(*CASES)[name]["redelivery"]["total"]
    assert timed_of(total, "asked_after_ms") == spread(asked)
    assert timed_of(total, "came_after_ms") == spread(came)
    assert len(asked) > 0 or name.startswith("java")


@each
def test_first_deliveries_are_timed_from_their_publish(name: str) -> None:
    tables = naive.settled(tables_of(name))
    section = reports(*CASES)[name]["publish_to_delivery"]
    timed = [
        row["publish_to_delivery_ns"] for row in tables["deliveries"]
        if row["publish_to_delivery_ns"] is not None and not row["is_redelivered"]
        and not (row["deliver_at_ms"] or 0) > 0
    ]  # fmt: skip
    assert timed_of(section["total"], "transit_ms") == spread(timed)
    total = section["total"]
    assert sum(total["not_evaluated_by_reason"].values()) + len(timed) == total["deliveries"]
    stored = {
        (row["ledger_id"], row["entry_id"]) for row in tables["exchanges"]
        if row["kind"] == "publish" and row["outcome"] == "ok" and row["ledger_id"] is not None
    }  # fmt: skip
    delivered = {(row["ledger_id"], row["entry_id"]) for row in tables["deliveries"]}
    assert total["entries_confirmed"] == len(stored)
    assert total["entries_delivered"] == len(delivered)
    assert total["entries_stored"] == len(stored | delivered)


@pytest.mark.parametrize(
    ("commands", "ids", "all_answered", "floor"),
    [(0, 0, False, None), (2, 9, False, 100.0), (2, 2, True, 0.0), (2, 2, False, None)],
    ids=["nothing", "gathered", "answered", "single"],
)
def test_how_long_acks_may_have_been_kept_back(
    commands: int, ids: int, all_answered: bool, floor: float | None
) -> None:
    numbers = Numbers()
    rows = [
        {"connection_id": 1, "frame_no": min(number, commands - 1), "action": "ack",
         "ledger_id": 1, "entry_id": number, "ack_type": "Individual",
         "request_id": 7 if all_answered else None}
        for number in range(ids)
    ]  # fmt: skip
    for row in rows:  # the ids of one frame may come in several pieces
        numbers.add("acks", made.batch("acks", [row]))
    total = numbers.result()["ack_latency"]["total"]
    assert (total["ack_commands"], total["ids_acked"]) == (commands, ids)
    assert total["grouping_floor_ms"] == floor
    assert ack_latency.GROUPING_FLOOR_MS == 100.0
