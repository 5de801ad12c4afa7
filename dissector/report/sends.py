"""Publishing, row by row: sums per producer, distinct messages, and latency across attempts."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.buckets import buckets_of
from dissector.limits import MAX_SUMMARY_KEYS, NULL
from dissector.report.names import Names, name_producers, without_twins
from dissector.report.numbers import NS_PER_MINUTE
from dissector.report.parts import MESSAGES
from dissector.report.rows import Mask, Rows, codes, nullable
from dissector.report.sequences import SequenceRuns
from dissector.report.tallies import (
    LOGICAL,
    SEND_MINUTES,
    SEND_POINTS,
    SENDS,
    TRANSMITS,
    Accumulator,
    count,
)
from dissector.report.time_cells import TimeCells

MAX_KEYS: Final = 1 << 19  # keys of one tally
MAX_RUNS: Final = 1 << 20  # runs of sequence ids
REPLICATOR: Final = "pulsar.repl."  # how the names of a broker's replication producers begin
MAX_WAITING: Final = 1 << 18  # sends that are not settled by their first attempt

LEAF_NAMES: Final = (
    "connection_id",
    "producer_id",
    "incarnation",
    "topic",
    "producer_name",
    "client_ip",
    "broker_ip",
)
LEAVES: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("producer_id", pa.int64()),
        ("incarnation", pa.int64()),
        ("topic", pa.string()),
        ("producer_name", pa.string()),
        ("client_ip", pa.string()),
        ("broker_ip", pa.string()),
    ]
)


class Leaves:
    """Numbers for producers as rows name them: capture, connection, ids, names, addresses."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}

    def of(self, rows: Rows) -> Int64Array:
        """int64[rows], the leaf of each row."""
        columns = [rows.column(name) for name in LEAF_NAMES]
        code, first = codes(*columns)
        found = rows.take(first).kept(LEAVES).to_pylist()
        numbers = [
            self._numbers.setdefault(tuple(row.values()), len(self._numbers)) for row in found
        ]
        return np.asarray(numbers, np.int64)[code]

    def table(self) -> pa.Table:
        """All leaves in the order of their numbers (LEAVES)."""
        keys = list(self._numbers)
        columns: list[tuple[Any, ...]] = (
            list(zip(*keys, strict=True)) if keys else [() for _ in LEAVES]
        )
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, LEAVES, strict=True)
        ]
        return pa.table(arrays, schema=LEAVES)


def message_ids(sends: Rows) -> Int64Array:
    """int64[rows], what tells the messages of one producer apart: the sequence id, NULL if unknown.

    NULL too for producers without an id (Cursus): they number each partition from the beginning,
    and which of their sends repeats another stands in `attempt`.

    A replicator sends on what several producers published, each with sequence ids of its own; its
    entries are told apart by their checksum, which an entry that is sent again keeps.
    """
    ids, crc = sends.numbers("sequence_id"), sends.numbers("crc32c_stored")
    by_crc = sends.starts_with("producer_name", REPLICATOR) & (crc != NULL) & (ids != NULL)
    return np.where(sends.numbers("producer_id") == NULL, NULL, np.where(by_crc, crc, ids))


def _int(mask: Mask) -> pa.Array:
    return pa.array(mask.astype(np.int64))


def _only(mask: Mask, values: Int64Array) -> pa.Array:
    """values where the mask holds and they are known, null elsewhere."""
    return pa.array(values, mask=~mask | (values == NULL))


