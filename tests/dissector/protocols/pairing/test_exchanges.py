"""A protocol that declares its commands: which answer belongs to which request, and what is lost.

All that Pulsar's own commands need besides is in `pulsar/test_exchanges`.
"""

from typing import Any

from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.protocols import columns
from dissector.protocols.columns import FrameEvent
from dissector.protocols.pairing import rules
from dissector.protocols.pairing.exchanges import Exchanges
from dissector.protocols.pairing.rules import Command, Expectation, PairedBy
from dissector.protocols.pairing.state import PairingBounds
from dissector.schemas.enums import KIND_PING, KIND_PUBLISH
from tests.wire.frames import STEP_NS, FrameMaker, in_blocks
from tests.wire.talk import chosen, plain_rows

STORE, STORED, REFUSED, ASK, TOLD, BEAT, ALIVE, WATCH, SEEN, FORGET = range(1, 11)
TABLE = (
    Command(STORE, columns.TO_BROKER, PairedBy.SEND, kind=KIND_PUBLISH),
    Command(STORED, columns.TO_CLIENT, answers=(STORE,), is_receipt=True),
    Command(ASK, columns.TO_BROKER, PairedBy.REQUEST_ID),
    Command(TOLD, columns.TO_CLIENT, answers=(ASK,), failed_response=7),
    Command(REFUSED, columns.TO_CLIENT, answers=(ASK,), is_refusal=True),
    Command(BEAT, rules.EITHER, PairedBy.TURN, kind=KIND_PING),
    Command(ALIVE, rules.EITHER, answers=(BEAT,)),
    Command(WATCH, columns.TO_BROKER, PairedBy.WATCHER, silence=Expectation.MAY_BE_SILENT),
    Command(SEEN, columns.TO_CLIENT, answers=(WATCH,)),
    Command(FORGET, columns.TO_BROKER, PairedBy.NOTHING),
)


def said(command: int, side: int = 0, **fields: Any) -> dict[str, Any]:
    """A frame; what side 0 says goes to the broker."""
    row = {"command": command, "endpoint_index": side, "direction": side, "incarnation": 0}
    return row | fields


def event(command: int, side: int, **fields: Any) -> dict[str, Any]:
    return said(command, side, **fields)


SEEN_BOTH = event(FrameEvent.FIN, 1)  # something came from the other side


def exchanges(script: list[dict[str, Any]], cuts: tuple[int, ...] = (), **bounds: int) -> list:
    """Outcome, frame of the request, frame of the answer, of each exchange in order."""
    pairing = Exchanges(0, rules.rules_of(TABLE), 20 * STEP_NS, PairingBounds(**bounds))
    notices, found = NoticeLog(), []
    for block in in_blocks(FrameMaker(), script, cuts):
        found += pairing.pair(block.frames, block.rows, block.names, notices)
    still_open = pairing.open_rows()
    ended = pairing.finish(notices)
    both = [[row for each in blocks for row in plain_rows(each)] for blocks in (still_open, ended)]
    assert both[0] == both[1]
    rows = [row for each in found for row in plain_rows(each)] + both[1]
    return chosen(rows, "outcome", "request_frame_no", "response_frame_no")


def test_each_way_of_pairing_finds_its_request() -> None:
    script = [
        said(STORE, producer_id=1, sequence_id=5),
        said(STORE, producer_id=1, sequence_id=6),
        said(ASK, request_id=1),
        said(BEAT),
        said(WATCH, watcher_id=4),
        said(FORGET),
        said(ALIVE, 1),
        said(TOLD, 1, request_id=1, response=3),
        said(STORED, 1, producer_id=1, sequence_id=6, ledger_id=3, entry_id=1),
        said(SEEN, 1, watcher_id=4),
        said(SEEN, 1, watcher_id=4),  # a push
        said(STORED, 1, producer_id=1, sequence_id=5, ledger_id=-1, entry_id=-1),
    ]
    expected = [
        ("not_awaited", 6, None),
        ("ok", 4, 7),
        ("ok", 3, 8),
        ("ok", 2, 9),
        ("ok", 5, 10),
        ("dup_or_dropped", 1, 12),
    ]
    for cuts in ((), (3, 8), tuple(range(1, len(script)))):
        assert exchanges(script, cuts) == expected


