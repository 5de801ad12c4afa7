"""The frequent part of conversations: batches, their acknowledgements, and pushes of streams.

A connection is *lent* to the compiled pass while all that waits on it are batches, or while it is a
stream. The pass takes rows in order and stops at the first that is not so simple; the rules in
`correlation` then take the connection back, do that row and lend it again.
"""

from typing import Any, Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.wrapping import difference, total
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import (
    COMPLETE,
    NAME_OBSERVED,
    TO_BROKER,
    TO_CLIENT,
    FrameColumns,
)
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.commands import BATCH
from dissector.protocols.cursus.compact_acks import ACK_READ, BATCH_READ, EMPTY_READ, OK_READ
from dissector.protocols.cursus.handing import HandingState, can_hand, hand
from dissector.protocols.cursus.sendings import (
    SendingState,
    Sent,
    begin_batch,
    copies_of,
    find_batch,
    follow,
    lag_from,
    published_ns,
    see_end,
    standing,
    store_batch,
)
from dissector.protocols.tables import (
    ABSENT,
    HashTable,
    Pool,
    find,
    give_row,
    take_row,
)
from dissector.schemas.words import DUP_OR_DROPPED, OK
from dissector.schemas.words import KIND_PUBLISH as PUBLISH
from dissector.states import State

# Modes of a talk.
KEPT: Final = 0  # the rules have it
BATCHES: Final = 1
PUSHES: Final = 2


class Talks(Records):
    """One record per connection.

    topic, subscription, producer, consumer: of a stream, for the frames that it pushes; last_...:
    of the last batch; first, last, length: batches that wait; has_...: as in Conversation.
    """

    mode: Int64Array
    topic: Int64Array
    subscription: Int64Array
    producer: Int64Array
    consumer: Int64Array
    last_topic: Int64Array
    last_producer: Int64Array
    last_epoch: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    has_pipelined: Int64Array
    has_asked: Int64Array
    has_answered: Int64Array
    has_stored: Int64Array


class WaitingBatches(Records):
    """A batch that waits for its answer, as in Request. number: of sendings, 0 for none."""

    frame_no: Int64Array
    first_ns: Int64Array
    last_ns: Int64Array
    size: Int64Array
    topic: Int64Array
    partition: Int64Array
    producer: Int64Array
    sequence: Int64Array
    highest: Int64Array
    message_count: Int64Array
    attempt: Int64Array
    outstanding: Int64Array
    acks: Int64Array
    idempotent: Int64Array
    tainted: Int64Array
    number: Int64Array
    next: Int64Array


class TalkState(State):
    """All of it. by_connection: talks; pending: int64[2], requests that wait on
    any connection, and their limit.
    """

    by_connection: HashTable
    talks: Talks
    waiting: WaitingBatches
    free: Pool
    pending: Int64Array


class Work(NamedTuple):
    """All that the pass works on. out: rows of exchanges, with room for all that could close."""

    state: TalkState
    sendings: SendingState
    handing: HandingState
    frames: FrameColumns
    bodies: BodyColumns
    out: Any


@inlined
def _needs_note(sendings: SendingState, sent: Sent, is_once: bool) -> bool:
    """Whether a new batch goes back in epochs, or leaves a hole where each counts once."""
    before = standing(sendings, sent)
    if before.is_known == 0:
        return False
    if sent.epoch < before.epoch:
        return True
    is_hole = sent.seq_start > total(before.seq_end, 1)
    return is_once and sent.epoch == before.epoch and is_hole


@inlined
def _is_once(sendings: SendingState, topic: int, idempotent: int) -> bool:
    return idempotent == 1 or find(sendings.once, topic, 0, 0, 0) != ABSENT


