"""What this version does not know of the protocol: commands, fields, values and feature flags.

A newer client or broker may say more than the shipped description has. What is not known is read
over, never guessed at, and told once for each kind, with the frame that had it first and how many
had it in all.
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
    """Whether any value is above, or below 0 and not null: in two passes, as hardly ever one is.

    The upper half of a negative number of 32 bits is all ones; no other half is, null's neither.
    """
    if not len(values):
        return False
    return bool(values.max() > largest or values.view(np.uint32).max() == _ALL_ONES)


class Unknown:
    """Counts what is unknown in one capture's frames."""

    def __init__(self, protocol: int) -> None:
        """protocol: what frames.protocol holds for Pulsar."""
        self._protocol = protocol
        self._counted: dict[tuple[int, str, int], tuple[Notice, int]] = {}
        self._others = 0

    def look_at(self, frames: FrameColumns, rows: int) -> None:
        """Count commands and values of the frames of a block, whose fields are filled."""
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
        """Count a field of a message; row: of the first frame of the block that has it.

        The body of an unknown command is such a field, too: of the command's number.
        """
        if name == "BaseCommand" and frames.command[row] == number:
            return
        self._add((_FIELD, name, number), frames, row, count)

    def add_flags(self, frames: FrameColumns, row: int, flags: tuple[int, ...]) -> None:
        """Count the flags of a handshake that have no name."""
        for flag in flags:
            self._add((_FEATURE, "", flag), frames, row, 1)

    def add_others(self, count: int) -> None:
        """Count what there was no room to tell apart."""
        self._others += count

    def note_all(self, log: NoticeLog) -> None:
        """Give a log one notice of each kind."""
        log.add(
            first._replace(value2=count, name=log.name(name))
            for (_, name, _), (first, count) in self._counted.items()
        )
        if self._others:
            log.note("unknown_limit", value=self._others)

    def _count(
        self, frames: FrameColumns, values: Int64Array, odd: Int64Array, kind: int, name: str
    ) -> None:
        """Count values in the rows in which they are odd."""
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
