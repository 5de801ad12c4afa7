"""Rules of what waits: sends in the client, deliveries at the broker, topics without a consumer."""

from collections.abc import Sequence

import pytest

from tests.dissector.findings.asking import findings_of_tape, variant
from tests.dissector.findings.tape import START_S, TOPIC, Tape
from tests.naive import key_hashes as naive

# Rules that fire on what is made here, and on no sample capture.
MADE = {"D45"}

# -- D40


def sends(waits: Sequence[float], *, opened: float = 0.1, clock_s: float = 0.0) -> Tape:
    """Ten quick sends; twenty seconds later one each second, which waited so long in the client."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(opened, 1)
    quick = 0.2 if opened < 1 else opened + 60.0
    times = [(quick + 0.01 * number, number, 0.0) for number in range(10)]
    times += [(opened + number, number, wait) for number, wait in enumerate(waits, start=20)]
    for at, number, wait in sorted(times):
        link.publish(at, 1, number, number, clock_s=clock_s - wait)
    return tape


def test_messages_that_wait_beside_an_open_producer(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D40", sends([3.0, 2.5, 2.0]))
    assert variant(one) == "" and one.severity == "error" and one.verdict == "pattern"
    assert one.measured["sends_seen"] == 3
    assert one.measured["waited_s"] == pytest.approx(3.0, abs=0.002)
    assert one.measured["half_s"] == pytest.approx(2.502, abs=0.002)


def test_messages_that_wait_for_the_producer(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D40", sends([39.0, 38.0, 37.0], opened=20.0))
    assert variant(one) == "no_producer" and one.verdict == "proven"
    assert one.measured["waited_s"] == pytest.approx(39.0, abs=0.002)


@pytest.mark.parametrize("clock_s", [-7.0, 9.0])
def test_a_clock_that_is_off_is_no_waiting_by_itself(tmp_path, clock_s):
    assert findings_of_tape(tmp_path, "D40", sends([], clock_s=clock_s)) == []


@pytest.mark.parametrize("clock_s", [-7.0, 9.0])
def test_what_a_clock_is_off_is_no_waiting(tmp_path, clock_s):
    (one,) = findings_of_tape(tmp_path, "D40", sends([3.0, 2.5, 2.0], clock_s=clock_s))
    assert one.measured["ahead_s"] == pytest.approx(clock_s, abs=0.002)
    assert one.measured["waited_s"] == pytest.approx(3.0, abs=0.002)


def test_a_clock_that_is_set_back_tells_nothing(tmp_path):
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    for number in range(40):
        link.publish(1.0 + number * 0.1, 1, number, number, clock_s=0.0 if number < 30 else -5.0)
    assert findings_of_tape(tmp_path, "D40", tape) == []


@pytest.mark.parametrize("waits", [[0.5, 0.4, 0.3], [3.0, 2.0]])
def test_short_and_few_waits_are_none(tmp_path, waits):
    assert findings_of_tape(tmp_path, "D40", sends(waits)) == []


def test_a_single_send_that_waits_long_is_told(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D40", sends([12.0]))
    assert one.measured["sends_seen"] == 1


# -- D41


def deliveries(delays: Sequence[float], *, permits: int = 1000, subscribed: float = 0.1) -> Tape:
    """An entry each tenth of a second, delivered so long after it was stored."""
    tape = Tape()
    sender, taker = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    sender.produce(0.1, 1)
    taker.subscribe(subscribed, 1, permits=permits)
    arrivals = []
    for entry, delay in enumerate(delays):
        sender.publish(1.0 + 0.1 * entry, 1, entry, entry)
        arrivals.append((1.002 + 0.1 * entry + delay, entry))
    for at, entry in sorted(arrivals):
        taker.message(at, 1, entry, clock_s=1.0 + 0.1 * entry - at)
    sender.ping(60.0)
    taker.ping(60.0)
    return tape


def test_deliveries_that_come_late_with_permits_left(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D41", deliveries([0.01, 0.01, 1.5, 2.7, 4.9, 0.01]))
    assert variant(one) == "" and one.severity == "error"
    assert one.measured["late"] == 3 and one.measured["deliveries"] == 6
    assert one.measured["slowest_s"] == pytest.approx(4.9, abs=0.002)
    assert one.measured["half_s"] == pytest.approx(2.7, abs=0.002)


def test_bursts_of_one_rhythm_are_a_dispatch_rate(tmp_path):
    # Entries are a tenth of a second apart, and so wait 0.9 s longer each.
    (one,) = findings_of_tape(tmp_path, "D41", deliveries([1.5, 2.4, 3.3, 4.2]))
    assert variant(one) == "rate" and one.measured["bursts"] == 4
    assert one.measured["apart_s"] == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize(
    "tape",
    [
        deliveries([0.5, 0.9, 0.8, 0.7]),
        deliveries([1.5, 2.7]),
        deliveries([0.01, 0.01, 1.5, 2.7, 4.9], permits=2),
        deliveries([1.5, 2.7, 4.9, 3.3], subscribed=2.0),
    ],
    ids=["quick", "few", "out of permits", "came later"],
)
def test_deliveries_that_are_not_late(tmp_path, tape):
    assert findings_of_tape(tmp_path, "D41", tape) == []


def test_deliveries_that_go_on_behind_acknowledgements_are_of_a_limit(tmp_path):
    tape = Tape()
    sender, taker = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    sender.produce(0.1, 1)
    taker.subscribe(0.1, 1)
    for entry in range(6):
        sender.publish(1.0 + 0.01 * entry, 1, entry, entry)
    for burst in range(3):
        at = 1.1 + 2.3 * burst
        for entry in (2 * burst, 2 * burst + 1):
            taker.message(at, 1, entry, clock_s=1.0 + 0.01 * entry - at)
        taker.ack(at + 2.28, 1, 2 * burst, 2 * burst + 1)
    assert findings_of_tape(tmp_path, "D41", tape) == []


# -- D42


def listed(*, asks_again: bool = False, is_subscribed: bool = False) -> Tape:
    """A client subscribes the topics of a list; another topic comes after it."""
    tape = Tape()
    link, other = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    topics = [TOPIC + "a", TOPIC + "b"]

    def ask(at: float, request: int, names: Sequence[str]) -> None:
        link.tell(
            at, "GET_TOPICS_OF_NAMESPACE", request_id=request, namespace="public/default",
            mode="PERSISTENT",
        )  # fmt: skip
        link.hear(at + 0.002, "GET_TOPICS_OF_NAMESPACE_RESPONSE", request_id=request, topics=names)

    ask(0.1, 90, topics)
    for number, topic in enumerate(topics, start=1):
        link.subscribe(0.2 + 0.1 * number, number, topic=topic)
    other.produce(1.0, 1, topic=TOPIC + "c")
    other.publish(1.1, 1, 0, 0)
    if asks_again:
        ask(2.0, 91, [*topics, TOPIC + "c"])
    if is_subscribed:
        other.subscribe(2.5, 5, topic=TOPIC + "c")
    link.ping(30.0)
    return tape


def test_a_topic_that_came_after_the_list_is_named(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D42", listed())
    assert one.severity == "warning" and one.subject["topic"] == TOPIC + "c"
    assert one.measured["entries"] == 1 and one.measured["subscribed"] == 2
    assert "the topics of public/default" in one.text


@pytest.mark.parametrize("more", [{"asks_again": True}, {"is_subscribed": True}])
def test_a_client_that_looks_again_is_quiet(tmp_path, more):
    assert findings_of_tape(tmp_path, "D42", listed(**more)) == []


def watched(
    *, deleted: bool = False, subscribed_at: float | None = None, end: float = 30.0
) -> Tape:
    """A client watches a list; the broker tells it of a topic to which another client sends."""
    tape = Tape()
    link, other = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    link.tell(
        0.1, "WATCH_TOPIC_LIST", request_id=90, watcher_id=1, namespace="public/default",
        topics_pattern=".*",
    )  # fmt: skip
    link.hear(
        0.11, "WATCH_TOPIC_LIST_SUCCESS", request_id=90, watcher_id=1, topic=[TOPIC + "a"],
        topics_hash="1",
    )  # fmt: skip
    link.subscribe(0.2, 1, topic=TOPIC + "a")
    other.produce(1.0, 1, topic=TOPIC + "c")
    other.publish(1.1, 1, 0, 0)
    which = "deleted_topics" if deleted else "new_topics"
    link.hear(1.2, "WATCH_TOPIC_UPDATE", watcher_id=1, topics_hash="2", **{which: [TOPIC + "c"]})
    if subscribed_at is not None:
        link.subscribe(subscribed_at, 5, topic=TOPIC + "c")
    link.ping(end)
    return tape


def test_a_topic_that_a_watched_list_names_is_to_be_subscribed(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D42", watched())
    assert variant(one) == "watched" and one.subject["topic"] == TOPIC + "c"
    assert one.measured["entries"] == one.measured["subscribed"] == 1
    assert one.measured["silent_s"] == pytest.approx(28.8, abs=0.01)
    assert "watches the topics of public/default" in one.text


@pytest.mark.parametrize("more", [{"deleted": True}, {"subscribed_at": 1.5}, {"end": 5.0}])
def test_a_watched_topic_that_is_gone_subscribed_or_new_is_no_finding(tmp_path, more):
    assert findings_of_tape(tmp_path, "D42", watched(**more)) == []


# -- D45


def sought(**where: object) -> Tape:
    """Ten entries are stored and acknowledged; then the cursor is moved."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    link.subscribe(0.2, 2)
    for entry in range(10):
        link.publish(1.0 + entry * 0.1, 1, entry, entry)
        link.message(1.05 + entry * 0.1, 2, entry)
        link.ack(1.06 + entry * 0.1, 2, entry)
    link.tell(5.0, "SEEK", consumer_id=2, request_id=60, **where)
    link.hear(5.01, "SUCCESS", request_id=60)
    return tape


