"""Kernels for producers and consumers: look up, add, set names, open, close."""

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, Lifecycle
from dissector.protocols.pulsar.registry import state as registry_state
from dissector.protocols.pulsar.registry.state import (
    HandleRows,
    HandleState,
    RegistryKey,
    RegistryState,
)
from dissector.protocols.pulsar.wire.commands import CONSUMER_SUBJECT, NO_SUBJECT, PRODUCER_SUBJECT


@kernel
def connection_row(state: RegistryState, frames: FrameColumns, row: int) -> int:
    """The row of a frame's connection, added if it has none."""
    connection_id = frames.connection_id[row]
    connection = tables.find(state.table, RegistryKey.CONNECTION, connection_id, 0, 0)
    if connection == tables.ABSENT:
        connection = tables.allocate_row(state.connection_pool)
        tables.put(state.table, RegistryKey.CONNECTION, connection_id, 0, 0, connection)
        state.connections.connection_id[connection] = connection_id
        state.connections.broker[connection] = frames.broker[row]
        state.connections.is_whole[connection] = 0
        state.connections.hole_row[connection] = -1
    return int(connection)


@inlined
def handle_of(state: RegistryState, frames: FrameColumns, row: int, kind: int, number: int) -> int:
    """A producer or consumer of a frame's connection, its row, added if it has none; ABSENT if
    there is no room."""
    client_handles = state.client_handles
    connection_id = frames.connection_id[row]
    cache_slot = (int(connection_id) * 31 + int(number) * 2 + kind) & (registry_state.RECENT - 1)
    client_handle = state.recent[cache_slot]
    if (
        client_handle != tables.ABSENT
        and client_handles.id[client_handle] == number
        and client_handles.connection_id[client_handle] == connection_id
        and client_handles.kind[client_handle] == kind
    ):
        return int(client_handle)
    client_handle = _find_or_add(state, connection_row(state, frames, row), kind, number)
    state.recent[cache_slot] = client_handle
    return client_handle


@kernel
def _find_or_add(state: RegistryState, connection: int, kind: int, number: int) -> int:
    """`handle_of` on a miss of the cache `recent`. connection: its row."""
    row = tables.find(state.table, kind, connection, number, 0)
    if row != tables.ABSENT:
        return int(row)
    row = tables.allocate_row(state.handle_pool)
    if row == tables.ABSENT:
        oldest = state.closed_list.first[0]
        state.counters[registry_state.COUNT_REFUSED] += 1
        if oldest == tables.ABSENT:
            return tables.ABSENT
        drop_handle(state, oldest)
        row = tables.allocate_row(state.handle_pool)
    client_handles = state.client_handles
    clear_incarnation(state, row)
    client_handles.connection_id[row] = state.connections.connection_id[connection]
    client_handles.kind[row] = kind
    client_handles.id[row] = number
    client_handles.connection[row] = connection
    client_handles.incarnation[row] = 0
    client_handles.is_waiting[row] = 0
    client_handles.state[row] = (
        HandleState.UNOPENED if state.connections.is_whole[connection] else HandleState.OPEN
    )
    tables.put(state.table, kind, connection, number, 0, row)
    tables.list_append(state.handle_lists, state.handle_links, connection, row)
    return int(row)


@kernel
def clear_incarnation(state: RegistryState, client_handle: int) -> None:
    """Reset the columns of one incarnation, but for its number.

    A producer may be in the chain of its name, so it leaves the chain before the name is reset.
    """
    _stop_waiting(state, client_handle)
    client_handles = state.client_handles
    incarnation = client_handles.incarnation[client_handle]
    for column in range(registry_state.IDENTITY_COLUMNS, registry_state.SHARED_COLUMNS):
        client_handles.matrix[column, client_handle] = NULL
    client_handles.incarnation[client_handle] = incarnation
    client_handles.open_requests[client_handle] = 0
    client_handles.opened_row[client_handle] = state.counters[registry_state.COUNT_ROW]
    client_handles.last_ledger[client_handle] = NULL


