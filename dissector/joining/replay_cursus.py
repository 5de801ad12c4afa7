"""Frames of Cursus in a lake through its pairing once more, captures one behind the other.

Its answers are known by their order alone, and what they do to logs and groups by their texts. So
the rows of `frames` of several captures become the columns that its passes read in a dissection, in
one order, with one number per connection however many captures it lasted; the same code gives the
rows that one capture over all of them would have had. What a command or an answer said stands in
the columns of its row and in its `detail`; of batches, what pairing needs stands in the rows of
deliveries (their offsets) and exchanges (whether an answer was wanted), and comes as rows behind
the frame.

Input: rows in order (`INPUT`), of three kinds. Output: rows by their table. Frames are named by
capture (`rank` in the group) and by their own number, connections by chain. What is not in a lake
stays unknown: lags are those of each capture by itself.
"""

import enum
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import TableBlock, numbers_of
from dissector.codecs.names import NameTable
from dissector.joining.encodings import FrameNumbers, by_text, index_in, numbers
from dissector.joining.positions import nullable
from dissector.limits import HASH_KEY_BITS, NULL
from dissector.native.entropy import random_number
from dissector.notice_log import NoticeLog
from dissector.protocols import PROTOCOLS, columns
from dissector.protocols.columns import FrameColumns
from dissector.protocols.cursus import commands as cursus_commands
from dissector.protocols.cursus.answers import Ack, Answer
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.decoded_bodies import BodyDecoder, DecodedBody
from dissector.protocols.cursus.exchanges import CursusExchanges
from dissector.protocols.cursus.lines import KEY_VALUE, CommandLine
from dissector.schemas.rows import arrow_batch


class InputKind(enum.IntEnum):
    """Kinds of input rows, in the order in which those of one frame stand."""

    FRAME = 0
    COST = 1  # of a batch: its offsets, or how it was answered
    EVENT = 2  # behind the frame whose number it has; event_code is a number of FrameEvent


NAME: Final = "cursus"
_ANSWERS: Final = (
    cursus_commands.RESPONSE_OK,
    cursus_commands.RESPONSE_ERROR,
    cursus_commands.RESPONSE_JSON,
    cursus_commands.STREAM_CONTROL,
)
_NAMES: Final = ("topic", "subscription", "producer_name", "consumer_name")
_COPIED: Final = (
    "first_ts_ns", "last_ts_ns", "frame_bytes", "stream_offset", "partition", "producer_epoch",
    "sequence_id", "highest_sequence_id", "message_count", "entry_id", "frames_missing",
)  # fmt: skip
NUMBERS: Final = (
    "rank", "chain", "frame_no", "kind", "event_code", "permits", "redelivery_count", *_COPIED,
)  # fmt: skip
TEXTS: Final = ("command", "direction", "status", "error_code", "error_text", "detail", *_NAMES)
INPUT: Final = pa.schema(
    [
        *((name, pa.int64()) for name in NUMBERS),
        ("retransmitted", pa.bool_()),
        *((name, pa.string()) for name in TEXTS),
    ]
)
# Columns that name frames, and where their capture goes.
_FRAME_NAMES: Final = {
    "exchanges": (("request_frame_no", "request_rank"), ("response_frame_no", "response_rank")),
    "deliveries": (
        ("frame_no", "rank"),
        ("previous_frame_no", "previous_rank"),
        ("ack_frame_no", "ack_rank"),
    ),
    "producers": (),
    "consumers": (),
}
TableRows = tuple[str, pa.Table]  # a table's name, and rows of it
# Columns that arguments of a command fill, by the argument's name.
_ARGUMENTS: Final = (
    (b"topic", "topic"), (b"group", "subscription"), (b"producerId", "producer_name"),
    (b"member", "consumer_name"), (b"partition", "partition"), (b"seqNum", "sequence_id"),
    (b"epoch", "producer_epoch"),
)  # fmt: skip
# What `detail` says that is no argument.
_NO_ARGUMENTS: Final = frozenset(
    ("word", "envelope", "grammar", "implemented", "offsets", "message_bytes", "payload", "batch")
)


def detail_of(row: dict[str, Any]) -> dict[str, Any]:
    """The detail of a frame; empty where there is none, or where it was too long."""
    try:
        detail = json.loads(row["detail"] or "{}")
    except ValueError:
        return {}
    return detail if isinstance(detail, dict) else {}


