"""Conversations about one batch that is acked in any way, as captures.

Each has a topic, a subscription and transactions of its own; they go on side by side. Consumers get
one batch again and again, and single messages between, behind which their balances are seen. Acks
are of the whole or of parts, one by one or cumulative, in a transaction or not, answered, refused
or never answered; transactions end or do not; consumers and connections go and come.
"""

import random
from typing import Any, Final

from tests.hard.tape import START_NS, STEP_NS, TOPIC, Tape, simple
from tests.wire import packets, pulsar
from tests.wire.captures import Record

KINDS: Final = (
    "batch", "batch", "batch", "single", "single", "single", "flow",
    "ack", "ack", "ack", "part", "part", "part", "part", "part", "part",
    "answer", "answer", "answer", "refuse", "refuse", "commit", "abort",
    "redeliver", "redeliver all", "close", "hang up",
)  # fmt: skip
TYPES: Final = ("Shared", "Exclusive", "Failover")
_TRANSACTIONS: Final = 2  # that are open at a time
_GOING: Final = ("close", "hang up", "redeliver all")


class Batch:
    """A conversation, by drawn steps. number: what tells it from others in its capture."""

    def __init__(self, chance: random.Random, number: int, steps: int) -> None:
        self._chance, self._number = chance, number
        self._topic, self._ledger = f"{TOPIC}-{number}", 7 + number
        self._type = chance.choice(TYPES)
        self._messages = chance.choice((2, 3, 4, 70))
        self._tapes: list[Tape] = []
        self._now = START_NS + number * STEP_NS // 1000
        self._requests = 10
        self._single = 0
        self._times = 0
        self._unanswered: list[tuple[int, int, dict[str, int]]] = []
        self._transactions = [self._txn(least) for least in range(_TRANSACTIONS)]
        self._ended = _TRANSACTIONS
        self._connect()
        for _ in range(steps):
            self._do(chance.choice(KINDS))

    def records(self) -> list[Record]:
        """Its packets."""
        return [record for tape in self._tapes for record in tape.records()]

    def _txn(self, least: int) -> dict[str, int]:
        return {"txnid_least_bits": 1000 * self._number + least, "txnid_most_bits": 1}

    # -- what is said

    def _frame(self, to_broker: bool, frame: bytes) -> None:
        tape = self._tapes[-1]
        tape.now = self._now
        tape.frame(to_broker, frame, is_acked=False)
        self._now += STEP_NS

    def _say(self, to_broker: bool, name: str, **fields: Any) -> None:
        self._frame(to_broker, simple(name, **fields))

    def _ask(self, name: str, **fields: Any) -> None:
        self._requests += 1
        self._say(True, name, request_id=self._requests, **fields)
        self._say(False, "SUCCESS", request_id=self._requests)

    def _connect(self) -> None:
        port = packets.CLIENT_PORT + 100 * self._number + len(self._tapes)
        tape = Tape(client=(packets.CLIENT, port), start_ns=self._now)
        self._tapes.append(tape)
        tape.open()
        self._now = self._now + 3 * STEP_NS
        self._say(True, "CONNECT", client_version="hard-1", protocol_version=21)
        self._say(False, "CONNECTED", server_version="broker-1", protocol_version=21)
        self._unanswered = []
        for consumer in (1, 2) if self._type == "Shared" else (1,):
            self._subscribe(consumer)

    def _subscribe(self, consumer: int) -> None:
        self._ask("SUBSCRIBE", topic=self._topic, subscription="s", subType=self._type,
                  consumer_id=consumer, consumer_name=f"c{consumer}")  # fmt: skip
        self._say(True, "FLOW", consumer_id=consumer, messagePermits=100)

    def _message(self, consumer: int, entry: int, messages: int, times: int) -> None:
        place = {"ledgerId": self._ledger, "entryId": entry}
        more = {"redelivery_count": times} if times else {}
        command = pulsar.command("MESSAGE", consumer_id=consumer, message_id=place, **more)
        content = pulsar.metadata(sequence_id=entry, num_messages_in_batch=messages)
        content_of = pulsar.batch([({}, b"text")] * messages)
        self._frame(False, pulsar.entry(command, content, content_of))

    def _ack(self, kind: str, consumer: int) -> None:
        place: dict[str, Any] = {"ledgerId": self._ledger, "entryId": 0}
        if kind == "part":
            taken = self._chance.choice((1, 1, 2, self._messages))
            left = (1 << self._messages) - 1
            for bit in self._chance.sample(range(self._messages), min(taken, self._messages)):
                left &= ~(1 << bit)
            words = [left & ((1 << 64) - 1), left >> 64][: (self._messages + 63) // 64]
            signed = [word - (1 << 64) if word >> 63 else word for word in words]
            place |= {"ack_set": signed, "batch_size": self._messages}
        is_up_to = self._chance.random() < 0.3 and self._type != "Shared"
        fields: dict[str, Any] = {"ack_type": "Cumulative" if is_up_to else "Individual"}
        txn = self._chance.choice(self._transactions) if self._chance.random() < 0.5 else {}
        if txn or self._chance.random() < 0.7:
            self._requests += 1
            self._unanswered.append((consumer, self._requests, txn))
            fields["request_id"] = self._requests
        self._say(True, "ACK", consumer_id=consumer, message_id=[place], **fields, **txn)

    def _answer(self, kind: str) -> None:
        if not self._unanswered:
            return
        place = self._chance.randrange(len(self._unanswered))
        consumer, request, txn = self._unanswered.pop(place)
        error = {"error": "TransactionConflict"} if kind == "refuse" else {}
        self._say(False, "ACK_RESPONSE", consumer_id=consumer, request_id=request, **error, **txn)

    def _end(self, kind: str) -> None:
        txn = self._transactions.pop(self._chance.randrange(_TRANSACTIONS))
        self._transactions.append(self._txn(self._ended))
        self._ended += 1
        self._requests += 1
        request = self._requests
        self._say(True, "END_TXN", request_id=request, txn_action=kind.upper(), **txn)
        self._say(False, "END_TXN_RESPONSE", request_id=request, **txn)

    def _do(self, kind: str) -> None:
        consumer = self._chance.choice((1, 2)) if self._type == "Shared" else 1
        if kind in _GOING and self._chance.random() < 0.6:
            return
        if kind == "batch":
            self._message(consumer, 0, self._messages, self._times)
            self._times += 1
        elif kind == "single":
            self._single += 1
            self._message(consumer, self._single, 1, 0)
        elif kind == "flow":
            self._say(True, "FLOW", consumer_id=consumer, messagePermits=5)
        elif kind in ("ack", "part"):
            self._ack(kind, consumer)
        elif kind in ("answer", "refuse"):
            self._answer(kind)
        elif kind in ("commit", "abort"):
            self._end(kind)
        elif kind in ("redeliver", "redeliver all"):
            places = [{"ledgerId": self._ledger, "entryId": 0}] if kind == "redeliver" else []
            self._say(True, "REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=consumer,
                      message_ids=places)  # fmt: skip
        elif kind == "close":
            self._ask("CLOSE_CONSUMER", consumer_id=consumer)
            self._subscribe(consumer)
        else:
            tape = self._tapes[-1]
            tape.now = self._now
            tape.close()
            self._now = tape.now
            self._connect()


def records(seed: int, conversations: int, steps: int) -> list[Record]:
    """The packets of several conversations side by side."""
    chance = random.Random(seed)
    batches = [Batch(chance, number, steps) for number in range(conversations)]
    found = [each for batch in batches for each in batch.records()]
    return sorted(found, key=lambda each: each.ts_ns)
