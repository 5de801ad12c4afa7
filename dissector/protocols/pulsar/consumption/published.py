"""Publish times by entry id, and ends of transactions: ring buffers of bounded size."""

from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import bit_of
from dissector.protocols.pulsar.consumption.consumers import next_serial
from dissector.protocols.pulsar.consumption.state import ConsumptionState, TableKey
from dissector.tables import ABSENT, find, put, remove


@inlined
def proxy_side_of(state: ConsumptionState, connection: int) -> int:
    """1 for a connection on a proxy's broker side, else 0."""
    if state.counters[consumption_state.BROKER_SIDES] == 0:
        return 0
    return max(find(state.table, connection, 0, 0, TableKey.PROXY_SIDE), 0)


@kernel
def set_proxy_side(state: ConsumptionState, connection: int, proxy_side: int) -> None:
    """Set on which side of a proxy a connection is: 1 for the broker's, 0 for any other."""
    before = remove(state.table, connection, 0, 0, TableKey.PROXY_SIDE)
    if before != ABSENT:
        state.counters[consumption_state.BROKER_SIDES] -= 1
    if proxy_side == 1:
        put(state.table, connection, 0, 0, TableKey.PROXY_SIDE, 1)
        state.counters[consumption_state.BROKER_SIDES] += 1


@inlined
def domain_of(topic: int, connection: int) -> int:
    """The scope in which a ledger's number is unique: its topic, else the connection (negative).

    Two clusters number their ledgers alike; one connection carries the ledgers of one cluster.
    """
    return topic if topic >= 0 else -2 - connection


@kernel
def remember_published(
    state: ConsumptionState, topic: int, ledger: int, entry: int, proxy_side: int, last_ns: int
) -> None:
    """Store when the SEND of an entry was complete; a new page overwrites the oldest one.

    topic: from domain_of.
    """
    published = state.published
    counters = state.counters
    number = entry >> consumption_state.PAGE_BITS
    page = find(state.table, topic, ledger, number, TableKey.PUBLISHED + proxy_side)
    if page == ABSENT:
        page = counters[consumption_state.NEXT_PUBLISHED] % len(published.topic)
        if counters[consumption_state.NEXT_PUBLISHED] >= len(published.topic):
            old_topic, old_ledger = published.topic[page], published.ledger[page]
            old_key = TableKey.PUBLISHED + published.proxy_side[page]
            remove(state.table, old_topic, old_ledger, published.number[page], old_key)
        counters[consumption_state.NEXT_PUBLISHED] += 1
        published.topic[page] = topic
        published.ledger[page] = ledger
        published.number[page] = number
        published.proxy_side[page] = proxy_side
        published.known[page] = 0
        put(state.table, topic, ledger, number, TableKey.PUBLISHED + proxy_side, page)
    bit = entry & (consumption_state.PAGE_ENTRIES - 1)
    published.known[page] = wrapped(int(published.known[page]) | bit_of(bit))
    state.stamps[page * consumption_state.PAGE_ENTRIES + bit] = last_ns


@inlined
def published_ns(
    state: ConsumptionState, topic: int, connection: int, ledger: int, entry: int, proxy_side: int
) -> int:
    """When the SEND of an entry was complete, ns; null if unknown.

    connection: the consumer's; the receipt may have been on it, without a known topic.
    """
    if ledger < 0 or entry < 0 or state.counters[consumption_state.NEXT_PUBLISHED] == 0:
        return NULL
    stamp_ns = NULL
    if topic >= 0:
        stamp_ns = _stamp_of(state, topic, ledger, entry, proxy_side)
    if stamp_ns == NULL:
        stamp_ns = _stamp_of(state, domain_of(NULL, connection), ledger, entry, proxy_side)
    return stamp_ns


@inlined
def _page_of(state: ConsumptionState, topic: int, ledger: int, entry: int, proxy_side: int) -> int:
    """The page of an entry, ABSENT if there is none."""
    kind = TableKey.PUBLISHED + proxy_side
    return int(find(state.table, topic, ledger, entry >> consumption_state.PAGE_BITS, kind))


@kernel
def forget_published(
    state: ConsumptionState, topic: int, ledger: int, entry: int, proxy_side: int, until_ns: int
) -> None:
    """Remove the publish time of an entry if it is not after `until_ns`.

    topic: from domain_of.
    """
    page = _page_of(state, topic, ledger, entry, proxy_side)
    bit = entry & (consumption_state.PAGE_ENTRIES - 1)
    if page != ABSENT and state.stamps[page * consumption_state.PAGE_ENTRIES + bit] <= until_ns:
        known = int(state.published.known[page])
        state.published.known[page] = wrapped(known & ~bit_of(bit))


@kernel
def _stamp_of(state: ConsumptionState, topic: int, ledger: int, entry: int, proxy_side: int) -> int:
    """The stored publish time of an entry, ns; null if there is none."""
    page = _page_of(state, topic, ledger, entry, proxy_side)
    bit = entry & (consumption_state.PAGE_ENTRIES - 1)
    if page == ABSENT or (state.published.known[page] >> bit) & 1 == 0:
        return NULL
    return int(state.stamps[page * consumption_state.PAGE_ENTRIES + bit])


@kernel
def transaction_of(state: ConsumptionState, most: int, least: int) -> int:
    """The packed number of a transaction; adds a row if it is new."""
    transactions = state.transactions
    counters = state.counters
    row = find(state.table, most, least, 0, TableKey.TRANSACTION)
    if row == ABSENT:
        row = counters[consumption_state.NEXT_TRANSACTION] % len(transactions.serial)
        if counters[consumption_state.NEXT_TRANSACTION] >= len(transactions.serial):
            remove(
                state.table,
                transactions.most[row],
                transactions.least[row],
                0,
                TableKey.TRANSACTION,
            )
        counters[consumption_state.NEXT_TRANSACTION] += 1
        transactions.serial[row] = next_serial(state)
        transactions.action[row] = NULL
        transactions.most[row] = most
        transactions.least[row] = least
        put(state.table, most, least, 0, TableKey.TRANSACTION, row)
    return int((transactions.serial[row] << consumption_state.ROW_BITS) | row)


@kernel
def end_transaction(state: ConsumptionState, most: int, least: int, action: int) -> int:
    """Store the action of an END_TXN (commit or abort); returns the packed number."""
    packed = transaction_of(state, most, least)
    state.transactions.action[packed & ((1 << consumption_state.ROW_BITS) - 1)] = action
    return packed


@inlined
def find_transaction(state: ConsumptionState, packed: int) -> int:
    """The row of a packed number; ABSENT if there is none or its row was reused."""
    row = packed & ((1 << consumption_state.ROW_BITS) - 1)
    if packed == ABSENT or row >= len(state.transactions.serial):
        return ABSENT
    return (
        int(row)
        if state.transactions.serial[row] == packed >> consumption_state.ROW_BITS
        else ABSENT
    )


@kernel
def was_committed(state: ConsumptionState, packed: int) -> bool:
    """Whether a commit of the transaction was seen."""
    row = find_transaction(state, packed)
    return bool(
        row != ABSENT and state.transactions.action[row] == consumption_state.TRANSACTION_COMMITTED
    )
