"""Which message ids were delivered to a group before: pages of 64 ids, and nodes of what is older.

A page has a cell per entry id, so a stream of rising ids fills one cell after the other and looks
up a page every 64 ids. When a page is given back its ids go to a node, a bit set of the same 64
ids; a node that is full becomes one bit of a node above it, which stands for 64 full nodes, and so
on. So ids are kept as intervals whose ends are cut to powers of 64: a stream of any length without
holes holds at most 11 nodes, and to add or look up an id costs at most 11 probes.
"""

from dissector.blocks import Int64Array
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.protocols.pulsar.consumption_state import (
    CLOCK,
    GROUP_FORGOTTEN_AT,
    GROUP_SERIAL,
    IDENTITIES_FORGOTTEN,
    NEXT_NODE,
    NODE_BITSET,
    NODE_IS_USED,
    NODE_KEY,
    NODE_LEVELS,
    NODES_EVER,
    PAGE_BITS,
    PAGE_ENTRIES,
    PAGE_GROUP,
    PAGE_KNOWN,
    PAGE_LEDGER,
    PAGE_NUMBER,
    PAGE_OPEN,
    PAGE_SEEN,
    PAGE_SERIAL,
    IdentityTables,
)
from dissector.protocols.tables import (
    ABSENT,
    find,
    give_row,
    list_append,
    list_unlink,
    put,
    remove,
    take_row,
)

_FULL = -1  # a bit set with all 64 bits
_TRIES = 64  # how far to look for something that may be given up


@inlined
def bit_of(place: int) -> int:
    """A bit set with one bit, as a signed number."""
    return wrapped(1 << int(place))


@inlined
def popcount(bits: int) -> int:
    """How many bits of a 64-bit word are set. Sums only, so that nothing can overflow."""
    x = int(bits)
    x = ((x >> 1) & 0x5555_5555_5555_5555) + (x & 0x5555_5555_5555_5555)
    x = ((x >> 2) & 0x3333_3333_3333_3333) + (x & 0x3333_3333_3333_3333)
    x = ((x >> 4) & 0x0F0F_0F0F_0F0F_0F0F) + (x & 0x0F0F_0F0F_0F0F_0F0F)
    x += x >> 8
    x += x >> 16
    x += x >> 32
    return x & 0x7F


@inlined
def find_page(
    identities: IdentityTables, guess: int, serial: int, ledger: int, entry: int
) -> int:
    """The page of an id, or ABSENT. guess: a page that it may well be, or ABSENT."""
    number = entry >> PAGE_BITS
    pages = identities.pages
    if (
        guess >= 0
        and pages[guess, PAGE_NUMBER] == number
        and pages[guess, PAGE_LEDGER] == ledger
        and pages[guess, PAGE_SERIAL] == serial
    ):
        return guess
    return find(identities.by_key, serial, ledger, number, 0)


@kernel
def page_to_give_up(identities: IdentityTables) -> int:
    """The oldest page without open deliveries; the oldest of all if a good many have some."""
    ends = identities.ends
    for _ in range(_TRIES):
        page = ends.first[0]
        if identities.pages[page, PAGE_OPEN] == 0:
            return page
        list_unlink(ends, identities.links, 0, page)
        list_append(ends, identities.links, 0, page)
    return ends.first[0]


@kernel
def give_up_page(identities: IdentityTables, groups: Int64Array, counters: Int64Array) -> None:
    """Give back page_to_give_up(), which has no open delivery any more; its ids go to the nodes."""
    page = page_to_give_up(identities)
    row = identities.pages[page]
    group = row[PAGE_GROUP]
    if groups[group, GROUP_SERIAL] == row[PAGE_SERIAL]:
        groups[group, GROUP_FORGOTTEN_AT] = counters[CLOCK]
        _remember(
            identities, counters, row[PAGE_SERIAL], row[PAGE_LEDGER], row[PAGE_NUMBER], row[PAGE_SEEN]
        )
    remove(identities.by_key, row[PAGE_SERIAL], row[PAGE_LEDGER], row[PAGE_NUMBER], 0)
    list_unlink(identities.ends, identities.links, 0, page)
    give_row(identities.pool, page)


