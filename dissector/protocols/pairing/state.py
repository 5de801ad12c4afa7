"""The state of pairing: requests without an answer, and responses without a request.

Theory. A *pending* row is a send, another request, or an *unmatched* response: one that was
captured before its request and waits for it within the reorder window. Pending rows of one producer
on one connection form a *group*; the other requests of a connection form one more. Transitions:

    request   --its answer--> written: ok, error, dup_or_dropped, response_cut
    send      --a newer incarnation of its producer is open--> dropped_after_close
    request   --end of the connection, end of the capture, bound reached--> the first outcome of
                other_side_not_captured, dropped_after_close, lost_in_gap that applies, else
                conn_closed, unanswered_at_end, evicted
    unmatched --its request--> written as that request's answer, without latency
    unmatched --the window has passed, or an end as above--> orphan_response

Requests are looked up by key in one hash table, whose chains are oldest first. The key of a send is
its sequence id; of a batch also the last one, which errors repeat; of a copy made by replication
also the position in the source cluster, which its receipt repeats. `rules` has the other keys.

Holes. A *side* is one direction of a connection. A *hole* is missing bytes that may contain an
answer. A gap inside a frame is no hole, as all its bytes are the frame's; the framing marks holes
(`frames_missing`). Row ordinals only rise and give the order of holes and requests.

Outstanding sends. A producer's sends are answered in order. With the answer to a send, all older
ones are answered, be they captured or not. Behind a hole, and of a producer that was opened before
the capture, their number is unknown until an answer comes to the newest or the oldest one that
waits.

Attempts. The key of a send (producer, sequence id, chunk, checksum) is counted while the send waits
and while it is among the last answered ones of its producer: `attempts`.
"""

import enum
from typing import Final, NamedTuple

import numpy as np

from dissector import limits as dissector_limits
from dissector import tables
from dissector.blocks import Int64Array
from dissector.bundles import Bundle, Records
from dissector.limits import NULL
from dissector.notice_rows import Notices
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pairing.attempts import Attempts, new_attempts, with_room
from dissector.protocols.pairing.columns import ExchangeColumns, KnownColumns
from dissector.protocols.pairing.rules import RuleColumns
from dissector.states import State
from dissector.tables import HashTable, ListHeads, ListLinks, Pool

# Lists of pending rows in order of arrival.
SENDS: Final = 0
REQUESTS: Final = 1
UNMATCHED: Final = 2


class KeyKind(enum.IntEnum):
    """Kinds of key, first word in the table."""

    CONNECTION = 1
    GROUP = 2
    SEND = 3  # group, sequence id, producer id
    REQUEST = 4  # group, request id, side of the request
    TURN = 5  # group, command of the request, its side
    WATCHER = 6  # group, watcher id, command of the request
    LAST = 7  # group, last sequence id of a batch, producer id
    SOURCE_POSITION = 8  # group, ledger and entry in the source cluster


FOR_UNMATCHED: Final = 16  # added to a kind: the chain of unmatched responses of that key

# Indexes into PairingState.counters.
COUNT_OUT: Final = 0  # rows written to the output
COUNT_ROW: Final = 1  # rows (frames and events) ever seen: the ordinal of the current one
COUNT_CLOCK: Final = 2  # largest capture time so far, ns
COUNT_EVICTED: Final = 3  # rows written early because a list was full
COUNT_PRODUCERS: Final = 4  # groups of producers
COUNT_CURSOR: Final = 5  # row of the block that is handled next
COUNTERS: Final = 6

ROW_KEYS: Final = 5  # keys that one row adds to the table at most

# Indexes into PairingState.limits behind SENDS, REQUESTS, UNMATCHED: the fields of PairingBounds.
LIMIT_PRODUCERS: Final = 3

RECENT: Final = 256  # slots of the caches of connections and groups; a power of two


class PendingColumns(Records, KnownColumns):
    """Requests and unmatched responses, int64[rows] each.

    list: SENDS, REQUESTS, UNMATCHED.
    group: row in GroupColumns.
    endpoint_index: of the request (also in an unmatched response).
    row: ordinal of the frame.
    silence: a rules.Expectation.
    key_kind, key_value, key_extra: its key; key_kind 0 if it is paired by order.
    other_kind, other_value, other_extra: its second key; other_kind 0 if it has none.
    attempt_row: see `attempts`.
    deadline_ns: time at which an unmatched response expires.
    """

    list: Int64Array
    group: Int64Array
    endpoint_index: Int64Array
    row: Int64Array
    silence: Int64Array
    key_kind: Int64Array
    key_value: Int64Array
    key_extra: Int64Array
    other_kind: Int64Array
    other_value: Int64Array
    other_extra: Int64Array
    attempt_row: Int64Array
    deadline_ns: Int64Array


class GroupColumns(Records):
    """Producers with sends, and the other requests of each connection; int64[rows] each.

    connection: row in ConnectionColumns.
    producer_id: NULL in the group of other requests.
    incarnation: of the pending sends.
    is_broker_closed: 1 after the broker closed the producer.
    publish_time_ms: of the last message that was not a repetition.
    has_positions: 1 once a send was a copy from another cluster.
    source: of attempts, ABSENT if the names are not known.
    publishes: pending requests that count as outstanding publishes.
    newest: ordinal of the newest send.
    known_at: ordinal of the row since which it is known which sends wait, ABSENT if it is not.
    gone: pending sends from before it, whose answers were not captured.
    """

    connection: Int64Array
    producer_id: Int64Array
    incarnation: Int64Array
    is_broker_closed: Int64Array
    has_positions: Int64Array
    publish_time_ms: Int64Array
    topic: Int64Array
    producer_name: Int64Array
    source: Int64Array
    publishes: Int64Array
    newest: Int64Array
    known_at: Int64Array
    gone: Int64Array


