"""Producers and consumers: incarnations, how they open and close, names and where they are from."""

import random

import pytest

from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pairing.state import PairingBounds
from dissector.protocols.pulsar.registry import registry
from dissector.protocols.pulsar.registry.state import new_registry_state, reserve
from dissector.protocols.pulsar.wire import commands
from tests.wire.talk import TOPIC, Talk, chosen

LIFE = ("incarnation", "opened_frame_no", "ready_frame_no", "closed_frame_no", "closed_by")


def test_a_producer_lives_from_its_command_to_the_answer_to_its_close() -> None:
    talk = Talk()
    talk.connect()
    opened = talk.produce(3, name="made-up")
    request = talk.request()
    closed = talk.client(commands.CLOSE_PRODUCER, request_id=request, producer_id=3)
    talk.broker(commands.SUCCESS, request_id=request)
    (row,) = talk.rows()["producers"]
    assert (row["producer_id"], row["topic"], row["name"]) == (3, TOPIC, "made-up")
    assert chosen([row], *LIFE) == [(0, opened, opened + 1, closed, "client")]
    assert row["name_source"] == "observed" and row["refused_code"] is None


def test_each_opening_of_a_closed_id_is_one_incarnation_more() -> None:
    talk = Talk()
    talk.connect()
    first = talk.subscribe(1)
    talk.close_consumer(1)
    second = talk.subscribe(1)
    talk.broker(commands.CLOSE_CONSUMER, consumer_id=1, request_id=-1)
    third = talk.subscribe(1)
    talk.hang_up()
    rows = talk.rows()["consumers"]
    assert chosen(rows, "incarnation", "opened_frame_no", "closed_by") == [
        (0, first, "client"),
        (1, second, "broker"),
        (2, third, "connection"),
    ]


def test_a_refused_opening_is_an_incarnation_and_says_why() -> None:
    talk = Talk()
    talk.connect()
    request = talk.request()
    opened = talk.client(
        commands.SUBSCRIBE, request_id=request, consumer_id=1, topic=TOPIC, subscription="s"
    )
    refused = talk.broker(commands.ERROR, request_id=request, error_code=5)
    again = talk.subscribe(1)
    rows = talk.rows()["consumers"]
    assert chosen(rows, *LIFE, "refused_code") == [
        (0, opened, None, refused, "broker", 5),
        (1, again, again + 1, None, "capture_end", None),
    ]


def test_an_id_whose_answer_came_early_is_free_for_another_request() -> None:
    """The C++ client counts look-ups apart, so one id stands for two requests."""
    talk = Talk()
    talk.connect()
    talk.broker(commands.LOOKUP_RESPONSE, request_id=9, response=1)
    talk.client(commands.LOOKUP, request_id=9, topic="persistent://a/b/c")
    talk.client(commands.SUBSCRIBE, request_id=9, consumer_id=1, topic=TOPIC, subscription="s")
    refused = talk.broker(commands.ERROR, request_id=9, error_code=5)
    tables = talk.rows()
    assert chosen(tables["consumers"], "closed_frame_no", "refused_code") == [(refused, 5)]
    assert chosen(tables["exchanges"][1:], "request_command", "outcome") == [
        (commands.LOOKUP, "ok"),
        (commands.SUBSCRIBE, "error"),
    ]


def test_an_answer_waits_for_its_request_no_longer_than_the_window() -> None:
    talk = Talk()
    talk.connect()
    talk.broker(commands.ERROR, request_id=9, error_code=5)
    talk.client(commands.PING, last_ts_ns=9_000_000_000)
    talk.client(commands.SUBSCRIBE, request_id=9, consumer_id=1, topic=TOPIC, subscription="s")
    ready = talk.broker(commands.SUCCESS, request_id=9)
    assert chosen(talk.rows()["consumers"], "ready_frame_no") == [(ready,)]


def test_the_oldest_early_answer_makes_room_for_a_new_one() -> None:
    talk = Talk()
    talk.connect()
    unmatched = [talk.broker(commands.SUCCESS, request_id=number) for number in (1, 2, 3)]
    asked = [
        talk.client(
            commands.SUBSCRIBE, request_id=number, consumer_id=number, topic=TOPIC, subscription="s"
        )
        for number in (1, 2, 3)
    ]
    rows = talk.rows(exchanges=PairingBounds(unmatched=2))["exchanges"]
    assert sorted(chosen(rows[1:], "response_frame_no", "request_frame_no"), key=str) == sorted(
        [
            (unmatched[0], None),
            (unmatched[1], asked[1]),
            (unmatched[2], asked[2]),
            (None, asked[0]),
        ],
        key=str,
    )