@kernel
def drop_handle(state: RegistryState, client_handle: int) -> None:
    """Remove a producer or consumer and free its row."""
    client_handles = state.client_handles
    _stop_waiting(state, client_handle)
    if client_handles.state[client_handle] == HandleState.CLOSED:
        tables.list_unlink(state.closed_list, state.closed_links, 0, client_handle)
    connection = client_handles.connection[client_handle]
    tables.list_unlink(state.handle_lists, state.handle_links, connection, client_handle)
    tables.remove(
        state.table,
        client_handles.kind[client_handle],
        connection,
        client_handles.id[client_handle],
        0,
    )
    client_handles.kind[client_handle] = NO_SUBJECT
    tables.give_row(state.handle_pool, client_handle)


@kernel
def write_row(state: RegistryState, out: HandleRows, client_handle: int, closed_by: int) -> None:
    """Write the row of a closed incarnation."""
    row = state.counters[registry_state.COUNT_OUT]
    state.counters[registry_state.COUNT_OUT] = row + 1
    for column in range(registry_state.SHARED_COLUMNS):
        out.matrix[column, row] = state.client_handles.matrix[column, client_handle]
    if out.name_source[row] == NULL:
        out.name_source[row] = columns.NAME_UNKNOWN
    out.closed_by[row] = closed_by
    out.closing_row[row] = state.counters[registry_state.COUNT_ROW]


@kernel
def close_handle(
    state: RegistryState, out: HandleRows, client_handle: int, closed_by: int, frame_no: int
) -> None:
    """Close an incarnation: write its row and append the handle to the list of closed ones.

    Args:
        frame_no: of the frame that closed it; NULL keeps the number that is stored.
    """
    client_handles = state.client_handles
    if frame_no != NULL:
        client_handles.closed_frame_no[client_handle] = frame_no
    write_row(state, out, client_handle, closed_by)
    _stop_waiting(state, client_handle)
    client_handles.state[client_handle] = HandleState.CLOSED
    tables.list_append(state.closed_list, state.closed_links, 0, client_handle)


@kernel
def begin_incarnation(state: RegistryState, client_handle: int, frame_no: int) -> None:
    """Begin an incarnation of an UNOPENED or CLOSED handle, which is OPENING then."""
    client_handles = state.client_handles
    if client_handles.state[client_handle] == HandleState.CLOSED:
        tables.list_unlink(state.closed_list, state.closed_links, 0, client_handle)
        client_handles.incarnation[client_handle] += 1
    clear_incarnation(state, client_handle)
    client_handles.state[client_handle] = HandleState.OPENING
    client_handles.opened_frame_no[client_handle] = frame_no


@kernel
def _stop_waiting(state: RegistryState, client_handle: int) -> None:
    """Remove a producer from the chain of producers that wait for a topic by their name."""
    client_handles = state.client_handles
    if client_handles.is_waiting[client_handle] == 1:
        tables.chain_unlink(
            state.table,
            state.nameless_links,
            RegistryKey.NAMELESS,
            client_handles.name[client_handle],
            client_handles.id[client_handle],
            broker_of(state, client_handle),
            client_handle,
        )
        client_handles.is_waiting[client_handle] = 0


@kernel
def learn_topic(state: RegistryState, client_handle: int, topic: int, source: int) -> None:
    """Set the topic of a handle; an inferred topic never replaces an observed one."""
    client_handles = state.client_handles
    if topic == NULL:
        return
    if source != columns.NAME_OBSERVED and client_handles.topic[client_handle] != NULL:
        return
    _stop_waiting(state, client_handle)
    client_handles.topic[client_handle] = topic
    client_handles.name_source[client_handle] = source


@inlined
def broker_of(state: RegistryState, client_handle: int) -> int:
    """The broker of a handle's connection: names and ledger ids are unique in a cluster only, and
    a capture may have several."""
    return int(state.connections.broker[state.client_handles.connection[client_handle]])