@inlined
def _ask(work: Work, talk: int, row: int) -> bool:
    """A batch of a client; False if it is for the rules."""
    state, sendings = work.state, work.sendings
    frames, bodies = work.frames, work.bodies
    talks = state.talks
    producer = frames.producer_name[row]
    is_same = talks.last_topic[talk] == frames.topic[row] and talks.last_producer[talk] == producer
    if not is_same or talks.last_epoch[talk] != frames.producer_epoch[row] or producer < 0:
        return False
    if frames.sequence_id[row] == NULL or frames.topic[row] < 0 or state.free.free[0] == 0:
        return False
    if state.pending[0] >= state.pending[1]:
        return False
    sent = Sent(
        frames.topic[row],
        frames.partition[row],
        producer,
        frames.producer_epoch[row],
        frames.sequence_id[row],
        frames.highest_sequence_id[row],
    )
    idempotent = max(bodies.idempotent[row], 0)
    is_new = find_batch(sendings, sent) == ABSENT
    is_once = _is_once(sendings, sent.topic, idempotent)
    if is_new and _needs_note(sendings, sent, is_once):
        return False
    number = begin_batch(sendings, sent, frames.last_ts_ns[row])
    if is_new:
        follow(sendings, sent)
    waiting = state.waiting
    new = take_row(state.free)
    waiting.frame_no[new] = frames.frame_no[row]
    waiting.first_ns[new] = frames.first_ts_ns[row]
    waiting.last_ns[new] = frames.last_ts_ns[row]
    waiting.size[new] = frames.frame_bytes[row]
    waiting.topic[new] = sent.topic
    waiting.partition[new] = sent.partition
    waiting.producer[new] = producer
    waiting.sequence[new] = sent.seq_start
    waiting.highest[new] = sent.seq_end
    waiting.message_count[new] = frames.message_count[row]
    waiting.attempt[new] = copies_of(sendings, number)
    waiting.outstanding[new] = talks.length[talk]
    waiting.acks[new] = bodies.acks[row] if bodies.acks[row] != NULL else 1
    waiting.idempotent[new] = idempotent
    waiting.tainted[new] = 1 if frames.retransmitted[row] == 1 else 0
    waiting.number[new] = number
    _wait(state, talk, new)
    talks.has_asked[talk] = 1
    return True


@inlined
def _wait(state: TalkState, talk: int, new: int) -> None:
    """Put a batch at the end of those that wait on a connection."""
    talks = state.talks
    state.waiting.next[new] = ABSENT
    if talks.length[talk] == 0:
        talks.first[talk] = new
    else:
        state.waiting.next[talks.last[talk]] = new
        talks.has_pipelined[talk] = 1
    talks.last[talk] = new
    talks.length[talk] += 1
    state.pending[0] += 1


@inlined
def _answer(work: Work, talk: int, row: int, at: int, ordinal: int) -> None:
    """The answer to the batch that has waited longest."""
    state, sendings, out = work.state, work.sendings, work.out
    frames, bodies = work.frames, work.bodies
    talks, waiting = state.talks, state.waiting
    which = talks.first[talk]
    talks.first[talk] = waiting.next[which]
    talks.length[talk] -= 1
    talks.has_answered[talk] = 1
    state.pending[0] -= 1
    is_ack = bodies.reading[row] == ACK_READ
    if is_ack:
        talks.has_stored[talk] = 1
        if waiting.partition[which] != NULL:
            following = total(frames.entry_id[row], 1)
            see_end(sendings, waiting.topic[which], waiting.partition[which], following)
    was_stored = store_batch(sendings, waiting.number[which]) == 1
    is_once = _is_once(sendings, waiting.topic[which], waiting.idempotent[which])
    transmit = difference(waiting.last_ns[which], waiting.first_ns[which])
    latency = difference(frames.last_ts_ns[row], waiting.last_ns[which])
    highest = waiting.highest[which]
    out.connection_id[at] = frames.connection_id[row]
    out.kind[at] = PUBLISH
    out.request_command[at] = BATCH
    out.response_command[at] = frames.command[row]
    out.request_frame_no[at] = waiting.frame_no[which]
    out.response_frame_no[at] = frames.frame_no[row]
    out.request_first_ns[at] = waiting.first_ns[which]
    out.request_last_ns[at] = waiting.last_ns[which]
    out.response_first_ns[at] = frames.first_ts_ns[row]
    out.response_last_ns[at] = frames.last_ts_ns[row]
    out.latency_ns[at] = latency if latency >= 0 else NULL
    out.transmit_ns[at] = transmit if transmit >= 0 else NULL
    out.outcome[at] = DUP_OR_DROPPED if was_stored and is_once else OK
    out.error_code[at] = NULL
    out.error_text[at] = NULL
    is_tainted = waiting.tainted[which] == 1 or frames.retransmitted[row] == 1
    out.tainted[at] = 1 if is_tainted else 0
    out.topic[at] = waiting.topic[which]
    out.subscription[at] = NULL
    out.producer_name[at] = waiting.producer[which]
    out.sequence_id[at] = waiting.sequence[which]
    out.highest_sequence_id[at] = highest if highest > 0 else NULL
    out.attempt[at] = waiting.attempt[which]
    out.message_count[at] = waiting.message_count[which]
    out.request_bytes[at] = waiting.size[which]
    out.outstanding_before[at] = waiting.outstanding[which]
    out.entry_id[at] = frames.entry_id[row]
    out.ts[at] = waiting.last_ns[which]
    out.closing_row[at] = ordinal
    _name(frames, row, waiting.topic[which], NULL, waiting.producer[which], NULL)
    give_row(state.free, which)


