"""Counts commands, fields, values and feature flags that this version does not know.

A newer client or broker may send more than the shipped .proto file describes. Unknown content is
skipped, never guessed; each kind has one notice, with its first frame and the number of frames.
"""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.limits import MAX_UNKNOWN_KINDS, NULL
from dissector.notice_log import NoticeLog
from dissector.notice_rows import Notice
from dissector.notices import NOTICE_NUMBER
from dissector.protobuf.descriptors import enum_names
from dissector.protocols.columns import FrameColumns
from dissector.protocols.frame_notices import notice_at
from dissector.protocols.pairing.rules import COMMAND_SLOTS
from dissector.protocols.pulsar.wire.columns import field_of
from dissector.protocols.pulsar.wire.commands import COMMAND_BY_NUMBER

_COMMAND: Final = NOTICE_NUMBER["unknown_command"]
_FIELD: Final = NOTICE_NUMBER["unknown_field"]
_VALUE: Final = NOTICE_NUMBER["unknown_value"]
_FEATURE: Final = NOTICE_NUMBER["unknown_feature"]
_IS_KNOWN: Final = np.isin(np.arange(COMMAND_SLOTS), list(COMMAND_BY_NUMBER))
_ALL_ONES: Final = 0xFFFF_FFFF
_ENUMS: Final = tuple(
    (name, field.of, max(enum_names(field.of)))
    for name in FrameColumns._fields
    if (field := field_of(name)) is not None and field.type_name == "enum"
)


def _may_be_odd(values: Int64Array, largest: int) -> bool:
    """Whether a value may be above `largest`, or below 0 and not null; in two fast passes.

    The upper half of a negative number of 32 bits is all ones; no other half is, not even null's.
    """
    if not len(values):
        return False
    return bool(values.max() > largest or values.view(np.uint32).max() == _ALL_ONES)


class Unknown:
    """Counts the unknown content in one capture's frames, by kind."""

    def __init__(self, protocol: int) -> None:
        """protocol: Pulsar's number in frames.protocol."""
        self._protocol = protocol
        self._counted: dict[tuple[int, str, int], tuple[Notice, int]] = {}
        self._others = 0

    def count_block(self, frames: FrameColumns, rows: int) -> None:
        """Count unknown commands and values in a block, whose field columns are filled."""
        commands = frames.command[:rows]
        is_ours = (commands >= 0) & (frames.protocol[:rows] == self._protocol)
        is_known = _IS_KNOWN[np.clip(commands, 0, COMMAND_SLOTS - 1)] & (commands < COMMAND_SLOTS)
        self._count(frames, commands, np.flatnonzero(is_ours & ~is_known), _COMMAND, "")
        for column, enum, largest in _ENUMS:
            values = getattr(frames, column)[:rows]
            if not _may_be_odd(values, largest):
                continue
            is_odd = ((values > largest) | (values < 0)) & (values != NULL)
            is_odd &= frames.protocol[:rows] == self._protocol
            self._count(frames, values, np.flatnonzero(is_odd), _VALUE, enum)

    def add(self, frames: FrameColumns, row: int, name: str, number: int, count: int) -> None:
        """Count an unknown field of a message; row: of the first frame of the block that has it.

        The body of an unknown command is such a field of BaseCommand, which is not counted twice.
        """
        if name == "BaseCommand" and frames.command[row] == number:
            return
        self._add((_FIELD, name, number), frames, row, count)

    def add_flags(self, frames: FrameColumns, row: int, flags: tuple[int, ...]) -> None:
        """Count the feature flags of a handshake that have no name."""
        for flag in flags:
            self._add((_FEATURE, "", flag), frames, row, 1)

    def add_others(self, count: int) -> None:
        """Count occurrences of kinds beyond MAX_UNKNOWN_KINDS."""
        self._others += count

    def write_notices(self, log: NoticeLog) -> None:
        """Add one notice of each kind to a log."""
        log.add(
            first._replace(value2=count, name=log.name(name))
            for (_, name, _), (first, count) in self._counted.items()
        )
        if self._others:
            log.note("unknown_limit", value=self._others)

    def _count(
        self, frames: FrameColumns, values: Int64Array, odd: Int64Array, kind: int, name: str
    ) -> None:
        """Count the values of a column in rows `odd`."""
        numbers, firsts, counts = np.unique(values[odd], return_index=True, return_counts=True)
        for number, first, count in zip(numbers.tolist(), firsts, counts.tolist(), strict=True):
            self._add((kind, name, number), frames, int(odd[first]), count)

    def _add(self, key: tuple[int, str, int], frames: FrameColumns, row: int, count: int) -> None:
        if key not in self._counted and len(self._counted) >= MAX_UNKNOWN_KINDS:
            self._others += count
            return
        kind, _, number = key
        if key not in self._counted:
            self._counted[key] = notice_at(kind, frames, row, number), 0
        first, before = self._counted[key]
        self._counted[key] = first, before + count
