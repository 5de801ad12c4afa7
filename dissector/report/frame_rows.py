"""Frames, row by row: counts, checksums, publishes to be put aside, and where frames lie.

Other tables name frames, not packets; what the report lists one by one is looked up among the
frames seen last, which lie in order of frame_no.
"""

from collections import deque
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.limits import NULL
from dissector.report.parts import MISMATCHES
from dissector.report.rows import Rows, nullable
from dissector.report.tallies import CHECKSUMS, FRAMES, RECONSUMED, Accumulator

MAX_KEYS: Final = 1 << 19
MAX_REMEMBERED: Final = 1 << 20  # frames whose packets can still be looked up
MAX_MISMATCHES: Final = 1 << 15  # mismatches that are looked at one by one


class _Block(NamedTuple):
    """Frames of a block: capture; int64[frames] frame_no (rising), connection, packets, µs."""

    capture: str
    frame_no: Int64Array
    connection_id: Int64Array
    last_packet: Int64Array
    ts: Int64Array


class PacketMemory:
    """Packets and times of the frames seen last. missed: packets asked for after that."""

    def __init__(self) -> None:
        self._blocks: deque[_Block] = deque()
        self._frames = 0
        self._has_forgotten = False
        self.missed = 0

    def add(self, rows: Rows) -> None:
        """Remember rows of `frames`."""
        frame_no = rows.numbers("frame_no")
        names = ("frame_no", "connection_id", "last_packet", "ts")
        block = _Block(rows.capture, *(rows.numbers(name) for name in names))
        if (frame_no[1:] < frame_no[:-1]).any():
            order = np.argsort(frame_no, kind="stable")
            block = _Block(rows.capture, *(column[order] for column in block[1:]))
        self._blocks.append(block)
        self._frames += len(rows)
        while self._frames > MAX_REMEMBERED and len(self._blocks) > 1:
            self._frames -= len(self._blocks.popleft().frame_no)
            self._has_forgotten = True

    def last(self, rows: Rows, column: str) -> pa.Array:
        """The last packet of the frames that a column of rows names; null where unknown."""
        found = self._found(rows, column, "last_packet")
        if self._has_forgotten:
            self.missed += int(((found == NULL) & (rows.numbers(column) != NULL)).sum())
        return nullable(found)

    def times_us(self, rows: Rows, column: str) -> Int64Array:
        """When the frames that a column of rows names were complete, µs; NULL where unknown."""
        return self._found(rows, column, "ts")

    def _found(self, rows: Rows, column: str, what: str) -> Int64Array:
        wanted = rows.numbers(column)
        connection = rows.numbers("connection_id")
        found = np.full(len(wanted), NULL, np.int64)
        for block in self._blocks:
            if block.capture != rows.capture or len(block.frame_no) == 0:
                continue
            place = np.searchsorted(block.frame_no, wanted)
            place = np.minimum(place, len(block.frame_no) - 1)
            is_here = (block.frame_no[place] == wanted) & (block.connection_id[place] == connection)
            found[is_here] = getattr(block, what)[place][is_here]
        return found


_Frame = tuple[str, int, int]  # capture, connection, frame number


class _Mismatch(NamedTuple):
    """What a peer said about a frame whose checksum does not match.

    discarded_by: the ACK that says of its delivery that something is wrong with it.
    """

    outcome: str | None = None
    error_code: str | None = None
    answer_frame_no: int | None = None
    discarded_by: _Frame | None = None


