"""The state of deliveries, permits and acks between two frames, as bundles that kernels share.

Most moments are stored as frame numbers, which rise with every frame of the capture, so that "since
then" is a comparison. An event between frames counts as the frame before it (`CLOCK`).

Theory. A *consumer* is one incarnation of a consumer id on a connection; a closed one is kept while
there is room, because the cause of a redelivery depends on how the previous consumer ended. A
*group* is the domain of identities: one (topic, subscription), or one (connection, consumer id) if
a name is unknown. A *delivery* is one MESSAGE that is open or *released* (see `deliveries`). A
*page* has a cell for each of 64 neighbouring entry ids of a ledger: the last delivery of that id.
Without room the oldest pages are evicted; of their ids, *nodes* store only that they were delivered
(see `identities`). An ACK that may still be refused, or rolled back, has a *claim* on each delivery
that it names (see `claims`). One hash table maps keys, whose last word is a TableKey, to the rows.
"""

import enum
from typing import Final

import numpy as np

from dissector import limits, tables
from dissector.blocks import Int64Array
from dissector.bundles import Bundle, Records
from dissector.native.zeros import zeros
from dissector.states import State
from dissector.tables import HashTable, ListHeads, ListLinks, Pool, RecentKeys


class TableKey(enum.IntEnum):
    """Kinds of key, the last word in the table; levels of nodes count up from NODE."""

    CONSUMER = 1  # connection, consumer id
    CONNECTION = 2  # connection
    NAMED_GROUP = 3  # topic, subscription, proxy side
    LOCAL_GROUP = 4  # connection, consumer id, proxy side
    PAGE = 5  # group serial, ledger, page number
    TRANSACTION = 6  # two halves of its id
    PROXY_SIDE = 7  # connection; the value is 1 on a proxy's broker side
    PUBLISHED = 8  # topic, ledger, page number; 9 on a proxy's broker side
    ACK = 10  # frame of an ACK that waits for its answer; the value is its first claim
    ANSWERS = 11  # connection; the value is the list of claims of ACKs outside transactions
    COMMIT = 12  # two halves of a transaction's id; the value is the list of its claims
    NODE = 16  # group serial, ledger, prefix


class ConsumerState(enum.IntEnum):
    """States of a consumer."""

    OPENING = 0
    READY = 1
    CLOSING = 2
    CLOSED = 3


class LeftBy(enum.IntEnum):
    """Why a consumer left."""

    CLIENT = 1
    BROKER = 2
    CONNECTION = 3
    UNSEEN = 4  # its close was not seen: another consumer has its id


PAGE_BITS: Final = 6
PAGE_ENTRIES: Final = 1 << PAGE_BITS
NODE_LEVELS: Final = 11  # 6 bits of the entry id each
ROW_BITS: Final = 20  # of a packed number: the row in the low bits, above it a serial, used once

# How the last delivery of a cell ended.
END_OTHER: Final = 0  # open, or its consumer left
END_REQUESTED: Final = 1
END_ROLLED_BACK: Final = 2
END_ACKED: Final = 3

TRANSACTION_COMMITTED: Final = 0  # END_TXN.txn_action
TRANSACTION_ABORTED: Final = 1

# -- counters
CLOCK: Final = 0  # number of the last frame
NEXT_SERIAL: Final = 1
NEXT_NODE: Final = 2
NEXT_PUBLISHED: Final = 3
NEXT_TRANSACTION: Final = 4
NODES_EVER: Final = 5
BROKER_SIDES: Final = 6  # connections on a proxy's broker side
SPENT_STEPS: Final = 7  # of walks over lists that are not in order
WORDS_USED: Final = 8  # of the arena of words, freed blocks included
ORDINAL: Final = 9  # of the current frame or event, over all rows of all blocks, from 1
OUT_DELIVERIES: Final = 10  # rows written
OUT_PERMITS: Final = 11
OUT_ACKS: Final = 12
OUT_WORDS: Final = 13
DELIVERIES_GIVEN_UP: Final = 14  # hits of limits
IDENTITIES_FORGOTTEN: Final = 15
CONSUMERS_REFUSED: Final = 16
LOOKED_AT: Final = 17  # deliveries that cumulative ACKs and new names visited
ROWS_MADE: Final = 18  # output rows allocated so far: with LOOKED_AT a measure of cost
NOTICE_FROM: Final = 19  # how many hits of each of the three limits cause the next notice
MOST_CLAIMS: Final = 22  # bound of claims
COUNTERS: Final = 23