class ConnectionColumns(Bundle):
    """Connections, int64[rows] each.

    requests: row of the group of its requests other than sends.
    push: row of the request that made the broker push without further answers, which stays pending;
        ABSENT if there is none; another negative number if it was not captured.
    skipped: answers still expected to requests by order that were evicted.
    is_two_way: 1 once packets of both directions were captured.
    """

    connection_id: Int64Array
    requests: Int64Array
    push: Int64Array
    skipped: Int64Array
    is_two_way: Int64Array


class DirectionColumns(Bundle):
    """Directions, int64[2 * connections]: row 2 * connection + side.

    hole_row: ordinal of its last hole, -1 none.
    """

    hole_row: Int64Array


class PairingState(State):
    """Everything that the kernels of exchanges change.

    limits: the PairingBounds; the first three bound the lists of pending rows.
    order: the lists SENDS, REQUESTS, UNMATCHED.
    group_lists: pending rows of each group.
    connection_lists: groups of each connection.
    chain_links, other_links: links of the chains of a pending row's first and second key.
    """

    table: HashTable
    counters: Int64Array
    limits: Int64Array
    recent_connections: Int64Array
    recent_groups: Int64Array
    connections: ConnectionColumns
    connection_pool: Pool
    connection_lists: ListHeads
    directions: DirectionColumns
    groups: GroupColumns
    group_pool: Pool
    group_links: ListLinks
    group_lists: ListHeads
    pending: PendingColumns
    pending_pool: Pool
    order_links: ListLinks
    order: ListHeads
    member_links: ListLinks
    chain_links: ListLinks
    other_links: ListLinks
    attempts: Attempts


class PassContext(NamedTuple):
    """The arguments of one pass over a block.

    error_texts: int64[rows of the block], index of each frame's error text among the texts of the
        block.
    window_ns: how long an unmatched response waits, by COUNT_CLOCK.
    out: closed exchanges are written from row counters[COUNT_OUT] on.
    notices: has room for all notices of the block.
    """

    state: PairingState
    rules: RuleColumns
    frames: FrameColumns
    error_texts: Int64Array
    window_ns: int
    out: ExchangeColumns
    notices: Notices


class PairingBounds(NamedTuple):
    """The maximum number of rows by kind; attempts and sources: see `attempts`."""

    sends: int = dissector_limits.MAX_PENDING_SENDS
    requests: int = dissector_limits.MAX_PENDING_REQUESTS
    unmatched: int = dissector_limits.MAX_EARLY_ANSWERS
    producers: int = dissector_limits.MAX_SUBJECTS
    attempts: int = dissector_limits.MAX_ATTEMPTS
    sources: int = dissector_limits.MAX_ATTEMPT_SOURCES


def new_pairing_state(rows: int, bounds: PairingBounds, key: int = 0) -> PairingState:
    """An empty state with `rows` rows of each kind, which grows. key: of hash tables."""
    return PairingState(
        table=tables.new_hash_table(1024, key),
        counters=np.zeros(COUNTERS, np.int64),
        limits=np.array(bounds, np.int64),
        recent_connections=np.zeros(RECENT, np.int64),
        recent_groups=np.zeros(RECENT, np.int64),
        connections=ConnectionColumns.new(rows, NULL),
        connection_pool=tables.new_pool(rows),
        connection_lists=tables.new_ends(rows),
        directions=DirectionColumns.new(2 * rows, 0),
        groups=GroupColumns.new(rows, tables.ABSENT),
        group_pool=tables.new_pool(rows),
        group_links=ListLinks.new(rows),
        group_lists=tables.new_ends(rows),
        pending=PendingColumns.new(rows, NULL),
        pending_pool=tables.new_pool(rows),
        order_links=ListLinks.new(rows),
        order=tables.new_ends(3),
        member_links=ListLinks.new(rows),
        chain_links=ListLinks.new(rows),
        other_links=ListLinks.new(rows),
        attempts=new_attempts(rows, bounds.attempts, bounds.sources, key),
    )


def reserve(state: PairingState, more: int) -> None:
    """Reserve room for all that `more` further frames can add.

    A frame adds at most one pending row, one attempt and its source, one connection and two groups;
    at a bound the kernels evict rows.
    """
    state.grow(
        table=tables.reserved(state.table, ROW_KEYS * more),
        attempts=with_room(state.attempts, more),
    )
    reserve_connections(state, more)
    reserve_pending(state, more)


def reserve_connections(state: PairingState, more: int) -> None:
    """Reserve room for `more` further connections."""
    tables.grow_rows(
        state, "connection_pool", more, connections=NULL, connection_lists=tables.ABSENT
    )
    directions = 2 * len(state.connection_pool.rows)
    if directions > len(state.directions.hole_row):
        state.grow(directions=state.directions.grown(directions))
    links = dict.fromkeys(("groups", "group_links", "group_lists"), tables.ABSENT)
    tables.grow_rows(state, "group_pool", 2 * more, **links)


def reserve_pending(state: PairingState, more: int) -> None:
    """Reserve room for `more` further pending rows."""
    links = ("order_links", "member_links", "chain_links", "other_links")
    filled = dict.fromkeys(links, tables.ABSENT)
    tables.grow_rows(state, "pending_pool", more + 1, pending=NULL, **filled)
