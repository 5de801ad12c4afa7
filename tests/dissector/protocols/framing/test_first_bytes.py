"""What is not a broker protocol is told by its first bytes."""

import numpy as np
import pytest

from dissector.protocols.framing.first_bytes import (
    NO_RECORDS,
    HeadVerdict,
    TlsRecords,
    follow_records,
    look,
    proxied_client,
    server_name,
)
from tests.dissector.protocols.framing.test_assembly import HELLO

V2 = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        (b"GET / HTTP/1.1\r\n", HeadVerdict.IS_HTTP),
        (b"HTTP/1.1 200 OK\r\n", HeadVerdict.IS_HTTP),
        (b"GE", HeadVerdict.MORE_NEEDED),
        (HELLO, HeadVerdict.IS_TLS),
        (HELLO[:4], HeadVerdict.MORE_NEEDED),
        (HELLO[:1], HeadVerdict.MORE_NEEDED),
        (b"\x16\2", HeadVerdict.NOT_KNOWN),
        (b"PROX", HeadVerdict.MORE_NEEDED),
        (b"PROXY UNKNOWN\r\n", HeadVerdict.IS_PROXY_HEADER),
        (b"PROXY " + b"x" * 200, HeadVerdict.NOT_KNOWN),
        (V2 + b"\x20\0\0\0", HeadVerdict.IS_PROXY_HEADER),
        (V2 + b"\x21\x11\0\x0c", HeadVerdict.MORE_NEEDED),
        (b"\0\0\0\x19\0\0\0\x15", HeadVerdict.NOT_KNOWN),
    ],
)
def test_verdicts(head, verdict):
    assert look(head, at_start=True).verdict == verdict


def test_midstream_tls_needs_two_records():
    one = b"\x17\x03\x03\0\x05hello"
    assert look(one, at_start=False).verdict == HeadVerdict.NOT_KNOWN
    assert look(one + one, at_start=False).verdict == HeadVerdict.IS_TLS


def test_the_server_name_is_read_and_cut_bytes_never_raise():
    assert server_name(HELLO) == "broker.lan"
    for size in range(len(HELLO)):
        assert server_name(HELLO[:size]) in (None, "broker.lan")


def test_the_proxy_header_names_ipv6_clients():
    packed = bytes(range(16))
    header = V2 + b"\x21\x21\0\x24" + packed + bytes(20)
    found = look(header + b"rest", at_start=True)
    assert found.header_bytes == len(header)
    assert proxied_client(header) == "1:203:405:607:809:a0b:c0d:e0f"


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size)


class Records:
    """What is known of TLS records of a stream."""

    def __init__(self) -> None:
        self.records: TlsRecords = NO_RECORDS

    def add(self, offset: int, starts_packet: bool, data: bytes) -> bool:
        """Whether there are two records in a row behind the next bytes."""
        bytes_ = np.frombuffer(data, np.uint8)
        self.records = follow_records(self.records, bytes_, 0, len(data), offset, starts_packet)
        return self.records.is_tls


def test_records_in_packets_of_their_own_are_tls():
    records = Records()
    assert not records.add(0, True, bytes(50))  # the rest of a record
    assert not records.add(50, True, record(30))
    assert records.add(85, True, record(30))


def test_a_record_over_several_packets_is_followed_to_its_end():
    records = Records()
    assert not records.add(0, True, record(3000)[:1448])
    assert not records.add(1448, True, record(3000)[1448:2896])
    assert records.add(2896, True, record(3000)[2896:] + record(10))


def test_one_record_or_two_that_do_not_follow_are_not_enough():
    records = Records()
    assert not records.add(0, True, record(30) + b"else")
    assert not records.add(39, True, record(30)[:20])
    assert not records.add(90, True, record(30))
    assert not records.add(125, False, record(30)[:3])
