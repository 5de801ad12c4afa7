"""Frames of Cursus in a lake through its pairing once more, captures one behind the other.

As `replay` does for Pulsar. What a command or an answer said stands in the columns of its row and
in its `detail`; of batches, what pairing needs stands in the rows of deliveries (their offsets)
and exchanges (whether an answer was wanted), and comes as rows behind the frame.

What is not in a lake stays unknown: lags are those of each capture by itself.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.codecs.names import NameTable
from dissector.joining import replay
from dissector.joining.encodings import FrameNumbers, by_text
from dissector.joining.replay import InputKind, TableRows
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


class CursusReplay(replay.Replay):
    """The passes over one group of captures: `feed` batches in order, then `finish`."""

    def __init__(self) -> None:
        self._protocol = next(n for n, spec in enumerate(PROTOCOLS) if spec.name == NAME)
        names = NameTable(key=random_number(HASH_KEY_BITS))
        self._again = BodyDecoder(names, self._protocol, False, "none")
        self._codes = self._again.codes
        self._cursus_exchanges = CursusExchanges(names, self._again, NoticeLog(), self._protocol)
        self._serials = FrameNumbers()
        self._held: pa.Table | None = None

    def finish(self) -> Iterator[TableRows]:
        """The rest."""
        yield from self.leave()
        self._cursus_exchanges.finish()
        yield from self._tables(
            self._cursus_exchanges.client_handles() + self._cursus_exchanges.relations()
        )

    def _advance(self, rows: pa.Table) -> Iterator[TableRows]:
        kinds = rows.column("kind").to_numpy()
        is_row = (kinds == InputKind.FRAME) | (kinds == InputKind.EVENT)
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
        yield from self._tables(
            self._cursus_exchanges.client_handles() + self._cursus_exchanges.relations()
        )

    def _fill_frames(self, frames: FrameColumns, rows: pa.Table) -> None:
        count = rows.num_rows
        _, text, _ = self._fill_common(
            frames,
            rows,
            _COPIED,
            lambda name: cursus_commands.NUMBER.get(name, NULL) if name else NULL,
        )
        frames.last_packet[:count] = NULL
        for name in _NAMES:
            codes = by_text(text[name], lambda each: self._codes.of((each or "").encode()))
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
