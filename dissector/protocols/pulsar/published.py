"""When an entry was published, by its id, and how transactions ended: bounded memories in turn."""

from dissector.blocks import Int64Array
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption_state import (
    NEXT_PUBLISHED,
    NEXT_SERIAL,
    NEXT_TRANSACTION,
    PAGE_BITS,
    PAGE_ENTRIES,
    PUBLISHED_KEY,
    PUBLISHED_KNOWN,
    ROW_BITS,
    TRANSACTION_ACTION,
    TRANSACTION_COMMITTED,
    TRANSACTION_LEAST,
    TRANSACTION_MOST,
    TRANSACTION_SERIAL,
    PublishTables,
)
from dissector.protocols.pulsar.identities import bit_of
from dissector.protocols.tables import ABSENT, find, put, remove


@inlined
def leg_of(published: PublishTables, connection: int) -> int:
    """1 for a connection of a proxy's broker leg, else 0."""
    if published.legs.used[0] == 0:
        return 0
    return max(find(published.legs, connection, 0, 0, 0), 0)


@kernel
def remember_published(
    published: PublishTables, counters: Int64Array, topic: int, ledger: int, entry: int, leg: int,
    last_ns: int,
) -> None:  # fmt: skip
    """Note when the SEND of an entry was complete; the oldest page of entries makes room."""
    pages = published.pages
    number = entry >> PAGE_BITS
    page = find(published.by_key, topic, ledger, number, leg)
    if page == ABSENT:
        page = counters[NEXT_PUBLISHED] % len(pages)
        key = pages[page]
        if counters[NEXT_PUBLISHED] >= len(pages):
            remove(
                published.by_key,
                key[PUBLISHED_KEY],
                key[PUBLISHED_KEY + 1],
                key[PUBLISHED_KEY + 2],
                key[PUBLISHED_KEY + 3],
            )
        counters[NEXT_PUBLISHED] += 1
        key[PUBLISHED_KNOWN] = 0
        key[PUBLISHED_KEY] = topic
        key[PUBLISHED_KEY + 1] = ledger
        key[PUBLISHED_KEY + 2] = number
        key[PUBLISHED_KEY + 3] = leg
        put(published.by_key, topic, ledger, number, leg, page)
    place = entry & (PAGE_ENTRIES - 1)
    pages[page, PUBLISHED_KNOWN] = wrapped(int(pages[page, PUBLISHED_KNOWN]) | bit_of(place))
    published.stamps[page, place] = last_ns


@inlined
def published_ns(
    published: PublishTables, topic: int, ledger: int, entry: int, leg: int
) -> int:
    """When the SEND of an entry was complete, ns; null if that is not known."""
    if topic == NULL or ledger < 0 or entry < 0 or published.by_key.used[0] == 0:
        return NULL
    page = find(published.by_key, topic, ledger, entry >> PAGE_BITS, leg)
    place = entry & (PAGE_ENTRIES - 1)
    if page == ABSENT or (published.pages[page, PUBLISHED_KNOWN] >> place) & 1 == 0:
        return NULL
    return published.stamps[page, place]


@kernel
def transaction_of(published: PublishTables, counters: Int64Array, most: int, least: int) -> int:
    """The packed number of a transaction, which is taken up if it is new."""
    transactions = published.transactions
    row = find(published.by_transaction, most, least, 0, 0)
    if row == ABSENT:
        row = counters[NEXT_TRANSACTION] % len(transactions)
        mine = transactions[row]
        if counters[NEXT_TRANSACTION] >= len(transactions):
            remove(
                published.by_transaction, mine[TRANSACTION_MOST], mine[TRANSACTION_LEAST], 0, 0
            )
        counters[NEXT_TRANSACTION] += 1
        mine[TRANSACTION_SERIAL] = counters[NEXT_SERIAL]
        counters[NEXT_SERIAL] += 1
        mine[TRANSACTION_ACTION] = NULL
        mine[TRANSACTION_MOST] = most
        mine[TRANSACTION_LEAST] = least
        put(published.by_transaction, most, least, 0, 0, row)
    return (transactions[row, TRANSACTION_SERIAL] << ROW_BITS) | row


@kernel
def was_committed(published: PublishTables, packed: int) -> bool:
    """Whether a transaction is known to have been committed."""
    row = packed & ((1 << ROW_BITS) - 1)
    mine = published.transactions[row]
    return bool(
        mine[TRANSACTION_SERIAL] == packed >> ROW_BITS
        and mine[TRANSACTION_ACTION] == TRANSACTION_COMMITTED
    )
