"""From publish to delivery to acknowledgement, row by row, and which entries were stored at all."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.buckets import buckets_of
from dissector.limits import NULL
from dissector.report.lags import COMMITTED, DELIVERED, Lags
from dissector.report.names import Names, without_twins
from dissector.report.parts import ENTRIES
from dissector.report.rows import Mask, Rows, codes, nullable
from dissector.report.sequences import SequenceRuns
from dissector.report.tallies import ACK_COMMANDS, ACK_TIMES, TRANSITS, Accumulator

MAX_KEYS: Final = 1 << 19
MAX_RUNS: Final = 1 << 19  # runs of entry ids
_NAMED: Final = ("connection_id", "consumer_id", "incarnation", "topic", "subscription")
_NO_ID: Final = "non-persistent://"


class Entries:
    """Entries whose receipt, whose delivery, or one of both was seen; each counts once.

    An entry is known by cluster, ledger and entry: BookKeeper gives a ledger's number only once.
    """

    def __init__(self) -> None:
        self._leaves: dict[tuple[Any, ...], int] = {}
        self._runs = {name: SequenceRuns(MAX_RUNS) for name in ENTRIES.names[1:]}

    def add(self, rows: Rows, seen: str) -> None:
        """Take in rows with ledger_id and entry_id. seen: confirmed or delivered."""
        rows = rows.where((rows.numbers("ledger_id") != NULL) & ~rows.starts_with("topic", _NO_ID))
        if len(rows) == 0:
            return
        code, first = codes(rows.column("connection_id"), rows.column("ledger_id"))
        chosen = rows.take(first)
        keys = (chosen.numbers(name).tolist() for name in ("connection_id", "ledger_id"))
        numbers = [
            self._leaves.setdefault((rows.capture, *key), len(self._leaves))
            for key in zip(*keys, strict=True)
        ]
        leaves = np.asarray(numbers, np.int64)[code]
        ids = rows.numbers("entry_id")
        for name in (seen, "either"):
            self._runs[name].add(leaves, ids, np.ones(len(rows), np.int64))

    def table(self, names: Names, files: pa.Table) -> pa.Table:
        """Distinct entries per cluster (ENTRIES)."""
        clusters = dict(zip(*(files.column(n).to_pylist() for n in ("capture", "cluster")),
                            strict=True))  # fmt: skip
        keys = pa.table(
            {
                "capture": pa.array([key[0] for key in self._leaves], pa.string()),
                "connection_id": pa.array([key[1] for key in self._leaves], pa.int64()),
                "leaf": pa.array(list(self._leaves.values()), pa.int64()),
            }
        )
        kept = set(without_twins(keys, names).column("leaf").to_pylist())
        ledgers: dict[tuple[Any, ...], int] = {}
        groups = np.full(len(self._leaves), -1, np.int64)
        for key, leaf in self._leaves.items():
            if leaf in kept:
                ledger = (clusters.get(key[0]), key[2])
                groups[leaf] = ledgers.setdefault(ledger, len(ledgers))
        found: dict[str | None, dict[str, int]] = {}
        for name, runs in self._runs.items():
            counted = runs.messages(groups)
            for (cluster, _), group in ledgers.items():
                row = found.setdefault(cluster, dict.fromkeys(self._runs, 0))
                row[name] += counted.get(group, 0)
        rows = [{"cluster": cluster, **row} for cluster, row in found.items()]
        return pa.Table.from_pylist(rows, schema=ENTRIES)

    @property
    def left_out(self) -> int:
        """Runs beyond the bound."""
        return sum(runs.left_out for runs in self._runs.values())


def _kept(mask: Mask, values: Int64Array) -> pa.Array:
    return pa.array(values, mask=~mask)


class Lifetimes:
    """Durations of deliveries, how acks were gathered, and distinct entries."""

    def __init__(self) -> None:
        self._acks = Accumulator(ACK_TIMES, MAX_KEYS)
        self._transits = Accumulator(TRANSITS, MAX_KEYS)
        self._commands = Accumulator(ACK_COMMANDS, MAX_KEYS)
        self._entries = Entries()
        self._lags = Lags()
        self._last_ack: tuple[str, int] | None = None

    def add_exchanges(self, rows: Rows) -> None:
        """Take in rows of `exchanges`: of them, publishes that were stored."""
        rows = rows.where(rows.equals("kind", "publish") & rows.equals("outcome", "ok"))
        self._entries.add(rows, "confirmed")

    def add_deliveries(self, rows: Rows) -> None:
        """Take in rows of `deliveries`."""
        self._entries.add(rows, "delivered")
        self._lags.add(rows, DELIVERED)
        took = rows.numbers("ack_latency_ns")
        is_acked = rows.equals("outcome", "acked")
        is_timed = is_acked & (took != NULL)
        ones = pa.array(np.ones(len(rows), np.int64))
        self._acks.add(
            {
                **rows.columns(*_NAMED, "outcome"),
                "bucket": _kept(is_timed, buckets_of(took)),
                "deliveries": ones,
                "timed": pa.array(is_timed.astype(np.int64)),
                "ack_latency_ns": _kept(is_timed, took),
                "at_us": nullable(rows.numbers("ts")),
            }
        )
        took = rows.numbers("publish_to_delivery_ns")
        is_again = rows.flags("is_redelivered")
        is_delayed = rows.numbers("deliver_at_ms") > 0
        is_timed = (took != NULL) & ~is_again & ~is_delayed
        self._transits.add(
            {
                **rows.columns(*_NAMED),
                "is_redelivered": pa.array(is_again),
                "is_delayed": pa.array(is_delayed),
                "bucket": _kept(is_timed, buckets_of(took)),
                "deliveries": ones,
                "timed": pa.array(is_timed.astype(np.int64)),
                "publish_to_delivery_ns": _kept(is_timed, took),
            }
        )

    def add_acks(self, rows: Rows) -> None:
        """Take in rows of `acks`, in their order: the ids of one frame lie together."""
        self._lags.add(rows, COMMITTED)
        rows = rows.where(rows.equals("action", "ack"))
        if len(rows) == 0:
            return
        frames = rows.numbers("frame_no")
        is_first = np.append(True, frames[1:] != frames[:-1])
        is_first[0] = self._last_ack != (rows.capture, int(frames[0]))
        self._last_ack = (rows.capture, int(frames[-1]))
        self._commands.add(
            {
                **rows.columns(*_NAMED, "ack_type", "validation_error"),
                "is_answered": pa.array(rows.known("request_id")),
                "ack_commands": pa.array(is_first.astype(np.int64)),
                "ids": nullable(np.ones(len(rows), np.int64)),
            }
        )

    def tables(self, names: Names, files: pa.Table) -> dict[str, pa.Table]:
        """The tallies and the distinct entries."""
        return {
            "ack_times": self._acks.settle(),
            "transits": self._transits.settle(),
            "ack_commands": self._commands.settle(),
            "lags": self._lags.table(),
            "entries": self._entries.table(names, files),
        }

    def limits(self) -> dict[str, int]:
        """What was left out."""
        tallies = (self._acks, self._transits, self._commands, self._lags)
        return {
            "summary_keys_limit": sum(tally.left_out for tally in tallies),
            "summary_entries_limit": self._entries.left_out,
        }
