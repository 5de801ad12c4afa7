"""Running sums over the rows of a dissection: the numbers of the report while they grow.

Every sum is over rows as the lake gets them, of the same columns; what a row means is said there.
"""

from collections.abc import Callable, Sequence, Set
from typing import Final

import numpy as np
import numpy.typing as npt

from dissector.blocks import Coded, Column, TableBlock
from dissector.limits import MAX_SERIES, NULL
from dissector.schemas.text import plain_text
from dissector.schemas.words import BOTH_DIRECTIONS
from dissector.tap.balances import Balances
from dissector.tap.series import Counts, Groups, Histograms, column, column_codes

Mask = npt.NDArray[np.bool_]

_SUBSCRIPTION: Final = ("topic", "subscription")
_FACTS: Final = ("exchanges", "deliveries", "permits", "acks")
_OF_FRAMES: Final = ("direction", "command", "status", "checksum")
_OF_EXCHANGES: Final = ("kind", "topic", "outcome", "request_command", "error_code")
_VERDICTS: Final = ("ok", "mismatch", "absent", "not_evaluated")


def is_text(block: TableBlock, name: str, *texts: str) -> Mask:
    """Where a text column has one of some values."""
    codes, names = column_codes(block.columns.get(name), block.rows)
    # The last place is that of null, whose code is -1.
    is_wanted = np.array([plain_text(name) in texts for name in names] + [False])
    found: Mask = is_wanted[codes]
    return found


def some_rows(block: TableBlock, names: Sequence[str], chosen: Mask) -> TableBlock:
    """Chosen rows of a block, text columns of these names only."""
    found: dict[str, Column] = {}
    for name in names:
        codes, texts = column_codes(block.columns.get(name), block.rows)
        found[name] = Coded(codes[chosen], texts)
    return TableBlock(block.table, int(np.count_nonzero(chosen)), found)


def without(block: TableBlock, connections: Set[int]) -> TableBlock:
    """The rows of a block that are not of these connections."""
    ids = column(block, "connection_id")
    kept = ~np.isin(ids, np.array(sorted(connections), np.int64))
    if kept.all():
        return block
    found: dict[str, Column] = {}
    for name, values in block.columns.items():
        if isinstance(values, Coded):
            found[name] = Coded(values.codes[kept], values.names)
        elif isinstance(values, np.ndarray):
            found[name] = values[kept]
        elif isinstance(values, list):
            found[name] = [value for value, is_kept in zip(values, kept, strict=True) if is_kept]
    return TableBlock(block.table, int(np.count_nonzero(kept)), found)


