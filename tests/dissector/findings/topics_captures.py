"""Topics and names that cannot be opened, move, or are opened too often, and harmless twins."""

from tests.dissector.findings.tape import TOPIC, Link, Tape
from tests.wire.packets import CLIENT

# -- names that are taken (D21)


def _refused(
    link: Link, request: int, seconds: float, topic: str = TOPIC, text: str = "taken"
) -> None:
    """A producer is refused six times over so many seconds."""
    for turn in range(6):
        at = 50.0 + seconds * turn / 5
        link.produce(at, request + turn, answer_s=None, name="own", topic=topic)
        link.hear(
            at + 0.002, "ERROR", request_id=request + turn, error="ProducerBusy", message=text
        )


def _held(seconds: float) -> bytes:
    """The name `own` of five topics, refused for so long; holders of each kind."""
    tape = Tape()
    silent = tape.pulsar(0.0, 40000)
    silent.produce(0.1, 1, name="own")
    alive = tape.pulsar(0.0, 40001)
    alive.produce(0.1, 1, name="own", topic=TOPIC + "2")
    for at in (20.0, 40.0, 60.0, 80.0):
        alive.ping(at)
        silent.ping(at, 1, answer_s=None)
    _refused(tape.pulsar(45.0, 40002), 10, seconds)
    for port, client in ((40003, CLIENT), (40004, "10.0.0.9")):
        _refused(tape.pulsar(45.0, port, client=client), 10, seconds, TOPIC + "2")
    other = tape.pulsar(45.0, 40005, client="10.0.0.10")
    other.produce(46.0, 1, name="own", topic=TOPIC + "3")
    _refused(other, 10, seconds, TOPIC + "3")
    limited, lost = tape.pulsar(45.0, 40006), tape.pulsar(45.0, 40007)
    _refused(limited, 10, seconds, TOPIC + "4", "Topic reached max producers limit")
    _refused(lost, 10, seconds, TOPIC + "5")
    return tape.capture()


def kept_out() -> bytes:
    """For 25 s."""
    return _held(25.0)


def refused_once() -> bytes:
    """The harmless twin: for 2 s."""
    return _held(2.0)


# -- lookups (D22)


def _looked_up(redirects: int) -> bytes:
    """A lookup that is redirected so often, then answered."""
    tape = Tape()
    links = [tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001, broker="10.0.0.3")]
    for turn in range(redirects + 1):
        link, at = links[turn % 2], 1.0 + 0.1 * turn
        link.say(at, "LOOKUP", topic=TOPIC, request_id=turn + 1, authoritative=0 < turn < redirects)
        link.hear(
            at + 0.01, "LOOKUP_RESPONSE", request_id=turn + 1, authoritative=True,
            response="Redirect" if turn < redirects else "Connect",
            brokerServiceUrl=f"pulsar://10.0.0.{2 + (turn + 1) % 2}:6650",
        )  # fmt: skip
    return tape.capture()


def lookups_redirected() -> bytes:
    """Six redirects in a row between two brokers."""
    return _looked_up(6)


def lookups_found() -> bytes:
    """The harmless twin: two redirects, then the owner."""
    return _looked_up(2)


def lookups_slow() -> bytes:
    """Four of twenty lookups take 2 s, one is refused."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    for turn in range(20):
        at = 1.0 + 3.0 * turn
        link.say(at, "PARTITIONED_METADATA", topic=TOPIC, request_id=turn + 1)
        more = {"response": "Success", "partitions": 0}
        if turn == 19:
            more = {"response": "Failed", "error": "TooManyRequests", "message": "too many"}
        link.hear(
            at + (2.0 if turn < 4 else 0.01), "PARTITIONED_METADATA_RESPONSE", request_id=turn + 1,
            **more,
        )  # fmt: skip
    return tape.capture()


# -- topics that cannot be opened (D23)


def fenced_topic() -> bytes:
    """Refused five times over 31 s, then opened."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    for turn, at in enumerate((1.0, 2.0, 4.0, 8.0, 32.0)):
        link.produce(at, turn + 1, answer_s=None)
        link.hear(
            at + 0.002, "ERROR", request_id=turn + 1, error="ServiceNotReady",
            message="Topic is temporarily unavailable",
        )  # fmt: skip
    link.produce(50.0, 9)
    return tape.capture()