@pytest.mark.parametrize(("missing", "expected"), [(1, "ok"), (0, "orphan_response")])
def test_a_gap_inside_of_a_frame_hides_no_success(missing: int, expected: str) -> None:
    """What comes before the success of an opening is of the incarnation before."""
    talk = Talk()
    talk.connect()
    talk.produce()
    closing, opening = talk.request(), talk.request()
    talk.client(commands.CLOSE_PRODUCER, request_id=closing, producer_id=0)
    talk.broker(commands.SUCCESS, request_id=closing)
    talk.client(commands.PRODUCER, request_id=opening, producer_id=0, topic=TOPIC)
    talk.gap(TO_CLIENT, missing=missing)
    answer = talk.receipt(5)
    talk.send(5)
    rows = talk.rows()["exchanges"]
    assert [row["outcome"] for row in rows if row["response_frame_no"] == answer] == [expected]


def test_a_consumer_is_open_though_a_gap_cut_its_subscribe() -> None:
    """Seen from its CONNECT on, only opening commands that are whole open what is used later."""
    talk = Talk()
    talk.connect()
    talk.gap(TO_BROKER, missing=0)
    talk.client(commands.FLOW, consumer_id=4, permits=10)
    (row,) = talk.rows()["consumers"]
    assert (row["consumer_id"], row["opened_frame_no"]) == (4, None)
    unopened = Talk()
    unopened.connect()
    unopened.client(commands.FLOW, consumer_id=4, permits=10)
    assert not unopened.rows()["consumers"]


def test_a_repeat_for_an_open_id_is_no_incarnation_but_a_notice() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe(1)
    repeated = talk.subscribe(1)
    tables = talk.rows()
    assert chosen(tables["consumers"], "incarnation") == [(0,)]
    assert [(row["code"], row["frame_no"]) for row in tables["notices"]] == [
        ("id_reopened", repeated)
    ]


def test_without_the_broker_an_opening_of_an_open_id_begins_an_incarnation() -> None:
    """What ended the one before was not captured: its close is not made up."""
    talk = Talk()
    opened = [
        talk.client(
            commands.PRODUCER, request_id=epoch, producer_id=3, topic=TOPIC, producer_epoch=epoch,
            is_two_way=0,
        )
        for epoch in (0, 1)
    ]  # fmt: skip
    tables = talk.rows()
    assert chosen(tables["producers"], "epoch", *LIFE) == [
        (0, 0, opened[0], None, None, None), (1, 1, opened[1], None, None, "capture_end"),
    ]  # fmt: skip
    assert not tables["notices"]


def test_a_close_that_is_refused_leaves_the_consumer_open() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe(1)
    request = talk.request()
    talk.client(commands.UNSUBSCRIBE, request_id=request, consumer_id=1)
    talk.broker(commands.ERROR, request_id=request, error_code=0)
    assert chosen(talk.rows()["consumers"], "closed_frame_no", "closed_by") == [
        (None, "capture_end")
    ]


def test_ids_in_use_where_the_capture_begins_are_open() -> None:
    talk = Talk()
    talk.send(4, producer=2)
    talk.receipt(4, producer=2)
    talk.message(1, consumer=6)
    tables = talk.rows()
    expected = [(0, None, None, None, "capture_end")]
    assert chosen(tables["producers"], *LIFE) == chosen(tables["consumers"], *LIFE) == expected
    assert tables["producers"][0]["name_source"] == "unknown"


def test_a_name_that_is_learnt_late_stands_in_the_row_and_says_so() -> None:
    """A client numbers its producers over all connections: name and id tell the topic."""
    talk = Talk()
    talk.send(1, producer=2, producer_name="p")
    talk.receipt(1, producer=2)
    talk.connect(1)
    talk.produce(2, 1, name="p")
    rows = {row["connection_id"]: row for row in talk.rows()["producers"]}
    assert rows[1]["name_source"] == "observed"
    assert (rows[0]["topic"], rows[0]["name_source"]) == (TOPIC, "backfilled")


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_producer_opened_under_the_name_that_its_send_told_leaves_that_chain(
    is_closed: bool,
) -> None:
    """Whether the capture begins with the handshake, or with the close of an unload."""
    talk = Talk()
    if is_closed:
        talk.broker(commands.CLOSE_PRODUCER, producer_id=2, request_id=-1)
    else:
        talk.connect()
    talk.send(1, producer=2, producer_name="p")
    talk.send(1, producer=2, connection=1, producer_name="p")
    request = talk.request()
    opened = talk.client(
        commands.PRODUCER, request_id=request, producer_id=2, topic=TOPIC, producer_name="p"
    )
    rows = {row["opened_frame_no"]: row for row in talk.rows()["producers"]}
    assert chosen([rows[opened]], "topic", "name", "name_source") == [(TOPIC, "p", "observed")]
    others = [row for row in talk.rows()["producers"] if row["connection_id"] == 1]
    assert chosen(others, "topic", "name", "name_source") == [(TOPIC, "p", "backfilled")]


