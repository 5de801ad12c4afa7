"""Consumers of deliveries and permits: their state, names and subscription, and how they ended.

States: OPENING (SUBSCRIBE) -> READY (its success, or first seen in use) -> CLOSING (the client's
request) -> CLOSED. A closed consumer can be found by its id until a new SUBSCRIBE uses the id, and
by its row until the row is reused: the cause of a redelivery depends on how its consumer ended.
"""

from typing import Final, NamedTuple

from dissector import tables
from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_CHAIN_STEPS, NULL
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.identities import is_after
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState, TableKey

FAILOVER: Final = 2  # subscription type on the wire


class ConsumerNames(NamedTuple):
    """The names of a frame's consumer as codes, null if unknown.

    incarnation: of this id on this connection.
    proxy_side: 1 on a proxy's broker side.
    """

    topic: int
    subscription: int
    name: int
    incarnation: int
    proxy_side: int


@inlined
def next_serial(state: ConsumptionState) -> int:
    """Allocate a serial number; no number is used twice."""
    serial = state.counters[consumption_state.NEXT_SERIAL]
    state.counters[consumption_state.NEXT_SERIAL] = serial + 1
    return int(serial)


@inlined
def find_consumer(state: ConsumptionState, connection: int, consumer_id: int) -> int:
    """The current or last consumer with this id, or ABSENT."""
    return tables.find(state.table, connection, consumer_id, 0, TableKey.CONSUMER)


@inlined
def find_connection(state: ConsumptionState, connection: int) -> int:
    """The row of a connection, or ABSENT."""
    return tables.find(state.table, connection, 0, 0, TableKey.CONNECTION)


@kernel
def add_consumer(
    state: ConsumptionState,
    connection: int,
    consumer_id: int,
    names: ConsumerNames,
    is_volatile: Int64Array,
) -> int:
    """Allocate a row for a new incarnation, READY and with an unknown balance.

    is_volatile: of PassContext. Without room for another consumer the row is OVERFLOW_CONSUMER,
    which is valid for one frame only.
    """
    consumers = state.consumers
    connection_row = add_connection(state, connection)
    row = tables.ABSENT
    if connection_row != tables.ABSENT:
        row = tables.allocate_row(state.consumer_pool)
        if row == tables.ABSENT and state.lists.length[consumption_state.LIST_CLOSED] > 0:
            row = state.lists.first[consumption_state.LIST_CLOSED]
            tables.list_unlink(state.lists, state.closed, consumption_state.LIST_CLOSED, row)
            _detach(state, row)
    if row == tables.ABSENT:
        row = consumption_state.OVERFLOW_CONSUMER
        state.counters[consumption_state.CONSUMERS_REFUSED] += 1
    consumers.matrix[:, row] = 0
    consumers.connection[row] = connection
    consumers.id[row] = consumer_id
    consumers.incarnation[row] = max(names.incarnation, 0)
    consumers.topic[row] = names.topic
    consumers.subscription[row] = names.subscription
    consumers.name[row] = names.name
    consumers.type[row] = NULL
    consumers.state[row] = ConsumerState.READY
    consumers.group[row] = tables.ABSENT
    consumers.local[row] = tables.ABSENT
    consumers.known_at[row] = -1
    consumers.is_ascending[row] = 1
    consumers.page[row] = tables.ABSENT
    consumers.serial[row] = next_serial(state)
    consumers.connection_row[row] = tables.ABSENT
    consumers.first[row] = tables.ABSENT
    consumers.last[row] = tables.ABSENT
    state.reaches.first[row] = tables.ABSENT
    state.reaches.last[row] = tables.ABSENT
    state.transaction_reaches.first[row] = tables.ABSENT
    state.transaction_reaches.last[row] = tables.ABSENT
    if row == consumption_state.OVERFLOW_CONSUMER:
        return row
    consumers.connection_row[row] = connection_row
    tables.put(state.table, connection, consumer_id, 0, TableKey.CONSUMER, row)
    tables.list_append(state.connections, consumers, connection_row, row)
    learn_names(state, row, names, is_volatile)
    return row


