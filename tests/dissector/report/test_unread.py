"""Frames that were seen and not read: counted where they are, and what they leave unknown."""

import pyarrow as pa
import pytest

from dissector.report.names import LEGS
from dissector.report.parts import Parts, no_parts
from dissector.report.tallies import ACK_COMMANDS, FRAMES, REQUESTS
from dissector.report.unread import unread, unread_requests, with_unread


def parts_of(read: dict[int, int], legs: list[dict[str, object]]) -> Parts:
    """Nine ACK frames on each of two connections, of which so many were read."""
    named = {"protocol": "pulsar", "direction": "to_broker", "status": "cut_by_snaplen"}
    frames = [
        {"connection_id": place, "command": command, "frames": count, "frame_bytes": 0, **named}
        for place in (0, 1)
        for command, count in (("ACK", 4), ("ACK", 5), ("FLOW", 7))
    ]
    frames.append({**frames[0], "protocol": "cursus"})
    commands = [
        {"connection_id": connection, "ack_commands": count, "ids": count}
        for connection, count in read.items()
    ]
    parts = no_parts()
    tables = parts.tables | {
        "frames": pa.Table.from_pylist(frames, FRAMES.schema()),
        "ack_commands": pa.Table.from_pylist(commands, ACK_COMMANDS.schema()),
    }
    names = parts.names._replace(legs=pa.Table.from_pylist(legs, LEGS))
    return parts._replace(tables=tables, names=names)


@pytest.mark.parametrize(
    ("read", "expected"), [({}, 18), ({0: 9}, 9), ({0: 2, 1: 9}, 7), ({0: 12, 1: 8}, 1)]
)
def test_frames_without_a_row_are_counted_by_connection(
    read: dict[int, int], expected: int
) -> None:
    assert unread(parts_of(read, []), "ACK", "ack_commands", "ack_commands") == expected


def test_the_second_leg_of_a_proxy_is_left_out() -> None:
    legs: list[dict[str, object]] = [{"connection_id": 1, "leg": "broker", "twin_connection_id": 0}]
    assert unread(parts_of({}, legs), "ACK", "ack_commands", "ack_commands") == 9


def test_rows_of_joined_connections_stand_under_the_first() -> None:
    parts = parts_of({0: 17}, [])._replace(heads={(None, 1): (None, 0)})  # type: ignore[dict-item]
    assert unread(parts, "ACK", "ack_commands", "ack_commands") == 1


def test_requests_are_counted_command_by_command() -> None:
    """More rows of one command do not make up for missing ones of another."""
    parts = parts_of({}, [])
    rows = [{"connection_id": 0, "request_command": "ACK", "requests": 20}]
    parts.tables["requests"] = pa.Table.from_pylist(rows, REQUESTS.schema())
    assert unread_requests(parts, ("ACK", "FLOW", "SEEK")) == 9 + 7 + 7


def test_a_section_says_how_many_and_knows_nothing_where_none_was_read() -> None:
    for read, said in ((3, 3), (0, None)):
        section = {"total": {"acks": read, "ids": read, "not_judged": {"a": 1}}, "list": []}
        found = with_unread(section, "unread", 2, "acks", ("acks", "ids"))
        assert found["total"] == {
            "acks": said, "ids": said, "not_judged": {"a": 1, "unread": 2},
        }  # fmt: skip
    untouched = {"total": {"acks": 0, "not_judged": {}}}
    assert with_unread(untouched, "unread", 0, "acks", ("acks",)) is untouched
