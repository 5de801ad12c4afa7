"""What is unknown: shown with its number, told once for each kind, and never taken for more."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dissector.dissection import Options
from dissector.limits import MAX_UNKNOWN_KINDS, NULL
from dissector.notice_log import NoticeLog, sentence_of
from dissector.protocols.pulsar.wire.unknown import Unknown
from dissector.report.headlines import headlines
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.findings.tape import TOPIC, Link, Tape
from tests.numbers import Numbers
from tests.plain import rows_of_block
from tests.wire import pulsar
from tests.wire.blocks import block_of

Tables = dict[str, list[dict[str, Any]]]
STRANGE = 99  # no ServerError, no command, no field, no flag


def field(number: int, value: int) -> bytes:
    """A varint field of any number."""
    return pulsar.varint(number << 3) + pulsar.varint(value)


def framed(command: bytes) -> bytes:
    return struct.pack(">II", 4 + len(command), len(command)) + command


def with_body(number: int, body: bytes) -> bytes:
    """A BaseCommand of any type."""
    return field(1, number) + pulsar.varint(number << 3 | 2) + pulsar.varint(len(body)) + body


def refusal(name: str, request: int, code: int, **more: Any) -> bytes:
    """An answer that refuses with a number which the library would not take."""
    (number,) = (
        each.number for each in _body(name).DESCRIPTOR.fields if each.enum_type is not None
    )
    body = pulsar.body(_body(name).DESCRIPTOR.name, request_id=request, **more)
    body += field(number, code)
    kind = pulsar.classes()["BaseCommand"].DESCRIPTOR.fields_by_name["type"].enum_type
    command = kind.values_by_name[name].number
    return framed(with_body(command, body))


def _body(name: str) -> Any:
    base = pulsar.classes()["BaseCommand"]
    number = base.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_name[name].number
    return pulsar.classes()[base.DESCRIPTOR.fields_by_number[number].message_type.name]


def seen(tmp_path: Path, say: Callable[[Link], None]) -> tuple[Tables, list[str]]:
    """The tables of a capture, and the sentences of its report."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    say(link)
    link.ping(9.0)
    path = tmp_path / "made.pcap"
    path.write_bytes(tape.capture())
    (chain,) = chains([str(path)]).chains
    tables: Tables = {}
    numbers = Numbers(asks_rules=True)
    for block in dissect(chain, Options()):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    for block in dissect(chain, Options(want_detail="none")):
        numbers.add_block(block)
    return tables, [each.text for each in headlines(numbers.result())]


def told(tables: Tables) -> list[tuple[str, str]]:
    return [
        (row["code"], row["text"]) for row in tables["notices"] if row["code"].startswith("unknown")
    ]


def test_an_error_with_an_unknown_code_shows_its_number_and_closes_nothing(tmp_path: Path) -> None:
    def say(link: Link) -> None:
        link.produce(1.0, 1)
        link.produce(2.0, 2, topic=f"{TOPIC}2", answer_s=None)
        link.send(2.1, 1, refusal("ERROR", 2, STRANGE, message="not today"))
        link.publish(3.0, 1, 0, 0)

    tables, sentences = seen(tmp_path, say)
    (error,) = [row for row in tables["frames"] if row["command"] == "ERROR"]
    assert (error["error_code"], error["error_text"]) == ("99", "not today")
    (refused,) = [row for row in tables["exchanges"] if row["outcome"] == "error"]
    assert (refused["request_command"], refused["error_code"]) == ("PRODUCER", "99")
    assert [row["refused_code"] for row in tables["producers"]] == ["99", None]
    assert any("1 request was refused: code 99" in text for text in sentences)
    assert not any("The broker closed" in text for text in sentences)
    assert told(tables) == [
        ("unknown_value", "value 99 of ServerError is unknown to this version; frames with it: 1"),
    ]


def test_an_error_without_a_code_closes_nothing_either(tmp_path: Path) -> None:
    def say(link: Link) -> None:
        link.produce(2.0, 2, answer_s=None)
        link.send(2.1, 1, pulsar.simple(pulsar.command("ERROR", request_id=2, message="no")))

    tables, sentences = seen(tmp_path, say)
    assert [row["refused_code"] for row in tables["producers"]] == [None]
    assert any("1 request was refused" in text for text in sentences)
    assert not any("The broker closed" in text for text in sentences)


def test_an_ack_that_is_refused_with_an_unknown_code_is_refused(tmp_path: Path) -> None:
    def say(link: Link) -> None:
        link.subscribe(1.0, 1)
        link.message(2.0, 1, 0)
        link.tell(
            2.1, "ACK", consumer_id=1, request_id=5, ack_type="Individual",
            message_id=[{"ledgerId": 7, "entryId": 0}],
        )  # fmt: skip
        link.send(2.2, 1, refusal("ACK_RESPONSE", 5, STRANGE, consumer_id=1))

    tables, sentences = seen(tmp_path, say)
    assert [row["outcome"] for row in tables["deliveries"]] == ["ack_refused"]
    assert "1 delivery: 0 acknowledged, 1 refused by the broker when acknowledged." in sentences


