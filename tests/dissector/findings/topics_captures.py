"""Topics and names that cannot be opened, move, or are opened too often, and harmless twins."""

from tests.dissector.findings.tape import TOPIC, Link, Tape
from tests.wire.packets import CLIENT

# -- names that are taken (D21)


def _refused(
    link: Link, request: int, seconds: float, topic: str = TOPIC, text: str = "taken",
    error: str = "ProducerBusy", kind: str = "",
) -> None:  # fmt: skip
    """A producer, or a consumer of this kind, is refused six times over so many seconds."""
    for turn in range(6):
        at = 50.0 + seconds * turn / 5
        if kind:
            link.subscribe(at, request + turn, topic, answer_s=None, kind=kind)
        else:
            link.produce(at, request + turn, answer_s=None, name="own", topic=topic)
        link.hear(at + 0.002, "ERROR", request_id=request + turn, error=error, message=text)


def _conflict(port: int) -> str:
    """What a broker says of a hash range that is taken."""
    return (
        "org.apache.pulsar.broker.service.BrokerServiceException$ConsumerAssignException: Range "
        "conflict with consumer Consumer{subscription=s, consumerId=1, consumerName=c, "
        f"address=[id: 0x1f2e, L:/10.0.0.2:6650 - R:/10.0.0.1:{port}]}}"
    )


def _held(seconds: float) -> bytes:
    """The name `own` of six topics, refused for so long; owners of each kind. Five more topics
    are refused for other reasons than a name."""
    tape = Tape()
    silent = tape.pulsar(0.0, 40000)
    silent.produce(0.1, 1, name="own")
    silent.subscribe(0.2, 2, TOPIC + "9", kind="Key_Shared")
    alive = tape.pulsar(0.0, 40001)
    alive.produce(0.1, 1, name="own", topic=TOPIC + "2")
    alive.produce(0.2, 2, name="alone", topic=TOPIC + "6", producer_access_mode="Exclusive")
    alive.subscribe(0.3, 3, TOPIC + "7", kind="Exclusive")
    alive.subscribe(0.4, 4, TOPIC + "8", kind="Key_Shared")
    _reopen(alive, 0.5, 5)
    for at in (20.0, 40.0, 60.0, 80.0):
        alive.ping(at)
        silent.ping(at, 1, answer_s=None)
    _refused(tape.pulsar(45.0, 40002), 10, seconds)
    _refused(tape.pulsar(45.0, 40008, client="10.0.0.11"), 10, seconds)
    for port, client in ((40003, CLIENT), (40004, "10.0.0.9")):
        _refused(tape.pulsar(45.0, port, client=client), 10, seconds, TOPIC + "2")
    other = tape.pulsar(45.0, 40005, client="10.0.0.10")
    other.produce(46.0, 1, name="own", topic=TOPIC + "3")
    _refused(other, 10, seconds, TOPIC + "3")
    limited, lost = tape.pulsar(45.0, 40006), tape.pulsar(45.0, 40007)
    _refused(limited, 10, seconds, TOPIC + "4", "Topic reached max producers limit")
    _refused(lost, 10, seconds, TOPIC + "5")
    for number, text, error, kind in (
        (6, "Topic has an existing exclusive producer: alone", "ProducerFenced", ""),
        (7, "Subscription is of different type. It is 'Exclusive'", "ConsumerBusy", "Shared"),
        (8, _conflict(40001), "ConsumerAssignError", "Key_Shared"),
        (9, _conflict(40000), "ConsumerAssignError", "Key_Shared"),
    ):
        link = tape.pulsar(45.0, 40010 + number)
        _refused(link, 10, seconds, f"{TOPIC}{number}", text, error, kind)
    _refused(tape.pulsar(45.0, 40020), 10, seconds, TOPIC + "10", "taken again")
    return tape.capture()


def _reopen(link: Link, at: float, number: int) -> None:
    """A producer is closed, and opened again under its number before the broker answers."""
    link.produce(at, number, name="own", topic=TOPIC + "10")
    link.tell(at + 0.1, "CLOSE_PRODUCER", producer_id=number, request_id=100)
    link.tell(
        at + 0.101, "PRODUCER", topic=TOPIC + "10", producer_id=number, request_id=101,
        producer_name="own",
    )  # fmt: skip
    link.hear(at + 0.102, "SUCCESS", request_id=100)
    link.hear(
        at + 0.103, "PRODUCER_SUCCESS", request_id=101, producer_name="own", last_sequence_id=-1,
        producer_ready=True,
    )  # fmt: skip


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
        link.tell(
            at, "LOOKUP", topic=TOPIC, request_id=turn + 1, authoritative=0 < turn < redirects
        )
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
        link.tell(at, "PARTITIONED_METADATA", topic=TOPIC, request_id=turn + 1)
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


