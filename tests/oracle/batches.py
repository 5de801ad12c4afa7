"""Conversations about a few batches that are acked in any way, as captures.

Each has a topic, a subscription and transactions of its own; they go on side by side. Consumers get
the batches again and again, and single messages between, behind which their balances are seen. Acks
are of the whole or of parts, one by one or cumulative, in a transaction or not, answered, refused
or never answered; transactions end or do not; a subscription is moved, or is not; messages are
wanted again; consumers and connections go and come. All of that happens while acks wait.
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
    "redeliver", "nack", "redeliver all", "close", "drop", "hang up", "seek", "sought", "switch",
    "discard",
)  # fmt: skip
TYPES: Final = ("Shared", "Key_Shared", "Exclusive", "Failover")
_SHARED: Final = TYPES[:2]
_TRANSACTIONS: Final = 2  # that are open at a time
_RARE: Final = ("close", "hang up", "redeliver all", "drop", "seek", "nack", "switch", "discard")
_REFUSED_ENDS: Final = 0.1  # of ends of transactions
_UNANSWERED_ENDS: Final = 0.1
_OTHER_MESSAGES: Final = 0.1  # of batches: a broker that began anew gave their ids again
_MANY_IDS: Final = 0.2  # of acks
_SINGLES_FROM: Final = 10  # entries


class Batch:
    """A conversation, by drawn steps. number: what tells it from others in its capture."""

    def __init__(self, chance: random.Random, number: int, steps: int) -> None:
        self._chance, self._number = chance, number
        self._topic, self._ledger = f"{TOPIC}-{number}", 7 + number
        self._type = chance.choice(TYPES)
        self._messages = [chance.choice((1, 2, 3, 4, 70)) for _ in range(chance.choice((1, 3)))]
        self._tapes: list[Tape] = []
        self._now = START_NS + number * STEP_NS // 1000
        self._requests = 10
        self._single = 0
        self._times = [0] * len(self._messages)
        self._unanswered: list[tuple[int, int, int, dict[str, int]]] = []
        self._seeks: list[tuple[int, int]] = []
        self._transactions = [self._txn(least) for least in range(_TRANSACTIONS)]
        self._ended = _TRANSACTIONS
        self._connections: list[int] = []
        self._consumers = (1,) if self._type == "Exclusive" else (1, 2, 3)
        for place in range(1 if self._type == "Exclusive" else 2):
            self._connect(place)
        for _ in range(steps):
            self._do(chance.choice(KINDS))

    def records(self) -> list[Record]:
        """Its packets."""
        return [record for tape in self._tapes for record in tape.records()]

    def _txn(self, least: int) -> dict[str, int]:
        return {"txnid_least_bits": 1000 * self._number + least, "txnid_most_bits": 1}

    # -- what is said

    def _frame(self, place: int, to_broker: bool, frame: bytes) -> None:
        tape = self._tapes[self._connections[place]]
        tape.now = self._now
        tape.frame(to_broker, frame, is_acked=False)
        self._now += STEP_NS

    def _say(self, place: int, to_broker: bool, name: str, **fields: Any) -> None:
        self._frame(place, to_broker, simple(name, **fields))

    def _ask(self, place: int, name: str, **fields: Any) -> None:
        self._requests += 1
        self._say(place, True, name, request_id=self._requests, **fields)
        self._say(place, False, "SUCCESS", request_id=self._requests)

    def _connect(self, place: int) -> None:
        """The connection of consumers 1 and 2, or of 3, for the first time or anew."""
        port = packets.CLIENT_PORT + 100 * self._number + len(self._tapes)
        tape = Tape(client=(packets.CLIENT, port), start_ns=self._now)
        self._connections[place : place + 1] = [len(self._tapes)]
        self._tapes.append(tape)
        tape.open()
        self._now = self._now + 3 * STEP_NS
        self._say(place, True, "CONNECT", client_version="hard-1", protocol_version=21)
        self._say(place, False, "CONNECTED", server_version="broker-1", protocol_version=21)
        self._unanswered = [each for each in self._unanswered if each[0] != place]
        self._seeks = [each for each in self._seeks if each[0] != place]
        for consumer in self._consumers:
            if _place_of(consumer) == place:
                self._subscribe(consumer)

    def _subscribe(self, consumer: int) -> None:
        place = _place_of(consumer)
        self._ask(place, "SUBSCRIBE", topic=self._topic, subscription="s", subType=self._type,
                  consumer_id=consumer, consumer_name=f"c{consumer}")  # fmt: skip
        self._say(place, True, "FLOW", consumer_id=consumer, messagePermits=100)

    def _message(self, consumer: int, entry: int, messages: int, times: int) -> None:
        place = {"ledgerId": self._ledger, "entryId": entry}
        more = {"redelivery_count": times} if times else {}
        command = pulsar.command("MESSAGE", consumer_id=consumer, message_id=place, **more)
        content = pulsar.metadata(sequence_id=entry, num_messages_in_batch=messages)
        is_other = entry < _SINGLES_FROM and self._chance.random() < _OTHER_MESSAGES
        content_of = pulsar.batch([({}, b"other" if is_other else b"text")] * messages)
        self._frame(_place_of(consumer), False, pulsar.entry(command, content, content_of))

    def _any_entry(self) -> int:
        return self._chance.randrange(len(self._messages))

    def _place(self, kind: str) -> dict[str, Any]:
        """The id of an entry, with the bits that an ack of a part leaves."""
        entry = self._any_entry()
        place: dict[str, Any] = {"ledgerId": self._ledger, "entryId": entry}
        messages = self._messages[entry]
        if kind == "part":
            taken = self._chance.choice((1, 1, 2, messages))
            left = (1 << messages) - 1
            for bit in self._chance.sample(range(messages), min(taken, messages)):
                left &= ~(1 << bit)
            words = [left & ((1 << 64) - 1), left >> 64][: (messages + 63) // 64]
            signed = [word - (1 << 64) if word >> 63 else word for word in words]
            place |= {"ack_set": signed, "batch_size": messages}
        return place

    def _ack(self, kind: str, consumer: int) -> None:
        places = [self._place(kind)]
        if self._chance.random() < _MANY_IDS:
            places.append(self._place(self._chance.choice(("ack", "part"))))
        is_up_to = self._chance.random() < 0.4 and self._type not in _SHARED
        if is_up_to and kind == "ack" and self._single and self._chance.random() < 0.3:
            places[0]["entryId"] = _SINGLES_FROM + self._chance.randrange(self._single)
        fields: dict[str, Any] = {"ack_type": "Cumulative" if is_up_to else "Individual"}
        if kind == "discard":
            fields |= {"ack_type": "Individual", "validation_error": "ChecksumMismatch"}
        txn = self._chance.choice(self._transactions) if self._chance.random() < 0.5 else {}
        if txn or self._chance.random() < 0.7:
            self._requests += 1
            self._unanswered.append((_place_of(consumer), consumer, self._requests, txn))
            fields["request_id"] = self._requests
        self._say(_place_of(consumer), True, "ACK", consumer_id=consumer, message_id=places,
                  **fields, **txn)  # fmt: skip

    def _answer(self, kind: str) -> None:
        if not self._unanswered:
            return
        which = self._chance.randrange(len(self._unanswered))
        place, consumer, request, txn = self._unanswered.pop(which)
        error = {"error": "TransactionConflict"} if kind == "refuse" else {}
        self._say(place, False, "ACK_RESPONSE", consumer_id=consumer, request_id=request,
                  **error, **txn)  # fmt: skip

    def _end(self, kind: str) -> None:
        txn = self._transactions.pop(self._chance.randrange(_TRANSACTIONS))
        self._transactions.append(self._txn(self._ended))
        self._ended += 1
        self._requests += 1
        request = self._requests
        error = {"error": "NotAllowedError"} if self._chance.random() < _REFUSED_ENDS else {}
        self._say(0, True, "END_TXN", request_id=request, txn_action=kind.upper(), **txn)
        if self._chance.random() >= _UNANSWERED_ENDS:
            self._say(0, False, "END_TXN_RESPONSE", request_id=request, **error, **txn)

    def _want_again(self, kind: str, consumer: int) -> None:
        places = [{"ledgerId": self._ledger, "entryId": self._any_entry()}]
        if kind == "nack":
            self._say(_place_of(consumer), True, "NEGATIVE_ACK", consumer_id=consumer,
                      negative_acked=places)  # fmt: skip
        else:
            self._say(_place_of(consumer), True, "REDELIVER_UNACKNOWLEDGED_MESSAGES",
                      consumer_id=consumer,
                      message_ids=places if kind == "redeliver" else [])  # fmt: skip

    def _seek(self, kind: str, consumer: int) -> None:
        """A SEEK, or the answer to one. The broker closes all consumers before it says yes."""
        if kind == "seek":
            self._requests += 1
            self._seeks.append((_place_of(consumer), self._requests))
            self._say(_place_of(consumer), True, "SEEK", consumer_id=consumer,
                      request_id=self._requests)  # fmt: skip
            return
        if not self._seeks:
            return
        place, request = self._seeks.pop(self._chance.randrange(len(self._seeks)))
        if self._chance.random() < 0.5:
            self._say(place, False, "ERROR", request_id=request, error="MetadataError",
                      message="no")  # fmt: skip
            return
        for each in self._consumers:
            self._say(_place_of(each), False, "CLOSE_CONSUMER", consumer_id=each, request_id=-1)
        self._say(place, False, "SUCCESS", request_id=request)
        for each in self._consumers:
            self._subscribe(each)

    def _do(self, kind: str) -> None:
        consumer = self._chance.choice(self._consumers)
        if kind in _RARE and self._chance.random() < 0.6:
            return
        if kind == "batch":
            entry = self._any_entry()
            self._message(consumer, entry, self._messages[entry], self._times[entry])
            self._times[entry] += 1
        elif kind == "single":
            self._message(consumer, _SINGLES_FROM + self._single, 1, 0)
            self._single += 1
        elif kind == "flow":
            self._say(_place_of(consumer), True, "FLOW", consumer_id=consumer, messagePermits=5)
        elif kind in ("ack", "part", "discard"):
            self._ack(kind, consumer)
        elif kind in ("answer", "refuse"):
            self._answer(kind)
        elif kind in ("commit", "abort"):
            self._end(kind)
        elif kind in ("redeliver", "nack", "redeliver all"):
            self._want_again(kind, consumer)
        elif kind in ("seek", "sought"):
            self._seek(kind, consumer)
        else:
            self._go(kind, consumer)

    def _go(self, kind: str, consumer: int) -> None:
        """A consumer, or its connection, goes and comes again; or another one is active now."""
        place = _place_of(consumer)
        if kind == "close":
            self._ask(place, "CLOSE_CONSUMER", consumer_id=consumer)
            self._subscribe(consumer)
        elif kind == "drop":
            self._say(place, False, "CLOSE_CONSUMER", consumer_id=consumer, request_id=-1)
            self._subscribe(consumer)
        elif kind == "switch":
            if self._type == "Failover":
                for each in self._consumers:
                    self._say(_place_of(each), False, "ACTIVE_CONSUMER_CHANGE", consumer_id=each,
                              is_active=each == consumer)  # fmt: skip
        else:
            tape = self._tapes[self._connections[place]]
            tape.now = self._now
            tape.close()
            self._now = tape.now
            self._connect(place)


def _place_of(consumer: int) -> int:
    """The connection of a consumer: two share the first, so that one goes while another stays."""
    return 1 if consumer == 3 else 0


def records(seed: int, conversations: int, steps: int) -> list[Record]:
    """The packets of several conversations side by side."""
    chance = random.Random(seed)
    batches = [Batch(chance, number, steps) for number in range(conversations)]
    found = [each for batch in batches for each in batch.records()]
    return sorted(found, key=lambda each: each.ts_ns)