@kernel
def add_connection(state: ConsumptionState, connection: int) -> int:
    """The row of a connection, allocated if it is new; ABSENT without room."""
    row = find_connection(state, connection)
    if row == tables.ABSENT:
        connections = state.connections
        row = tables.allocate_row(state.connection_pool)
        if row != tables.ABSENT:
            tables.put(state.table, connection, 0, 0, TableKey.CONNECTION, row)
            connections.matrix[:, row] = 0
            connections.broker_gap_at[row] = -1
            connections.client_gap_at[row] = -1
            connections.first[row] = tables.ABSENT
            connections.last[row] = tables.ABSENT
    return row


@kernel
def learn_names(
    state: ConsumptionState, row: int, names: ConsumerNames, is_volatile: Int64Array
) -> None:
    """Set names that were unknown, and join the group that they determine."""
    consumers = state.consumers
    if consumers.topic[row] == NULL:
        consumers.topic[row] = names.topic
    if consumers.subscription[row] == NULL:
        consumers.subscription[row] = names.subscription
    if consumers.name[row] == NULL:
        consumers.name[row] = names.name
    topic = consumers.topic[row]
    subscription = consumers.subscription[row]
    if topic != NULL and subscription != NULL:
        group = _join(state, topic, subscription, names.proxy_side, TableKey.NAMED_GROUP)
        if consumers.group[row] == group:
            _leave(state, group)
        else:
            consumers.local[row] = consumers.group[row]
            consumers.group[row] = group
    elif consumers.group[row] == tables.ABSENT:
        consumer_id = consumers.id[row]
        connection = consumers.connection[row]
        group = _join(state, connection, consumer_id, names.proxy_side, TableKey.LOCAL_GROUP)
        consumers.group[row] = group
    group = consumers.group[row]
    if (
        group != tables.ABSENT
        and topic >= 0
        and topic < len(is_volatile)
        and is_volatile[topic] == 1
    ):
        state.groups.has_identity[group] = 0


@kernel
def _join(state: ConsumptionState, a: int, b: int, c: int, kind: int) -> int:
    """Add a member to the group of a key; returns the group, ABSENT without room for a new one."""
    groups = state.groups
    # The table maps the key to the group's row; c is the proxy's side.
    row = tables.find(state.table, a, b, c, kind)
    if row != tables.ABSENT:
        if groups.members[row] == 0:
            tables.list_unlink(state.lists, groups, consumption_state.LIST_IDLE, row)
        groups.members[row] += 1
        return row
    row = tables.allocate_row(state.group_pool)
    if row == tables.ABSENT and state.lists.length[consumption_state.LIST_IDLE] > 0:
        row = state.lists.first[consumption_state.LIST_IDLE]
        tables.list_unlink(state.lists, groups, consumption_state.LIST_IDLE, row)
        a_old, b_old = groups.key_a[row], groups.key_b[row]
        tables.remove(state.table, a_old, b_old, groups.key_c[row], groups.key_d[row])
    if row == tables.ABSENT:
        return tables.ABSENT
    groups.matrix[:, row] = 0
    groups.serial[row] = next_serial(state)
    groups.members[row] = 1
    groups.has_identity[row] = 1
    groups.gap_at[row] = -1
    groups.is_ascending[row] = 1
    groups.first[row] = tables.ABSENT
    groups.last[row] = tables.ABSENT
    groups.key_a[row] = a
    groups.key_b[row] = b
    groups.key_c[row] = c
    groups.key_d[row] = kind
    tables.put(state.table, a, b, c, kind, row)
    return row


@kernel
def _leave(state: ConsumptionState, group: int) -> None:
    """Remove a member; a group without members may be evicted when a new one needs its row."""
    if group == tables.ABSENT:
        return
    state.groups.members[group] -= 1
    if state.groups.members[group] == 0:
        tables.list_append(state.lists, state.groups, consumption_state.LIST_IDLE, group)