WORD_CLASSES: Final = 13  # blocks of 1, 2, 4 .. 4096 words
REQUESTS: Final = 1 << 14  # unanswered requests about consumers and transactions

# -- lists of the state as a whole
LIST_CLOSED: Final = 0  # closed consumers, oldest first
LIST_IDLE: Final = 1  # groups without members
LIST_AGES: Final = 2  # all open deliveries
LIST_PAGES: Final = 3
LIST_RELEASED: Final = 4  # all released deliveries, in the order in which they ended
LISTS: Final = 5

OVERFLOW_CONSUMER: Final = 0  # the row that is used when there is no room for a consumer


class Consumers(Bundle):
    """Incarnations of consumers; null if a name or type is unknown.

    topic, subscription, name: codes.
    left_by, left_at: why it left and the frame at which it began to, 0 while it is present.
    left_gap_at: frame before the last gap towards the broker until then, -1 if none.
    opened_at: frame of its SUBSCRIBE, 0 if that was not seen.
    group: of its identities.
    local: group of deliveries from before its names were known; ABSENT if none.
    available: permits, known since frame known_at (-1: unknown).
    unacked: messages of open deliveries that are not acked.
    unread: open deliveries whose size was not read.
    is_ascending: 1 while ids rise along its open deliveries.
    page: of its last delivery.
    serial: never used twice, unlike the row.
    is_failover: 1 if its subscription was seen to switch.
    inactive_at, active_at: frames that last made it inactive and active.
    wants_all: 1 once it requested redelivery of all its open deliveries.
    connection_row: ABSENT once the connection was freed.
    claimed: number of deliveries set aside, which wait for claims.
    superseded_at: frame that last redelivered the id of a delivery set aside.
    released: number of its released deliveries.
    first, last, length: its open deliveries.
    next, previous: consumers of its connection.
    """

    connection: Int64Array
    id: Int64Array
    incarnation: Int64Array
    topic: Int64Array
    subscription: Int64Array
    name: Int64Array
    type: Int64Array
    state: Int64Array
    left_by: Int64Array
    left_at: Int64Array
    left_gap_at: Int64Array
    opened_at: Int64Array
    group: Int64Array
    local: Int64Array
    available: Int64Array
    known_at: Int64Array
    unacked: Int64Array
    unread: Int64Array
    is_ascending: Int64Array
    page: Int64Array
    serial: Int64Array
    is_failover: Int64Array
    inactive_at: Int64Array
    active_at: Int64Array
    wants_all: Int64Array
    connection_row: Int64Array
    claimed: Int64Array
    superseded_at: Int64Array
    released: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    next: Int64Array
    previous: Int64Array


class ConsumerConnections(Bundle):
    """Connections that have or had consumers.

    broker_gap_at, client_gap_at: frame before the last gap towards the broker or the client, -1 if
        none.
    is_two_way: 1 once packets of both directions were captured, see `FrameColumns`.
    first, last, length: its consumers.
    """

    broker_gap_at: Int64Array
    client_gap_at: Int64Array
    is_two_way: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    next: Int64Array
    previous: Int64Array


class IdentityDomains(Bundle):
    """Domains of identities.

    members: its consumers and released deliveries.
    has_identity: 0 for a topic that is not persistent, whose ids are all 0:0.
    seek_at, sought_at: frames of the last SEEK not refused, and of the last answer that did one.
    forgotten_at: frame at which its last page was evicted.
    gap_at: frame before the last gap in which a delivery may have been lost, -1 if none.
    first, last, length: its released deliveries; is_ascending: 1 while ids rise along them.
    """

    serial: Int64Array
    members: Int64Array
    has_identity: Int64Array
    seek_at: Int64Array
    sought_at: Int64Array
    forgotten_at: Int64Array
    gap_at: Int64Array
    key_a: Int64Array
    key_b: Int64Array
    key_c: Int64Array
    key_d: Int64Array
    is_ascending: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    next: Int64Array
    previous: Int64Array