PRESENT_MS = (START_S + 5) * 1000
END = (1 << 63) - 1


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ({"message_publish_time": PRESENT_MS * 1000}, ""),
        ({"message_publish_time": PRESENT_MS + 60_000}, ""),
        ({"message_publish_time": PRESENT_MS // 1000}, "seconds"),
        ({"message_id": {"ledgerId": 7, "entryId": 90}}, "id"),
        ({"message_id": {"ledgerId": 8, "entryId": 0}}, "id"),
    ],
    ids=["microseconds", "a minute ahead", "seconds", "entry", "ledger"],
)
def test_a_seek_to_where_nothing_is(tmp_path, where, name):
    (one,) = findings_of_tape(tmp_path, "D45", sought(**where))
    assert variant(one) == name and one.severity == "warning" and one.measured["seeks"] == 1
    if name == "id":
        assert one.measured["last_id"] == "7:9" and one.measured["sought_id"] in ("7:90", "8:0")
    else:
        assert one.measured["sought_ms"] == str(where["message_publish_time"])
        assert one.measured["ahead_s"] == pytest.approx(
            where["message_publish_time"] / 1000 - START_S - 5, abs=0.01
        )


@pytest.mark.parametrize(
    "where",
    [
        {"message_publish_time": PRESENT_MS},
        {"message_publish_time": 0},
        {"message_id": {"ledgerId": 7, "entryId": 9}},
        {"message_id": {"ledgerId": END, "entryId": END}},
        {"message_id": {"ledgerId": (1 << 64) - 1, "entryId": (1 << 64) - 1}},
    ],
    ids=["present", "beginning of time", "last", "latest", "earliest"],
)
def test_a_seek_to_a_message_or_an_end_is_no_finding(tmp_path, where):
    assert findings_of_tape(tmp_path, "D45", sought(**where)) == []