@kernel
def _detach(state: ConsumptionState, row: int) -> None:
    """Unlink a closed consumer from its connection and groups; its other columns stay readable."""
    consumers = state.consumers
    connection_row = consumers.connection_row[row]
    if connection_row == tables.ABSENT:
        return
    tables.list_unlink(state.connections, consumers, connection_row, row)
    consumers.connection_row[row] = tables.ABSENT
    connection = consumers.connection[row]
    if find_consumer(state, connection, consumers.id[row]) == row:
        tables.remove(state.table, connection, consumers.id[row], 0, TableKey.CONSUMER)
    _leave(state, consumers.group[row])
    _leave(state, consumers.local[row])
    consumers.group[row] = tables.ABSENT
    consumers.local[row] = tables.ABSENT


@inlined
def mark_leaving(state: ConsumptionState, row: int, by: int) -> None:
    """Note when and why a consumer begins to leave; only the first reason is stored."""
    if state.consumers.left_at[row] == 0:
        state.consumers.left_at[row] = max(state.counters[consumption_state.CLOCK], 1)
        state.consumers.left_by[row] = by
        connection = state.consumers.connection_row[row]
        state.consumers.left_gap_at[row] = (
            state.connections.broker_gap_at[connection] if connection != tables.ABSENT else -1
        )


@inlined
def mark_present(state: ConsumptionState, row: int) -> None:
    """Set a consumer READY that stays after all, or is in use though it seemed closed."""
    state.consumers.left_at[row] = 0
    state.consumers.left_by[row] = 0
    state.consumers.state[row] = ConsumerState.READY


@inlined
def is_kept(state: ConsumptionState, row: int) -> bool:
    """Whether deliveries name a consumer that is closed, so that its row must not be reused."""
    return bool(state.consumers.claimed[row] > 0 or state.consumers.released[row] > 0)


@inlined
def retire(state: ConsumptionState, row: int) -> None:
    """Set a consumer CLOSED; it must have no open deliveries."""
    consumers = state.consumers
    if consumers.state[row] != ConsumerState.CLOSED:
        consumers.state[row] = ConsumerState.CLOSED
        consumers.unacked[row] = 0
        consumers.unread[row] = 0
        if not is_kept(state, row):
            tables.list_append(state.lists, state.closed, consumption_state.LIST_CLOSED, row)


@inlined
def release_claimed(state: ConsumptionState, row: int) -> None:
    """One delivery fewer waits for claims; without any, a closed consumer's row may be reused."""
    consumers = state.consumers
    consumers.claimed[row] -= 1
    if consumers.state[row] == ConsumerState.CLOSED and not is_kept(state, row):
        tables.list_append(state.lists, state.closed, consumption_state.LIST_CLOSED, row)


@inlined
def hold_released(state: ConsumptionState, row: int, delivery: int) -> None:
    """Append a released delivery to its group, whose row and consumer it needs."""
    group = state.consumers.group[row]
    state.deliveries.group[delivery] = group
    groups, deliveries = state.groups, state.deliveries
    groups.members[group] += 1
    last = groups.last[group]
    ledger, entry = deliveries.ledger[delivery], deliveries.entry[delivery]
    if last != tables.ABSENT and is_after(state, last, ledger, entry):
        groups.is_ascending[group] = 0
    tables.list_append(groups, deliveries, group, delivery)
    if state.consumers.state[row] == ConsumerState.CLOSED and not is_kept(state, row):
        tables.list_unlink(state.lists, state.closed, consumption_state.LIST_CLOSED, row)
    state.consumers.released[row] += 1