def test_a_ledger_of_two_topics_tells_nothing() -> None:
    talk = Talk()
    for connection, topic in enumerate(("persistent://a/b/c", "persistent://a/b/d")):
        talk.connect(connection)
        talk.produce(0, connection, topic=topic, name=f"p{connection}")
        talk.send(0, 0, connection)
        talk.receipt(0, 5, 0, connection)
    talk.message(6, consumer=1, connection=2)
    (row,) = talk.rows()["consumers"]
    assert (row["topic"], row["name_source"]) == (None, "unknown")


@pytest.mark.parametrize(
    ("brokers", "told"), [((7, 7), (TOPIC, "ledger_join")), ((7, 8), (None, "unknown"))]
)
def test_a_ledger_tells_the_topic_of_another_connection_to_its_broker(
    brokers: tuple[int, int], told: tuple[str | None, str]
) -> None:
    """Ledger ids are small numbers in each cluster."""
    talk = Talk()
    talk.brokers |= dict(enumerate(brokers))
    talk.connect()
    talk.produce()
    talk.send(0)
    talk.receipt(0, entry=5)
    talk.message(5, consumer=1, connection=1)
    (row,) = talk.rows()["consumers"]
    assert (row["topic"], row["name_source"]) == told


@pytest.mark.parametrize(("brokers", "source"), [((7, 7), "backfilled"), ((7, 8), "unknown")])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_producer_name_tells_nothing_of_another_cluster(
    brokers: tuple[int, int], source: str, is_late: bool
) -> None:
    """Clients of clusters with one name have producers with one name."""
    talk = Talk()
    talk.brokers |= dict(enumerate(brokers))
    if is_late:
        talk.connect(1)
        talk.produce(2, 1, name="p")
    talk.send(1, producer=2, producer_name="p")
    if not is_late:
        talk.connect(1)
        talk.produce(2, 1, name="p")
    rows = {row["connection_id"]: row for row in talk.rows()["producers"]}
    assert rows[1]["name_source"] == "observed"
    assert rows[0]["name_source"] == source


def test_what_opening_commands_say_is_in_the_row() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe(
        1, priority_level=2, is_durable=0, initial_position=1, subscription_type=3, subscription="x"
    )
    talk.flow(500, 1)
    talk.flow(100, 1)
    talk.produce(0, topic_epoch=4, schema_version_hex=b"\x00\x07")
    tables = talk.rows()
    names = ("priority_level", "is_durable", "initial_position", "subscription_type",
             "subscription", "first_flow_permits")  # fmt: skip
    assert chosen(tables["consumers"], *names) == [(2, 0, 1, 3, "x", 500)]
    assert chosen(tables["producers"], "topic_epoch", "schema_version_hex", "last_sequence_id") == [
        (4, "0007", -1)
    ]


def test_rows_do_not_depend_on_where_blocks_end() -> None:
    talk = Talk()
    pick = random.Random(3)
    for connection in range(3):
        talk.connect(connection)
        for number in range(4):
            talk.subscribe(number, connection)
            if pick.random() < 0.5:
                talk.close_consumer(number, connection)
                talk.subscribe(number, connection)
    talk.hang_up(1)
    whole = talk.rows()
    for _ in range(3):
        cuts = pick.sample(range(1, len(talk.script)), 9)
        assert talk.rows(cuts) == whole
    assert talk.rows(range(1, len(talk.script))) == whole


def test_room_grows_with_what_is_open() -> None:
    state = new_registry_state(16)
    reserve(state, 1000)
    assert len(state.client_handles.kind) >= 1000
    talk = Talk()
    talk.connect()
    for number in range(1500):
        talk.subscribe(number)
    assert len(talk.rows()["consumers"]) == 1500


def test_what_frames_say_is_kept_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_NAME_BYTES", 5)
    talk = Talk()
    talk.connect()
    for number, version in enumerate((b"ab", b"cdef", b"ab", b"xyz", b"")):
        talk.produce(number, schema_version_hex=version)
    rows = talk.rows()["producers"]
    assert chosen(rows, "producer_id", "schema_version_hex") == [
        (0, "6162"), (1, None), (2, "6162"), (3, "78797a"), (4, ""),
    ]  # fmt: skip
