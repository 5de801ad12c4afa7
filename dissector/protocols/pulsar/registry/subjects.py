"""Kernels on producers and consumers: finding them, learning their names, closing them."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import (
    LIFECYCLE_NONE,
    NAME_BACKFILLED,
    NAME_LEDGER_JOIN,
    NAME_OBSERVED,
    NAME_UNKNOWN,
    FrameColumns,
)
from dissector.protocols.pulsar.registry.state import (
    AMBIGUOUS,
    CLOSED,
    CLOSING,
    COUNT_OUT,
    COUNT_REFUSED,
    COUNT_ROW,
    IDENTITY_COLUMNS,
    KEY_CONNECTION,
    KEY_LEDGER,
    KEY_NAMELESS,
    KEY_PRODUCER_NAME,
    OPEN,
    OPENING,
    RECENT,
    SHARED_COLUMNS,
    UNOPENED,
    RegistryState,
    SubjectRows,
)
from dissector.protocols.pulsar.wire.commands import CONSUMER_SUBJECT, NO_SUBJECT, PRODUCER_SUBJECT
from dissector.tables import (
    ABSENT,
    allocate_row,
    chain_append,
    chain_unlink,
    find,
    give_row,
    list_append,
    list_unlink,
    note_cut_walk,
    put,
    remember,
    remove,
)


@kernel
def connection_row(state: RegistryState, connection_id: int) -> int:
    """The row of a connection, made if it has none."""
    row = find(state.table, KEY_CONNECTION, connection_id, 0, 0)
    if row == ABSENT:
        row = allocate_row(state.connection_pool)
        put(state.table, KEY_CONNECTION, connection_id, 0, 0, row)
        state.connections.connection_id[row] = connection_id
        state.connections.is_whole[row] = 0
        state.connections.hole_row[row] = -1
    return int(row)


@inlined
def subject_of(state: RegistryState, connection_id: int, kind: int, number: int) -> int:
    """The row of a producer or consumer, made if it has none; ABSENT if there is no room."""
    subjects = state.subjects
    glance = (int(connection_id) * 31 + int(number) * 2 + kind) & (RECENT - 1)
    row = state.recent[glance]
    if (
        row != ABSENT
        and subjects.id[row] == number
        and subjects.connection_id[row] == connection_id
        and subjects.kind[row] == kind
    ):
        return int(row)
    row = _find_or_make(state, connection_id, kind, number)
    state.recent[glance] = row
    return row


@kernel
def _find_or_make(state: RegistryState, connection_id: int, kind: int, number: int) -> int:
    """subject_of without the glance."""
    connection = connection_row(state, connection_id)
    row = find(state.table, kind, connection, number, 0)
    if row != ABSENT:
        return int(row)
    row = allocate_row(state.subject_pool)
    if row == ABSENT:
        oldest = state.closed_list.first[0]
        state.counters[COUNT_REFUSED] += 1
        if oldest == ABSENT:
            return ABSENT
        drop_subject(state, oldest)
        row = allocate_row(state.subject_pool)
    subjects = state.subjects
    clear_incarnation(state, row)
    subjects.connection_id[row] = connection_id
    subjects.kind[row] = kind
    subjects.id[row] = number
    subjects.connection[row] = connection
    subjects.incarnation[row] = 0
    subjects.is_waiting[row] = 0
    subjects.state[row] = UNOPENED if state.connections.is_whole[connection] else OPEN
    put(state.table, kind, connection, number, 0, row)
    list_append(state.subject_lists, state.subject_links, connection, row)
    return int(row)


@kernel
def clear_incarnation(state: RegistryState, subject: int) -> None:
    """Forget what belongs to one incarnation (not its number).

    A producer waits in the chain of its name, so it leaves that before its name is forgotten.
    """
    _stop_waiting(state, subject)
    subjects = state.subjects
    incarnation = subjects.incarnation[subject]
    for column in range(IDENTITY_COLUMNS, SHARED_COLUMNS):
        subjects.matrix[column, subject] = NULL
    subjects.incarnation[subject] = incarnation
    subjects.open_requests[subject] = 0
    subjects.opened_row[subject] = state.counters[COUNT_ROW]
    subjects.last_ledger[subject] = NULL


@kernel
def drop_subject(state: RegistryState, subject: int) -> None:
    """Forget a producer or consumer altogether."""
    subjects = state.subjects
    _stop_waiting(state, subject)
    if subjects.state[subject] == CLOSED:
        list_unlink(state.closed_list, state.closed_links, 0, subject)
    connection = subjects.connection[subject]
    list_unlink(state.subject_lists, state.subject_links, connection, subject)
    remove(state.table, subjects.kind[subject], connection, subjects.id[subject], 0)
    subjects.kind[subject] = NO_SUBJECT
    give_row(state.subject_pool, subject)


@kernel
def write_row(state: RegistryState, out: SubjectRows, subject: int, closed_by: int) -> None:
    """Write the row of an incarnation that is over."""
    row = state.counters[COUNT_OUT]
    state.counters[COUNT_OUT] = row + 1
    for column in range(SHARED_COLUMNS):
        out.matrix[column, row] = state.subjects.matrix[column, subject]
    if out.name_source[row] == NULL:
        out.name_source[row] = NAME_UNKNOWN
    out.closed_by[row] = closed_by
    out.closing_row[row] = state.counters[COUNT_ROW]


@kernel
def close_subject(
    state: RegistryState, out: SubjectRows, subject: int, closed_by: int, frame_no: int
) -> None:
    """End the incarnation: write its row and put the subject into the list of the closed.

    Args:
        frame_no: of the frame that closed it; NULL keeps the one that is known.
    """
    subjects = state.subjects
    if frame_no != NULL:
        subjects.closed_frame_no[subject] = frame_no
    write_row(state, out, subject, closed_by)
    _stop_waiting(state, subject)
    subjects.state[subject] = CLOSED
    list_append(state.closed_list, state.closed_links, 0, subject)


@kernel
def begin_incarnation(state: RegistryState, subject: int, frame_no: int) -> None:
    """Make a subject that is UNOPENED or CLOSED an OPENING one."""
    subjects = state.subjects
    if subjects.state[subject] == CLOSED:
        list_unlink(state.closed_list, state.closed_links, 0, subject)
        subjects.incarnation[subject] += 1
    clear_incarnation(state, subject)
    subjects.state[subject] = OPENING
    subjects.opened_frame_no[subject] = frame_no


@kernel
def _stop_waiting(state: RegistryState, subject: int) -> None:
    """Take a producer out of the chain of those whose topic may still be learnt by name."""
    subjects = state.subjects
    if subjects.is_waiting[subject] == 1:
        name = subjects.name[subject]
        number = subjects.id[subject]
        chain_unlink(state.table, state.nameless_links, KEY_NAMELESS, name, number, 0, subject)
        subjects.is_waiting[subject] = 0


@kernel
def learn_topic(state: RegistryState, subject: int, topic: int, source: int) -> None:
    """Set the topic of a subject; what was observed is never replaced by what was concluded."""
    subjects = state.subjects
    if topic == NULL:
        return
    if source != NAME_OBSERVED and subjects.topic[subject] != NULL:
        return
    _stop_waiting(state, subject)
    subjects.topic[subject] = topic
    subjects.name_source[subject] = source


@kernel
def learn_name(state: RegistryState, subject: int, name: int) -> None:
    """Set the name of a producer, and let name and id tell a topic that is not known.

    Clients number their producers over all connections, so that after a reconnect name and id
    are the same while the connection is another one.
    """
    subjects = state.subjects
    if name == NULL or (name == subjects.name[subject] and subjects.is_waiting[subject] == 1):
        return
    _stop_waiting(state, subject)
    subjects.name[subject] = name
    number = subjects.id[subject]
    topic = subjects.topic[subject]
    hint = find(state.topics_of_names.table, KEY_PRODUCER_NAME, name, number, 0)
    if topic == NULL:
        if hint != ABSENT and hint != AMBIGUOUS:
            learn_topic(state, subject, hint, NAME_BACKFILLED)
        elif hint == ABSENT:
            chain_append(state.table, state.nameless_links, KEY_NAMELESS, name, number, 0, subject)
            subjects.is_waiting[subject] = 1
        return
    if subjects.name_source[subject] != NAME_OBSERVED:
        return
    if hint == ABSENT:
        remember(state.topics_of_names, KEY_PRODUCER_NAME, name, number, 0, topic)
    elif hint != topic:
        remember(state.topics_of_names, KEY_PRODUCER_NAME, name, number, 0, AMBIGUOUS)
        return
    for _ in range(len(subjects.kind)):
        waiting = find(state.table, KEY_NAMELESS, name, number, 0)
        if waiting == ABSENT:
            return
        learn_topic(state, waiting, topic, NAME_BACKFILLED)
    note_cut_walk(state.table)


@kernel
def learn_ledger(state: RegistryState, subject: int, ledger: int, entry: int) -> None:
    """Join a ledger with a topic: a ledger belongs to one topic of a cluster.

    Non-persistent topics answer 0:0 always; -1 is no ledger. A ledger met with two topics (shadow
    topics, two clusters in one capture) tells nothing any more.
    """
    subjects = state.subjects
    if ledger < 0 or (ledger == 0 and entry == 0):
        return
    topic = subjects.topic[subject]
    if topic != NULL and ledger == subjects.last_ledger[subject]:
        return
    hint = find(state.topics_of_ledgers.table, KEY_LEDGER, ledger, 0, 0)
    if topic == NULL:
        if hint != ABSENT and hint != AMBIGUOUS:
            learn_topic(state, subject, hint, NAME_LEDGER_JOIN)
        return
    subjects.last_ledger[subject] = ledger
    if hint == ABSENT:
        remember(state.topics_of_ledgers, KEY_LEDGER, ledger, 0, 0, topic)
    elif hint != topic and hint != AMBIGUOUS:
        remember(state.topics_of_ledgers, KEY_LEDGER, ledger, 0, 0, AMBIGUOUS)


@inlined
def describe(state: RegistryState, frames: FrameColumns, row: int, subject: int) -> None:
    """Write what is known of its subject into a frame; its lifecycle becomes NONE."""
    subjects = state.subjects
    kind = subjects.kind[subject]
    frames.subject_kind[row] = kind
    frames.subject_id[row] = subjects.id[subject]
    frames.incarnation[row] = subjects.incarnation[subject]
    frames.subject_incarnation[row] = subjects.incarnation[subject]
    frames.lifecycle[row] = LIFECYCLE_NONE
    topic = subjects.topic[subject]
    frames.topic[row] = topic
    frames.name_source[row] = NAME_UNKNOWN if topic == NULL else subjects.name_source[subject]
    if kind == CONSUMER_SUBJECT:
        frames.subscription[row] = subjects.subscription[subject]
        frames.consumer_name[row] = subjects.name[subject]
    elif kind == PRODUCER_SUBJECT:
        frames.producer_name[row] = subjects.name[subject]


@kernel
def close_connection(
    state: RegistryState, out: SubjectRows, connection: int, closed_by: int
) -> None:
    """End all that is open on a connection; its subjects are forgotten, not its row."""
    for _ in range(state.subject_lists.length[connection]):
        subject = state.subject_lists.first[connection]
        phase = state.subjects.state[subject]
        if phase == CLOSING:
            write_row(state, out, subject, 0)
        elif phase != UNOPENED and phase != CLOSED:
            write_row(state, out, subject, closed_by)
        drop_subject(state, subject)