def test_unknown_commands_fields_and_flags_are_one_notice_for_each_kind(tmp_path: Path) -> None:
    def say(link: Link) -> None:
        for at in (1.0, 2.0):
            link.send(at, 1, framed(with_body(STRANGE, b"")))
            flow = pulsar.body("CommandFlow", consumer_id=1, messagePermits=1) + field(STRANGE, 5)
            flow += field(STRANGE, 6)
            link.send(at + 0.1, 0, framed(with_body(11, flow)))
        flags = pulsar.body("FeatureFlags", supports_auth_refresh=True) + field(STRANGE, 1)
        hello = pulsar.body("CommandConnect", client_version="Next-9", protocol_version=30)
        number = _body("CONNECT").DESCRIPTOR.fields_by_name["feature_flags"].number
        hello += pulsar.varint(number << 3 | 2) + pulsar.varint(len(flags)) + flags
        link.send(3.0, 0, framed(with_body(2, hello)))
        link.send(4.0, 0, framed(with_body(500, b"")))

    tables, _ = seen(tmp_path, say)
    names = {row["command"] for row in tables["frames"]}
    assert {"UNKNOWN_99", "UNKNOWN_500"} <= names
    assert sorted(told(tables)) == [
        ("unknown_command", "command 500 is unknown to this version; frames with it: 1"),
        ("unknown_command", "command 99 is unknown to this version; frames with it: 2"),
        ("unknown_feature", "feature flag 99 is unknown to this version; handshakes with it: 1"),
        ("unknown_field", "field 99 of CommandFlow is unknown to this version; frames with it: 2"),
    ]
    by_code = {row["code"]: row["frame_no"] for row in tables["notices"]}
    frames = {row["frame_no"]: row["command"] for row in tables["frames"]}
    assert frames[by_code["unknown_field"]] == "FLOW"


def test_a_value_that_an_enumeration_lacks_is_shown_with_its_number(tmp_path: Path) -> None:
    def say(link: Link) -> None:
        body = pulsar.body(
            "CommandSubscribe", topic=TOPIC, subscription="s", consumer_id=1, request_id=1
        )
        number = _body("SUBSCRIBE").DESCRIPTOR.fields_by_name["subType"].number
        for at, kind in ((1.0, 9), (2.0, -1)):
            sub = body + field(number, kind % (1 << 64))
            link.send(at, 0, framed(with_body(4, sub)))
            link.hear(at + 0.1, "SUCCESS", request_id=1)
        link.message(3.0, 1, 0)

    tables, _ = seen(tmp_path, say)
    assert [row["subscription_type"] for row in tables["deliveries"]] == ["9"]
    kind = "CommandSubscribe.SubType is unknown to this version; frames with it: 1"
    assert {text for _, text in told(tables)} == {f"value 9 of {kind}", f"value -1 of {kind}"}


def test_what_is_garbage_has_no_unknown_fields(tmp_path: Path) -> None:
    def say(link: Link) -> None:
        body = field(STRANGE, 1) + b"\x0f"
        link.send(1.0, 0, framed(with_body(11, body)))

    tables, _ = seen(tmp_path, say)
    assert [row["status"] for row in tables["frames"] if row["command"] == "FLOW"] == ["malformed"]
    assert not told(tables)


def test_too_many_kinds_are_counted_together() -> None:
    unknown = Unknown(0)
    columns, _ = block_of([pulsar.vector("PING")] * 300)
    columns.command[:300] = np.arange(1000, 1300)
    columns.command[299] = NULL
    for _ in range(2):
        unknown.count_block(columns, 300)
    log = NoticeLog()
    unknown.write_notices(log)
    notices = log.rows()
    assert len(notices) == MAX_UNKNOWN_KINDS + 1
    assert sentence_of(notices[-1]).endswith("frames with others: 86")


@pytest.mark.parametrize("count", [1, 70, 400])
def test_fields_of_any_number_are_counted_or_told_to_be_too_many(
    tmp_path: Path, count: int
) -> None:
    def say(link: Link) -> None:
        for number in range(count):
            body = pulsar.body("CommandFlow", consumer_id=1, messagePermits=1)
            body += field(1000 + number, 1)
            link.send(1.0 + number / 100, 0, framed(with_body(11, body)))

    tables, _ = seen(tmp_path, say)
    fields = [text for code, text in told(tables) if code == "unknown_field"]
    rest = [text for code, text in told(tables) if code == "unknown_limit"]
    others = int(rest[0].split()[-1]) if rest else 0
    assert sum(int(text.split()[-1]) for text in fields) + others == count