def line_of(row: dict[str, Any], command: int) -> CommandLine:
    """A command as it was read, from its row of frames."""
    detail = detail_of(row)
    arguments = {
        name.encode(): str(value).encode()
        for name, value in detail.items()
        if name not in _NO_ARGUMENTS and not isinstance(value, dict | list)
    }
    for name, column in _ARGUMENTS:
        if row[column] is not None:
            arguments.setdefault(name, str(row[column]).encode())
    if row["entry_id"] is not None:
        arguments.setdefault(b"offset", str(row["entry_id"] + 1).encode())
    offsets = detail.get("offsets")
    entries = None
    if isinstance(offsets, dict):
        pairs = [(name.removeprefix("P"), offset) for name, offset in offsets.items()]
        entries = tuple(
            (int(name), offset)
            for name, offset in pairs
            if name.isdecimal() and isinstance(offset, int)
        )
    return CommandLine(command, None, arguments, None, entries, KEY_VALUE, b"")


def answer_of(row: dict[str, Any], command: int) -> Answer:
    """An answer as it was read, from its row of frames."""
    fields: dict[str, Any] = {
        name: value.encode() if isinstance(value, str) else value
        for name, value in detail_of(row).items()
    }
    for name, column in _ARGUMENTS:
        if row[column] is not None:
            fields.setdefault(name.decode(), str(row[column]).encode())
    ack = None
    if command == cursus_commands.RESPONSE_JSON and row["entry_id"] is not None:
        ack = Ack(
            row["entry_id"], row["producer_epoch"] or 0, (row["producer_name"] or "").encode(),
            row["sequence_id"] or 0, row["highest_sequence_id"] or 0,
        )  # fmt: skip
    text = row["error_text"]
    is_error = (
        command == cursus_commands.RESPONSE_ERROR
        or row["error_code"] is not None
        or text is not None
    )
    return Answer(
        command, fields, is_error, row["error_code"], None if text is None else text.encode(), ack
    )


def replayed(batches: Iterable[pa.Table]) -> Iterator[TableRows]:
    """The rows of a group that come of its input."""
    replay = CursusReplay()
    for batch in batches:
        yield from replay.feed(batch)
    yield from replay.finish()