def migrated_opens() -> bytes:
    """A PRODUCER is answered by TOPIC_MIGRATED and opened elsewhere 30 s later, one never, and one
    is closed instead of opened."""
    tape = Tape()
    for number in (1, 2, 3):
        link = tape.pulsar(0.0, 40000 + number)
        link.produce(1.0, number, f"{TOPIC}{number}", answer_s=None)
        if number < 3:
            _migrate(link, 1.015, number)
        else:
            link.hear(1.01, "CLOSE_PRODUCER", producer_id=3, request_id=-1)
        link.ping(30.0)
        link.ping(60.0)
    tape.pulsar(30.5, 40000, broker="10.0.0.3").produce(31.0, 1, f"{TOPIC}1")
    return tape.capture()


def _migrate(link: Link, at: float, producer: int) -> None:
    """The broker says that the topic of a producer is elsewhere, and closes it."""
    link.hear(
        at, "TOPIC_MIGRATED", resource_id=producer, resource_type="Producer",
        brokerServiceUrl="pulsar://10.0.0.3:6650",
    )  # fmt: skip
    link.hear(at + 0.001, "CLOSE_PRODUCER", producer_id=producer, request_id=-1)


def slow_opens() -> bytes:
    """The harmless twin: refused twice, opened late and used, waiting for an exclusive place; told
    of another cluster and there at once."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(1.0, 9, TOPIC + "9", answer_s=None)
    _migrate(link, 1.01, 9)
    tape.pulsar(1.1, 40009, broker="10.0.0.3").produce(1.2, 1, TOPIC + "9")
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


def closed_topics() -> bytes:
    """Topics that the broker closes, and what becomes of each."""
    tape = Tape()
    links = {number: tape.pulsar(0.0, 40000 + number) for number in range(1, 8)}
    other = tape.pulsar(0.0, 40000, broker="10.0.0.3")
    for number, link in links.items():
        topic = f"{TOPIC}{number}"
        if number in (1, 4):
            link.subscribe(0.2, 11, topic)
            link.message(1.0, 11, 0, publish_time=1)
        if number != 4:
            link.produce(2.0, number, topic)
        if number == 3:
            _migrate(link, 30.0, number)
        elif number != 4:
            link.hear(10.0 * number, "CLOSE_PRODUCER", producer_id=number, request_id=-1)
        if number in (1, 4):
            link.hear(10.0 * number + 0.001, "CLOSE_CONSUMER", consumer_id=11, request_id=-1)
    # The first is loaded anew, two are elsewhere, one is consumed again.
    links[1].produce(10.5, 1, TOPIC + "1")
    links[1].subscribe(10.6, 11, TOPIC + "1")
    links[1].message(10.7, 11, 0, publish_time=1)
    other.produce(20.5, 2, TOPIC + "2")
    other.produce(30.5, 3, TOPIC + "3")
    links[4].subscribe(40.5, 11, TOPIC + "4")
    # Two are refused, and the last is not asked for.
    for number, error in ((5, "TopicTerminatedError"), (6, "TopicNotFound")):
        at = 10.0 * number + 0.5
        links[number].produce(at, number, f"{TOPIC}{number}", answer_s=None)
        links[number].hear(at + 0.01, "ERROR", request_id=number, error=error, message="no more")
    links[7].ping(90.0)
    return tape.capture()


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
        link.tell(at + 0.4, "CLOSE_PRODUCER", producer_id=number, request_id=10_000 + number)
        link.hear(at + 0.401, "SUCCESS", request_id=10_000 + number)
        link.subscribe(at + 0.5, number + 1, name=f"r{turn}", kind="Exclusive", durable=False)
        for each in range(sends):
            link.message(at + 0.6 + 0.01 * each, number + 1, entry - sends + each)
        link.tell(at + 0.8, "CLOSE_CONSUMER", consumer_id=number + 1, request_id=20_000 + number)
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
        link.tell(at, "GET_LAST_MESSAGE_ID", consumer_id=1, request_id=number)
        link.hear(
            at + 0.01, "GET_LAST_MESSAGE_ID_RESPONSE", request_id=number,
            last_message_id={"ledgerId": 7, "entryId": 40},
        )  # fmt: skip
        link.tell(at + 0.02, "GET_SCHEMA", topic=TOPIC, request_id=number + 1)
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
