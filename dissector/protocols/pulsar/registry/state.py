"""The registry's state of connections, producers and consumers between frames.

Theory. A *client handle* is a producer or a consumer: an id on a connection. It has one row for all
its incarnations; the row holds the current one. States and transitions:

    UNOPENED --PRODUCER, SUBSCRIBE--> OPENING --success, or first use--> OPEN
    OPENING --error--> CLOSED        OPEN --CLOSE_*, UNSUBSCRIBE of the client--> CLOSING
    CLOSING --success--> CLOSED      CLOSING --error--> OPEN
    OPENING, OPEN, CLOSING --CLOSE_* of the broker--> CLOSED
    CLOSING, CLOSED --PRODUCER, SUBSCRIBE--> OPENING, one incarnation further; from OPENING and
        OPEN, too, while nothing of the broker was captured

An id first seen in use is OPEN, unless the connection was seen from its CONNECT without a hole:
then it is UNOPENED.

An answer by request id has no other key: the pairing of exchanges, which walks the same rows, gives
its request.

Bounded are the handles (the handle that closed first is evicted; if none is closed, new ones are
not tracked) and the caches of ledgers and producer names.
"""

import enum
from typing import Final

import numpy as np

from dissector import limits, tables
from dissector.blocks import Int64Array
from dissector.bundles import Bundle
from dissector.limits import NULL
from dissector.protocols.pulsar.wire.commands import NO_SUBJECT
from dissector.states import State
from dissector.tables import HashTable, ListHeads, ListLinks, Pool, RecentKeys


class HandleState(enum.IntEnum):
    """The state of a producer or consumer."""

    UNOPENED = 0
    OPENING = 1
    OPEN = 2
    CLOSING = 3
    CLOSED = 4


class RegistryKey(enum.IntEnum):
    """Kinds of key, the first word in the table, beside PRODUCER_SUBJECT and CONSUMER_SUBJECT."""

    CONNECTION = 3
    NAMELESS = 4  # producers whose topic is not known, by name, id and broker
    LEDGER = 5
    PRODUCER_NAME = 6


AMBIGUOUS: Final = 1 << 40  # in place of a topic: name or ledger was seen with two topics

# Indexes into RegistryState.counters.
COUNT_OUT: Final = 0  # rows written to the outputs
COUNT_ROW: Final = 1  # rows (frames and events) ever seen: the ordinal of the current one
COUNT_REFUSED: Final = 2  # handles for which there was no room
COUNTERS: Final = 3

RECENT: Final = 256  # slots of the cache of handles; a power of two


class _HandleColumns(Bundle):
    """The columns of an incarnation in the tables producers and consumers, int64[rows] each."""

    connection_id: Int64Array
    kind: Int64Array
    id: Int64Array
    incarnation: Int64Array
    topic: Int64Array
    subscription: Int64Array
    name: Int64Array
    name_source: Int64Array
    opened_frame_no: Int64Array
    ready_frame_no: Int64Array
    closed_frame_no: Int64Array
    refused_code: Int64Array
    epoch: Int64Array
    topic_epoch: Int64Array
    access_mode: Int64Array
    schema_version: Int64Array
    last_sequence_id: Int64Array
    subscription_type: Int64Array
    priority_level: Int64Array
    is_durable: Int64Array
    first_flow_permits: Int64Array
    initial_position: Int64Array
    key_shared: Int64Array


class HandleColumns(_HandleColumns):
    """Producers and consumers, int64[rows] each; NULL where not known.

    kind: *_SUBJECT, NO_SUBJECT on a free row; id: producer_id or consumer_id; topic, subscription,
    name: codes; schema_version, key_shared: indexes in the registry's list of raw values.

    connection: row in RegistryConnections.
    open_requests: number of PRODUCER or SUBSCRIBE without an answer.
    opened_row: ordinal of the row that opened the incarnation.
    last_ledger: of its last receipt or message.
    is_waiting: 1 while it is in a chain of producers without a topic.
    """

    connection: Int64Array
    state: Int64Array
    open_requests: Int64Array
    opened_row: Int64Array
    last_ledger: Int64Array
    is_waiting: Int64Array


class HandleRows(_HandleColumns):
    """Rows for the tables producers and consumers, int64[rows] each.

    kind: selects the table.
    closed_by: of schemas.words.CLOSERS.
    closing_row: ordinal of the frame or event that closed the incarnation.
    """

    closed_by: Int64Array
    closing_row: Int64Array


SHARED_COLUMNS: Final = len(_HandleColumns._fields)
IDENTITY_COLUMNS: Final = 3  # connection_id, kind, id: the same in all incarnations


class RegistryConnections(Bundle):
    """Connections with handles, int64[rows] each.

    broker: see `FrameColumns`.
    is_whole: 1 while it was seen from its CONNECT on without a hole in the client's bytes.
    hole_row: ordinal of the last hole in the broker's bytes, -1 none.
    """

    connection_id: Int64Array
    broker: Int64Array
    is_whole: Int64Array
    hole_row: Int64Array


class RegistryState(State):
    """Everything that the registry's kernels change.

    table: connections, handles, chains of producers without a topic.
    recent: int64[RECENT], cache of handle rows.
    handle_lists: handles of each connection; closed_list: closed handles (list 0).
    """

    table: HashTable
    recent: Int64Array
    counters: Int64Array
    connections: RegistryConnections
    connection_pool: Pool
    client_handles: HandleColumns
    handle_pool: Pool
    handle_links: ListLinks
    handle_lists: ListHeads
    closed_links: ListLinks
    closed_list: ListHeads
    nameless_links: ListLinks
    topics_of_ledgers: RecentKeys
    topics_of_names: RecentKeys


def new_registry_state(rows: int, key: int = 0) -> RegistryState:
    """An empty state with `rows` rows of connections and of handles, which grows.

    key: of its hash tables.
    """
    return RegistryState(
        table=tables.new_hash_table(1024, key),
        recent=np.full(RECENT, tables.ABSENT, np.int64),
        counters=np.zeros(COUNTERS, np.int64),
        connections=RegistryConnections.new(rows, NULL),
        connection_pool=tables.new_pool(rows),
        client_handles=HandleColumns.new(rows, NO_SUBJECT),
        handle_pool=tables.new_pool(rows),
        handle_links=ListLinks.new(rows),
        handle_lists=tables.new_ends(rows),
        closed_links=ListLinks.new(rows),
        closed_list=tables.new_ends(1),
        nameless_links=ListLinks.new(rows),
        topics_of_ledgers=tables.new_memory(limits.MAX_TOPIC_HINTS, key),
        topics_of_names=tables.new_memory(limits.MAX_TOPIC_HINTS, key),
    )


def reserve(state: RegistryState, more: int) -> None:
    """Reserve room for all that `more` further frames can add: one row of each kind per frame."""
    state.grow(
        table=tables.reserved(state.table, 3 * more),
        topics_of_ledgers=tables.settled(state.topics_of_ledgers),
        topics_of_names=tables.settled(state.topics_of_names),
    )
    tables.grow_rows(state, "connection_pool", more, connections=NULL, handle_lists=tables.ABSENT)
    tables.grow_rows(
        state,
        "handle_pool",
        more,
        limits.MAX_SUBJECTS,
        client_handles=NO_SUBJECT,
        handle_links=tables.ABSENT,
        closed_links=tables.ABSENT,
        nameless_links=tables.ABSENT,
    )