class CursusReplay:
    """The passes over one group of captures: `feed` batches in order, then `finish`."""

    def __init__(self) -> None:
        self._protocol = next(n for n, spec in enumerate(PROTOCOLS) if spec.name == NAME)
        names = NameTable(key=random_number(HASH_KEY_BITS))
        self._again = BodyDecoder(names, self._protocol, False, "none")
        self._codes = self._again.codes
        self._cursus_exchanges = CursusExchanges(names, self._again, NoticeLog(), self._protocol)
        self._serials = FrameNumbers()
        self._held = INPUT.empty_table()

    def feed(self, batch: pa.Table) -> Iterator[TableRows]:
        """Take rows (INPUT); gives the rows that closed."""
        rows = pa.concat_tables([self._held, batch])
        # What belongs to the last frame may be in the next batch.
        starts = np.flatnonzero(rows.column("kind").to_numpy() != InputKind.COST)
        cut = int(starts[-1]) if len(starts) else 0
        self._held = rows.slice(cut)
        yield from self._advance(rows.slice(0, cut).combine_chunks())

    def finish(self) -> Iterator[TableRows]:
        """The rest."""
        yield from self._advance(self._held.combine_chunks())
        self._cursus_exchanges.finish()
        yield from self._tables()

    def _advance(self, rows: pa.Table) -> Iterator[TableRows]:
        kinds = rows.column("kind").to_numpy()
        is_row = kinds != InputKind.COST
        count = int(is_row.sum())
        if not count:
            return
        owner = np.cumsum(is_row) - 1
        main = rows.filter(pa.array(is_row)).combine_chunks()
        _, frames = columns.new_frame_columns(count)
        self._fill_frames(frames, main)
        bodies = self._again.opening.bodies = BodyColumns.new(count, NULL)
        self._fill_bodies(frames, bodies, rows, kinds, owner)
        decoded_bodies = self._decoded_bodies(frames, main)
        self._cursus_exchanges.advance(frames, count, count, decoded_bodies)
        yield from self._tables()

    def _tables(self) -> Iterator[TableRows]:
        """What closed, as rows; frames are named by capture and own number."""
        for block in self._cursus_exchanges.client_handles() + self._cursus_exchanges.relations():
            if block.table in _FRAME_NAMES and block.rows:
                yield block.table, self._named(block)

    def _named(self, block: TableBlock) -> pa.Table:
        block.columns.pop("closing_row", None)
        more: dict[str, Any] = {}
        for column, _ in _FRAME_NAMES[block.table][:1]:
            more["order_no"] = nullable(numbers_of(block, column))
        if block.table in ("producers", "consumers"):
            # The number of the frame that closed one stays that of the whole, to be in order.
            ranks, own = self._serials.resolve(numbers_of(block, "closed_frame_no"))
            more |= {"rank": nullable(ranks), "order_no": nullable(own)}
        for column, rank in _FRAME_NAMES[block.table]:
            ranks, own = self._serials.resolve(numbers_of(block, column))
            block.columns[column] = own
            more[rank] = nullable(ranks)
        rows = pa.Table.from_batches([arrow_batch(block)])
        for name, values in more.items():
            rows = rows.append_column(name, values)
        return rows

    def _fill_frames(self, frames: FrameColumns, rows: pa.Table) -> None:
        count = rows.num_rows
        cells = {name: numbers(rows.column(name).combine_chunks()) for name in NUMBERS}
        text = {name: rows.column(name).combine_chunks() for name in TEXTS}
        is_event = cells["kind"] == InputKind.EVENT
        frames.connection_id[:count] = cells["chain"]
        frames.protocol[:count] = self._protocol
        for name in _COPIED:
            getattr(frames, name)[:count] = cells[name]
        frames.retransmitted[:count] = numbers(rows.column("retransmitted").combine_chunks())
        frames.direction[:count] = index_in(text["direction"], columns.DIRECTION_NAMES)
        frames.endpoint_index[:count] = frames.direction[:count] == columns.TO_CLIENT
        command = by_text(text["command"], lambda name: cursus_commands.NUMBER.get(name, NULL))
        frames.command[:count] = np.where(is_event, cells["event_code"], command)
        status = index_in(text["status"], columns.STATUS_NAMES)
        frames.status[:count] = np.where(is_event, cells["frames_missing"], status)
        frames.frame_no[:count] = NULL
        frames.frame_no[:count][~is_event] = self._serials.number(
            cells["rank"][~is_event], cells["frame_no"][~is_event]
        )
        frames.last_packet[:count] = NULL
        for name in _NAMES:
            codes = by_text(text[name], lambda each: self._codes.of(each.encode()))
            getattr(frames, name)[:count] = codes

    def _fill_bodies(
        self, frames: FrameColumns, bodies: BodyColumns, rows: pa.Table, kinds: Any, owner: Any
    ) -> None:
        """What rows behind a batch say of it: its offsets, and whether an answer was wanted."""
        names = ("entry_id", "message_count", "permits", "redelivery_count", "producer_name",
                 "sequence_id")  # fmt: skip
        costs = rows.filter(pa.array(kinds == InputKind.COST)).select(names).to_pylist()
        owners = owner[kinds == InputKind.COST].tolist()
        for row, cost in zip(owners, costs, strict=True):
            if frames.direction[row] == columns.TO_BROKER:
                bodies.acks[row] = cost["permits"]
                bodies.idempotent[row] = cost["redelivery_count"]
                continue
            bodies.records[row] = cost["message_count"] or 0
            if cost["entry_id"] is not None:
                bodies.first_offset[row] = cost["entry_id"]
                bodies.last_offset[row] = cost["entry_id"] + (cost["message_count"] or 1) - 1
            producer = self._codes.of((cost["producer_name"] or "").encode())
            # The epoch is the batch's; records of other producers have others.
            if cost["sequence_id"] is not None and producer == frames.producer_name[row]:
                bodies.first_seq[row] = cost["sequence_id"]
                bodies.first_producer[row] = producer
                bodies.first_epoch[row] = frames.producer_epoch[row]

    def _decoded_bodies(self, frames: FrameColumns, rows: pa.Table) -> dict[int, DecodedBody]:
        bodies = {}
        commands = frames.command[: rows.num_rows].tolist()
        names = {"detail", "error_code", "error_text", "entry_id", "highest_sequence_id"}
        names |= {column for _, column in _ARGUMENTS}
        kept = rows.select(sorted(names)).to_pylist()
        for row, command in enumerate(commands):
            if frames.frame_no[row] == NULL or command in (
                cursus_commands.BATCH,
                cursus_commands.KEEPALIVE,
            ):
                continue
            if command in _ANSWERS:
                bodies[row] = DecodedBody(answer=answer_of(kept[row], command))
            elif command != NULL:
                bodies[row] = DecodedBody(line=line_of(kept[row], command))
        return bodies