class FrameRows:
    """Everything that the report needs from rows of `frames`, and answers to bad checksums."""

    def __init__(self, packets: PacketMemory) -> None:
        self._packets = packets
        self._frames = Accumulator(FRAMES, MAX_KEYS)
        self._checksums = Accumulator(CHECKSUMS, MAX_KEYS)
        self._reconsumed = Accumulator(RECONSUMED, MAX_KEYS)
        self._mismatches: list[pa.Table] = []
        self._left_out = 0
        self._sends: dict[_Frame, int] = {}
        self._messages: dict[_Frame, int] = {}
        self._refusals: set[_Frame] = set()
        self._said: list[_Mismatch] = []

    def add(self, rows: Rows) -> None:
        """Take in rows of `frames`."""
        if len(rows) == 0:
            return
        self._packets.add(rows)
        ones = pa.array(np.ones(len(rows), np.int64))
        keys = ("connection_id", "protocol", "direction", "command", "status")
        self._frames.add(
            {**rows.columns(*keys), "frames": ones, "frame_bytes": rows.column("frame_bytes")}
        )
        has_checksum = rows.equals("checksum", "ok", "mismatch", "absent", "not_evaluated")
        if has_checksum.any():
            self._add_checksums(rows.where(has_checksum))
        is_send = rows.equals("command", "SEND")
        if is_send.any():
            self._add_sends(rows.where(is_send))

    def _add_checksums(self, rows: Rows) -> None:
        keys = (
            "connection_id",
            "direction",
            "producer_id",
            "consumer_id",
            "incarnation",
            "topic",
            "checksum",
            "checksum_note",
        )
        ones = pa.array(np.ones(len(rows), np.int64))
        self._checksums.add({**rows.columns(*keys), "frames": ones})
        bad = rows.equals("checksum", "mismatch")
        if bad.any():
            self._add_mismatches(rows.where(bad))

    def _add_sends(self, rows: Rows) -> None:
        keys = (
            "connection_id",
            "producer_id",
            "incarnation",
            "topic",
            "real_topic",
            "real_subscription",
        )
        is_again = rows.numbers("reconsume_times") != NULL
        self._reconsumed.add(
            {
                **rows.columns(*keys),
                "has_reconsume_times": pa.array(is_again),
                "publishes": pa.array(np.ones(len(rows), np.int64)),
                "messages": rows.column("message_count"),
            }
        )

    def _add_mismatches(self, rows: Rows) -> None:
        room = MAX_MISMATCHES - len(self._said)
        self._left_out += max(0, len(rows) - room)
        rows = rows.take(np.arange(min(room, len(rows)), dtype=np.int64))
        is_send = rows.equals("command", "SEND").tolist()
        places = (rows.numbers(name).tolist() for name in ("connection_id", "frame_no"))
        for sent, *place in zip(is_send, *places, strict=True):
            known = self._sends if sent else self._messages
            known[rows.capture, place[0], place[1]] = len(self._said)
            self._said.append(_Mismatch())
        nothing = pa.nulls(len(rows))
        unknown = (
            "send_outcome", "send_error_code", "answer_frame_no", "is_refused", "refused_frame_no",
            "copy_frame_no", "copy_crc32c",
        )  # fmt: skip
        made = dict.fromkeys(unknown, nothing)
        at_ns = rows.column("last_ts_ns")
        self._mismatches.append(rows.kept(MISMATCHES, at_ns=at_ns, **made))

    def add_exchanges(self, rows: Rows) -> None:
        """Look for the answers to sends whose checksum did not match."""
        if not self._sends:
            return
        frames = rows.numbers("request_frame_no")
        wanted = np.asarray([key[2] for key in self._sends], np.int64)
        rows = rows.where(np.isin(frames, wanted))
        names = ("connection_id", "request_frame_no", "response_frame_no")
        texts = (rows.column("outcome").to_pylist(), rows.column("error_code").to_pylist())
        for connection, request, response, outcome, code in zip(
            *(rows.numbers(name).tolist() for name in names), *texts, strict=True
        ):
            number = self._sends.get((rows.capture, connection, request))
            if number is not None:
                self._said[number] = self._said[number]._replace(
                    outcome=outcome,
                    error_code=code,
                    answer_frame_no=None if response == NULL else response,
                )

    def add_deliveries(self, rows: Rows) -> None:
        """Look for what ended deliveries whose checksum did not match.

        An entry may be delivered several times, damaged each time: an ACK speaks of one delivery.
        """
        if not self._messages:
            return
        rows = rows.where(rows.equals("outcome", "discarded") & rows.known("ack_frame_no"))
        names = ("connection_id", "frame_no", "ack_frame_no")
        for connection, frame_no, ack_frame_no in zip(
            *(rows.numbers(name).tolist() for name in names), strict=True
        ):
            number = self._messages.get((rows.capture, connection, frame_no))
            if number is not None:
                ack = (rows.capture, connection, ack_frame_no)
                self._said[number] = self._said[number]._replace(discarded_by=ack)

    def add_acks(self, rows: Rows) -> None:
        """Look for ACKs that say that a checksum did not match."""
        if not self._messages:
            return
        rows = rows.where(rows.equals("validation_error", "ChecksumMismatch"))
        places = (rows.numbers(name).tolist() for name in ("connection_id", "frame_no"))
        for connection, frame_no in zip(*places, strict=True):
            ack = (rows.capture, connection, frame_no)
            if len(self._refusals) < MAX_MISMATCHES or ack in self._refusals:
                self._refusals.add(ack)
            else:
                self._left_out += 1

    def _refusal(self, said: _Mismatch) -> int | None:
        ack = said.discarded_by
        return ack[2] if ack is not None and ack in self._refusals else None

    def tables(self) -> dict[str, pa.Table]:
        """The tallies, and every mismatch with what its peer said."""
        return {
            "frames": self._frames.settle(),
            "checksums": self._checksums.settle(),
            "reconsumed": self._reconsumed.settle(),
            "mismatches": self._with_answers(),
        }

    def _with_answers(self) -> pa.Table:
        if not self._mismatches:
            return MISMATCHES.empty_table()
        table = pa.concat_tables(self._mismatches)
        refused = [self._refusal(said) for said in self._said]
        answers: tuple[tuple[str, list[Any]], ...] = (
            ("send_outcome", [said.outcome for said in self._said]),
            ("send_error_code", [said.error_code for said in self._said]),
            ("answer_frame_no", [said.answer_frame_no for said in self._said]),
            ("is_refused", [frame_no is not None for frame_no in refused]),
            ("refused_frame_no", refused),
        )
        for name, values in answers:
            field = MISMATCHES.field(name)
            at = table.schema.get_field_index(name)
            table = table.set_column(at, field, pa.array(values, field.type))
        return table

    def limits(self) -> dict[str, int]:
        """What was left out."""
        left_out = self._frames.left_out + self._checksums.left_out + self._reconsumed.left_out
        return {
            "summary_keys_limit": left_out,
            "summary_mismatches_limit": self._left_out,
            "summary_packets_limit": self._packets.missed,
        }