@inlined
def forget_released(state: ConsumptionState, row: int, delivery: int) -> None:
    """Unlink a released delivery from its group, whose row and consumer it needed."""
    consumers = state.consumers
    group = state.deliveries.group[delivery]
    tables.list_unlink(state.groups, state.deliveries, group, delivery)
    if state.groups.length[group] == 0:
        state.groups.is_ascending[group] = 1
    _leave(state, group)
    consumers.released[row] -= 1
    if consumers.state[row] == ConsumerState.CLOSED and not is_kept(state, row):
        tables.list_append(state.lists, state.closed, consumption_state.LIST_CLOSED, row)


@inlined
def stays_closed(state: ConsumptionState, row: int) -> bool:
    """Whether a closed consumer is closed for a frame that names it; if not, it is READY then.

    A frame that crossed the close, or was queued in the broker, opens nothing. But the capture may
    have missed a SUBSCRIBE: in a gap, or with all that the client sent. The balance is unknown
    then, as it is of a closed consumer.
    """
    consumers = state.consumers
    if consumers.state[row] != ConsumerState.CLOSED:
        return False
    consumers.known_at[row] = -1
    connection_row = consumers.connection_row[row]
    if connection_row != tables.ABSENT:
        has_gap = state.connections.broker_gap_at[connection_row] >= consumers.left_at[row]
        if not has_gap and state.connections.is_two_way[connection_row] == 1:
            return True
    if not is_kept(state, row):
        tables.list_unlink(state.lists, state.closed, consumption_state.LIST_CLOSED, row)
    mark_present(state, row)
    consumers.active_at[row] = 0
    return False


@kernel
def forget_connection(state: ConsumptionState, connection: int) -> None:
    """Free a closed connection, whose consumers must all be CLOSED."""
    row = find_connection(state, connection)
    if row == tables.ABSENT:
        return
    for _ in range(state.connections.length[row]):
        _detach(state, state.connections.first[row])
    tables.remove(state.table, connection, 0, 0, TableKey.CONNECTION)
    tables.give_row(state.connection_pool, row)


@kernel
def note_gap(state: ConsumptionState, connection: int, to_broker: bool) -> None:
    """Note that frames of one direction may be missing: the balances there become unknown."""
    row = add_connection(state, connection)
    if row == tables.ABSENT:
        return
    clock = state.counters[consumption_state.CLOCK]
    if to_broker:
        state.connections.broker_gap_at[row] = clock
        return
    state.connections.client_gap_at[row] = clock
    # At each gap, only the first MAX_CHAIN_STEPS consumers of the connection are visited.
    consumer = state.connections.first[row]
    for _ in range(min(state.connections.length[row], MAX_CHAIN_STEPS)):
        group = state.consumers.group[consumer]
        if group != tables.ABSENT:
            state.groups.gap_at[group] = clock
        consumer = state.consumers.next[consumer]
    if state.connections.length[row] > MAX_CHAIN_STEPS:
        tables.note_cut_walk(state.table)


@kernel
def apply_past_gap(state: ConsumptionState, row: int) -> None:
    """Apply the connection's last gap to the group of a consumer first seen in use: it was there
    before, so the gap may hide its deliveries."""
    connection_row, group = state.consumers.connection_row[row], state.consumers.group[row]
    if connection_row == tables.ABSENT or group == tables.ABSENT:
        return
    gap_at = state.connections.client_gap_at[connection_row]
    state.groups.gap_at[group] = max(state.groups.gap_at[group], gap_at)


@inlined
def packed_consumer(state: ConsumptionState, row: int) -> int:
    """Serial and row of a consumer in one number."""
    return int((state.consumers.serial[row] << consumption_state.ROW_BITS) | row)


@inlined
def unpacked_consumer(state: ConsumptionState, number: int) -> int:
    """The row of a packed number, or ABSENT if the row was reused."""
    row = number & ((1 << consumption_state.ROW_BITS) - 1)
    return (
        row
        if state.consumers.serial[row] == number >> consumption_state.ROW_BITS
        else tables.ABSENT
    )


