"""Exchanges of a script, the slow and plain way: lists that are searched from their beginning.

For conversations without holes: every request is searched for the answer that the protocol's rules
give it, whatever comes between. It knows nothing of chains, groups and bounds.
"""

from typing import Any

from dissector.protocols.columns import EVENT_CLOSE, TO_BROKER
from dissector.protocols.pulsar.wire import commands
from dissector.protocols.pulsar.wire.commands import (
    BROKER_REQUEST_ID,
    BY_REQUEST_ID,
    BY_TURN,
    COMMAND_BY_NUMBER,
    COMMANDS,
    NO_REQUEST,
)
from tests.wire.frames import STEP_NS

Row = dict[str, Any]
_START_NS = 1_000_000_000
_BY_REQUEST = {each.number: each for each in COMMANDS if each.pairing != NO_REQUEST}


def _numbered(script: list[Row]) -> list[Row]:
    """The script with the frame numbers and stamps that its frames get."""
    found, frame_no, now = [], 0, _START_NS
    for row in script:
        now += STEP_NS
        frame_no += row["command"] >= 0
        found.append({**row, "frame_no": frame_no, "ns": now})
    return found


def _is_answer(request: Row, row: Row) -> bool:
    """Whether a later frame of the other direction answers a request."""
    rule = _BY_REQUEST[request["command"]]
    if row["connection_id"] != request["connection_id"]:
        return False
    answer = COMMAND_BY_NUMBER.get(row["command"])
    if row["direction"] == request["direction"] or answer is None:
        return False
    if rule.number not in answer.answers:
        return False
    if request["command"] == commands.SEND:
        key = ("producer_id", "sequence_id")
        return all(row[name] == request[name] for name in key)
    if rule.pairing == BY_REQUEST_ID:
        return bool(row["request_id"] == request["request_id"])
    return row["command"] != commands.ERROR or row.get("request_id") == BROKER_REQUEST_ID


def _is_request(row: Row) -> bool:
    rule = _BY_REQUEST.get(row["command"])
    if rule is None:
        return False
    if rule.pairing == BY_REQUEST_ID:
        is_broker_close = row["direction"] != TO_BROKER and row["command"] in (15, 16)
        return not is_broker_close and row.get("request_id") not in (None, BROKER_REQUEST_ID)
    return rule.pairing == BY_TURN or row["command"] == commands.SEND


def _outcome(request: Row, answer: Row | None, is_hung_up: bool) -> str:
    if answer is None:
        return "conn_closed" if is_hung_up else "unanswered_at_end"
    if answer["command"] in (commands.ERROR, commands.SEND_ERROR):
        return "error"
    if answer["command"] == commands.SEND_RECEIPT and answer["ledger_id"] == -1:
        return "dup_or_dropped"
    return "ok"


def exchanges(script: list[Row]) -> list[tuple[Any, ...]]:
    """(request frame, answer frame, outcome, latency, outstanding before), by request frame."""
    rows = _numbered(script)
    used: set[int] = set()
    answered_at: dict[int, int] = {}
    found = []
    for place, request in enumerate(rows):
        if not _is_request(request):
            continue
        end = next(
            (at for at in range(place, len(rows)) if rows[at]["command"] == EVENT_CLOSE
             and rows[at]["connection_id"] == request["connection_id"]), len(rows),
        )  # fmt: skip
        at = next(
            (at for at in range(place + 1, end) if at not in used
             and _is_answer(request, rows[at])), None,
        )  # fmt: skip
        answer = None
        if at is not None:
            used.add(at)
            answer = rows[at]
        answered_at[place] = len(rows) if at is None else at
        outstanding = None
        if request["command"] == commands.SEND:
            outstanding = sum(
                rows[other]["command"] == commands.SEND and until > place
                and rows[other]["producer_id"] == request["producer_id"]
                and rows[other]["connection_id"] == request["connection_id"]
                for other, until in answered_at.items() if other < place
            )  # fmt: skip
        found.append(
            (
                request["frame_no"],
                answer["frame_no"] if answer else None,
                _outcome(request, answer, end < len(rows)),
                answer["ns"] - request["ns"] if answer else None,
                outstanding,
            )
        )
    return found