class Sends:
    """Everything about publishing that the report needs from rows of `exchanges`."""

    def __init__(self) -> None:
        self._leaves = Leaves()
        self._runs = SequenceRuns(MAX_RUNS)
        self._unnumbered: dict[int, int] = {}  # messages told apart by no sequence id, by leaf
        self._sends = Accumulator(SENDS, MAX_SUMMARY_KEYS)
        self._minutes = Accumulator(SEND_MINUTES, MAX_KEYS)
        self._transmits = Accumulator(TRANSMITS, MAX_KEYS)
        self._points = TimeCells(SEND_POINTS, MAX_KEYS)
        self._logical = Accumulator(LOGICAL, MAX_KEYS)
        self._waiting: list[Int64Array] = []
        self._waiting_rows = 0
        self._waiting_left_out = 0

    def add(self, rows: Rows) -> None:
        """Take in rows of `exchanges`; those that are no publish are left out."""
        rows = rows.where(rows.equals("kind", "publish"))
        if len(rows) == 0:
            return
        is_request = ~rows.equals("outcome", "orphan_response")
        self._add_sums(rows, is_request)
        sends = rows.where(is_request)
        if len(sends):
            leaves = self._leaves.of(sends)
            self._add_times(sends)
            counts = sends.numbers("message_count")
            ids = message_ids(sends)
            has_id = ids != NULL
            self._runs.add(leaves[has_id], ids[has_id], np.where(counts == NULL, 0, counts)[has_id])
            attempt = sends.numbers("attempt")
            alone = ~has_id & ((attempt == 1) | (attempt == NULL))
            self._add_unnumbered(leaves[alone], counts[alone])
            self._add_attempts(sends, leaves)

    def _add_unnumbered(self, leaves: Int64Array, counts: Int64Array) -> None:
        """First attempts that no sequence id tells apart; where the count is not known none is."""
        for leaf, found in zip(leaves.tolist(), counts.tolist(), strict=True):
            if found != NULL:
                self._unnumbered[leaf] = self._unnumbered.get(leaf, 0) + found

    def _add_sums(self, rows: Rows, is_request: Mask) -> None:
        latency = rows.numbers("latency_ns")
        transmit = rows.numbers("transmit_ns")
        is_timed = rows.equals("outcome", "ok") & (latency != NULL)
        is_transmit = is_request & (transmit != NULL)
        columns = rows.columns(*LEAF_NAMES, "outcome")
        counted = {
            "sends": pa.array(np.ones(len(rows), np.int64)),
            "messages": rows.column("message_count"),
            "tainted": _int(rows.flags("tainted")),
            "resent": _int(rows.numbers("attempt") > 1),
            "request_bytes": rows.column("request_bytes"),
            "counts_unknown": _int(is_request & (rows.numbers("message_count") == NULL)),
            "latencies": _int(is_timed),
            "latency_ns": _only(is_timed, latency),
            "transmits": _int(is_transmit),
            "transmit_ns": _only(is_transmit, transmit),
        }
        self._sends.add({**columns, **counted})
        if is_transmit.any():
            sent = rows.where(is_transmit)
            buckets = nullable(buckets_of(transmit[is_transmit]))
            ones = pa.array(np.ones(len(sent), np.int64))
            self._transmits.add({**sent.columns(*LEAF_NAMES), "bucket": buckets, "transmits": ones})

    def _add_times(self, sends: Rows) -> None:
        latency = sends.numbers("latency_ns")
        attempt = sends.numbers("attempt")
        is_timed = sends.equals("outcome", "ok") & (latency != NULL)
        at_ns = sends.numbers("request_last_ns")
        counts = sends.numbers("message_count")
        is_first = (attempt == 1) | (attempt == NULL)
        columns = {
            **sends.columns(*LEAF_NAMES),
            "bucket": _only(is_timed, sends.numbers("latency_bucket")),
            "sends": pa.array(np.ones(len(sends), np.int64)),
            "messages": _only(is_first, counts),
            "request_bytes": sends.column("request_bytes"),
            "latencies": _int(is_timed),
            "latency_ns": _only(is_timed, latency),
        }
        self._minutes.add({**columns, "minute": pa.array(at_ns // NS_PER_MINUTE)})
        self._points.add(columns, at_ns)

    def _add_attempts(self, sends: Rows, leaves: Int64Array) -> None:
        """Latency across attempts: settled at once by a first attempt that was answered."""
        attempt = sends.numbers("attempt")
        latency = sends.numbers("latency_ns")
        is_ok = sends.equals("outcome", "ok")
        is_first = (attempt == 1) | (attempt == NULL)
        is_settled = is_first & is_ok & (latency != NULL)
        if is_settled.any():
            settled = sends.where(is_settled)
            columns = settled.columns(*LEAF_NAMES)
            columns["bucket"] = settled.column("latency_bucket")
            columns["logical_ns"] = settled.column("latency_ns")
            columns["logicals"] = pa.array(np.ones(len(settled), np.int64))
            self._logical.add(columns)
        # One side of these was not captured: no answer can settle them.
        waits = ~(is_first & is_ok) & (attempt != NULL)
        waits &= ~sends.equals("outcome", "other_side_not_captured")
        if not waits.any():
            return
        answered = np.where(is_ok, sends.numbers("response_last_ns"), NULL)
        names = ("sequence_id", "chunk_id", "crc32c_stored", "attempt", "request_last_ns")
        found = np.stack((leaves, *(sends.numbers(name) for name in names), answered))[:, waits]
        room = MAX_WAITING - self._waiting_rows
        self._waiting_left_out += max(0, found.shape[1] - room)
        self._waiting.append(found[:, :room])
        self._waiting_rows += min(found.shape[1], room)

    def tables(self, names: Names, step: int) -> dict[str, pa.Table]:
        """The tallies, and the distinct messages. step: of the series over time, ns."""
        return {
            "sends": self._sends.settle(),
            "send_minutes": self._minutes.settle(),
            "transmits": self._transmits.settle(),
            "send_points": self._points.table(step),
            "logical": self._with_later_attempts(names),
            "messages": self._messages(names),
        }

    @property
    def step(self) -> int:
        """The finest step that the series over time still has."""
        return self._points.step

    def limits(self) -> dict[str, int]:
        """Rows left out per bound that was hit."""
        return {
            "summary_keys_limit": self._sends.left_out
            + self._minutes.left_out
            + self._transmits.left_out
            + self._logical.left_out
            + self._points.left_out,
            "summary_sequence_runs_limit": self._runs.left_out,
            "summary_attempts_limit": self._waiting_left_out,
        }

    def _settled_leaves(self, names: Names) -> tuple[pa.Table, Mask]:
        """Leaves with late names, and which of them are no second leg of a proxied connection."""
        table = name_producers(self._leaves.table(), names)
        order = pa.array(np.arange(table.num_rows))
        kept = without_twins(table.append_column("order", order), names).column("order").to_numpy()
        is_kept = np.zeros(table.num_rows, np.bool_)
        is_kept[kept] = True
        return table, is_kept

    def _messages(self, names: Names) -> pa.Table:
        leaves, is_kept = self._settled_leaves(names)
        found = []
        rows = leaves.to_pylist()
        for grouping, extra in (
            ("producer", ()),
            ("client", ("client_ip",)),
            ("broker", ("broker_ip",)),
        ):
            groups: dict[tuple[Any, ...], int] = {}
            place = np.full(len(rows), -1, np.int64)
            for number, row in enumerate(rows):
                if is_kept[number]:
                    key = (*message_key(row), *(row[name] for name in extra))
                    place[number] = groups.setdefault(key, len(groups))
            counts = self._runs.messages(place)
            for leaf, more in self._unnumbered.items():
                counts[int(place[leaf])] = counts.get(int(place[leaf]), 0) + more
            shown = dict.fromkeys(MESSAGES.names)
            for key, number in groups.items():
                what = {"topic": key[0], "producer_name": key[1]} if grouping == "producer" else {}
                what |= dict(zip(extra, key[-1:], strict=True)) if extra else {}
                found.append(
                    {**shown, "grouping": grouping, **what, "messages": counts.get(number, 0)}
                )
        return pa.Table.from_pylist(found, schema=MESSAGES)

    def _with_later_attempts(self, names: Names) -> pa.Table:
        """The tally `logical`, completed by what a later attempt settled."""
        if not self._waiting:
            return self._logical.settle()
        leaves, is_kept = self._settled_leaves(names)
        rows = leaves.to_pylist()
        keys: dict[tuple[Any, ...], int] = {}
        owner = np.asarray([keys.setdefault(message_key(row), len(keys)) for row in rows], np.int64)
        waiting = np.concatenate(self._waiting, axis=1)
        waiting = waiting[:, is_kept[waiting[0]]]
        ends = first_answers(waiting, owner)
        if ends.shape[1]:
            chosen = leaves.take(pa.array(ends[0]))
            columns = {name: chosen.column(name).combine_chunks() for name in LEAVES.names}
            columns["logical_ns"] = pa.array(ends[1])
            columns["bucket"] = nullable(buckets_of(ends[1]))
            columns["logicals"] = pa.array(np.ones(ends.shape[1], np.int64))
            self._logical.add_table(count(columns, LOGICAL))
        return self._logical.settle()


def message_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells messages of equal sequence ids apart: topic and producer, if both are known.

    Elsewhere ids are compared only within the same producer id of the same connection.
    """
    if row["topic"] is not None and row["producer_name"] is not None:
        return (row["topic"], row["producer_name"], None, None, None, None)
    place = ("capture", "connection_id", "producer_id", "incarnation")
    return (row["topic"], row["producer_name"], *(row[name] for name in place))


def first_answers(waiting: Int64Array, owner: Int64Array) -> Int64Array:
    """Sends that a later attempt settled.

    Args:
        waiting: int64[7, rows]: leaf, sequence_id, chunk_id, crc32c_stored, attempt, time of the
            SEND, time of its receipt (NULL without one).
        owner: int64[leaves], equal for leaves of one topic and producer.

    Returns:
        int64[2, sends]: the leaf that got the first answer, and the time from the first SEND.
    """
    leaf, sequence, chunk, crc, attempt, sent, answered = waiting
    who = owner[leaf]
    late = np.where(answered == NULL, np.iinfo(np.int64).max, answered)
    order = np.lexsort((leaf, late, crc, chunk, sequence, who))
    key = np.stack((who, sequence, chunk, crc))[:, order]
    starts = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
    if key.shape[1] == 0:
        return np.zeros((2, 0), np.int64)
    first_sent = np.minimum.reduceat(sent[order], starts)
    first_attempt = np.minimum.reduceat(attempt[order], starts)
    answer = answered[order][starts]
    took = answer - first_sent
    is_settled = (first_attempt == 1) & (answer != NULL) & (took >= 0)
    return np.stack((leaf[order][starts], took))[:, is_settled]
