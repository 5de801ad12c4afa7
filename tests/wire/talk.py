"""Conversations of Pulsar clients and brokers, written as scripts, and their rows.

A `Talk` collects frames in order; `rows()` sends them through the three passes over frames that
follow one another (registry, exchanges, consumption) and gives plain dictionaries, table by table.
Every frame is one millisecond after the one before, unless its `last_ts_ns` is given.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dissector.blocks import Coded, Lists, TableBlock
from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, FrameEvent
from dissector.protocols.pairing.state import PairingBounds
from dissector.protocols.pulsar.consumption.consumption import PulsarConsumption
from dissector.protocols.pulsar.exchanges import PulsarExchanges
from dissector.protocols.pulsar.registry.registry import PulsarRegistry
from dissector.protocols.pulsar.wire import commands
from dissector.schemas import TABLES
from dissector.stream.columns import ENDED_CAPTURE_END, ENDED_FIN
from tests.wire.frames import STEP_NS, FrameMaker, in_blocks

Row = dict[str, Any]
Tables = dict[str, list[Row]]
TOPIC = "persistent://public/default/t"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
INDIVIDUAL, CUMULATIVE = range(2)
COMPLETE_GAP = 1  # a gap that may hide frames


class Talk:
    """A script. Request ids rise; methods return the values that further calls need.

    brokers: by connection, 0 where it has none.
    """

    def __init__(self) -> None:
        self.script: list[Row] = []
        self.brokers: dict[int, int] = {}
        self._request_id = 0

    @property
    def frame_no(self) -> int:
        """The number of the last frame."""
        return sum(row["command"] >= 0 for row in self.script)

    def client(self, command: int, connection: int = 0, **fields: Any) -> int:
        """A frame to the broker; returns its number."""
        return self._say(command, TO_BROKER, connection, fields)

    def broker(self, command: int, connection: int = 0, **fields: Any) -> int:
        """A frame to the client; returns its number."""
        return self._say(command, TO_CLIENT, connection, fields)

    def _say(self, command: int, direction: int, connection: int, fields: Row) -> int:
        given = {"command": command, "direction": direction, "connection_id": connection}
        given["broker"] = self.brokers.get(connection, 0)
        self.script.append(given | fields)
        return self.frame_no

    def request(self) -> int:
        """A fresh request id."""
        self._request_id += 1
        return self._request_id

    # -- what often comes

    def connect(self, connection: int = 0) -> None:
        """The handshake, so that the connection is known from its start."""
        self.client(commands.CONNECT, connection)
        self.broker(commands.CONNECTED, connection)

    def produce(self, producer: int = 0, connection: int = 0, name: str = "p", **more: Any) -> int:
        """Open a producer; returns the number of its PRODUCER frame."""
        request, topic = self.request(), more.pop("topic", TOPIC)
        opened = self.client(
            commands.PRODUCER, connection, request_id=request, producer_id=producer, topic=topic
        )
        self.broker(
            commands.PRODUCER_SUCCESS, connection, request_id=request, producer_name=name,
            is_ready=1, last_sequence_id=-1, **more,
        )  # fmt: skip
        return opened

    def send(self, sequence: int, producer: int = 0, connection: int = 0, **more: Any) -> int:
        """A SEND of one message."""
        fields = {"message_count": 1, "crc32c_stored": 1000 + sequence} | more
        return self.client(
            commands.SEND, connection, producer_id=producer, sequence_id=sequence, **fields
        )

    def receipt(
        self, sequence: int, entry: int = 0, producer: int = 0, connection: int = 0, **more: Any
    ) -> int:
        """The receipt that stores it in ledger 7."""
        fields = {"ledger_id": 7, "entry_id": entry} | more
        return self.broker(
            commands.SEND_RECEIPT, connection, producer_id=producer, sequence_id=sequence, **fields
        )

    def subscribe(self, consumer: int = 0, connection: int = 0, **more: Any) -> int:
        """Open a consumer of subscription s; returns the number of its SUBSCRIBE frame."""
        fields = {"topic": TOPIC, "subscription": "s", "consumer_name": f"c{consumer}"}
        fields |= {"subscription_type": SHARED} | more
        request = self.request()
        opened = self.client(
            commands.SUBSCRIBE, connection, request_id=request, consumer_id=consumer, **fields
        )
        self.broker(commands.SUCCESS, connection, request_id=request)
        return opened

    def flow(self, permits: int, consumer: int = 0, connection: int = 0) -> int:
        """A FLOW."""
        return self.client(commands.FLOW, connection, consumer_id=consumer, permits=permits)

    def message(self, entry: int, consumer: int = 0, connection: int = 0, **more: Any) -> int:
        """A MESSAGE of ledger 7."""
        fields = {"ledger_id": 7, "entry_id": entry, "message_count": 1, "redelivery_count": 0}
        return self.broker(commands.MESSAGE, connection, consumer_id=consumer, **(fields | more))

    def ack(
        self, *entries: int, consumer: int = 0, connection: int = 0, ack_type: int = INDIVIDUAL,
        ids: Sequence[Row] = (), **more: Any,
    ) -> int:  # fmt: skip
        """An ACK of entries of ledger 7, or of ids as given."""
        named = [*({"ledger_id": 7, "entry_id": entry} for entry in entries), *ids]
        return self.client(
            commands.ACK, connection, consumer_id=consumer, ack_type=ack_type, ids=named, **more
        )

    def redeliver(self, *entries: int, consumer: int = 0, connection: int = 0) -> int:
        """A request to deliver entries of ledger 7 again; all that are unacknowledged if none."""
        ids = [{"ledger_id": 7, "entry_id": entry} for entry in entries]
        return self.client(commands.REDELIVER, connection, consumer_id=consumer, ids=ids)

    def close_consumer(self, consumer: int = 0, connection: int = 0) -> int:
        """The client closes a consumer, and the broker agrees."""
        request = self.request()
        at = self.client(
            commands.CLOSE_CONSUMER, connection, request_id=request, consumer_id=consumer
        )
        self.broker(commands.SUCCESS, connection, request_id=request)
        return at

    def hang_up(self, connection: int = 0) -> None:
        """Close the connection."""
        self._say(FrameEvent.CLOSE, TO_BROKER, connection, {"status": ENDED_FIN})

    def gap(
        self, direction: int, size: int = 100, connection: int = 0, offset: int = 0,
        missing: int = COMPLETE_GAP,
    ) -> None:  # fmt: skip
        """Add a gap to a direction. missing: 0 if it lies inside one known frame."""
        fields = {"frame_bytes": size, "stream_offset": offset, "frames_missing": missing}
        self._say(FrameEvent.GAP, direction, connection, fields)

    # -- what comes of it

    def rows(self, cuts: Iterable[int] = (), **bounds: Any) -> Tables:
        """All rows of producers, consumers, exchanges, acks, permits, deliveries and notices.

        Args:
            cuts: rows before which a new block begins.
            bounds: `exchanges`, an PairingBounds; others go to PulsarConsumption.
        """
        passes = Passes(bounds)
        maker = FrameMaker()
        for block in in_blocks(maker, self.script, cuts):
            passes.advance(block)
        for connection in sorted({row["connection_id"] for row in self.script}):
            end = {"command": FrameEvent.CLOSE, "direction": TO_BROKER, "connection_id": connection}
            passes.advance(maker.block([end | {"status": ENDED_CAPTURE_END}]))
        return passes.finish()


class Passes:
    """The three passes one after the other."""

    def __init__(self, bounds: Row) -> None:
        exchange_bounds: PairingBounds | None = bounds.pop("exchanges", None)
        self._registry = PulsarRegistry(0)
        self._exchanges = PulsarExchanges(0, 200 * STEP_NS, exchange_bounds)
        self.consumption = PulsarConsumption(0, **bounds)
        self._notices = NoticeLog()
        self._tables: Tables = {}

    def advance(self, block: Any) -> None:
        frames, rows, ids, words, names, sources, _ = block
        raw_values = self._registry.read_raw_values(frames, rows, sources)
        context = self._registry.begin(rows, names, raw_values)
        texts = self._exchanges.read_texts(frames, rows, sources)
        exchanges = self._exchanges.pair_named(frames, rows, texts, names, context, self._notices)
        self._keep(self._registry.closed(rows, context, self._notices))
        self._keep(exchanges)
        self._keep(self.consumption.advance(frames, rows, ids, words, names, self._notices))

    def _keep(self, blocks: list[TableBlock]) -> None:
        for block in blocks:
            self._tables.setdefault(block.table, []).extend(plain_rows(block))

    def finish(self) -> Tables:
        for each in (self._registry, self._exchanges, self.consumption):
            self._keep(each.finish(self._notices))
        found = [
            {"code": each.code, "frame_no": _plain(each.frame_no),
             "value": _plain(each.value)}
            for each in self._notices.rows()
        ]  # fmt: skip
        names = ("producers", "consumers", "exchanges", "acks", "permits", "deliveries")
        return {name: self._tables.get(name, []) for name in names} | {"notices": found}


def _plain(value: Any) -> int | None:
    return None if value == NULL else int(value)


def plain_rows(block: TableBlock) -> list[Row]:
    """The rows of a block as dictionaries; null is None, names are text."""
    columns: dict[str, list[Any]] = {}
    for name, column in block.columns.items():
        if isinstance(column, Coded):
            texts = [each.decode() if isinstance(each, bytes) else each for each in column.names]
            columns[name] = [texts[code] if code >= 0 else None for code in column.codes.tolist()]
        elif isinstance(column, Lists):
            columns[name] = [
                column.values[start : start + count].tolist() if count >= 0 else None
                for start, count in zip(column.starts, column.counts, strict=True)
            ]
        elif isinstance(column, np.ndarray):
            columns[name] = [_plain(value) for value in column.tolist()]
        else:
            columns[name] = list(column)  # type: ignore[arg-type]
    null = {column.name: None for column in TABLES[block.table].columns}
    return [
        null | dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def chosen(rows: Iterable[Row], *names: str) -> list[tuple[Any, ...]]:
    """Some columns of rows."""
    return [tuple(row[name] for name in names) for row in rows]