class Deliveries(Records):
    """Open and released deliveries.

    is_timed: 1 if the last byte of its frame came at last_ns.
    messages: of the whole entry.
    count: messages delivered.
    left: messages not acked; null if not read.
    cause, previous_frame_no, previous_connection: null if it is the first delivery.
    page: of its identity, ABSENT without one, or once the id was redelivered.
    superseded_at: frame that redelivered the id, 0 if none did.
    word_block: its words, packed, ABSENT if none: the set_words words of its ack_set (null: none),
        then the left_words words of the bits left (0 while all are), and as many words of the bits
        that decided ACKs leave.
    first, last, length: claims on it.
    is_claimed: 1 if it is set aside: claims leave nothing, and it is not in its consumer's list.
    is_rolled_back: 1 once a transaction that acked it or a part of it was rolled back.
    taken_back: outcome if no other ACK counts, null until one was refused or rolled back.
    was_claimed: 1 once an ACK had a claim on it.
    released, group: of a released delivery its outcome and group, null while it is open.
    next, previous: deliveries of its consumer; of a released one, of its group.
    """

    consumer: Int64Array
    frame_no: Int64Array
    last_ns: Int64Array
    is_timed: Int64Array
    ledger: Int64Array
    entry: Int64Array
    partition: Int64Array
    batch_size: Int64Array
    messages: Int64Array
    count: Int64Array
    left: Int64Array
    redelivery_count: Int64Array
    cause: Int64Array
    previous_frame_no: Int64Array
    previous_connection: Int64Array
    published_ns: Int64Array
    deliver_at_ms: Int64Array
    publish_time_ms: Int64Array
    checksum: Int64Array
    crc32c: Int64Array
    page: Int64Array
    superseded_at: Int64Array
    word_block: Int64Array
    set_words: Int64Array
    left_words: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    is_claimed: Int64Array
    is_rolled_back: Int64Array
    taken_back: Int64Array
    was_claimed: Int64Array
    released: Int64Array
    group: Int64Array
    ack_frame_no: Int64Array
    ack_latency_ns: Int64Array
    next: Int64Array
    previous: Int64Array


class Claims(Records):
    """Effects of undecided ACKs, each on one delivery; or reaches (see `standing`).

    delivery, frame_no: the delivery and its frame, by which a reused row is recognised; ABSENT and
        null for a reach.
    consumer: of a listed reach, else ABSENT.
    ledger, entry: exclusive upper end of a reach.
    ack_frame_no: of the ACK.
    of_ack: on the first claim of an unanswered ACK, the number of its claims; else 0.
    word_block: the bits that it leaves, packed; ABSENT if none.
    transaction: packed, or ABSENT.
    waiting: its list: of its transaction, else of its connection, the claims of one ACK adjacent,
        its reach before them; ABSENT for a decided reach.
    """

    waiting: Int64Array
    delivery: Int64Array
    frame_no: Int64Array
    consumer: Int64Array
    ledger: Int64Array
    entry: Int64Array
    ack_frame_no: Int64Array
    of_ack: Int64Array
    word_block: Int64Array
    transaction: Int64Array
    next: Int64Array
    previous: Int64Array


class EntryIdPages(Records):
    """64 neighbouring ids each.

    serial: id of the group; its row may be reused.
    seen: bit set of the ids that were delivered.
    known: bit set of the ids whose cell is filled.
    open: number of ids with an open delivery.
    """

    group: Int64Array
    serial: Int64Array
    ledger: Int64Array
    number: Int64Array
    seen: Int64Array
    known: Int64Array
    open: Int64Array
    next: Int64Array
    previous: Int64Array


class EntrySlots(Records):
    """The last delivery of each id; cell = page * PAGE_ENTRIES + bit in it.

    delivery: ABSENT if its row is written.
    owner: serial and row of its consumer, packed.
    end: END_*.
    last_ns: when it was complete.
    crc32c, publish_time_ms: as stored with the message, null if unknown.
    """

    delivery: Int64Array
    frame_no: Int64Array
    connection: Int64Array
    owner: Int64Array
    end: Int64Array
    last_ns: Int64Array
    crc32c: Int64Array
    publish_time_ms: Int64Array


class DeliveredSet(Records):
    """Delivered ids of evicted pages: 64 ids each, or 64 full nodes of the level below."""

    bits: Int64Array
    is_used: Int64Array
    serial: Int64Array
    ledger: Int64Array
    prefix: Int64Array
    level: Int64Array


