"""Frames of a lake through the passes of a dissection once more, captures one behind the other.

A capture alone cannot know what came before it: which topic a producer writes to, how many permits
a consumer had, which request an answer belongs to. Here the rows of `frames` of several captures
become the columns that the passes over registry, exchanges and consumption read in a dissection,
in one order, with one number per connection however many captures it lasted; so the same code gives
the rows that one capture over all of them would have had.

Input: rows in order (`INPUT`), of four kinds. A frame is followed by its ids (of `acks`) and by
what its delivery cost (of `deliveries`); events stand between frames. Output: rows by their table.
Frames are named by capture (`rank` in the group) and by their own number, connections by chain.
"""

import enum
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import ByteArray, Int64Array, TableBlock, numbers_of
from dissector.joining.checkpoints import Checkpoint, arrays_of, rebuilt
from dissector.joining.detail_fields import fill_details, number_of
from dissector.joining.encodings import FrameNumbers, Names, by_text, index_in, numbers
from dissector.joining.positions import nullable
from dissector.limits import HASH_KEY_BITS, NULL
from dissector.native.entropy import random_number
from dissector.notice_log import NoticeLog
from dissector.protocols import PROTOCOLS, columns
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.protocols.pulsar.consumption import PulsarConsumption
from dissector.protocols.pulsar.exchanges import PulsarExchanges
from dissector.protocols.pulsar.facts import named
from dissector.protocols.pulsar.registry import PulsarRegistry
from dissector.protocols.pulsar.wire import commands as wire_commands
from dissector.protocols.pulsar.wire.commands import CommandNames
from dissector.schemas.rows import arrow_batch


class InputKind(enum.IntEnum):
    """Kinds of input rows, in the order in which those of one frame stand."""

    FRAME = 0
    ID = 1  # a message id of an ACK or REDELIVER frame
    COST = 2  # of a MESSAGE frame: what it cost, and the ack set that came with it
    EVENT = 3  # behind the frame whose number it has; event_code is a number of FrameEvent
    PROXY_SIDE = 4  # before everything of a connection: it is the broker's leg of a proxied pair


NUMBERS: Final = (
    "rank", "chain", "frame_no", "kind", "event_code", "frames_missing", "first_ts_ns",
    "last_ts_ns", "stream_offset", "frame_bytes", "request_id", "producer_id", "consumer_id",
    "incarnation", "sequence_id", "highest_sequence_id", "ledger_id", "entry_id", "partition",
    "message_count", "permits", "redelivery_count", "producer_epoch", "crc32c_stored", "chunk_id",
    "chunk_count", "txn_most_bits", "txn_least_bits", "repl_source_ledger_id",
    "repl_source_entry_id", "publish_time_ms", "deliver_at_ms",
    "batch_size",
)  # fmt: skip
FLAGS: Final = ("retransmitted", "is_batch")
TEXTS: Final = (
    "command", "direction", "status", "error_code", "ack_type", "validation_error", "checksum",
    "topic", "subscription", "producer_name", "consumer_name", "replicated_from", "error_text",
    "detail",
)  # fmt: skip
INPUT: Final = pa.schema(
    [
        *((name, pa.int64()) for name in NUMBERS),
        *((name, pa.bool_()) for name in FLAGS),
        ("read_by", pa.string()),  # the protocol whose passes read it, see replays
        *((name, pa.string()) for name in TEXTS),
        ("ack_set", pa.list_(pa.int64())),
    ]
)
_COPIED: Final = tuple(
    name
    for name in NUMBERS
    if name not in ("rank", "chain", "frame_no", "kind", "event_code", "incarnation", "batch_size")
)
_ENUMS: Final = {
    "error_code": "ServerError",
    "ack_type": "CommandAck.AckType",
    "validation_error": "CommandAck.ValidationError",
}
# Names that are read of commands which ask for something by them.
ASKED: Final = ("topic", "subscription", "consumer_name")
REPLICATED: Final = 8  # bit of has_property


# Columns that name frames, and where their capture goes.
_FRAME_NAMES: Final = {
    "exchanges": (("request_frame_no", "request_rank"), ("response_frame_no", "response_rank")),
    "deliveries": (
        ("frame_no", "rank"),
        ("previous_frame_no", "previous_rank"),
        ("ack_frame_no", "ack_rank"),
    ),
    "permits": (("frame_no", "rank"),),
    "producers": (),
    "consumers": (),
}
TABLES: Final = tuple(_FRAME_NAMES)
_SERIALS: Final = "serials"
# Which incarnation of the whole a capture's own incarnation is.
INCARNATIONS: Final = "incarnations"
INCARNATION: Final = pa.schema(
    [
        (name, pa.int64())
        for name in (
            "rank", "chain", "consumer_id", "producer_id", "own_incarnation", "incarnation",
        )
    ]
)  # fmt: skip
TableRows = tuple[str, pa.Table]  # a table's name, and rows of it