# -- D46

LOW, HIGH = {"start": 0, "end": 32767}, {"start": 32768, "end": 65535}
KEY = "k3"  # of slot 47229


def keyed(*consumers: dict[str, object], closes: bool = False, comes: bool = False) -> Tape:
    """A consumer of the low half and others; then an entry of the high half."""
    tape = Tape()
    link, low = tape.pulsar(0.0, 40000), {"keySharedMode": "STICKY", "hashRanges": [LOW]}
    for number, meta in enumerate([low, *consumers]):
        link.subscribe(0.1 + number, 10 + number, kind="Key_Shared", keySharedMeta=meta)
    if closes:
        link.tell(5.0, "CLOSE_CONSUMER", consumer_id=11, request_id=90)
        link.hear(5.1, "SUCCESS", request_id=90)
    link.produce(6.0, 1)
    link.publish(7.0, 1, 0, 0, partition_key=KEY)
    if comes:
        link.message(7.1, 10, 0, partition_key=KEY)
    return tape


def test_a_key_that_no_consumer_asks_for_waits(tmp_path):
    (one,) = findings_of_tape(tmp_path, "D46", keyed())
    assert variant(one) == "" and one.severity == "warning"
    assert one.measured["entries"] == one.measured["slots"] == 1
    assert one.measured["slot"] == str(naive.key_hash(KEY.encode()) % 65536) == "47229"
    assert one.measured["range"] == "[0, 32767]"


def test_a_consumer_that_is_gone_asks_for_nothing(tmp_path):
    high = {"keySharedMode": "STICKY", "hashRanges": [HIGH]}
    (one,) = findings_of_tape(tmp_path, "D46", keyed(high, closes=True))
    assert variant(one) == ""


def test_a_consumer_that_went_hides_none_that_asked_before_it_and_stays(tmp_path):
    high = {"keySharedMode": "STICKY", "hashRanges": [HIGH]}
    tape = keyed(high, high)  # 11 and 12
    link = tape.pulsar(10.0, 40001)
    link.subscribe(10.1, 13, kind="Key_Shared", keySharedMeta=high)
    link.tell(10.2, "CLOSE_CONSUMER", consumer_id=13, request_id=91)
    link.hear(10.3, "SUCCESS", request_id=91)
    link.produce(10.4, 1)
    link.publish(10.5, 1, 0, 1, partition_key=KEY)
    assert findings_of_tape(tmp_path, "D46", tape) == []


def test_the_consumer_that_asked_later_is_named(tmp_path):
    tape = keyed()
    link = tape.pulsar(10.0, 40001)
    link.subscribe(
        10.1, 13, kind="Key_Shared", keySharedMeta={"keySharedMode": "STICKY", "hashRanges": [HIGH]}
    )
    (one,) = findings_of_tape(tmp_path, "D46", tape)
    assert variant(one) == "asked_later" and one.measured["range"] == "[32768, 65535]"


@pytest.mark.parametrize(
    ("others", "comes"),
    [
        ([{"keySharedMode": "STICKY", "hashRanges": [HIGH]}], False),
        ([{"keySharedMode": "AUTO_SPLIT"}], False),
        ([], True),
    ],
    ids=["asked for", "divided by the broker", "delivered"],
)
def test_a_key_that_somebody_may_get_is_no_finding(tmp_path, others, comes):
    assert findings_of_tape(tmp_path, "D46", keyed(*others, comes=comes)) == []
