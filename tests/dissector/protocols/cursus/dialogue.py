"""Cursus conversations as scripts: several connections on one clock, and the rows they give."""

from typing import Any

from tests.hard.tape import Tables, Tape, capture, dissected
from tests.wire import cursus, packets
from tests.wire.captures import Record

FIRST_PORT = 41_000


class Dialogue:
    """Connections by number, opened when something is first sent on them."""

    def __init__(self, broker_port: int = 9000) -> None:
        self._broker_port = broker_port
        self.tapes: list[Tape] = []
        self._now = 1_700_000_000_000_000_000

    def open(self) -> int:
        """A new connection with its handshake; returns its number."""
        tape = Tape(
            client=(packets.CLIENT, FIRST_PORT + len(self.tapes)),
            broker=(packets.BROKER, self._broker_port),
        )
        self.tapes.append(tape)
        tape.now = self._now
        tape.open()
        self._now = tape.now
        return len(self.tapes) - 1

    def _frame(self, number: int, to_broker: bool, frame: bytes) -> None:
        tape = self.tapes[number]
        tape.now = self._now
        tape.frame(to_broker, frame)
        self._now = tape.now

    def client(self, number: int, frame: bytes | str) -> None:
        """A frame of the client; a text is a command in an envelope."""
        self._frame(number, True, cursus.enveloped(frame) if isinstance(frame, str) else frame)

    def broker(self, number: int, frame: bytes | str) -> None:
        """A frame of the broker; a text is an answer."""
        self._frame(number, False, cursus.bare(frame) if isinstance(frame, str) else frame)

    def ask(self, number: int, command: bytes | str, answer: bytes | str) -> None:
        """A request and its answer."""
        self.client(number, command)
        self.broker(number, answer)

    def wait(self, seconds: int) -> None:
        """Nothing is said for a while."""
        self._now += seconds * 1_000_000_000

    def close(self, number: int) -> None:
        """FIN of both sides."""
        tape = self.tapes[number]
        tape.now = self._now
        tape.close()
        self._now = tape.now

    def records(self) -> list[Record]:
        """All packets in the order of time."""
        records = [record for tape in self.tapes for record in tape.records()]
        return sorted(records, key=lambda record: record.ts_ns)

    def rows(self, **options: Any) -> Tables:
        """The rows by table; tables without rows are empty lists."""
        tables = dissected(capture(self.records()), **options)
        for name in ("frames", "exchanges", "messages", "deliveries", "acks", "notices"):
            tables.setdefault(name, [])
        for name in ("producers", "consumers", "connections"):
            tables.setdefault(name, [])
        return tables