class FactSums:
    """Sums by labels. `add` takes blocks of any table.

    repeated: connections whose facts are another one's, seen again behind a proxy: they are left
    out of all but what tells of the wire (frames, damaged frames, connections, notices).
    """

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        def counts(*labels: str) -> Counts:
            return Counts(labels, max_series)

        self.frames = counts("direction", "command")
        self.frame_bytes = counts("direction")
        self.damaged = counts("status")
        self.checksums = counts("direction", "verdict")
        self.mismatches = counts("topic", "direction")
        self.redelivered_frames = counts(*_SUBSCRIPTION)
        self.sends = counts("topic", "outcome")
        self.send_messages = counts("topic")
        self.send_bytes = counts("topic")
        self.send_latency = Histograms(("topic", "outcome"), max_series)
        self.resent = counts("topic")
        self.requests = counts("command", "outcome")
        self.errors = counts("command", "error_code")
        self.deliveries = counts(*_SUBSCRIPTION)
        self.redeliveries = counts(*_SUBSCRIPTION, "cause")
        self.publish_to_delivery = Histograms(_SUBSCRIPTION, max_series)
        self.acks = counts(*_SUBSCRIPTION, "action")
        self.connections = counts("protocol", "ended")
        self.notices = counts("code", "severity")
        self.gaps = 0
        self.gap_bytes = 0
        self.retransmitted = 0
        self.balances = Balances(max_series)
        self.repeated: Set[int] = frozenset()
        self._takes: dict[str, Callable[[TableBlock], None]] = {
            "frames": self._frames,
            "exchanges": self._exchanges,
            "deliveries": self._deliveries,
            "permits": self.balances.add,
            "consumers": self.balances.close,
            "acks": self._acks,
            "connections": self._connections,
            "notices": self._notices,
            "capture_files": self._end_rotation,
        }

    def add(self, block: TableBlock) -> None:
        """Count the rows of a block."""
        take = self._takes.get(block.table)
        if take is None or not block.rows:
            return
        if self.repeated and block.table in _FACTS:
            block = without(block, self.repeated)
        if block.rows:
            take(block)

    def all_counts(self) -> dict[str, Counts]:
        """Everything that has labels, by name; for what the bound left out."""
        found = {name: each for name, each in vars(self).items() if isinstance(each, Counts)}
        found["send_latency"] = self.send_latency.sums
        found["publish_to_delivery"] = self.publish_to_delivery.sums
        found["permits"] = self.balances.granted
        return found

    # -- tables

    def _count(self, counts: Counts, block: TableBlock, names: Sequence[str]) -> None:
        groups = Groups(block, names)
        counts.add_groups(groups, names, groups.rows)

    def _frames(self, block: TableBlock) -> None:
        """What frames tell of the wire, then of facts."""
        groups = Groups(block, _OF_FRAMES)
        self.frames.add_groups(groups, ("direction", "command"), groups.rows)
        sizes = groups.sums(column(block, "frame_bytes"))
        self.frame_bytes.add_groups(groups, ("direction",), sizes)
        damaged = groups.where("status", ("complete",), is_one=False)
        self.damaged.add_groups(groups, ("status",), groups.rows, damaged)
        if self.repeated:
            block = without(block, self.repeated)
            groups = Groups(block, _OF_FRAMES)
        if block.rows:
            self._frame_facts(block, groups)

    def _frame_facts(self, block: TableBlock, groups: Groups) -> None:
        judged = groups.where("checksum", _VERDICTS)
        self.checksums.add_groups(groups, ("direction", "checksum"), groups.rows, judged)
        if groups.where("checksum", ("mismatch",)):
            names = ("topic", "direction")
            wrong = some_rows(block, names, is_text(block, "checksum", "mismatch"))
            self._count(self.mismatches, wrong, names)
        again = column(block, "redelivery_count") > 0
        if again.any():
            chosen = some_rows(block, _SUBSCRIPTION, again)
            self._count(self.redelivered_frames, chosen, _SUBSCRIPTION)

    def _exchanges(self, block: TableBlock) -> None:
        groups = Groups(block, _OF_EXCHANGES)
        sends = groups.where("kind", ("publish",))
        if sends:
            names = ("topic", "outcome")
            self.sends.add_groups(groups, names, groups.rows, sends)
            self.send_latency.add_groups(groups, names, column(block, "latency_ns"), sends)
            is_again = (column(block, "attempt") > 1).astype(np.int64)
            for counts, values in (
                (self.send_messages, column(block, "message_count")),
                (self.send_bytes, column(block, "request_bytes")),
                (self.resent, is_again),
            ):
                counts.add_groups(groups, ("topic",), groups.sums(values), sends)
        others = groups.where("kind", ("publish",), is_one=False)
        self.requests.add_groups(groups, ("request_command", "outcome"), groups.rows, others)
        refused = groups.where("error_code", (None,), is_one=False)
        self.errors.add_groups(groups, ("request_command", "error_code"), groups.rows, refused)

    def _deliveries(self, block: TableBlock) -> None:
        groups = Groups(block, _SUBSCRIPTION)
        self.deliveries.add_groups(groups, _SUBSCRIPTION, groups.rows)
        duration = column(block, "publish_to_delivery_ns")
        self.publish_to_delivery.add_groups(groups, _SUBSCRIPTION, duration)
        again = column(block, "is_redelivered") == 1
        if again.any():
            names = (*_SUBSCRIPTION, "redelivery_cause")
            self._count(self.redeliveries, some_rows(block, names, again), names)

    def _acks(self, block: TableBlock) -> None:
        self._count(self.acks, block, (*_SUBSCRIPTION, "action"))

    def _connections(self, block: TableBlock) -> None:
        self._count(self.connections, block, ("protocol", "ended"))
        for direction in BOTH_DIRECTIONS:
            for name in ("gaps", "gap_bytes"):
                values = column(block, f"{name}_{direction}")
                setattr(self, name, getattr(self, name) + int(values[values != NULL].sum()))
            values = column(block, f"retransmitted_packets_{direction}")
            self.retransmitted += int(values[values != NULL].sum())

    def _end_rotation(self, block: TableBlock) -> None:
        self.balances.forget()

    def _notices(self, block: TableBlock) -> None:
        self._count(self.notices, block, ("code", "severity"))
