"""The first bytes of a connection, or an option, decide its protocol."""

import numpy as np

from dissector.protocols.framing_state import HTTP, TLS, UNDECIDED, ConnectionState
from dissector.protocols.heads import FramingOptions, Heads
from dissector.protocols.runs import Piece, Run
from tests.dissector.protocols.test_assembly import HELLO
from tests.wire.ranges import WHOLE
from tests.wire.toy import SPEC


def head_of(data: bytes) -> Run:
    run = Run(at_start=True)
    run.add(Piece(0, len(data), 1, 1, WHOLE), np.frombuffer(data, np.uint8))
    return run


def heads(options: FramingOptions | None = None) -> tuple[Heads, ConnectionState]:
    known = ConnectionState.new(1)
    known.protocol[0] = UNDECIDED
    known.connection_id[0] = 5
    return Heads((SPEC,), lambda _: (40000, 7000), options or FramingOptions(), []), known


def test_tls_waits_for_its_first_record_and_names_the_server() -> None:
    found, known = heads()
    assert found.recognise(known, 0, head_of(HELLO[:20]), False)
    assert not found.recognise(known, 0, head_of(HELLO), False)
    assert (known.protocol[0], found.server_names) == (TLS, {5: "broker.lan"})


def test_a_cut_first_record_is_tls_all_the_same() -> None:
    found, known = heads()
    assert not found.recognise(known, 0, head_of(HELLO[:20]), True)
    assert (known.protocol[0], found.server_names) == (TLS, {})


def test_a_proxy_header_is_taken_off_and_what_follows_is_looked_at() -> None:
    found, known = heads()
    run = head_of(b"PROXY TCP4 10.9.8.7 10.0.0.2 5000 7000\r\nGET / HTTP/1.1\r\n\r\n")
    assert not found.recognise(known, 0, run, False)
    assert (known.protocol[0], found.proxied) == (HTTP, {5: "10.9.8.7"})
    assert run.head(4) == b"GET "


def test_options_come_before_content() -> None:
    for options in (FramingOptions(forced={7000: 0}), FramingOptions(only=0)):
        found, known = heads(options)
        found.recognise(known, 0, head_of(HELLO), False)
        assert known.protocol[0] == 0


def test_ports_are_hints() -> None:
    assert heads()[0].is_hinted(5)
