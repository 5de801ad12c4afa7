"""What makes the flight recorder keep packets: findings in rows, each with its place and a reason.

A trigger's text says what an operator needs to find the place in the lake: connection and frame.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import TableBlock
from dissector.errors import UsageError
from dissector.limits import NULL
from dissector.schemas.text import plain_text
from dissector.tap.balances import Balances
from dissector.tap.facts import is_text
from dissector.tap.series import column, column_codes

CHECKSUM: Final = "checksum"
LATENCY: Final = "latency"
STALL: Final = "stall"
ERROR: Final = "error"
SIGNAL: Final = "signal"
NAMES: Final = (CHECKSUM, LATENCY, STALL, ERROR)
LATENCY_NS: Final = 1_000_000_000  # default threshold of a send's latency

_NS_PER_US: Final = 1000


class Trigger(NamedTuple):
    """Something worth keeping packets for. connection_id: -1 = of all; first_ns, last_ns: time that
    it spans; packet: number of the packet that shows it, or NULL."""

    reason: str
    text: str
    connection_id: int
    first_ns: int
    last_ns: int
    packet: int = NULL


def of_signal(now_ns: int) -> Trigger:
    """Somebody asked for everything in memory."""
    return Trigger(SIGNAL, "asked for by a signal: all packets in memory", -1, 0, now_ns)


class Triggers:
    """Finds triggers in blocks of rows.

    Args:
        names: out of NAMES. latency_ns: sends slower than this one.
    """

    def __init__(self, names: Sequence[str] = NAMES, latency_ns: int = LATENCY_NS) -> None:
        unknown = set(names) - set(NAMES)
        if unknown:
            known = ", ".join(NAMES)
            raise UsageError(f"--trigger {sorted(unknown)[0]}: choose of {known}")
        self._names = frozenset(names)
        self._latency_ns = latency_ns
        self._balances = Balances() if STALL in self._names else None

    def of(self, block: TableBlock) -> Iterator[Trigger]:
        """The triggers in a block of any table."""
        if not block.rows:
            return
        if block.table == "frames" and CHECKSUM in self._names:
            yield from self._checksums(block)
        elif block.table == "exchanges":
            yield from self._exchanges(block)
        elif self._balances is not None:
            if block.table == "permits":
                self._balances.add(block)
                yield from self._stalls(self._balances)
            elif block.table == "consumers":
                self._balances.close(block)
            elif block.table == "capture_files":
                self._balances.forget()
                yield from self._stalls(self._balances)

    def _checksums(self, block: TableBlock) -> Iterator[Trigger]:
        wrong = is_text(block, "checksum", "mismatch")
        for row in np.flatnonzero(wrong).tolist():
            connection, frame, first_ns, last_ns, packet = _cells(
                block, row, "connection_id", "frame_no", "first_ts_ns", "last_ts_ns", "last_packet"
            )
            text = f"checksum mismatch: connection {connection}, frame {frame}"
            yield Trigger(CHECKSUM, text, connection, first_ns, last_ns, packet)

    def _exchanges(self, block: TableBlock) -> Iterator[Trigger]:
        if LATENCY in self._names:
            slow = is_text(block, "kind", "publish")
            slow &= column(block, "latency_ns") > self._latency_ns
            for row in np.flatnonzero(slow).tolist():
                yield _of_exchange(block, row, LATENCY)
        if ERROR in self._names:
            codes, names = column_codes(block.columns.get("error_code"), block.rows)
            for row in np.flatnonzero(codes >= 0).tolist():
                yield _of_exchange(block, row, ERROR, plain_text(names[int(codes[row])]))

    def _stalls(self, balances: Balances) -> Iterator[Trigger]:
        for stall in balances.drain_stalls():
            first_ns = stall.start_us * _NS_PER_US
            last_ns = first_ns + stall.duration_us * _NS_PER_US
            text = (
                f"no permits for {stall.duration_us / 1e6:.3f} s: connection {stall.connection_id},"
                f" consumer {stall.consumer_id}, up to frame {stall.end_frame_no}"
            )
            yield Trigger(STALL, text, stall.connection_id, first_ns, last_ns)


def _cells(block: TableBlock, row: int, *names: str) -> list[int]:
    return [int(column(block, name)[row]) for name in names]


def _of_exchange(block: TableBlock, row: int, reason: str, code: str = "") -> Trigger:
    """A trigger of a request and its answer."""
    connection, request, response, first_ns, last_ns, latency_ns = _cells(
        block, row, "connection_id", "request_frame_no", "response_frame_no", "request_first_ns",
        "response_last_ns", "latency_ns",
    )  # fmt: skip
    if first_ns == NULL:
        first_ns = last_ns
    frames = f"frames {'?' if request == NULL else request} and {response}"
    what = f"refused with {code}" if code else f"answered after {latency_ns / 1e6:.3f} ms"
    return Trigger(reason, f"{what}: connection {connection}, {frames}", connection, first_ns,
                   last_ns)  # fmt: skip
