"""The message ids that a group was delivered: pages of 64 recent ids, nodes of older ones.

A page has a cell per entry id, so a stream of rising ids fills one cell after the other and looks
up a page every 64 ids. An evicted page adds its ids to a node, a bit set of the same 64 ids; a full
node becomes one bit of a node one level up, which represents 64 full nodes, and so on. So ids are
stored as intervals whose ends are cut to powers of 64: a stream of any length without missing ids
needs at most 11 nodes, and adding or looking up an id costs at most 11 probes.
"""

from typing import Final

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import bit_of
from dissector.protocols.pulsar.consumption.state import ConsumptionState, TableKey

_FULL: Final = -1  # a bit set with all 64 bits
_TRIES: Final = 64  # candidates for eviction that are examined


@inlined
def cell_of(state: ConsumptionState, delivery: int) -> int:
    """The cell of an open delivery; ABSENT if it has none or a later delivery of the id has it."""
    page = state.deliveries.page[delivery]
    if page == tables.ABSENT:
        return tables.ABSENT
    return int(
        page * consumption_state.PAGE_ENTRIES
        + (state.deliveries.entry[delivery] & (consumption_state.PAGE_ENTRIES - 1))
    )


@inlined
def is_after(state: ConsumptionState, delivery: int, ledger: int, entry: int) -> bool:
    """Whether a delivery's id is greater than the given one."""
    mine = state.deliveries.ledger[delivery]
    return bool(mine > ledger or (mine == ledger and state.deliveries.entry[delivery] > entry))


@inlined
def find_page(state: ConsumptionState, guess: int, serial: int, ledger: int, entry: int) -> int:
    """The page of an id, or ABSENT. guess: the page to try first, or ABSENT."""
    number = entry >> consumption_state.PAGE_BITS
    pages = state.pages
    if (
        guess >= 0
        and pages.number[guess] == number
        and pages.ledger[guess] == ledger
        and pages.serial[guess] == serial
    ):
        return guess
    return tables.find(state.table, serial, ledger, number, TableKey.PAGE)


@kernel
def page_to_evict(state: ConsumptionState) -> int:
    """The oldest page without open deliveries; the 65th oldest if the first 64 all have some."""
    lists = state.lists
    for _ in range(_TRIES):
        page = lists.first[consumption_state.LIST_PAGES]
        if state.pages.open[page] == 0:
            return int(page)
        tables.list_unlink(lists, state.pages, consumption_state.LIST_PAGES, page)
        tables.list_append(lists, state.pages, consumption_state.LIST_PAGES, page)
    return int(lists.first[consumption_state.LIST_PAGES])


@kernel
def evict_page(state: ConsumptionState, page: int) -> None:
    """Free a page without open deliveries and add its ids to the nodes."""
    pages = state.pages
    group = pages.group[page]
    serial = pages.serial[page]
    if state.groups.serial[group] == serial:
        state.groups.forgotten_at[group] = state.counters[consumption_state.CLOCK]
        _remember(state, serial, pages.ledger[page], pages.number[page], pages.seen[page])
    tables.remove(state.table, serial, pages.ledger[page], pages.number[page], TableKey.PAGE)
    pages.serial[page] = tables.ABSENT  # so that no guess matches it
    tables.list_unlink(state.lists, pages, consumption_state.LIST_PAGES, page)
    tables.give_row(state.page_pool, page)


@kernel
def add_page(state: ConsumptionState, group: int, serial: int, ledger: int, entry: int) -> int:
    """Allocate a page for an id that has none; the pool must have a free row."""
    pages = state.pages
    page = tables.allocate_row(state.page_pool)
    number = entry >> consumption_state.PAGE_BITS
    pages.group[page] = group
    pages.serial[page] = serial
    pages.ledger[page] = ledger
    pages.number[page] = number
    pages.seen[page] = _remembered(state, serial, ledger, number)
    pages.known[page] = 0
    pages.open[page] = 0
    tables.put(state.table, serial, ledger, number, TableKey.PAGE, page)
    tables.list_append(state.lists, pages, consumption_state.LIST_PAGES, page)
    return page


@kernel
def _remember(state: ConsumptionState, serial: int, ledger: int, number: int, seen: int) -> None:
    """Add the ids of a page to the nodes."""
    nodes = state.nodes
    bits = seen
    prefix = number
    for level in range(consumption_state.NODE_LEVELS):
        node = tables.find(state.table, serial, ledger, prefix, TableKey.NODE + level)
        if node != tables.ABSENT:
            bits = bits | nodes.bits[node]
        if bits != _FULL or level == consumption_state.NODE_LEVELS - 1:
            if node == tables.ABSENT:
                node = _allocate_node(state)
                nodes.serial[node] = serial
                nodes.ledger[node] = ledger
                nodes.prefix[node] = prefix
                nodes.level[node] = level
                tables.put(state.table, serial, ledger, prefix, TableKey.NODE + level, node)
            nodes.bits[node] = bits
            return
        if node != tables.ABSENT:
            nodes.is_used[node] = 0
            tables.remove(state.table, serial, ledger, prefix, TableKey.NODE + level)
        bits = bit_of(prefix & (consumption_state.PAGE_ENTRIES - 1))
        prefix = prefix >> consumption_state.PAGE_BITS


@kernel
def _allocate_node(state: ConsumptionState) -> int:
    """Allocate the next node in turn. A used one is overwritten, of level 0 if one is near."""
    nodes = state.nodes
    counters = state.counters
    rows = len(nodes.bits)
    node = counters[consumption_state.NEXT_NODE] % rows
    for _ in range(_TRIES):
        if nodes.is_used[node] == 0 or nodes.level[node] == 0:
            break
        node = (node + 1) % rows
    counters[consumption_state.NEXT_NODE] = node + 1
    counters[consumption_state.NODES_EVER] += 1
    if nodes.is_used[node]:
        serial, ledger = nodes.serial[node], nodes.ledger[node]
        tables.remove(
            state.table,
            serial,
            ledger,
            nodes.prefix[node],
            TableKey.NODE + nodes.level[node],
        )
        counters[consumption_state.IDENTITIES_FORGOTTEN] += 1
    nodes.is_used[node] = 1
    return int(node)


@kernel
def _remembered(state: ConsumptionState, serial: int, ledger: int, number: int) -> int:
    """The ids of a page that the nodes contain, as a bit set."""
    if state.counters[consumption_state.NODES_EVER] == 0:
        return 0
    prefix = number
    for level in range(1, consumption_state.NODE_LEVELS):
        bit = prefix & (consumption_state.PAGE_ENTRIES - 1)
        prefix = prefix >> consumption_state.PAGE_BITS
        node = tables.find(state.table, serial, ledger, prefix, TableKey.NODE + level)
        if node != tables.ABSENT and (state.nodes.bits[node] >> bit) & 1:
            return _FULL
    node = tables.find(state.table, serial, ledger, number, TableKey.NODE)
    return state.nodes.bits[node] if node != tables.ABSENT else 0
