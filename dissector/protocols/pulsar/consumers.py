"""Consumers as deliveries and permits see them: who is there, of which subscription, who went how.

States: OPENING (SUBSCRIBE) -> READY (its success, or first met in use) -> CLOSING (the client asked)
-> CLOSED. A closed consumer stays findable by its id until a new SUBSCRIBE takes the id, and by its
row until the row is needed: redeliveries ask how the holder before went.
"""

from typing import Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption_state import (
    ASKERS,
    CONNECTION_BROKER_GAP_AT,
    CONNECTION_BROKER_SEEN,
    CONNECTION_CLIENT_GAP_AT,
    CONNECTION_CLIENT_MISSING,
    CONNECTION_ID,
    CONSUMER_ASCENDING,
    CONSUMER_AVAILABLE,
    CONSUMER_BASELINE_AT,
    CONSUMER_CONNECTION,
    CONSUMER_CONNECTION_ROW,
    CONSUMER_GROUP,
    CONSUMER_ID,
    CONSUMER_INACTIVE_AT,
    CONSUMER_INCARNATION,
    CONSUMER_IS_FAILOVER,
    CONSUMER_LEFT_AT,
    CONSUMER_LEFT_BY,
    CONSUMER_LOCAL,
    CONSUMER_NAME,
    CONSUMER_OPENED_AT,
    CONSUMER_PAGE,
    CONSUMER_SERIAL,
    CONSUMER_STATE,
    CONSUMER_SUBSCRIPTION,
    CONSUMER_TOPIC,
    CONSUMER_TYPE,
    CONSUMER_UNACKED,
    CONSUMER_UNKNOWN_COSTS,
    CONSUMERS_REFUSED,
    GROUP_FORGOTTEN_AT,
    GROUP_GAP_AT,
    GROUP_HAS_IDENTITY,
    GROUP_IS_LOCAL,
    GROUP_IS_NAMED,
    GROUP_KEY,
    GROUP_MEMBERS,
    GROUP_SEEK_AT,
    GROUP_SEEK_BEFORE,
    GROUP_SERIAL,
    NEXT_SERIAL,
    OVERFLOW_CONSUMER,
    ROW_BITS,
    STATE_CLOSED,
    STATE_READY,
    ConsumerTables,
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

FAILOVER: Final = 2  # subscription type on the wire
_GAP_STEPS: Final = 64


class ConsumerNames(NamedTuple):
    """What a frame says about its consumer: codes of names, null where it does not say.

    incarnation: of this id on this connection; leg: 1 on a proxy's broker leg.
    """

    topic: int
    subscription: int
    name: int
    incarnation: int
    leg: int


@inlined
def find_consumer(consumers: ConsumerTables, connection: int, consumer_id: int) -> int:
    """The row of the consumer that has this id now or had it last, or ABSENT."""
    return find(consumers.by_id, connection, consumer_id, 0, 0)


@kernel
def add_consumer(
    consumers: ConsumerTables,
    counters: Int64Array,
    connection: int,
    consumer_id: int,
    names: ConsumerNames,
    kinds: Int64Array,
) -> int:
    """A row for a new incarnation, READY and with an unknown balance.

    kinds: int64[names], 1 for a name of a topic that is not persistent. Without room for another
    consumer the row is OVERFLOW_CONSUMER, which serves for one frame only.
    """
    connection_row = connection_row_of(consumers, connection)
    row = ABSENT
    if connection_row != ABSENT:
        row = take_row(consumers.pool)
        if row == ABSENT and consumers.gone_ends.length[0] > 0:
            row = consumers.gone_ends.first[0]
            _release(consumers, row)
    if row == ABSENT:
        row = OVERFLOW_CONSUMER
        counters[CONSUMERS_REFUSED] += 1
    _clear(consumers.rows, row)
    consumers.rows[row, CONSUMER_CONNECTION] = connection
    consumers.rows[row, CONSUMER_ID] = consumer_id
    consumers.rows[row, CONSUMER_INCARNATION] = max(names.incarnation, 0)
    consumers.rows[row, CONSUMER_SERIAL] = counters[NEXT_SERIAL]
    consumers.rows[row, CONSUMER_CONNECTION_ROW] = connection_row
    counters[NEXT_SERIAL] += 1
    if row == OVERFLOW_CONSUMER:
        consumers.rows[row, CONSUMER_TOPIC] = names.topic
        consumers.rows[row, CONSUMER_SUBSCRIPTION] = names.subscription
        consumers.rows[row, CONSUMER_NAME] = names.name
        return row
    put(consumers.by_id, connection, consumer_id, 0, 0, row)
    list_append(consumers.ends, consumers.links, connection_row, row)
    learn_names(consumers, counters, row, names, kinds)
    return row


@inlined
def _clear(rows: Int64Array, row: int) -> None:
    for place in range(rows.shape[1]):
        rows[row, place] = 0
    for place in (CONSUMER_TOPIC, CONSUMER_SUBSCRIPTION, CONSUMER_NAME, CONSUMER_TYPE):
        rows[row, place] = NULL
    for place in (CONSUMER_GROUP, CONSUMER_LOCAL, CONSUMER_PAGE):
        rows[row, place] = ABSENT
    rows[row, CONSUMER_STATE] = STATE_READY
    rows[row, CONSUMER_BASELINE_AT] = -1
    rows[row, CONSUMER_ASCENDING] = 1


@kernel
def connection_row_of(consumers: ConsumerTables, connection: int) -> int:
    """The row of a connection, taken up if it is new; ABSENT without room."""
    row = find(consumers.by_connection, connection, 0, 0, 0)
    if row == ABSENT:
        row = take_row(consumers.connection_pool)
        if row != ABSENT:
            put(consumers.by_connection, connection, 0, 0, 0, row)
            mine = consumers.connections[row]
            mine[CONNECTION_ID] = connection
            mine[CONNECTION_BROKER_GAP_AT] = -1
            mine[CONNECTION_CLIENT_GAP_AT] = -1
            mine[CONNECTION_BROKER_SEEN] = 0
            mine[CONNECTION_CLIENT_MISSING] = 0
    return row


@kernel
def learn_names(
    consumers: ConsumerTables,
    counters: Int64Array,
    row: int,
    names: ConsumerNames,
    kinds: Int64Array,
) -> None:
    """Take over names that were not known, and join the group that they lead to."""
    mine = consumers.rows[row]
    if mine[CONSUMER_TOPIC] == NULL:
        mine[CONSUMER_TOPIC] = names.topic
    if mine[CONSUMER_SUBSCRIPTION] == NULL:
        mine[CONSUMER_SUBSCRIPTION] = names.subscription
    if mine[CONSUMER_NAME] == NULL:
        mine[CONSUMER_NAME] = names.name
    topic = mine[CONSUMER_TOPIC]
    has_identity = 0 if topic >= 0 and topic < len(kinds) and kinds[topic] == 1 else 1
    if topic != NULL and mine[CONSUMER_SUBSCRIPTION] != NULL:
        subscription = mine[CONSUMER_SUBSCRIPTION]
        group = _join(consumers, counters, topic, subscription, names.leg, GROUP_IS_NAMED)
        if mine[CONSUMER_GROUP] == group:
            _leave(consumers, group)
            return
        mine[CONSUMER_LOCAL] = mine[CONSUMER_GROUP]
        mine[CONSUMER_GROUP] = group
    elif mine[CONSUMER_GROUP] == ABSENT:
        connection = mine[CONSUMER_CONNECTION]
        group = _join(consumers, counters, connection, mine[CONSUMER_ID], names.leg, GROUP_IS_LOCAL)
        mine[CONSUMER_GROUP] = group
    group = mine[CONSUMER_GROUP]
    if group != ABSENT and has_identity == 0:
        consumers.groups[group, GROUP_HAS_IDENTITY] = 0


@kernel
def _join(
    consumers: ConsumerTables, counters: Int64Array, a: int, b: int, c: int, d: int
) -> int:
    """The group of a key with one member more; ABSENT without room for another group."""
    groups = consumers.groups
    row = find(consumers.by_group, a, b, c, d)
    if row != ABSENT:
        if groups[row, GROUP_MEMBERS] == 0:
            list_unlink(consumers.idle_ends, consumers.idle_links, 0, row)
        groups[row, GROUP_MEMBERS] += 1
        return row
    row = take_row(consumers.group_pool)
    if row == ABSENT and consumers.idle_ends.length[0] > 0:
        row = consumers.idle_ends.first[0]
        list_unlink(consumers.idle_ends, consumers.idle_links, 0, row)
        old = groups[row]
        remove(
            consumers.by_group,
            old[GROUP_KEY],
            old[GROUP_KEY + 1],
            old[GROUP_KEY + 2],
            old[GROUP_KEY + 3],
        )
    if row == ABSENT:
        return ABSENT
    mine = groups[row]
    mine[GROUP_SERIAL] = counters[NEXT_SERIAL]
    counters[NEXT_SERIAL] += 1
    mine[GROUP_MEMBERS] = 1
    mine[GROUP_HAS_IDENTITY] = 1
    mine[GROUP_SEEK_AT] = 0
    mine[GROUP_SEEK_BEFORE] = 0
    mine[GROUP_FORGOTTEN_AT] = 0
    mine[GROUP_GAP_AT] = -1
    mine[GROUP_KEY] = a
    mine[GROUP_KEY + 1] = b
    mine[GROUP_KEY + 2] = c
    mine[GROUP_KEY + 3] = d
    put(consumers.by_group, a, b, c, d, row)
    return row


@kernel
def _leave(consumers: ConsumerTables, group: int) -> None:
    """One member less; a group without members may be given up when room is needed."""
    if group == ABSENT:
        return
    consumers.groups[group, GROUP_MEMBERS] -= 1
    if consumers.groups[group, GROUP_MEMBERS] == 0:
        list_append(consumers.idle_ends, consumers.idle_links, 0, group)


@kernel
def _detach(consumers: ConsumerTables, row: int) -> None:
    """Take a closed consumer out of its connection and groups; what it was is still to be read."""
    mine = consumers.rows[row]
    connection_row = mine[CONSUMER_CONNECTION_ROW]
    if connection_row == ABSENT:
        return
    list_unlink(consumers.ends, consumers.links, connection_row, row)
    mine[CONSUMER_CONNECTION_ROW] = ABSENT
    connection = mine[CONSUMER_CONNECTION]
    if find(consumers.by_id, connection, mine[CONSUMER_ID], 0, 0) == row:
        remove(consumers.by_id, connection, mine[CONSUMER_ID], 0, 0)
    _leave(consumers, mine[CONSUMER_GROUP])
    _leave(consumers, mine[CONSUMER_LOCAL])
    mine[CONSUMER_GROUP] = ABSENT
    mine[CONSUMER_LOCAL] = ABSENT


@kernel
def _release(consumers: ConsumerTables, row: int) -> None:
    """Make the row of a closed consumer fit for another."""
    _detach(consumers, row)
    list_unlink(consumers.gone_ends, consumers.gone_links, 0, row)


@inlined
def note_leaving(rows: Int64Array, row: int, by: int, clock: int) -> None:
    """The consumer begins to go: the first reason counts."""
    if rows[row, CONSUMER_LEFT_AT] == 0:
        rows[row, CONSUMER_LEFT_AT] = max(clock, 1)
        rows[row, CONSUMER_LEFT_BY] = by


@kernel
def retire(consumers: ConsumerTables, row: int) -> None:
    """Make a consumer CLOSED; it must have no open deliveries."""
    mine = consumers.rows[row]
    if mine[CONSUMER_STATE] != STATE_CLOSED:
        mine[CONSUMER_STATE] = STATE_CLOSED
        mine[CONSUMER_UNACKED] = 0
        mine[CONSUMER_UNKNOWN_COSTS] = 0
        list_append(consumers.gone_ends, consumers.gone_links, 0, row)


@kernel
def revive(consumers: ConsumerTables, row: int) -> None:
    """A closed consumer is in use: its SUBSCRIBE was not seen, so its balance is not known."""
    mine = consumers.rows[row]
    if mine[CONSUMER_STATE] == STATE_CLOSED:
        list_unlink(consumers.gone_ends, consumers.gone_links, 0, row)
        mine[CONSUMER_STATE] = STATE_READY
        mine[CONSUMER_BASELINE_AT] = -1
        mine[CONSUMER_LEFT_AT] = 0
        mine[CONSUMER_LEFT_BY] = 0


@kernel
def forget_connection(consumers: ConsumerTables, connection: int) -> None:
    """Drop a closed connection; all its consumers are CLOSED."""
    row = find(consumers.by_connection, connection, 0, 0, 0)
    if row == ABSENT:
        return
    while consumers.ends.length[row] > 0:
        _detach(consumers, consumers.ends.first[row])
    remove(consumers.by_connection, connection, 0, 0, 0)
    give_row(consumers.connection_pool, row)


@kernel
def note_gap(consumers: ConsumerTables, connection: int, to_broker: bool, clock: int) -> None:
    """Frames of one direction may be missing: no balance of this connection is known any more."""
    # A connection of very many consumers is not walked through at each of its gaps.
    row = find(consumers.by_connection, connection, 0, 0, 0)
    if row == ABSENT:
        return
    place = CONNECTION_BROKER_GAP_AT if to_broker else CONNECTION_CLIENT_GAP_AT
    consumers.connections[row, place] = clock
    consumer = consumers.ends.first[row]
    steps = 0
    while consumer != ABSENT and steps < _GAP_STEPS:
        steps += 1
        group = consumers.rows[consumer, CONSUMER_GROUP]
        if group != ABSENT and not to_broker:
            consumers.groups[group, GROUP_GAP_AT] = clock
        consumer = consumers.links.next[consumer]


@inlined
def packed(rows: Int64Array, row: int) -> int:
    """Serial and row of a consumer in one number."""
    return (rows[row, CONSUMER_SERIAL] << ROW_BITS) | row


@inlined
def row_of(rows: Int64Array, number: int) -> int:
    """The row behind a packed number, or ABSENT if another consumer has it now."""
    row = number & ((1 << ROW_BITS) - 1)
    return row if rows[row, CONSUMER_SERIAL] == number >> ROW_BITS else ABSENT


@inlined
def came_back(rows: Int64Array, gone: int, here: int) -> bool:
    """Whether one consumer is the other again: same id and name, and it came when that had gone."""
    return bool(
        rows[gone, CONSUMER_ID] == rows[here, CONSUMER_ID]
        and rows[gone, CONSUMER_NAME] == rows[here, CONSUMER_NAME]
        and rows[gone, CONSUMER_LEFT_AT] > 0
        and rows[here, CONSUMER_OPENED_AT] >= rows[gone, CONSUMER_LEFT_AT]
    )


@inlined
def is_failover(rows: Int64Array, row: int) -> bool:
    """Whether the consumer's subscription switches between its consumers."""
    return bool(rows[row, CONSUMER_TYPE] == FAILOVER or rows[row, CONSUMER_IS_FAILOVER] == 1)


@inlined
def note_inactive(rows: Int64Array, row: int, is_active: int, frame_no: int) -> None:
    """ACTIVE_CONSUMER_CHANGE: only Failover subscriptions have it."""
    rows[row, CONSUMER_IS_FAILOVER] = 1
    if is_active == 0:
        rows[row, CONSUMER_INACTIVE_AT] = frame_no


@inlined
def note_asker(consumers: ConsumerTables, row: int, frame_no: int) -> None:
    """A frame whose answer will not name the consumer."""
    place = frame_no & (ASKERS - 1)
    consumers.askers[place, 0] = frame_no
    consumers.askers[place, 1] = packed(consumers.rows, row)


@inlined
def find_asker(consumers: ConsumerTables, frame_no: int) -> int:
    """The consumer of note_asker's frame, or ABSENT."""
    place = frame_no & (ASKERS - 1)
    if frame_no < 0 or consumers.askers[place, 0] != frame_no:
        return ABSENT
    return row_of(consumers.rows, consumers.askers[place, 1])


@inlined
def note_seek(consumers: ConsumerTables, row: int, frame_no: int) -> None:
    """SEEK: what the subscription delivers from now on starts at another place."""
    group = consumers.rows[row, CONSUMER_GROUP]
    if group != ABSENT:
        consumers.groups[group, GROUP_SEEK_BEFORE] = consumers.groups[group, GROUP_SEEK_AT]
        consumers.groups[group, GROUP_SEEK_AT] = frame_no


@inlined
def take_back_seek(consumers: ConsumerTables, row: int, frame_no: int) -> None:
    """The broker refused the SEEK of this frame."""
    group = consumers.rows[row, CONSUMER_GROUP]
    if group != ABSENT and consumers.groups[group, GROUP_SEEK_AT] == frame_no:
        consumers.groups[group, GROUP_SEEK_AT] = consumers.groups[group, GROUP_SEEK_BEFORE]


@inlined
def is_baseline_known(consumers: ConsumerTables, row: int) -> bool:
    """Whether the balance is known from its start and no frame is missing since."""
    known_at = consumers.rows[row, CONSUMER_BASELINE_AT]
    connection_row = consumers.rows[row, CONSUMER_CONNECTION_ROW]
    if known_at < 0 or connection_row == ABSENT:
        return False
    connections = consumers.connections
    return bool(
        known_at > connections[connection_row, CONNECTION_BROKER_GAP_AT]
        and known_at > connections[connection_row, CONNECTION_CLIENT_GAP_AT]
    )


@inlined
def learn_balance(consumers: ConsumerTables, row: int, available: int, frame_no: int) -> None:
    """CONSUMER_STATS_RESPONSE: the broker's own balance serves where ours is not known."""
    if available != NULL and not is_baseline_known(consumers, row):
        consumers.rows[row, CONSUMER_AVAILABLE] = available
        consumers.rows[row, CONSUMER_BASELINE_AT] = frame_no