@kernel
def add_page(
    identities: IdentityTables,
    counters: Int64Array,
    group: int,
    serial: int,
    ledger: int,
    entry: int,
) -> int:
    """A fresh page for an id that has none; the pool must have one."""
    page = take_row(identities.pool)
    number = entry >> PAGE_BITS
    row = identities.pages[page]
    row[PAGE_GROUP] = group
    row[PAGE_SERIAL] = serial
    row[PAGE_LEDGER] = ledger
    row[PAGE_NUMBER] = number
    row[PAGE_SEEN] = _remembered(identities, counters, serial, ledger, number)
    row[PAGE_KNOWN] = 0
    row[PAGE_OPEN] = 0
    put(identities.by_key, serial, ledger, number, 0, page)
    list_append(identities.ends, identities.links, 0, page)
    return page


@kernel
def _remember(
    identities: IdentityTables,
    counters: Int64Array,
    serial: int,
    ledger: int,
    number: int,
    seen: int,
) -> None:
    """Add the ids of a page to the nodes."""
    bits = seen
    prefix = number
    for level in range(NODE_LEVELS):
        node = find(identities.by_node, serial, ledger, prefix, level)
        if node != ABSENT:
            bits = bits | identities.nodes[node, NODE_BITSET]
        if bits != _FULL or level == NODE_LEVELS - 1:
            if node == ABSENT:
                node = _take_node(identities, counters)
                key = identities.nodes[node]
                key[NODE_KEY] = serial
                key[NODE_KEY + 1] = ledger
                key[NODE_KEY + 2] = prefix
                key[NODE_KEY + 3] = level
                put(identities.by_node, serial, ledger, prefix, level, node)
            identities.nodes[node, NODE_BITSET] = bits
            return
        if node != ABSENT:
            identities.nodes[node, NODE_IS_USED] = 0
            remove(identities.by_node, serial, ledger, prefix, level)
        bits = bit_of(prefix & (PAGE_ENTRIES - 1))
        prefix = prefix >> PAGE_BITS


@kernel
def _take_node(identities: IdentityTables, counters: Int64Array) -> int:
    """The next node in turn. One in use is forgotten then, single ids rather than intervals."""
    nodes = identities.nodes
    node = counters[NEXT_NODE] % len(nodes)
    for _ in range(_TRIES):
        if nodes[node, NODE_IS_USED] == 0 or nodes[node, NODE_KEY + 3] == 0:
            break
        node = (node + 1) % len(nodes)
    counters[NEXT_NODE] = node + 1
    counters[NODES_EVER] += 1
    if nodes[node, NODE_IS_USED]:
        key = nodes[node]
        remove(
            identities.by_node, key[NODE_KEY], key[NODE_KEY + 1], key[NODE_KEY + 2], key[NODE_KEY + 3]
        )
        counters[IDENTITIES_FORGOTTEN] += 1
    nodes[node, NODE_IS_USED] = 1
    return node


@kernel
def _remembered(
    identities: IdentityTables, counters: Int64Array, serial: int, ledger: int, number: int
) -> int:
    """The ids of a page that the nodes know, as a bit set."""
    if counters[NODES_EVER] == 0:
        return 0
    prefix = number
    for level in range(1, NODE_LEVELS):
        place = prefix & (PAGE_ENTRIES - 1)
        prefix = prefix >> PAGE_BITS
        node = find(identities.by_node, serial, ledger, prefix, level)
        if node != ABSENT and (identities.nodes[node, NODE_BITSET] >> place) & 1:
            return _FULL
    node = find(identities.by_node, serial, ledger, number, 0)
    return identities.nodes[node, NODE_BITSET] if node != ABSENT else 0
