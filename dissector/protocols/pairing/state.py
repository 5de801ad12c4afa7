"""What pairing remembers: requests without an answer, and answers without a request.

Theory. A *pending* row is a send, another request, or an *early* answer: one that was captured
before its request and waits for it within the reorder window. Pending rows of one producer on one
connection form a *group*; the other requests of a connection form one more. What moves a row:

    request --its answer--> written: ok, error, dup_or_dropped, response_cut
    send    --a newer incarnation of its producer is open--> dropped_after_close
    request --end of the connection, end of the capture, bound reached--> the first outcome of
              other_side_not_captured, dropped_after_close, lost_in_gap that fits, else conn_closed,
              unanswered_at_end, evicted
    early   --its request--> written as that request's answer, without latency
    early   --the window has passed, or an end as above--> orphan_response

How an answer finds its request: chains in one hash table, oldest first. Sends are keyed by their
sequence id; batches also by their last one, which errors repeat; copies made by replication also by
the position in the source cluster, which their receipts repeat. See `rules` for the others.

Holes. A *side* is one direction of a connection. An answer can hide in bytes that are missing, but
not in those of a frame that is known: a gap inside a frame is no hole, which the framing tells
(`frames_missing`). Ordinals of rows, which only rise, say what lies after what.

Attempts. Of each send the key (producer, sequence id, chunk, checksum) is counted while it waits
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

# Lists of pending rows in the order in which they came.
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


FOR_EARLY: Final = 16  # added to a kind: the chain of early answers of that key

# Indexes into PairingState.counters.
COUNT_OUT: Final = 0  # rows written to the output
COUNT_ROW: Final = 1  # rows (frames and events) ever seen: the ordinal of the current one
COUNT_NOW: Final = 2  # largest stamp seen, ns
COUNT_EVICTED: Final = 3  # rows given up because too many waited
COUNT_PRODUCERS: Final = 4  # groups that are producers
COUNT_AT: Final = 5  # row of the block to go on with
COUNTERS: Final = 6

ROW_KEYS: Final = 5  # that one row adds to the table at most

# Indexes into PairingState.limits behind SENDS, REQUESTS, UNMATCHED: the fields of PairingBounds.
LIMIT_PRODUCERS: Final = 3

RECENT: Final = 256  # connections and groups found by a glance; a power of two


class PendingColumns(Records, KnownColumns):
    """Requests and early answers, int64[rows] each.

    list: SENDS, REQUESTS, UNMATCHED.
    group: row in GroupColumns.
    endpoint_index: of the request (of an early answer: of the request that it waits for).
    row: ordinal of the frame.
    silence: rules.AWAITED and so on.
    key_kind, key_value, key_extra, other_kind, other_value, other_extra: its chains, other_kind 0
        if it is in one only; key_kind 0 of what is found by order.
    attempt_row: see `attempts`.
    deadline_ns: until when an early answer waits.
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
    producer_id: NULL for the other requests.
    incarnation: of the sends that wait.
    is_broker_closed: 1 after the broker closed it.
    publish_time_ms: of its last message that was sent for the first time.
    has_positions: 1 once a send was copied from another cluster.
    source: of attempts, ABSENT if names are not known.
    publishes: requests in it that count as outstanding.
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


class ConnectionColumns(Bundle):
    """Connections, int64[rows] each.

    requests: the group of their requests that are no sends.
    push: the request that turned it into one way without answers, ABSENT if none did; its row stays
        pending. Negative, too: there is one that was not seen.
    skipped: answers still to come for requests by order that were given up.
    """

    connection_id: Int64Array
    requests: Int64Array
    push: Int64Array
    skipped: Int64Array


class DirectionColumns(Bundle):
    """Directions, int64[2 * connections]: row 2 * connection + side.

    is_seen: 1 once anything of it came.
    hole_row: ordinal of its last hole, -1 none.
    """

    is_seen: Int64Array
    hole_row: Int64Array


class PairingState(State):
    """Everything the kernels of exchanges change.

    limits: an PairingBounds, the first three for the lists of pending rows.
    order: those lists.
    group_lists: pending rows of each group.
    connection_lists: groups of each connection; chain_links and other_links: of the two chains of a
        pending row.
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
    """What one pass over a block works with.

    error_texts: int64[rows of the block], index of each frame's error text among the texts of the
        block.
    window_ns: how long an early answer waits, by the largest stamp seen.
    out: gets what closes, from counters[COUNT_OUT] on.
    notices: as many as can come fit.
    """

    state: PairingState
    rules: RuleColumns
    frames: FrameColumns
    error_texts: Int64Array
    window_ns: int
    out: ExchangeColumns
    notices: Notices


class PairingBounds(NamedTuple):
    """How many rows of each kind there may be; attempts and sources: see `attempts`."""

    sends: int = dissector_limits.MAX_PENDING_SENDS
    requests: int = dissector_limits.MAX_PENDING_REQUESTS
    unmatched: int = dissector_limits.MAX_EARLY_ANSWERS
    producers: int = dissector_limits.MAX_SUBJECTS
    attempts: int = dissector_limits.MAX_ATTEMPTS
    sources: int = dissector_limits.MAX_ATTEMPT_SOURCES


def new_pairing_state(rows: int, bounds: PairingBounds, key: int = 0) -> PairingState:
    """A state with room for so many of each kind; it grows from there. key: of hash tables."""
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
    """Make room for what `more` further rows can add.

    A row adds at most one pending row, one attempt and its source, one connection and two groups;
    beyond a bound the kernels make room themselves.
    """
    state.grow(
        table=tables.reserved(state.table, ROW_KEYS * more),
        attempts=with_room(state.attempts, more),
    )
    reserve_connections(state, more)
    reserve_pending(state, more)


def reserve_connections(state: PairingState, more: int) -> None:
    """Make room for so many further connections."""
    tables.grow_rows(
        state, "connection_pool", more, connections=NULL, connection_lists=tables.ABSENT
    )
    directions = 2 * len(state.connection_pool.rows)
    if directions > len(state.directions.is_seen):
        state.grow(directions=state.directions.grown(directions))
    links = dict.fromkeys(("groups", "group_links", "group_lists"), tables.ABSENT)
    tables.grow_rows(state, "group_pool", 2 * more, **links)


def reserve_pending(state: PairingState, more: int) -> None:
    """Make room for so many further pending rows."""
    links = ("order_links", "member_links", "chain_links", "other_links")
    filled = dict.fromkeys(links, tables.ABSENT)
    tables.grow_rows(state, "pending_pool", more + 1, pending=NULL, **filled)
