"""Connections that the tap shows before and behind the translation of an address."""

from collections.abc import Callable

import pytest

from dissector.stream.streams import Streams
from dissector.stream.translations import LOOKS
from tests.hard.copy_cases import stamped
from tests.hard.tape import Packet, Tape, capture, dissected, talk
from tests.wire import segments
from tests.wire.captures import Record
from tests.wire.packets import time_stamps

CLIENT, GATEWAY = ("10.0.0.1", 40001), ("192.0.2.7", 61000)
SERVICE, BROKER, NODE = ("10.96.0.1", 6650), ("10.0.1.5", 6650), ("10.0.9.9", 30650)
NUMBERS = 3_141_592_653, 2_718_281_828
US = 1000
Views = list[tuple[tuple[str, int], tuple[str, int]]]


def drawn(sends: int) -> list[Packet]:
    """A connection whose numbers and clock are as hosts draw them."""
    return stamped(talk(sends, isn=NUMBERS)).packets


def seen(packets: list[Packet], views: Views, apart_ns: int = 20 * US) -> list[Record]:
    """Each packet once per view, on its way: the client's side is the first view."""
    records = []
    for packet in packets:
        for hop, (client, broker) in enumerate(views if packet.to_broker else views[::-1]):
            tape = Tape(client=client, broker=broker)
            data = tape.whole(packet._replace(hop_limit=64 - hop))
            records.append(Record(packet.ts_ns + hop * apart_ns, data))
    return sorted(records, key=lambda record: record.ts_ns)


def pairs(records: list[Record]) -> list[tuple[str, str | None, int | None]]:
    """Address of the broker, leg and twin of each connection, by connection id."""
    rows = dissected(capture(records))["connections"]
    return [
        (row["broker_ip"], row["leg"], row["twin_connection_id"])
        for row in sorted(rows, key=lambda row: row["connection_id"])
    ]


@pytest.mark.parametrize(
    "behind",
    [(CLIENT, BROKER), (GATEWAY, SERVICE), (GATEWAY, BROKER)],
    ids=["broker", "client", "both"],
)
def test_a_connection_seen_behind_a_translation_is_a_copy(
    behind: tuple[tuple[str, int], tuple[str, int]],
) -> None:
    found = pairs(seen(drawn(3), [(CLIENT, SERVICE), behind]))
    assert found == [(SERVICE[0], "client", 1), (behind[1][0], "broker", 0)]


def test_views_behind_the_second_are_copies_of_the_first() -> None:
    views = [(CLIENT, NODE), (CLIENT, SERVICE), (GATEWAY, BROKER)]
    found = pairs(seen(drawn(6), views))
    assert found == [(NODE[0], "client", 1), (SERVICE[0], "broker", 0), (BROKER[0], "broker", 0)]


@pytest.mark.parametrize("first", range(12, 18))
def test_within_a_connection_one_of_both_views_is_the_copy(first: int) -> None:
    """Whether a packet of the client or of the broker comes first, from one view or both."""
    found = pairs(seen(drawn(20), [(CLIENT, SERVICE), (CLIENT, BROKER)])[first:])
    assert sorted(leg or "" for _, leg, _ in found) == ["broker", "client"]
    assert [twin for _, _, twin in found] == [1, 0]


def test_a_notice_names_the_original() -> None:
    tables = dissected(capture(seen(drawn(3), [(CLIENT, SERVICE), (CLIENT, BROKER)])))
    (notice,) = (row for row in tables["notices"] if row["code"] == "translated_copy")
    assert notice["connection_id"] == 1 and notice["text"].startswith("connection 0 has")