class Published(Records):
    """64 neighbouring entries each; known: bit set of the entries with a stamp."""

    topic: Int64Array
    ledger: Int64Array
    number: Int64Array
    proxy_side: Int64Array
    known: Int64Array


class Transactions(Bundle):
    """action: of its END_TXN, null before."""

    serial: Int64Array
    action: Int64Array
    most: Int64Array
    least: Int64Array


class ConsumptionState(State):
    """Everything that the kernels of deliveries, permits and acks change, except output rows.

    closed, ages: links of LIST_CLOSED, and of LIST_AGES or LIST_RELEASED.
    shares: links of the claims on a delivery, and of the reaches of a consumer.
    reaches, transaction_reaches: each consumer's reaches outside transactions or certain, and those
        inside.
    waiting: lists of claims.
    stamps: ns of the SEND's last byte, by page of `published` * PAGE_ENTRIES + bit.
    words: an arena of word blocks for bit sets.
    free_words: first free block of each size class, ABSENT if none.
    requests: by frame, its consumer or transaction, packed; of a SEEK also the previous SEEK.
    """

    table: HashTable
    consumers: Consumers
    consumer_pool: Pool
    closed: ListLinks
    connections: ConsumerConnections
    connection_pool: Pool
    groups: IdentityDomains
    group_pool: Pool
    deliveries: Deliveries
    delivery_pool: Pool
    ages: ListLinks
    claims: Claims
    claim_pool: Pool
    shares: ListLinks
    reaches: ListHeads
    transaction_reaches: ListHeads
    waiting: ListHeads
    waiting_pool: Pool
    pages: EntryIdPages
    page_pool: Pool
    cells: EntrySlots
    nodes: DeliveredSet
    published: Published
    stamps: Int64Array
    transactions: Transactions
    lists: ListHeads
    words: Int64Array
    free_words: Int64Array
    requests: RecentKeys
    counters: Int64Array


def new_state(consumers: int, deliveries: int, nodes: int, key: int = 0) -> ConsumptionState:
    """Allocate a state with so many rows. Unused memory costs nothing.

    key: of its hash table.
    """
    counters = np.zeros(COUNTERS, np.int64)
    counters[NEXT_SERIAL] = 1
    counters[NOTICE_FROM:MOST_CLAIMS] = 1
    consumer_pool = tables.new_pool(consumers)
    consumer_pool.free[0] -= 1  # OVERFLOW_CONSUMER, the row handed out first
    published = limits.MAX_PUBLISH_WINDOW // PAGE_ENTRIES
    return ConsumptionState(
        table=tables.new_hash_table(1 << 14, key),
        consumers=Consumers.new(consumers),
        consumer_pool=consumer_pool,
        closed=ListLinks.new(consumers),
        connections=ConsumerConnections.new(consumers),
        connection_pool=tables.new_pool(consumers),
        groups=IdentityDomains.new(consumers),
        group_pool=tables.new_pool(consumers),
        deliveries=Deliveries.new(deliveries),
        delivery_pool=tables.new_pool(deliveries),
        ages=ListLinks.new(deliveries),
        claims=Claims.new(deliveries),
        claim_pool=tables.new_pool(deliveries),
        shares=ListLinks.new(deliveries),
        reaches=tables.new_ends(consumers),
        transaction_reaches=tables.new_ends(consumers),
        waiting=tables.new_ends(consumers),
        waiting_pool=tables.new_pool(consumers),
        pages=EntryIdPages.new(limits.MAX_IDENTITY_PAGES),
        page_pool=tables.new_pool(limits.MAX_IDENTITY_PAGES),
        cells=EntrySlots.new(limits.MAX_IDENTITY_PAGES * PAGE_ENTRIES),
        nodes=DeliveredSet.new(nodes),
        published=Published.new(published),
        stamps=zeros(published * PAGE_ENTRIES),
        transactions=Transactions.new(limits.MAX_TRANSACTIONS),
        lists=tables.new_ends(LISTS),
        words=zeros(limits.MAX_ACK_SET_WORDS),
        free_words=np.full(WORD_CLASSES, tables.ABSENT, np.int64),
        requests=tables.new_memory(REQUESTS, key),
        counters=counters,
    )


def make_key_room(state: ConsumptionState, more: int) -> None:
    """Reserve room for `more` keys in the hash table."""
    state.grow(table=tables.reserved(state.table, more))
