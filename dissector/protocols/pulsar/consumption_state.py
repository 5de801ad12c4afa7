"""What deliveries, permits and acks remember between two frames, as arrays that kernels share.

Rows of a kind stand in one matrix, int64[rows, width]; the places in a row are the constants below,
their first word names the matrix. Times of day are not kept here but frame numbers: they rise with
every frame of the capture, so that "since then" is a comparison. An event between frames counts as
the frame before it.

Theory. A *consumer* row is one incarnation of a consumer id on a connection; a closed one stays as
long as there is room, because the cause of a redelivery depends on how the holder before went. A
*group* is the domain of identities: one (topic, subscription), or one (connection, consumer id)
where a name is unknown. A *delivery* row is one MESSAGE that is neither acked nor given up. A *page*
has one cell for each of 64 neighbouring entry ids of a ledger: the last delivery of that id. The
oldest pages are given back when there is no room; what remains of them are *nodes*, which only tell
that an id was delivered (see `identities`).
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.limits import (
    MAX_ACK_SET_WORDS,
    MAX_IDENTITY_PAGES,
    MAX_PUBLISH_WINDOW,
    MAX_TRANSACTIONS,
    NULL,
)
from dissector.protocols.tables import (
    ABSENT,
    Ends,
    HashTable,
    Links,
    Pool,
    grown_array,
    grown_ends,
    grown_links,
    grown_pool,
    new_ends,
    new_hash_table,
    new_links,
    new_pool,
    roomy,
)

# -- a consumer
CONSUMER_CONNECTION: Final = 0
CONSUMER_ID: Final = 1
CONSUMER_INCARNATION: Final = 2
CONSUMER_TOPIC: Final = 3  # codes of the name table, or null
CONSUMER_SUBSCRIPTION: Final = 4
CONSUMER_NAME: Final = 5
CONSUMER_TYPE: Final = 6  # subscription type on the wire, or null
CONSUMER_STATE: Final = 7
CONSUMER_LEFT_BY: Final = 8
CONSUMER_LEFT_AT: Final = 9  # frame at which it began to go; 0 while it is there
CONSUMER_OPENED_AT: Final = 10  # frame of its SUBSCRIBE; 0 if that was not seen
CONSUMER_GROUP: Final = 11  # row of its group, ABSENT if it has none
CONSUMER_LOCAL: Final = 12  # group of deliveries from before its names were known, or ABSENT
CONSUMER_AVAILABLE: Final = 13  # permits; means nothing while the baseline is unknown
CONSUMER_BASELINE_AT: Final = 14  # frame from which the balance is known, -1 if it is not
CONSUMER_UNACKED: Final = 15  # messages of open deliveries that are not acked
CONSUMER_UNKNOWN_COSTS: Final = 16  # open deliveries whose number of messages was not read
CONSUMER_ASCENDING: Final = 17  # 1 while ids rise along its list of open deliveries
CONSUMER_PAGE: Final = 18  # page of its last delivery
CONSUMER_SERIAL: Final = 19  # never used twice, unlike the row
CONSUMER_IS_FAILOVER: Final = 20
CONSUMER_INACTIVE_AT: Final = 21  # frame of the last ACTIVE_CONSUMER_CHANGE that switched it off
CONSUMER_CONNECTION_ROW: Final = 22
CONSUMER_WIDTH: Final = 23

STATE_OPENING: Final = 0
STATE_READY: Final = 1
STATE_CLOSING: Final = 2
STATE_CLOSED: Final = 3

LEFT_BY_CLIENT: Final = 1
LEFT_BY_BROKER: Final = 2
LEFT_BY_CONNECTION: Final = 3

# -- a group
GROUP_SERIAL: Final = 0
GROUP_MEMBERS: Final = 1  # consumers that are there
GROUP_HAS_IDENTITY: Final = 2  # 0 for a topic that is not persistent: its ids are all alike
GROUP_SEEK_AT: Final = 3  # frame of the last SEEK
GROUP_SEEK_BEFORE: Final = 4  # the one before, in case the broker refuses the last
GROUP_FORGOTTEN_AT: Final = 5  # frame at which its last page was given back
GROUP_GAP_AT: Final = 6  # frame of the last gap in which a delivery may have been lost; -1 none
GROUP_KEY: Final = 7  # four words
GROUP_WIDTH: Final = 11
GROUP_IS_NAMED: Final = 1  # last word of a key: topic, subscription, leg
GROUP_IS_LOCAL: Final = 2  # connection, consumer id, leg

# -- a connection that has or had consumers
CONNECTION_ID: Final = 0
CONNECTION_BROKER_GAP_AT: Final = 1  # frame of the last gap towards the broker; -1 none
CONNECTION_CLIENT_GAP_AT: Final = 2
CONNECTION_BROKER_SEEN: Final = 3  # 1 if anything towards the broker was seen
CONNECTION_CLIENT_MISSING: Final = 4  # 1 after a CONNECT while nothing towards the client was seen
CONNECTION_WIDTH: Final = 5

# -- a delivery
DELIVERY_CONSUMER: Final = 0
DELIVERY_FRAME_NO: Final = 1
DELIVERY_LAST_NS: Final = 2
DELIVERY_LEDGER: Final = 3
DELIVERY_ENTRY: Final = 4
DELIVERY_PARTITION: Final = 5
DELIVERY_BATCH_SIZE: Final = 6
DELIVERY_COUNT: Final = 7  # messages, null if unknown
DELIVERY_LEFT: Final = 8  # messages not acked, null if unknown
DELIVERY_REDELIVERY_COUNT: Final = 9
DELIVERY_CAUSE: Final = 10  # null if first
DELIVERY_PREVIOUS: Final = 11
DELIVERY_PUBLISHED_NS: Final = 12
DELIVERY_DELIVER_AT: Final = 13
DELIVERY_CHECKSUM: Final = 14
DELIVERY_CRC: Final = 15
DELIVERY_PAGE: Final = 16  # page of its identity; ABSENT without one or when delivered again
DELIVERY_WORDS: Final = 17  # its words: the ack_set of the frame, then the bits left; or ABSENT
DELIVERY_SET_COUNT: Final = 18  # words of the ack_set, null if the frame has none
DELIVERY_LEFT_COUNT: Final = 19  # words of the bits left, 0 while all of them are
DELIVERY_MESSAGES: Final = 20  # messages of the entry, null if unknown
DELIVERY_TRANSACTION: Final = 21  # that acked a part of it, ABSENT if none
DELIVERY_OUTCOME: Final = 22
DELIVERY_ACK_FRAME: Final = 23
DELIVERY_ACK_LATENCY: Final = 24
DELIVERY_IS_SUPERSEDED: Final = 25  # 1 when its id was delivered again while it was open
DELIVERY_WIDTH: Final = 26

OUTCOME_NAMES: Final = (
    "acked",
    "discarded",
    "redelivery_requested",
    "consumer_closed",
    "unacked_at_end",
    "conn_closed",
    "unknown_gap",
    "unresolved_at_limit",
)
ACKED: Final = 0
DISCARDED: Final = 1
REDELIVERY_REQUESTED: Final = 2
CONSUMER_CLOSED: Final = 3
UNACKED_AT_END: Final = 4
CONN_CLOSED: Final = 5
UNKNOWN_GAP: Final = 6
UNRESOLVED_AT_LIMIT: Final = 7

CAUSE_NAMES: Final = (
    "seek",
    "explicit",
    "txn_abort",
    "failover_switch",
    "consumer_gone",
    "reconnect",
    "unload",
    "pre_capture",
    "unknown",
)
CAUSE_SEEK: Final = 0
CAUSE_EXPLICIT: Final = 1
CAUSE_TXN_ABORT: Final = 2
CAUSE_FAILOVER_SWITCH: Final = 3
CAUSE_CONSUMER_GONE: Final = 4
CAUSE_RECONNECT: Final = 5
CAUSE_UNLOAD: Final = 6
CAUSE_PRE_CAPTURE: Final = 7
CAUSE_UNKNOWN: Final = 8

# -- a page of 64 entry ids, and its cells
PAGE_BITS: Final = 6
PAGE_ENTRIES: Final = 1 << PAGE_BITS
PAGE_GROUP: Final = 0  # row of the group
PAGE_SERIAL: Final = 1  # its serial: a group row may be taken over by another group
PAGE_LEDGER: Final = 2
PAGE_NUMBER: Final = 3
PAGE_SEEN: Final = 4  # bit set: ids that were delivered
PAGE_KNOWN: Final = 5  # bit set: ids whose cell is filled
PAGE_OPEN: Final = 6  # open deliveries
PAGE_WIDTH: Final = 7

CELL_DELIVERY: Final = 0  # the open delivery, or ABSENT
CELL_FRAME_NO: Final = 1  # of the last delivery
CELL_HOLDER: Final = 2  # consumer serial and row (`packed`)
CELL_END: Final = 3  # how the last delivery ended, END_*; the transaction's packed number above
CELL_WIDTH: Final = 4

END_OTHER: Final = 0  # open, acked, or its consumer went
END_REQUESTED: Final = 1
END_IN_TRANSACTION: Final = 2
END_BITS: Final = 3
ROW_BITS: Final = 20  # of a packed number: row below, serial above

# -- a node of ids delivered, once their page is given back
NODE_BITSET: Final = 0
NODE_IS_USED: Final = 1
NODE_KEY: Final = 2  # group serial, ledger, prefix, level
NODE_WIDTH: Final = 6
NODE_LEVELS: Final = 11  # 6 bits of the entry id each

# -- a page of published entries; its key is (topic, ledger, number, leg)
PUBLISHED_KNOWN: Final = 0
PUBLISHED_KEY: Final = 1
PUBLISHED_WIDTH: Final = 5

# -- a transaction
TRANSACTION_SERIAL: Final = 0
TRANSACTION_ACTION: Final = 1  # END_TXN's, null before
TRANSACTION_MOST: Final = 2
TRANSACTION_LEAST: Final = 3
TRANSACTION_WIDTH: Final = 4
TRANSACTION_COMMITTED: Final = 0

# -- counters
CLOCK: Final = 0  # number of the last frame
NEXT_SERIAL: Final = 1
NEXT_NODE: Final = 2
NEXT_PUBLISHED: Final = 3
NEXT_TRANSACTION: Final = 4
NODES_EVER: Final = 5
NOTICES: Final = 6
CLOSING: Final = 7  # deliveries that end with the frame in hand
DELIVERIES_GIVEN_UP: Final = 8
IDENTITIES_FORGOTTEN: Final = 9
CONSUMERS_REFUSED: Final = 10
SPENT_STEPS: Final = 11  # of walks over lists that are not in order
OUT_DELIVERIES: Final = 12  # rows written
OUT_PERMITS: Final = 13
OUT_ACKS: Final = 14
OUT_WORDS: Final = 15
WORDS_USED: Final = 16  # of the arena of words, before free pieces
COUNTERS: Final = 17

WORD_CLASSES: Final = 12  # pieces of 1, 2, 4 .. 2048 words
ASKERS: Final = 1024  # questions about a consumer whose answers are awaited
OVERFLOW_CONSUMER: Final = 0  # the row that stands in when there is no room for a consumer


class ConsumerTables(NamedTuple):
    """Consumers, their connections and groups.

    rows: int64[consumers, CONSUMER_WIDTH]; by_id: (connection, consumer id); links and ends: the
    consumers of a connection row; gone_links, gone_ends: closed consumers, one list, oldest first.
    connections: int64[connections, CONNECTION_WIDTH]. groups: int64[groups, GROUP_WIDTH];
    idle_links, idle_ends: groups without members, one list, oldest first. askers: int64[askers, 2],
    at the low bits of its number: the frame of a SEEK or CONSUMER_STATS and its consumer, packed.
    """

    rows: Int64Array
    by_id: HashTable
    pool: Pool
    links: Links
    ends: Ends
    gone_links: Links
    gone_ends: Ends
    connections: Int64Array
    by_connection: HashTable
    connection_pool: Pool
    groups: Int64Array
    by_group: HashTable
    group_pool: Pool
    idle_links: Links
    idle_ends: Ends
    askers: Int64Array


class DeliveryTables(NamedTuple):
    """Open deliveries.

    rows: int64[deliveries, DELIVERY_WIDTH]; links, ends: those of a consumer, oldest first;
    age_links, age_ends: all of them in one list. words: pieces for bit sets; free_words:
    int64[WORD_CLASSES], first free piece of each size, linked through their first word.
    closing: int64[deliveries], deliveries that end with the frame in hand.
    """

    rows: Int64Array
    pool: Pool
    links: Links
    ends: Ends
    age_links: Links
    age_ends: Ends
    words: Int64Array
    free_words: Int64Array
    closing: Int64Array


class IdentityTables(NamedTuple):
    """Ids delivered: pages int64[pages, PAGE_WIDTH], cells int64[pages, PAGE_ENTRIES, CELL_WIDTH],
    by_key: (group serial, ledger, number); links, ends: pages in one list, oldest first;
    nodes: int64[nodes, NODE_WIDTH], handed out in turn; by_node: NODE_KEY.
    """

    pages: Int64Array
    cells: Int64Array
    by_key: HashTable
    pool: Pool
    links: Links
    ends: Ends
    nodes: Int64Array
    by_node: HashTable


class PublishTables(NamedTuple):
    """When entries were published, and how transactions ended; both handed out in turn.

    pages: int64[pages, PUBLISHED_WIDTH]; stamps: int64[pages, PAGE_ENTRIES], ns of the SEND's last
    byte; legs: connections of a proxy's broker leg; transactions: int64[.., TRANSACTION_WIDTH].
    """

    pages: Int64Array
    stamps: Int64Array
    by_key: HashTable
    legs: HashTable
    transactions: Int64Array
    by_transaction: HashTable


class ConsumptionState(NamedTuple):
    """Everything that the kernels of deliveries, permits and acks change, rows apart."""

    consumers: ConsumerTables
    deliveries: DeliveryTables
    identities: IdentityTables
    published: PublishTables
    counters: Int64Array


def new_state(consumers: int, deliveries: int, nodes: int) -> ConsumptionState:
    """A state with room for so many rows; consumers and nodes are powers of two."""
    counters = np.zeros(COUNTERS, np.int64)
    counters[NEXT_SERIAL] = 1
    return ConsumptionState(
        _new_consumers(consumers),
        DeliveryTables(
            np.empty((deliveries, DELIVERY_WIDTH), np.int64),
            new_pool(deliveries),
            new_links(deliveries),
            new_ends(consumers),
            new_links(deliveries),
            new_ends(1),
            np.empty(MAX_ACK_SET_WORDS, np.int64),
            np.full(WORD_CLASSES, -1, np.int64),
            np.empty(deliveries, np.int64),
        ),
        _new_identities(nodes),
        _new_published(),
        counters,
    )


def _new_consumers(rows: int) -> ConsumerTables:
    pool = new_pool(rows)
    pool.free[0] -= 1  # row 0 is OVERFLOW_CONSUMER
    return ConsumerTables(
        np.full((rows, CONSUMER_WIDTH), NULL, np.int64),
        new_hash_table(2 * rows),
        pool,
        new_links(rows),
        new_ends(rows),
        new_links(rows),
        new_ends(1),
        np.zeros((rows, CONNECTION_WIDTH), np.int64),
        new_hash_table(2 * rows),
        new_pool(rows),
        np.zeros((rows, GROUP_WIDTH), np.int64),
        new_hash_table(2 * rows),
        new_pool(rows),
        new_links(rows),
        new_ends(1),
        np.full((ASKERS, 2), ABSENT, np.int64),
    )


def _new_identities(nodes: int) -> IdentityTables:
    pages = MAX_IDENTITY_PAGES
    return IdentityTables(
        np.empty((pages, PAGE_WIDTH), np.int64),
        np.empty((pages, PAGE_ENTRIES, CELL_WIDTH), np.int64),
        new_hash_table(2 * pages),
        new_pool(pages),
        new_links(pages),
        new_ends(1),
        np.zeros((nodes, NODE_WIDTH), np.int64),
        new_hash_table(2 * nodes),
    )


def _new_published() -> PublishTables:
    pages = MAX_PUBLISH_WINDOW // PAGE_ENTRIES
    return PublishTables(
        np.zeros((pages, PUBLISHED_WIDTH), np.int64),
        np.empty((pages, PAGE_ENTRIES), np.int64),
        new_hash_table(2 * pages),
        new_hash_table(64),
        np.zeros((MAX_TRANSACTIONS, TRANSACTION_WIDTH), np.int64),
        new_hash_table(2 * MAX_TRANSACTIONS),
    )


def with_more_consumers(state: ConsumptionState, rows: int) -> ConsumptionState:
    """The same state with room for so many consumers, connections and groups."""
    old = state.consumers
    consumers = ConsumerTables(
        grown_array(old.rows, rows, NULL),
        roomy(old.by_id, rows - int(old.by_id.used[0])),
        grown_pool(old.pool, rows),
        grown_links(old.links, rows),
        grown_ends(old.ends, rows),
        grown_links(old.gone_links, rows),
        old.gone_ends,
        grown_array(old.connections, rows, 0),
        roomy(old.by_connection, rows - int(old.by_connection.used[0])),
        grown_pool(old.connection_pool, rows),
        grown_array(old.groups, rows, 0),
        roomy(old.by_group, rows - int(old.by_group.used[0])),
        grown_pool(old.group_pool, rows),
        grown_links(old.idle_links, rows),
        old.idle_ends,
        old.askers,
    )
    deliveries = state.deliveries
    ends = grown_ends(deliveries.ends, rows)
    return state._replace(consumers=consumers, deliveries=deliveries._replace(ends=ends))


def with_more_deliveries(state: ConsumptionState, rows: int) -> ConsumptionState:
    """The same state with room for so many open deliveries."""
    old = state.deliveries
    table = np.empty((rows, DELIVERY_WIDTH), np.int64)
    table[: len(old.rows)] = old.rows
    deliveries = old._replace(
        rows=table,
        pool=grown_pool(old.pool, rows),
        links=grown_links(old.links, rows),
        age_links=grown_links(old.age_links, rows),
        closing=np.empty(rows, np.int64),
    )
    return state._replace(deliveries=deliveries)


def with_more_nodes(state: ConsumptionState, rows: int) -> ConsumptionState:
    """The same state with room for so many nodes."""
    old = state.identities
    identities = old._replace(
        nodes=grown_array(old.nodes, rows, 0), by_node=roomy(old.by_node, rows - int(old.by_node.used[0]))
    )
    return state._replace(identities=identities)