def changed(change: Callable[[int, Packet], Packet]) -> list[Record]:
    """A connection, and one to another broker whose packets differ from its."""
    packets = drawn(8)
    other = [change(number, each) for number, each in enumerate(packets)]
    return sorted(
        seen(packets, [(CLIENT, SERVICE)]) + seen(other, [(CLIENT, BROKER)]),
        key=lambda record: record.ts_ns,
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda number, each: each._replace(options=b""),
        lambda number, each: each._replace(options=time_stamps(number + 2, 7_000)),
        lambda number, each: each._replace(sequence=each.sequence + 1),
        lambda number, each: each._replace(identification=each.identification + 1),
        lambda number, each: each._replace(ts_ns=each.ts_ns + 60_000_000),
        lambda number, each: each._replace(payload=each.payload[:-9] + b"!" + each.payload[-8:]),
        lambda number, each: each if number == 3 else each._replace(window=1000),
    ],
    ids=["no stamps", "clock", "numbers", "identification", "later", "content", "one packet alone"],
)
def test_what_other_packets_show_is_a_connection_of_its_own(
    change: Callable[[int, Packet], Packet],
) -> None:
    assert [leg for _, leg, _ in pairs(changed(change))] == [None, None]


def test_packets_without_time_stamps_are_told_by_their_other_numbers() -> None:
    packets = talk(8, isn=NUMBERS).packets
    records = seen(packets, [(CLIENT, SERVICE), (CLIENT, BROKER)])
    assert [leg for _, leg, _ in pairs(records)] == ["client", "broker"]


def test_connections_of_the_same_addresses_are_two() -> None:
    """A translation changes an address; another port alone is another connection."""
    packets = drawn(8)
    records = seen(packets, [(CLIENT, SERVICE), ((CLIENT[0], 40002), SERVICE)])
    assert [leg for _, leg, _ in pairs(records)] == [None, None]


@pytest.mark.parametrize(
    "numbers", [(1000, 2_718_281_828), (3_141_592_653, 5000)], ids=["client", "broker"]
)
def test_numbers_that_no_host_draws_tell_nothing(numbers: tuple[int, int]) -> None:
    packets = talk(8, isn=numbers).packets  # a SYN with a time stamp would tell alone
    records = seen(packets, [(CLIENT, SERVICE), (CLIENT, BROKER)])
    assert [leg for _, leg, _ in pairs(records)] == [None, None]


@pytest.mark.parametrize("apart_ns", [0, 1_000_000, 80_000_000])
def test_a_recording_side_by_side_with_itself_is_many_connections(apart_ns: int) -> None:
    """All have the same numbers, clocks and requests, and came as far: nothing was forwarded."""
    packets = drawn(8)
    records = [
        record._replace(ts_ns=record.ts_ns + number * apart_ns)
        for number in range(12)
        for record in seen(packets, [((f"10.0.3.{number}", 40000), SERVICE)])
    ]
    found = pairs(sorted(records, key=lambda record: record.ts_ns))
    assert [leg for _, leg, _ in found] == [None] * 12


def test_a_syn_with_a_time_stamp_tells_attempts_in_vain() -> None:
    """Refused, or never answered: no second packet may come."""
    packets = [each for each in drawn(3)[:1]]
    records = seen(packets, [(CLIENT, SERVICE), (CLIENT, BROKER)])
    assert [leg for _, leg, _ in pairs(records)] == ["client", "broker"]
    packets = [each._replace(options=b"") for each in packets]
    records = seen(packets, [(CLIENT, SERVICE), (CLIENT, BROKER)])
    assert [leg for _, leg, _ in pairs(records)] == [None, None]


@pytest.mark.parametrize("kind", ["bare", "payload"])
def test_only_first_packets_take_the_slow_path(kind: str) -> None:
    """Also of a connection of which acknowledgements alone were captured."""
    payload = b"" if kind == "bare" else b"four"
    packets = [
        segments.Packet(
            2 * n, 0, 3_141_592_653 + n * len(payload), payload, 2_718_281_828 + n, tsval=n + 1
        )
        for n in range(4 * LOOKS)
    ]
    rows, buffers = segments.columns_of(packets)
    streams = Streams()
    for _ in streams.advance(rows, len(packets), buffers):
        pass
    connections = streams.connection_ends(streams.open_rows()).connections
    assert connections.looks.tolist() == [LOOKS]