@kernel
def learn_name(state: RegistryState, client_handle: int, name: int) -> None:
    """Set the name of a producer, and infer an unknown topic from name and id.

    Clients number their producers over all connections, so name and id stay the same after a
    reconnect on another connection to that broker.
    """
    client_handles = state.client_handles
    if name == NULL or (
        name == client_handles.name[client_handle] and client_handles.is_waiting[client_handle] == 1
    ):
        return
    _stop_waiting(state, client_handle)
    client_handles.name[client_handle] = name
    number, broker = client_handles.id[client_handle], broker_of(state, client_handle)
    topic = client_handles.topic[client_handle]
    names, producer = state.topics_of_names, RegistryKey.PRODUCER_NAME
    hint = tables.find(names.table, producer, name, number, broker)
    if topic == NULL:
        if hint != tables.ABSENT and hint != registry_state.AMBIGUOUS:
            learn_topic(state, client_handle, hint, columns.NAME_BACKFILLED)
        elif hint == tables.ABSENT:
            tables.chain_append(
                state.table,
                state.nameless_links,
                RegistryKey.NAMELESS,
                name,
                number,
                broker,
                client_handle,
            )
            client_handles.is_waiting[client_handle] = 1
        return
    if client_handles.name_source[client_handle] != columns.NAME_OBSERVED:
        return
    if hint == tables.ABSENT:
        tables.remember(names, producer, name, number, broker, topic)
    elif hint != topic:
        tables.remember(names, producer, name, number, broker, registry_state.AMBIGUOUS)
        return
    for _ in range(len(client_handles.kind)):
        waiting = tables.find(state.table, RegistryKey.NAMELESS, name, number, broker)
        if waiting == tables.ABSENT:
            return
        learn_topic(state, waiting, topic, columns.NAME_BACKFILLED)
    tables.note_cut_walk(state.table)


@kernel
def learn_ledger(state: RegistryState, client_handle: int, ledger: int, entry: int) -> None:
    """Store the topic of a ledger, or infer a handle's topic from it: a ledger has one topic.

    Non-persistent topics always answer 0:0; -1 is no ledger. A ledger seen with two topics (shadow
    topics) is AMBIGUOUS and no longer used.
    """
    client_handles = state.client_handles
    if ledger < 0 or (ledger == 0 and entry == 0):
        return
    topic = client_handles.topic[client_handle]
    if topic != NULL and ledger == client_handles.last_ledger[client_handle]:
        return
    ledgers, broker = state.topics_of_ledgers, broker_of(state, client_handle)
    hint = tables.find(ledgers.table, RegistryKey.LEDGER, ledger, broker, 0)
    if topic == NULL:
        if hint != tables.ABSENT and hint != registry_state.AMBIGUOUS:
            learn_topic(state, client_handle, hint, columns.NAME_LEDGER_JOIN)
        return
    client_handles.last_ledger[client_handle] = ledger
    if hint == tables.ABSENT:
        tables.remember(ledgers, RegistryKey.LEDGER, ledger, broker, 0, topic)
    elif hint != topic and hint != registry_state.AMBIGUOUS:
        tables.remember(ledgers, RegistryKey.LEDGER, ledger, broker, 0, registry_state.AMBIGUOUS)


@inlined
def describe(state: RegistryState, frames: FrameColumns, row: int, client_handle: int) -> None:
    """Write the columns of a frame's client handle; its lifecycle becomes NONE."""
    client_handles = state.client_handles
    kind = client_handles.kind[client_handle]
    frames.handle_kind[row] = kind
    frames.handle_id[row] = client_handles.id[client_handle]
    frames.incarnation[row] = client_handles.incarnation[client_handle]
    frames.handle_incarnation[row] = client_handles.incarnation[client_handle]
    frames.lifecycle[row] = Lifecycle.NONE
    topic = client_handles.topic[client_handle]
    frames.topic[row] = topic
    frames.name_source[row] = (
        columns.NAME_UNKNOWN if topic == NULL else client_handles.name_source[client_handle]
    )
    if kind == CONSUMER_SUBJECT:
        frames.subscription[row] = client_handles.subscription[client_handle]
        frames.consumer_name[row] = client_handles.name[client_handle]
    elif kind == PRODUCER_SUBJECT:
        frames.producer_name[row] = client_handles.name[client_handle]


@kernel
def close_connection(
    state: RegistryState, out: HandleRows, connection: int, closed_by: int
) -> None:
    """Write and remove all handles of a connection; the connection's own row stays."""
    for _ in range(state.handle_lists.length[connection]):
        client_handle = state.handle_lists.first[connection]
        phase = state.client_handles.state[client_handle]
        if phase == HandleState.CLOSING:
            write_row(state, out, client_handle, 0)
        elif phase != HandleState.UNOPENED and phase != HandleState.CLOSED:
            write_row(state, out, client_handle, closed_by)
        drop_handle(state, client_handle)
