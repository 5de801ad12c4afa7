"""What is not a broker protocol is told by its first bytes."""

import pytest

from dissector.protocols.recognition import (
    IS_HTTP,
    IS_PROXY_HEADER,
    IS_TLS,
    MORE_NEEDED,
    NOT_KNOWN,
    look,
    server_name,
)
from tests.dissector.protocols.test_assembly import HELLO

V2 = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        (b"GET / HTTP/1.1\r\n", IS_HTTP),
        (b"HTTP/1.1 200 OK\r\n", IS_HTTP),
        (b"GE", MORE_NEEDED),
        (HELLO, IS_TLS),
        (HELLO[:4], NOT_KNOWN),
        (b"PROX", MORE_NEEDED),
        (b"PROXY UNKNOWN\r\n", IS_PROXY_HEADER),
        (b"PROXY " + b"x" * 200, NOT_KNOWN),
        (V2 + b"\x20\0\0\0", IS_PROXY_HEADER),
        (V2 + b"\x21\x11\0\x0c", MORE_NEEDED),
        (b"\0\0\0\x19\0\0\0\x15", NOT_KNOWN),
    ],
)
def test_verdicts(head, verdict):
    assert look(head, at_start=True).verdict == verdict


def test_midstream_tls_needs_two_records():
    one = b"\x17\x03\x03\0\x05hello"
    assert look(one, at_start=False).verdict == NOT_KNOWN
    assert look(one + one, at_start=False).verdict == IS_TLS


def test_the_server_name_is_read_and_cut_bytes_never_raise():
    assert server_name(HELLO) == "broker.lan"
    for size in range(len(HELLO)):
        assert server_name(HELLO[:size]) in (None, "broker.lan")


def test_the_proxy_header_names_ipv6_clients():
    packed = bytes(range(16))
    header = V2 + b"\x21\x21\0\x24" + packed + bytes(20)
    found = look(header + b"rest", at_start=True)
    assert found.header_bytes == len(header)
    assert found.client_ip == "1:203:405:607:809:a0b:c0d:e0f"
