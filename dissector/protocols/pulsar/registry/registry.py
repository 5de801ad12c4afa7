"""The registry: fills names and incarnation of each frame, writes producers and consumers.

It runs in the walk that pairs requests with answers (`exchanges.pair_frames`). `registry.state` has
the states and transitions of a producer or consumer.
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.limits import MAX_NAME_BYTES, MAX_NAMES, NULL
from dissector.notice_log import NoticeLog
from dissector.notice_rows import new_notices
from dissector.protocols.columns import NAME_SOURCE_NAMES, FrameColumns
from dissector.protocols.interface import Sources
from dissector.protocols.pulsar.registry import state as registry_state
from dissector.protocols.pulsar.registry.key_shared import key_shared_columns, unknown_fields
from dissector.protocols.pulsar.registry.requests import RegistryContext
from dissector.protocols.pulsar.registry.state import HandleRows, RegistryState
from dissector.protocols.pulsar.registry.steps import close_all
from dissector.protocols.pulsar.wire import commands
from dissector.protocols.pulsar.wire.unknown import Unknown
from dissector.schemas.enums import CLOSERS

_START_ROWS: Final = 1024
_LAST: Final = (1 << 63) - 1
_CLOSERS: Final = tuple(CLOSERS)
_SHARED: Final = (
    "connection_id",
    "incarnation",
    "opened_frame_no",
    "ready_frame_no",
    "closed_frame_no",
    "refused_code",
)
_PRODUCERS: Final = ("epoch", "topic_epoch", "access_mode", "last_sequence_id")
_CONSUMERS: Final = (
    "subscription_type",
    "priority_level",
    "is_durable",
    "first_flow_permits",
    "initial_position",
)


class PulsarRegistry:
    """The registry of one capture: call `read_raw_values` and `begin` before each block's walk,
    `closed` after it, and `finish` at the end. key: of hash tables; unknown: counts unknown fields
    of KeySharedMeta.
    """

    def __init__(self, protocol: int, key: int = 0, unknown: Unknown | None = None) -> None:
        self._protocol = protocol
        self._unknown = unknown
        self._rules = commands.rule_columns()
        self._state = registry_state.new_registry_state(_START_ROWS, key)
        self._names: Sequence[bytes] = []
        self._raw_values: list[bytes] = []  # schema versions and KeySharedMeta
        self._codes: dict[bytes, int] = {}
        self._odd_fields: dict[int, list[tuple[str, int]]] = {}  # of policies by their code
        self._raw_bytes = 0
        self._refused = 0

    def begin(self, rows: int, names: Sequence[bytes], raw_values: Int64Array) -> RegistryContext:
        """The context of the walk over a block, with room for all that the block can add.

        Args:
            names: texts of the name codes.
            raw_values: of the block, from `read_raw_values`.
        """
        self._names = names
        state = self._state
        registry_state.reserve(state, rows)
        state.counters[registry_state.COUNT_OUT] = 0
        notices = new_notices(rows)
        before = int(state.counters[registry_state.COUNT_ROW])
        return RegistryContext(state, before, self._rules, raw_values, self._output(rows), notices)

    def closed(self, rows: int, context: RegistryContext, notices: NoticeLog) -> list[TableBlock]:
        """The blocks of producers and consumers for the incarnations that closed in a walk.

        Args:
            rows: of the block, as for `begin`.
            notices: receives the notices.
        """
        self._state.counters[registry_state.COUNT_ROW] = context.rows_before + rows
        notices.drain(context.notices)
        return self._blocks(context.out)

    def finish(self, notices: NoticeLog) -> list[TableBlock]:
        """The rows of incarnations that are open at the end of the capture, which closes them."""
        self._state.counters[registry_state.COUNT_OUT] = 0
        out = self._output(0)
        close_all(self._state, out)
        refused = int(self._state.counters[registry_state.COUNT_REFUSED])
        if refused:
            notices.note("subjects_limit", value=refused)
        return self._blocks(out)

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would return now; the state is unchanged."""
        ended = copy(self)
        ended._state = deepcopy(self._state)
        return ended.finish(NoticeLog())

    def memory(self) -> RegistryState:
        """The state itself, to save it or to load a saved one in place before `resume`."""
        return self._state

    def _output(self, rows: int) -> HandleRows:
        """Output columns with room for all open incarnations and two more per frame."""
        pool = self._state.handle_pool
        capacity = len(pool.rows) - int(pool.free[0]) + 2 * rows + 1
        return HandleRows(np.empty((len(HandleRows._fields), capacity), np.int64))

    def read_raw_values(self, frames: FrameColumns, rows: int, sources: Sources) -> Int64Array:
        """int64[rows]: the index of each row's schema version or KeySharedMeta in the list of raw
        values; NULL if it has none, as most rows, or if the list is full.

        Only this reads the block's bytes, and only this adds to the list: the walks over earlier
        blocks may run in parallel.

        Args:
            sources: the byte arrays that frames.source selects.
        """
        indexes = np.full(max(rows, 1), NULL, np.int64)
        is_mine = frames.protocol[:rows] == self._protocol
        is_producer = frames.last_sequence_id[:rows] != NULL
        versions = frames.schema_version_hex_at, frames.schema_version_hex_bytes, is_producer
        policies = frames.key_shared_at, frames.key_shared_bytes, True
        for starts, sizes, is_wanted in (versions, policies):
            for row in np.flatnonzero(is_mine & is_wanted & (sizes[:rows] >= 0)).tolist():
                start = int(starts[row])
                data = sources[int(frames.source[row])]
                indexes[row] = self._code(data[start : start + int(sizes[row])].tobytes())
                if starts is frames.key_shared_at and indexes[row] != NULL:
                    self._count_odd_fields(frames, row, int(indexes[row]))
        return indexes

    def _count_odd_fields(self, frames: FrameColumns, row: int, policy: int) -> None:
        if self._unknown is None:
            return
        if policy not in self._odd_fields:
            self._odd_fields[policy] = unknown_fields(self._raw_values[policy])
        for message, number in self._odd_fields[policy]:
            self._unknown.add(frames, row, message, number, 1)

    def _code(self, value: bytes) -> int:
        """The index of a raw value in the list, added if it is new; NULL without room."""
        size = self._raw_bytes + len(value)
        has_room = len(self._raw_values) < MAX_NAMES and size <= MAX_NAME_BYTES
        if value not in self._codes and has_room:
            self._codes[value] = len(self._raw_values)
            self._raw_values.append(value)
            self._raw_bytes = size
        return self._codes.get(value, NULL)

    def _blocks(self, out: HandleRows) -> list[TableBlock]:
        """The closed incarnations as blocks of their two tables, in order of closing."""
        blocks = []
        rows = int(self._state.counters[registry_state.COUNT_OUT])
        cells = out.matrix[:, :rows]
        for kind, table in (
            (commands.PRODUCER_SUBJECT, "producers"),
            (commands.CONSUMER_SUBJECT, "consumers"),
        ):
            chosen = np.flatnonzero(out.kind[:rows] == kind)
            if len(chosen):
                part = HandleRows(np.ascontiguousarray(cells[:, _in_order(out, chosen)]))
                blocks.append(self._block(part, table))
        return blocks

    def _block(self, part: HandleRows, table: str) -> TableBlock:
        columns: dict[str, Column] = {name: getattr(part, name) for name in _SHARED}
        columns["closing_row"] = part.closing_row
        columns["topic"] = Coded(part.topic, self._names)
        columns["name"] = Coded(part.name, self._names)
        columns["name_source"] = Coded(part.name_source, NAME_SOURCE_NAMES)
        columns["closed_by"] = Coded(part.closed_by, _CLOSERS)
        if table == "producers":
            columns["producer_id"] = part.id
            columns["schema_version_hex"] = [
                self._raw_values[code].hex() if code >= 0 else None
                for code in part.schema_version.tolist()
            ]
            columns.update({name: getattr(part, name) for name in _PRODUCERS})
        else:
            columns["consumer_id"] = part.id
            columns["subscription"] = Coded(part.subscription, self._names)
            columns.update({name: getattr(part, name) for name in _CONSUMERS})
            columns |= key_shared_columns(part.key_shared, self._raw_values)
        return TableBlock(table, len(part.id), columns)


def _in_order(out: HandleRows, chosen: Int64Array) -> Int64Array:
    """Chosen rows sorted by closing row, then by opening frame (null last)."""
    opened = out.opened_frame_no[chosen]
    keys = (
        out.id[chosen],
        out.connection_id[chosen],
        np.where(opened == NULL, _LAST, opened),
        out.closing_row[chosen],
    )
    return chosen[np.lexsort(keys)]
