"""Rows of `connections`: who is who, what was counted, and notices that waited for the role."""

from typing import Any

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from dissector.endpoints import Endpoint
from tests.naive.endpoints import community_id, connection_key
from tests.plain import rows_of_block
from tests.wire.captures import Record, pcap
from tests.wire.packets import ACK, FIN, SYN, segment
from tests.wire.pulsar import command, simple

START_NS = 1_700_000_000_000_000_000
CLIENT, BROKER = ("10.0.0.1", 40000), ("10.0.0.2", 6650)
ODD_BROKER = ("10.0.0.2", 7777)


def tables_of(packets: list[tuple[float, bytes]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a capture. packets: time in ms, and the bytes of an Ethernet packet."""
    file = pcap([Record(START_NS + round(ms * 1_000_000), data) for ms, data in packets])
    dissection = Dissection(Options())
    dissection.start_file()
    data = np.frombuffer(file, np.uint8).copy()
    _, blocks = dissection.feed(data, 0, len(data), True)
    dissection.end_file()
    tables: dict[str, list[dict[str, Any]]] = {}
    for block in (*blocks, *dissection.finish()):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


def opened(broker: tuple[str, int] = BROKER, **more: Any) -> list[tuple[float, bytes]]:
    """SYN, SYN-ACK, ACK; the client goes on at 1001, the broker at 5001."""
    both: dict[str, Any] = {"client": CLIENT, "broker": broker, **more}
    return [
        (0, segment(sequence=1000, flags=SYN, **both)),
        (1, segment(sequence=5000, acknowledgement=1001, flags=SYN | ACK, to_broker=False, **both)),
        (3, segment(sequence=1001, acknowledgement=5001, **both)),
    ]


CONNECT = simple(command("CONNECT", client_version="test 1.0", protocol_version=19))
CONNECTED = simple(
    command("CONNECTED", server_version="server 2.0", protocol_version=18, max_message_size=77_777)
)


def test_a_syn_ack_behind_a_later_packet_tells_who_opened() -> None:
    packets = [
        (2, segment(sequence=5001, acknowledgement=1001, to_broker=False)),
        (3, segment(sequence=5000, acknowledgement=1001, flags=SYN | ACK, to_broker=False)),
        (6, segment(CONNECTED, sequence=5001, acknowledgement=1001, to_broker=False)),
    ]
    for some in (packets, packets[:2]):
        tables = tables_of(some)
        (row,) = tables["connections"]
        assert (row["client_ip"], row["role_source"], row["started"]) == (CLIENT[0], "syn", "syn")
        assert tables.get("notices", []) == []


def test_a_connection_from_its_syn_to_its_fins() -> None:
    next_0, next_1 = 1001 + len(CONNECT), 5001 + len(CONNECTED)
    packets = [
        *opened(),
        (5, segment(CONNECT, sequence=1001, acknowledgement=5001)),
        (6, segment(CONNECTED, sequence=5001, acknowledgement=next_0, to_broker=False)),
        (8, segment(sequence=next_0, acknowledgement=next_1, flags=FIN | ACK)),
        (9, segment(sequence=next_1, acknowledgement=next_0 + 1, flags=FIN | ACK, to_broker=False)),
    ]
    (row,) = tables_of(packets)["connections"]
    lower = Endpoint(4, 0, 0x0A000001, 40000)
    upper = Endpoint(4, 0, 0x0A000002, 6650)
    expected = {
        "connection_id": 0,
        "connection_key": connection_key(upper, lower, None),
        "community_id": community_id(lower, upper),
        "protocol": "pulsar",
        "client_ip": "10.0.0.1",
        "client_port": 40000,
        "broker_ip": "10.0.0.2",
        "broker_port": 6650,
        "role_source": "syn",
        "vlan_ids": None,
        "tunnel_id": None,
        "started": "syn",
        "ended": "fin",
        "closed_first_by": "client",
        "first_ts_ns": START_NS,
        "last_ts_ns": START_NS + 9_000_000,
        "handshake_rtt_ns": 3_000_000,
        "history": "ShADdFf",
        "packets_to_broker": 4,
        "packets_to_client": 3,
        "payload_bytes_to_broker": len(CONNECT),
        "stream_bytes_to_client": len(CONNECTED),
        "decoded_bytes_to_client": len(CONNECTED),
        "frames_to_broker": 1,
        "frames_to_client": 1,
        "unparsed_bytes_to_broker": 0,
        "isn_to_broker": 1000,
        "isn_to_client": 5000,
        "first_seq_to_broker": 1000,
        "last_seq_to_broker": next_0,
        "last_seq_to_client": next_1,
        "client_version": "test 1.0",
        "server_version": "server 2.0",
        "protocol_version": 18,
        "max_message_bytes": 77_777,
    }
    assert {name: row[name] for name in expected} == expected


def test_a_command_names_the_client_where_no_syn_was_seen() -> None:
    answer = {"sequence": 5001, "acknowledgement": 1, "to_broker": False}
    packets = [
        (0, segment(CONNECTED, broker=ODD_BROKER, **answer)),
        (1, segment(CONNECT, sequence=1, acknowledgement=5001 + len(CONNECTED), broker=ODD_BROKER)),
    ]
    (row,) = tables_of(packets)["connections"]
    assert (row["client_port"], row["broker_port"]) == (40000, 7777)
    assert (row["role_source"], row["started"]) == ("command", "midstream")
    assert row["history"] == "Dd"  # the broker was seen first
    assert (row["packets_to_broker"], row["packets_to_client"]) == (1, 1)


def test_a_port_names_the_client_where_nothing_else_does() -> None:
    packets = [(0, segment(b"what?", sequence=5, acknowledgement=1, to_broker=False))]
    (row,) = tables_of(packets)["connections"]
    assert (row["client_port"], row["role_source"], row["protocol"]) == (40000, "port", "unknown")
    assert row["payload_bytes_to_client"] == row["unparsed_bytes_to_client"] == 5
    assert row["isn_to_broker"] is None and row["first_seq_to_broker"] is None


def test_the_first_speaker_fills_the_client_s_columns_where_nothing_is_known() -> None:
    talk = {"broker": ODD_BROKER, "acknowledgement": 1}
    packets = [
        (0, segment(b"what?", sequence=5, to_broker=False, **talk)),
        (1, segment(b"gap", sequence=90, to_broker=False, **talk)),
    ]
    tables = tables_of(packets)
    (row,) = tables["connections"]
    assert (row["client_port"], row["role_source"]) == (7777, "first_seen")
    assert row["gap_bytes_to_broker"] == 80
    (notice,) = [each for each in tables["notices"] if each["code"] == "gap_lost"]
    assert (notice["direction"], notice["connection_id"]) == ("unknown", 0)


@pytest.mark.parametrize("to_broker", [True, False])
def test_a_notice_gets_the_direction_of_its_side(to_broker: bool) -> None:
    start = 1001 if to_broker else 5001
    packets = [*opened(), (5, segment(b"??", sequence=start + 40, to_broker=to_broker))]
    tables = tables_of(packets)
    (notice,) = [each for each in tables["notices"] if each["code"] == "gap_lost"]
    assert notice["direction"] == ("to_broker" if to_broker else "to_client")
    (row,) = tables["connections"]
    assert row["gap_bytes_to_broker" if to_broker else "gap_bytes_to_client"] == 40


def test_a_connection_without_payload_has_no_protocol() -> None:
    (row,) = tables_of(opened())["connections"]
    assert (row["protocol"], row["ended"], row["closed_first_by"]) == ("none", "capture_end", None)
    assert row["stream_bytes_to_broker"] == 0 and row["frames_to_broker"] == 0


def test_vlans_are_listed_outermost_first() -> None:
    (row,) = tables_of(opened(vlans=(7, 100)))["connections"]
    assert row["vlan_ids"] == [7, 100]


def test_an_unreadable_frame_is_not_decoded() -> None:
    """Its header and size are right, its content is no command."""
    good = CONNECT
    bad = (30).to_bytes(4, "big") + (26).to_bytes(4, "big") + b"\x08\x06" + b"\xff" * 24
    packets = [*opened(), (5, segment(good + bad + good, sequence=1001, acknowledgement=5001))]
    tables = tables_of(packets)
    (row,) = tables["connections"]
    decoded = sum(each["frame_bytes"] for each in tables["frames"] if each["status"] == "complete")
    assert row["decoded_bytes_to_broker"] == decoded
    assert decoded + row["unparsed_bytes_to_broker"] == row["stream_bytes_to_broker"]
    assert {each["status"] for each in tables["frames"]} >= {"complete"}


def test_connections_that_close_together_keep_their_own_rows() -> None:
    packets = []
    for number in range(5):
        packets += opened(client=("10.0.0.1", 41000 + number))  # type: ignore[arg-type]
    rows = tables_of(packets)["connections"]
    assert [(row["connection_id"], row["client_port"]) for row in rows] == [
        (number, 41000 + number) for number in range(5)
    ]