@cache
def _commands() -> dict[str, int]:
    return {
        wire_commands.command_name(command.number): command.number
        for command in wire_commands.COMMANDS
    }


def _command_number(text: str | None) -> int:
    if text is None:
        return NULL
    known = _commands().get(text)
    return int(text.removeprefix("UNKNOWN_")) if known is None else known


def frequent() -> tuple[str, ...]:
    """The commands that name nothing of ASKED themselves, though their rows do."""
    return tuple(
        wire_commands.command_name(command.number)
        for command in wire_commands.COMMANDS
        if command.number in wire_commands.FREQUENT
    )


class Replay:
    """The passes over one group of captures: `feed` batches in order, then `finish`.

    window_ns: how long an answer that was captured before its request waits for it.
    """

    def __init__(self, window_ns: int) -> None:
        protocol = next(n for n, spec in enumerate(PROTOCOLS) if spec.name == "pulsar")
        self._protocol, self._names = protocol, Names()
        key = random_number(HASH_KEY_BITS)
        self._registry = PulsarRegistry(protocol, key)
        self._exchanges = PulsarExchanges(protocol, window_ns, key=key)
        self._consumption = PulsarConsumption(protocol, key=key)
        self._commands = CommandNames()
        self._notices = NoticeLog()
        self._serials = FrameNumbers()
        self._rules = wire_commands.rule_columns()
        self._held: pa.Table | None = None

    @classmethod
    def resumed(cls, window_ns: int, checkpoint: Checkpoint) -> "Replay":
        """A replay that goes on where another one was left."""
        replay = cls(window_ns)
        replay._serials = FrameNumbers.resumed(checkpoint.arrays[_SERIALS])
        replay._names = Names.resumed(checkpoint.texts["names"])
        names = replay._names.texts
        for name, kernel_pass in replay._passes().items():
            rebuilt(kernel_pass.memory(), name, checkpoint.arrays)
        replay._registry.resume(names, checkpoint.texts["said"])
        replay._exchanges.resume(names, checkpoint.texts["errors"])
        replay._consumption.resume(names)
        return replay

    def leave(self) -> Iterator[TableRows]:
        """Return the rows closed so far; open state stays for `checkpoint`."""
        if self._held is not None and self._held.num_rows:
            yield from self._advance(self._held.combine_chunks())
        self._held = None

    def checkpoint(self) -> Checkpoint:
        """What is open, after `leave`."""
        arrays: dict[str, Int64Array] = {}
        for name, each in self._passes().items():
            arrays |= arrays_of(each.memory(), name)
        arrays[_SERIALS] = self._serials.memory(arrays.values())
        texts = {
            "names": self._names.texts,
            "said": self._registry.said,
            "errors": self._exchanges.texts,
        }
        return Checkpoint(arrays, texts, {})

    def _passes(self) -> dict[str, PulsarRegistry | PulsarExchanges | PulsarConsumption]:
        return {
            "registry": self._registry,
            "exchanges": self._exchanges,
            "consumption": self._consumption,
        }

    def feed(self, batch: pa.Table) -> Iterator[TableRows]:
        """Take rows (INPUT); gives the rows that closed."""
        rows = batch if self._held is None else pa.concat_tables([self._held, batch])
        kinds = rows.column("kind").to_numpy()
        # The ids of the last frame may be in the next batch.
        starts = np.flatnonzero((kinds != InputKind.ID) & (kinds != InputKind.COST))
        cut = int(starts[-1]) if len(starts) else 0
        self._held = rows.slice(cut)
        if cut:
            yield from self._advance(rows.slice(0, cut).combine_chunks())

    def finish(self) -> Iterator[TableRows]:
        """The rest."""
        yield from self.leave()
        blocks = named(self._registry.finish(self._notices), self._commands)
        blocks += named(self._exchanges.finish(self._notices), self._commands)
        blocks += self._consumption.finish(self._notices)
        yield from self._tables(blocks)

    def _advance(self, rows: pa.Table) -> Iterator[TableRows]:
        kinds = rows.column("kind").to_numpy()
        proxied = rows.filter(pa.array(kinds == InputKind.PROXY_SIDE))
        for chain in proxied.column("chain").to_pylist():
            self._exchanges.set_proxy_side(chain, True)
            self._consumption.set_proxy_side(chain, True)
        is_row = (kinds == InputKind.FRAME) | (kinds == InputKind.EVENT)
        if not (count := int(is_row.sum())):
            return
        # The frame that each row belongs to.
        owner = np.cumsum(is_row) - 1
        _, frames = columns.new_frame_columns(count)
        main = rows.filter(pa.array(is_row)).combine_chunks()
        sources = self._fill(frames, main)
        ids, words = self._ids(frames, rows, kinds, owner)
        texts = self._exchanges.read_texts(frames, count, sources)
        said = self._registry.read_said(frames, count, sources)
        notices, names = self._notices, self._names.texts
        run = self._registry.begin(count, names, said)
        exchanges = self._exchanges.pair_named(frames, count, texts, names, run, notices)
        blocks = self._registry.closed(count, run, notices) + exchanges
        blocks = named(blocks, self._commands)
        blocks += self._consumption.advance(frames, count, ids, words, names, notices)
        yield from self._tables(blocks)
        yield self._incarnations(frames, main, count)

    def _fill_common(
        self,
        frames: FrameColumns,
        rows: pa.Table,
        copied: Iterable[str],
        number: Callable[[str | None], int],
    ) -> tuple[dict[str, Int64Array], dict[str, pa.Array], Int64Array]:
        """Fill the columns that frames and events of every protocol have.

        Args:
            copied: columns of numbers that are taken over; number: of a command's name.

        Returns:
            Numbers and texts of the rows, by column, and the number of each command.
        """
        count = rows.num_rows
        cells = {name: numbers(rows.column(name).combine_chunks()) for name in NUMBERS}
        text = {name: rows.column(name).combine_chunks() for name in TEXTS}
        is_event = cells["kind"] == InputKind.EVENT
        frames.connection_id[:count] = cells["chain"]
        frames.protocol[:count] = self._protocol
        for name in copied:
            getattr(frames, name)[:count] = cells[name]
        frames.retransmitted[:count] = numbers(rows.column("retransmitted").combine_chunks())
        frames.direction[:count] = index_in(text["direction"], columns.DIRECTION_NAMES)
        frames.endpoint_index[:count] = frames.direction[:count] == columns.TO_CLIENT
        command = by_text(text["command"], number)
        frames.command[:count] = np.where(is_event, cells["event_code"], command)
        status = index_in(text["status"], columns.STATUS_NAMES)
        frames.status[:count] = np.where(is_event, cells["frames_missing"], status)
        serials = np.full(count, NULL, np.int64)
        serials[~is_event] = self._serials.number(
            cells["rank"][~is_event], cells["frame_no"][~is_event]
        )
        frames.frame_no[:count] = serials
        return cells, text, command

    def _fill(
        self, frames: FrameColumns, rows: pa.Table
    ) -> tuple[ByteArray, ByteArray, ByteArray, ByteArray]:
        """The columns of frames and events; returns the bytes that spans of text point into."""
        count = rows.num_rows
        cells, text, command = self._fill_common(frames, rows, _COPIED, _command_number)
        frames.checksum[:count] = index_in(text["checksum"], columns.CHECKSUM_NAMES)
        frames.is_batch[:count] = numbers(rows.column("is_batch").combine_chunks())
        for name, words in _ENUMS.items():
            getattr(frames, name)[:count] = by_text(text[name], partial(number_of, enum=words))
        frames.id_count[:count] = 0
        is_copy = cells["repl_source_ledger_id"] != NULL
        frames.has_property[:count] = np.where(is_copy, REPLICATED, NULL)
        self._fill_names(frames, text, command, count)
        policies = fill_details(frames, text, count)
        return self._fill_spans(frames, text["error_text"], policies, count)

    def _fill_names(
        self, frames: FrameColumns, text: dict[str, pa.Array], command: Int64Array, count: int
    ) -> None:
        """Names as the wire had them: the rows of a lake also have those that were known before."""
        slot = np.clip(command, 0, len(self._rules.client_handle) - 1)
        own = (command >= 0) & (self._rules.client_handle[slot] == 0)
        own |= (command == wire_commands.PRODUCER) | (command == wire_commands.SUBSCRIBE)
        asks = own & (self._rules.request_key[slot] != -1)
        speaks = np.isin(
            command,
            (
                wire_commands.PRODUCER,
                wire_commands.PRODUCER_SUCCESS,
                wire_commands.SEND,
                wire_commands.MESSAGE,
            ),
        )
        for name, mask in (*((name, asks) for name in ASKED), ("producer_name", speaks)):
            codes = np.where(mask, self._names.codes(text[name]), NULL)
            getattr(frames, f"wire_{name}")[:count] = codes
        frames.replicated_from[:count] = self._names.codes(text["replicated_from"])

    def _fill_spans(
        self, frames: FrameColumns, texts: pa.Array, policies: dict[int, bytes], count: int
    ) -> tuple[ByteArray, ByteArray, ByteArray, ByteArray]:
        frames.source[:count] = 0
        data = bytearray()
        there = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
        errors = {row: texts[row].as_py().encode() for row in there}
        for starts, sizes, values in (
            (frames.error_text_at, frames.error_text_bytes, errors),
            (frames.key_shared_at, frames.key_shared_bytes, policies),
        ):
            for row, value in values.items():
                starts[row] = len(data)
                sizes[row] = len(value)
                data += value
        text_bytes = np.frombuffer(bytes(data) or b"\0", np.uint8)
        return text_bytes, text_bytes, text_bytes, text_bytes

    def _ids(
        self, frames: FrameColumns, rows: pa.Table, kinds: Int64Array, owner: Int64Array
    ) -> tuple[IdColumns, Int64Array]:
        """Ids of ACK and REDELIVER frames, and costs and ack sets of MESSAGE frames."""
        sets = rows.column("ack_set").combine_chunks()
        words = np.concatenate((numbers(sets.values), np.zeros(1, np.int64)))
        starts = np.asarray(sets.offsets.to_numpy(), np.int64)
        has_set = sets.is_valid().to_numpy(zero_copy_only=False)
        counts = np.where(has_set, np.diff(starts), NULL)
        id_rows = np.flatnonzero(kinds == InputKind.ID)
        _, ids = columns.new_id_columns(max(1, len(id_rows)))
        ids.parent[: len(id_rows)] = owner[id_rows]
        for name in ("ledger_id", "entry_id", "partition", "batch_size"):
            values = numbers(rows.column(name).combine_chunks())
            getattr(ids, name)[: len(id_rows)] = values[id_rows]
        ids.ack_set_at[: len(id_rows)] = starts[:-1][id_rows]
        ids.ack_set_count[: len(id_rows)] = counts[id_rows]
        parents = owner[id_rows]
        if len(id_rows):
            first = np.flatnonzero(np.concatenate(([True], parents[1:] != parents[:-1])))
            frames.first_id[parents[first]] = first
            frames.id_count[parents[first]] = np.diff(np.append(first, len(parents)))
        # A redelivery request for everything is a row without an id.
        for parent in parents[ids.ledger_id[: len(id_rows)] == NULL].tolist():
            if frames.command[parent] == wire_commands.REDELIVER:
                frames.id_count[parent] = 0
        costs = np.flatnonzero(kinds == InputKind.COST)
        values = numbers(rows.column("message_count").combine_chunks())
        frames.message_permits[owner[costs]] = values[costs]
        frames.ack_set_at[owner[costs]] = starts[:-1][costs]
        frames.ack_set_count[owner[costs]] = counts[costs]
        return ids, words

    def _tables(self, blocks: list[TableBlock]) -> Iterator[TableRows]:
        """Blocks as rows; frames are named by capture and own number."""
        for block in blocks:
            if block.table not in _FRAME_NAMES or not block.rows:
                continue
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
            yield block.table, rows

    def _incarnations(self, frames: FrameColumns, rows: pa.Table, count: int) -> TableRows:
        """The incarnation in the whole for each one of a capture, of the frames of a batch."""
        own = numbers(rows.column("incarnation").combine_chunks())
        ranks = numbers(rows.column("rank").combine_chunks())
        producer = frames.producer_id[:count]
        consumer = frames.consumer_id[:count]
        kind = np.where(
            consumer != NULL, wire_commands.CONSUMER_SUBJECT, wire_commands.PRODUCER_SUBJECT
        )
        number = np.where(consumer != NULL, consumer, producer)
        known = (own != NULL) & (number != NULL) & (frames.incarnation[:count] != NULL)
        cells = np.stack(
            (ranks, frames.connection_id[:count], kind, number, own, frames.incarnation[:count])
        )
        distinct_cells = np.unique(cells[:, known], axis=1)
        is_consumer = distinct_cells[2] == wire_commands.CONSUMER_SUBJECT
        return INCARNATIONS, pa.table(
            {
                "rank": pa.array(distinct_cells[0]),
                "chain": pa.array(distinct_cells[1]),
                "consumer_id": pa.array(distinct_cells[3], mask=~is_consumer),
                "producer_id": pa.array(distinct_cells[3], mask=is_consumer),
                "own_incarnation": pa.array(distinct_cells[4]),
                "incarnation": pa.array(distinct_cells[5]),
            },
            schema=INCARNATION,
        )