@inlined
def _name(
    frames: FrameColumns, row: int, topic: int, subscription: int, producer: int, consumer: int
) -> None:
    """What an answer does not say of itself it has from its request."""
    is_named = False
    if topic != NULL and frames.topic[row] == NULL:
        frames.topic[row] = topic
        is_named = True
    if subscription != NULL and frames.subscription[row] == NULL:
        frames.subscription[row] = subscription
        is_named = True
    if producer != NULL and frames.producer_name[row] == NULL:
        frames.producer_name[row] = producer
        is_named = True
    if consumer != NULL and frames.consumer_name[row] == NULL:
        frames.consumer_name[row] = consumer
        is_named = True
    if is_named:
        frames.name_source[row] = NAME_OBSERVED


@inlined
def _push(work: Work, talk: int, row: int, ordinal: int) -> bool:
    """A batch of a stream; False if it is for the rules."""
    sendings, handing = work.sendings, work.handing
    frames, bodies = work.frames, work.bodies
    talks = work.state.talks
    topic, partition = frames.topic[row], frames.partition[row]
    records = bodies.records[row]
    first, last = bodies.first_offset[row], bodies.last_offset[row]
    if records == NULL or records <= 0 or topic < 0:
        return False
    place = find(handing.by_place, talks.subscription[talk], topic, partition, 0)
    if not can_hand(handing, place, first, last, frames.last_ts_ns[row]):
        return False
    which = hand(handing, place, first, last, ordinal)
    handed, places = handing.handed, handing.spots
    handed.connection_id[which] = frames.connection_id[row]
    handed.frame_no[which] = frames.frame_no[row]
    handed.ts[which] = frames.last_ts_ns[row]
    handed.consumer_name[which] = talks.consumer[talk]
    handed.count[which] = records
    handed.is_push[which] = 1
    handed.published_ns[which] = published_ns(
        sendings,
        topic,
        partition,
        bodies.first_producer[row],
        bodies.first_epoch[row],
        bodies.first_seq[row],
    )
    handed.lag[which] = lag_from(sendings, topic, partition, last + 1)
    see_end(sendings, topic, partition, last + 1)
    places.last_connection[place] = frames.connection_id[row]
    places.last_frame_no[place] = frames.frame_no[row]
    places.last_consumer[place] = talks.consumer[talk]
    places.last_is_push[place] = 1
    talks.has_answered[talk] = 1
    _name(frames, row, talks.topic[talk], talks.subscription[talk], talks.producer[talk],
          talks.consumer[talk])  # fmt: skip
    return True


@inlined
def _do(work: Work, talk: int, row: int, written: int, ordinal: int) -> int:
    """Do a row: how many exchanges it closes, -1 if it is for the rules."""
    frames = work.frames
    talks = work.state.talks
    mode = talks.mode[talk]
    reading = work.bodies.reading[row]
    direction = frames.direction[row]
    if frames.status[row] != COMPLETE or mode == KEPT:
        return -1
    if mode == PUSHES:
        if direction != TO_CLIENT:
            return -1
        if reading == EMPTY_READ:
            talks.has_answered[talk] = 1
            _name(frames, row, talks.topic[talk], talks.subscription[talk],
                  talks.producer[talk], talks.consumer[talk])  # fmt: skip
            return 0
        if reading != BATCH_READ:
            return -1
        return 0 if _push(work, talk, row, ordinal) else -1
    if direction == TO_BROKER and reading == BATCH_READ and work.bodies.records[row] != NULL:
        return 0 if _ask(work, talk, row) else -1
    if direction != TO_CLIENT or (reading != ACK_READ and reading != OK_READ):
        return -1
    if talks.length[talk] == 0:
        return -1
    _answer(work, talk, row, written, ordinal)
    return 1


class Walked(Records):
    """How far a walk came. row: that it could not do, or the one behind the last; written: rows
    of exchanges; now_ns: the latest time that it met.
    """

    row: Int64Array
    written: Int64Array
    now_ns: Int64Array


@kernel
def walk_simple(work: Work, walked: Walked, stop: int, protocol: int, base: int) -> None:
    """Do the rows of a protocol from walked.row on, up to the first that is not simple.

    Args:
        base: ordinal of row 0.
    """
    frames = work.frames
    row = walked.row[0]
    written = walked.written[0]
    now = walked.now_ns[0]
    connection = NULL
    talk = ABSENT
    while row < stop:
        if frames.protocol[row] != protocol:
            row += 1
            continue
        if frames.frame_no[row] == NULL:
            break
        if frames.connection_id[row] != connection:
            connection = frames.connection_id[row]
            talk = find(work.state.by_connection, connection, 0, 0, 0)
        if talk == ABSENT:
            break
        closed = _do(work, talk, row, written, base + row)
        if closed < 0:
            break
        written += closed
        now = max(now, frames.last_ts_ns[row])
        row += 1
    walked.row[0] = row
    walked.written[0] = written
    walked.now_ns[0] = now
