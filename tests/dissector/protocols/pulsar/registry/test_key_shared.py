"""How keys are shared among consumers: what SUBSCRIBE says of it, and who got which key."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from dissector.limits import NULL
from dissector.protocols.pulsar.registry.key_shared import (
    key_shared_columns,
    unknown_fields,
)
from tests.dissector.findings.tape import Tape
from tests.dissector.observed import CAPTURES, tables_of
from tests.naive import key_hashes as naive
from tests.wire import pulsar


def meta(**fields: Any) -> bytes:
    message = pulsar.classes()["KeySharedMeta"]()
    pulsar.fill(message, fields)
    return bytes(message.SerializePartialToString())


def said(*known: bytes | None) -> list[tuple[Any, ...]]:
    """Mode, ranges and order of rows that say these bytes, or nothing."""
    texts = [each for each in known if each is not None]
    codes = [NULL if each is None else texts.index(each) for each in known]
    columns = key_shared_columns(np.array(codes, np.int64), texts)
    assert [*columns] == ["key_shared_mode", "sticky_ranges", "allows_out_of_order"]
    return [*zip(*columns.values(), strict=True)]


def test_mode_ranges_and_order_are_what_the_message_says() -> None:
    ranges = [{"start": 5, "end": 9}, {"start": 0, "end": 0}]
    assert said(
        meta(keySharedMode="AUTO_SPLIT"),
        None,
        meta(keySharedMode="STICKY", hashRanges=ranges, allowOutOfOrderDelivery=True),
        meta(keySharedMode="STICKY") + b"\xf8\x07\x01",  # a field of a broker to come
    ) == [
        ("AUTO_SPLIT", None, False),
        (None, None, None),
        ("STICKY", [5, 9, 0, 0], True),
        ("STICKY", None, False),
    ]


def test_bytes_that_say_nothing_are_null() -> None:
    odd = (b"", b"\xff", b"\x08\x02", meta(hashRanges=[{"start": 1, "end": 2}]))
    assert said(*odd) == [(None, None, None)] * 4
    assert key_shared_columns(np.array([NULL], np.int64), []) == {}


def test_each_field_of_a_client_to_come_is_one_notice(tmp_path: Path) -> None:
    """In KeySharedMeta, which one such client is to say more in, and in its ranges."""
    odd = b"\x08\x01\x1a\x06\x08\x01\x10\x09\x50\x05\x28\x01"
    assert unknown_fields(odd) == [("IntRange", 10), ("KeySharedMeta", 5)]
    assert unknown_fields(b"\xff") == unknown_fields(meta(keySharedMode="STICKY")) == []
    tape = Tape()
    for number in range(3):
        link = tape.pulsar(0.1 * number, 40000 + number)
        command = pulsar.classes()["BaseCommand"]()
        pulsar.fill(command, {"type": "SUBSCRIBE"})
        fields = {"topic": "t", "subscription": "s", "consumer_id": 1, "request_id": 1}
        pulsar.fill(command.subscribe, {**fields, "subType": "Key_Shared"})
        command.subscribe.keySharedMeta.MergeFromString(odd)
        link.send(5.0 + number, 0, pulsar.simple(command.SerializePartialToString()))
    (path := tmp_path / "made.pcap").write_bytes(tape.capture())
    texts = [row["text"] for row in tables_of(str(path))["notices"]]
    for name, field in (("KeySharedMeta", 5), ("IntRange", 10)):
        told = f"field {field} of {name} is unknown to this version; frames with it: 3"
        assert texts.count(told) == 1


def keys_of(path: Path) -> dict[str, set[tuple[int, int]]]:
    """Connection and id of the consumers that got each key."""
    tables = tables_of(str(path))
    consumers = {
        (row["connection_id"], row["frame_no"]): (row["connection_id"], row["consumer_id"])
        for row in tables["deliveries"]
        if row["subscription_type"] == "Key_Shared"
    }
    found = defaultdict(set)
    for row in tables["messages"]:
        if row["direction"] == "to_client" and row["partition_key"] is not None:
            assert row["key_hash"] == naive.key_hash(row["partition_key"].encode())
            found[row["partition_key"]].add(consumers[row["connection_id"], row["frame_no"]])
    return found


def test_a_broker_that_splits_the_slots_gave_each_key_to_one_consumer() -> None:
    """Recorded of pulsar-lite with two consumers: each has a half of 65,536 slots."""
    found = keys_of(CAPTURES / "pulsar" / "cpp-s07_keyshared_rq0.pcap")
    assert len(found) == 8 and all(len(consumers) == 1 for consumers in found.values())
    halves = defaultdict(set)
    for key, consumers in found.items():
        halves[naive.key_hash(key.encode()) % 65536 // 32768] |= consumers
    assert dict(halves) == {0: {(0, 0)}, 1: {(0, 1)}}


def test_each_key_lay_in_the_range_of_the_consumer_that_got_it() -> None:
    path = CAPTURES / "threads" / "t04-sticky-range-twin.pcap"
    ranges = {
        (row["connection_id"], row["consumer_id"]): row["sticky_ranges"]
        for row in tables_of(str(path))["consumers"]
    }
    assert sorted(ranges.values()) == [[0, 32767], [32768, 65535]]
    found = keys_of(path)
    assert len(found) == 15
    for key, consumers in found.items():
        (consumer,) = consumers
        first, last = ranges[consumer]
        assert first <= naive.key_hash(key.encode()) % 65536 <= last
