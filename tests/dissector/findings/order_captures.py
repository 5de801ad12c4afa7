"""Delays, clocks and orders that are off, and harmless twins."""

from tests.dissector.findings.tape import Tape, millis

# -- delays (D29)


def _delays(
    kind: str, waits: tuple[float, ...], clock_s: float = 0.0, delay_s: float = 10.0
) -> bytes:  # fmt: skip
    """Messages with a delay; waits: how long after its SEND each is delivered."""
    tape = Tape()
    sender, taker = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    sender.produce(0.1, 1)
    taker.subscribe(0.1, 1, kind=kind)
    for entry, wait in enumerate(waits):
        at = 1.0 + 0.1 * entry
        due = millis(at + clock_s + delay_s)
        sender.publish(at, 1, entry, entry, clock_s=clock_s, deliver_at_time=due)
        taker.message(at + wait, 1, entry, clock_s=clock_s - wait, deliver_at_time=due)
    sender.ping(80.0)
    taker.ping(80.0)
    return tape.capture()


def delay_on_exclusive() -> bytes:
    """An exclusive subscription gets messages at once."""
    return _delays("Exclusive", (0.01, 0.01))


def delay_cut_short() -> bytes:
    """A shared subscription gets messages 4 and 5 s too early, and clocks agree."""
    return _delays("Shared", (10.0, 6.0, 5.0))


def delay_by_a_slow_clock() -> bytes:
    """The producer's clock is 8 s behind: what should wait ten seconds waits two."""
    return _delays("Shared", (2.0, 2.1), clock_s=-8.0)


def delay_overdue() -> bytes:
    """Messages come 20 s behind their time to a consumer with permits."""
    return _delays("Shared", (30.0, 30.1))


def delay_released() -> bytes:
    """Two messages that were due come behind the next SEND, 20 s behind their time."""
    tape = Tape()
    sender, taker = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    sender.produce(0.1, 1)
    taker.subscribe(0.1, 1, kind="Shared")
    for entry in range(2):
        due = millis(11.0)
        sender.publish(1.0 + 0.01 * entry, 1, entry, entry, deliver_at_time=due)
        taker.message(31.02, 1, entry, clock_s=-30.0, deliver_at_time=due)
    sender.publish(31.0, 1, 2, 2)
    taker.message(31.021, 1, 2)
    sender.ping(80.0)
    taker.ping(80.0)
    return tape.capture()


def delay_kept() -> bytes:
    """The harmless twin: a tick early, a tick late."""
    return _delays("Shared", (9.1, 10.0, 11.5))


# -- clocks (D30)


def _clocks(*clocks: float) -> bytes:
    """Clients that send thirty messages each; how far the clock of each is ahead."""
    tape = Tape()
    for turn, clock_s in enumerate(clocks):
        link = tape.pulsar(0.0, 40000, client=f"10.0.0.{10 + turn}")
        link.produce(0.1, 1, name=f"p{turn}")
        for each in range(30):
            link.publish(1.0 + 0.1 * each, 1, each, 100 * turn + each, clock_s=clock_s - 0.01)
    return tape.capture()


def clocks_that_differ() -> bytes:
    """One clock is 5 s ahead, one 90 s behind, one right."""
    return _clocks(5.0, -90.0, 0.0)


def clocks_that_agree() -> bytes:
    """The harmless twin: clocks within half a second, and sends that waited for each other."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    for each in range(30):
        link.publish(1.0 + 0.1 * each, 1, each, each, clock_s=0.5 - 0.1 * each)
    return tape.capture()


# -- order (D31)


def _ordered(
    kind: str, deliveries: list[tuple[int, int, str, int]], acks: tuple[int, ...]
) -> bytes:  # fmt: skip
    """(consumer, entry, key, redelivery count) in order; two consumers on two connections."""
    tape = Tape()
    links = [tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001, client="10.0.0.9")]
    for turn in range(2 if kind == "Key_Shared" else 1):
        links[turn].subscribe(0.1 + turn, turn + 1, kind=kind, name=f"c{turn}")
    for turn, (consumer, entry, key, again) in enumerate(deliveries):
        at = 2.0 + 0.5 * turn
        links[consumer].message(at, consumer + 1, entry, again=again, partition_key=key)
        if entry in acks:
            links[consumer].ack(at + 0.1, consumer + 1, entry)
    for link in links:
        link.ping(60.0)
    return tape.capture()


def order_lost() -> bytes:
    """An exclusive consumer gets entry 5 behind 6, both for the first time."""
    entries = [(0, 4, "a", 0), (0, 6, "a", 0), (0, 5, "a", 0), (0, 7, "a", 0)]
    return _ordered("Exclusive", entries, (4, 5, 6, 7))


def order_of_keys_lost() -> bytes:
    """Key_Shared: entry 5 of key a behind 6; and key b at a second consumer while 8 is out."""
    entries = [(0, 4, "b", 0), (0, 6, "a", 0), (0, 5, "a", 0), (0, 8, "b", 0), (1, 9, "b", 0)]
    return _ordered("Key_Shared", entries, (4, 5, 6, 9))


def order_kept() -> bytes:
    """The harmless twin: two keys change places, one moves when all is acknowledged."""
    entries = [(0, 6, "a", 0), (0, 5, "b", 0), (0, 8, "b", 0), (1, 9, "b", 0), (1, 10, "a", 0)]
    return _ordered("Key_Shared", entries, (5, 6, 8, 9))


def order_given_up() -> bytes:
    """Entries come again since their consumer asked for one; a single consumer gets no counts."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1, kind="Failover")
    for entry in range(4):
        link.message(1.0 + 0.1 * entry, 1, entry, publish_time=entry)
    link.tell(
        2.0, "REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1,
        message_ids=[{"ledgerId": 7, "entryId": 1}],
    )  # fmt: skip
    for entry in range(4):
        link.message(3.0 + 0.1 * entry, 1, entry, publish_time=entry)
    return tape.capture()