@inlined
def has_reconnected(state: ConsumptionState, gone: int, here: int) -> bool:
    """Whether `here` is `gone` again: same id and name, opened when `gone` had begun to leave."""
    consumers = state.consumers
    return bool(
        consumers.id[gone] == consumers.id[here]
        and consumers.name[gone] == consumers.name[here]
        and consumers.left_at[gone] > 0
        and consumers.opened_at[here] >= consumers.left_at[gone]
    )


@inlined
def is_failover(state: ConsumptionState, row: int) -> bool:
    """Whether the consumer's subscription is of type Failover, or was seen to switch."""
    return bool(state.consumers.type[row] == FAILOVER or state.consumers.is_failover[row] == 1)


@inlined
def note_switch(state: ConsumptionState, row: int, is_active: int) -> None:
    """ACTIVE_CONSUMER_CHANGE, which only Failover subscriptions have: note it and when it came."""
    state.consumers.is_failover[row] = 1
    if is_active == 0:
        state.consumers.inactive_at[row] = state.counters[consumption_state.CLOCK]
    elif is_active == 1:
        state.consumers.active_at[row] = state.counters[consumption_state.CLOCK]


@inlined
def remember_packed(state: ConsumptionState, frame_no: int, about: int) -> None:
    """Store the packed number of the consumer or transaction that a request's answer lacks."""
    tables.remember(state.requests, frame_no, 0, 0, 0, about)


@inlined
def find_packed(state: ConsumptionState, frame_no: int) -> int:
    """The packed number stored for a request, or ABSENT."""
    return tables.find(state.requests.table, frame_no, 0, 0, 0)


@inlined
def remember_request(state: ConsumptionState, row: int, frame_no: int) -> None:
    """Store the consumer of a request whose answer will not name it."""
    remember_packed(state, frame_no, packed_consumer(state, row))


@inlined
def find_requester(state: ConsumptionState, frame_no: int) -> int:
    """The consumer stored for a request, or ABSENT."""
    number = find_packed(state, frame_no)
    return unpacked_consumer(state, number) if number != tables.ABSENT else tables.ABSENT


@kernel
def note_seek(state: ConsumptionState, row: int, frame_no: int) -> None:
    """SEEK: the subscription's deliveries start at another position from now on.

    If the broker refuses it, the previous SEEK is the last one again. So the frame of the previous
    one is stored, doubled; the lowest bit is set once this SEEK was refused.
    """
    group = state.consumers.group[row]
    if group != tables.ABSENT:
        tables.remember(state.requests, frame_no, 1, 0, 0, 2 * state.groups.seek_at[group])
        state.groups.seek_at[group] = frame_no


@kernel
def note_sought(state: ConsumptionState, row: int, frame_no: int) -> None:
    """SUCCESS of a SEEK: the broker has closed its consumers before."""
    group = state.consumers.group[row]
    if group != tables.ABSENT:
        state.groups.sought_at[group] = frame_no


@kernel
def undo_seek(state: ConsumptionState, row: int, frame_no: int) -> None:
    """Undo a refused SEEK; the group's last one is again the last that was not refused."""
    group = state.consumers.group[row]
    before = tables.find(state.requests.table, frame_no, 1, 0, 0)
    if group == tables.ABSENT or before == tables.ABSENT:
        return
    tables.remember(state.requests, frame_no, 1, 0, 0, before | 1)
    for _ in range(consumption_state.REQUESTS):
        before = tables.find(state.requests.table, state.groups.seek_at[group], 1, 0, 0)
        if before == tables.ABSENT or before & 1 == 0:
            return
        state.groups.seek_at[group] = before >> 1


@inlined
def note_two_way(state: ConsumptionState, row: int, is_two_way: int) -> None:
    """Note for a consumer's connection whether both its directions are captured."""
    connection_row = state.consumers.connection_row[row]
    if connection_row != tables.ABSENT:
        state.connections.is_two_way[connection_row] |= is_two_way