def test_a_table_says_what_refuses() -> None:
    script = [said(ASK, request_id=1), said(ASK, request_id=2), said(ASK, request_id=3)]
    script += [said(TOLD, 1, request_id=1, response=7), said(REFUSED, 1, request_id=2)]
    script += [said(TOLD, 1, request_id=3, error_code=1)]
    assert [row[0] for row in exchanges(script)] == ["error"] * 3


def test_an_answer_that_was_captured_first_waits_for_its_request() -> None:
    early = [said(TOLD, 1, request_id=1), said(ALIVE, 1)]
    early += [said(STORED, 1, producer_id=1, sequence_id=5, ledger_id=3, entry_id=1)]
    script = [*early, said(ASK, request_id=1), said(BEAT)]
    script += [said(STORE, producer_id=1, sequence_id=5)]
    assert exchanges(script) == [("ok", 4, 1), ("ok", 5, 2), ("ok", 6, 3)]
    later = [said(FORGET) for _ in range(30)]
    assert "ok" not in [row[0] for row in exchanges([*early, *later, *script[3:]])]
    assert exchanges(early) == [("orphan_response", None, number) for number in (1, 2, 3)]
    # Of another life of the producer it is no answer.
    script[5]["incarnation"] = 1
    assert ("ok", 6, 3) not in exchanges(script)


def test_a_hole_hides_answers_but_a_gap_inside_of_a_frame_hides_none() -> None:
    def lost(**fields: Any) -> list:
        gap = event(FrameEvent.GAP, 1, frame_bytes=10, **fields)
        return exchanges([SEEN_BOTH, said(ASK, request_id=1), said(BEAT), gap])

    assert [row[0] for row in lost(frames_missing=1)] == ["lost_in_gap"] * 2
    assert [row[0] for row in lost(frames_missing=0)] == ["unanswered_at_end"] * 2
    skipped = [said(BEAT), event(FrameEvent.SKIPPED, 1), said(BEAT), said(ALIVE, 1)]
    assert exchanges(skipped) == [("lost_in_gap", 1, None), ("ok", 2, 3)]


def test_what_gets_no_answer_says_why() -> None:
    close = event(FrameEvent.CLOSE, 0, status=0)
    asked = [said(ASK, request_id=1), said(WATCH, watcher_id=4)]
    assert [row[0] for row in exchanges(asked)] == ["other_side_not_captured"] * 2
    rows = exchanges([*asked, event(FrameEvent.FIN, 1), close])
    assert [row[0] for row in rows] == ["conn_closed", "not_awaited"]


def test_bounds_give_up_the_oldest() -> None:
    script = [SEEN_BOTH] + [said(ASK, request_id=number) for number in range(4)]
    rows = exchanges(script, requests=2)
    assert [row[:2] for row in rows[:2]] == [("evicted", 1), ("evicted", 2)]
    assert [row[0] for row in rows[2:]] == ["unanswered_at_end"] * 2
    sends = [said(STORE, producer_id=1, sequence_id=number) for number in range(3)]
    assert exchanges([SEEN_BOTH, *sends], sends=2)[0] == ("evicted", 1, None)


def test_unreadable_frames_are_holes() -> None:
    for hidden in (
        said(REFUSED, 1, status=columns.MALFORMED),
        said(TOLD, 1, status=columns.CUT_BY_SNAPLEN),
        said(STORED, 1, producer_id=1),
        said(rules.COMMAND_SLOTS, 1),
        said(NULL, 1),
    ):
        rows = exchanges([said(ASK, request_id=1), hidden])
        assert rows[0] == ("lost_in_gap", 1, None), hidden