def silent_opens() -> bytes:
    """A PRODUCER that is never answered, a SUBSCRIBE that is after 40 s, while PONGs come."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(1.0, 1, answer_s=None)
    link.subscribe(1.0, 2, permits=0, answer_s=40.0, topic=TOPIC + "2")
    link.ping(30.0)
    link.ping(60.0)
    return tape.capture()


def slow_opens() -> bytes:
    """The harmless twin: refused twice, opened late and used, waiting for an exclusive place."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    for turn, at in enumerate((1.0, 20.0)):
        link.produce(at, turn + 1, answer_s=None)
        link.hear(
            at + 0.002, "ERROR", request_id=turn + 1, error="ServiceNotReady", message="moving"
        )
    link.subscribe(20.0, 3, answer_s=35.0)
    link.produce(21.0, 4, answer_s=None, topic=TOPIC + "2", producer_access_mode="WaitForExclusive")
    for at in (30.0, 60.0, 90.0):
        link.ping(at)
    return tape.capture()


# -- topics that move (D24)


def _moves(count: int) -> bytes:
    """A topic that is closed so often, 100 s apart, and opened again half a second later."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    link.publish(0.2, 1, 0, 0)
    for move in range(count):
        at = 100.0 * (move + 1)
        link.publish(at - 0.001, 1, 2 * move + 1, None, publish_time=move)
        link.hear(at, "CLOSE_PRODUCER", producer_id=1, request_id=-1)
        link.produce(at + 0.5, 1)
        link.publish(at + 0.6, 1, 2 * move + 1, 2 * move + 1, publish_time=move)
        link.publish(at + 0.7, 1, 2 * move + 2, 2 * move + 2)
    return tape.capture()


def moved_often() -> bytes:
    """Four moves in five minutes."""
    return _moves(4)


def moved_twice() -> bytes:
    """The harmless twin: a restart of two brokers."""
    return _moves(2)


# -- opened too often (D25)


def _opened(count: int, sends: int) -> bytes:
    """So many producers one after the other, each with so many sends, and as many readers."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    entry = 0
    for turn in range(count):
        at, number = 1.0 + turn, 2 * turn + 1
        link.produce(at, number, name=f"p{turn}")
        for each in range(sends):
            link.publish(at + 0.1 + 0.01 * each, number, each, entry, name=f"p{turn}")
            entry += 1
        link.say(at + 0.4, "CLOSE_PRODUCER", producer_id=number, request_id=10_000 + number)
        link.hear(at + 0.401, "SUCCESS", request_id=10_000 + number)
        link.subscribe(at + 0.5, number + 1, name=f"r{turn}", kind="Exclusive", durable=False)
        for each in range(sends):
            link.message(at + 0.6 + 0.01 * each, number + 1, entry - sends + each)
        link.say(at + 0.8, "CLOSE_CONSUMER", consumer_id=number + 1, request_id=20_000 + number)
        link.hear(at + 0.801, "SUCCESS", request_id=20_000 + number)
    return tape.capture()


def opened_per_message() -> bytes:
    """Thirty producers and readers in half a minute, a message each."""
    return _opened(30, 1)


def opened_for_ten() -> bytes:
    """The harmless twin: thirty producers and readers, ten messages each."""
    return _opened(30, 10)


def _asked(polls: int) -> bytes:
    """A reader with 40 messages that asks so often for the last id, and for a schema."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1, kind="Exclusive")
    for turn in range(polls):
        at, number = 1.0 + 0.1 * turn, 100 + 2 * turn
        link.say(at, "GET_LAST_MESSAGE_ID", consumer_id=1, request_id=number)
        link.hear(
            at + 0.01, "GET_LAST_MESSAGE_ID_RESPONSE", request_id=number,
            last_message_id={"ledgerId": 7, "entryId": 40},
        )  # fmt: skip
        link.say(at + 0.02, "GET_SCHEMA", topic=TOPIC, request_id=number + 1)
        link.hear(
            at + 0.03, "GET_SCHEMA_RESPONSE", request_id=number + 1,
            schema={"name": "s", "schema_data": b"", "type": "String"},
        )  # fmt: skip
    for entry in range(40):
        link.message(20.0 + 0.01 * entry, 1, entry)
    return tape.capture()


def asked_per_message() -> bytes:
    """As many questions as messages."""
    return _asked(40)


def asked_seldom() -> bytes:
    """The harmless twin: three questions."""
    return _asked(3)


def connections_grow() -> bytes:
    """A connection every 5 s, none of which ends."""
    tape = Tape()
    for turn in range(20):
        tape.pulsar(5.0 * turn, 40000 + turn)
    return tape.capture()
