"""The first bytes of a connection, or an option, decide its protocol."""

import numpy as np

from dissector.notice_log import Notice
from dissector.notices import NOTICES
from dissector.protocols.framing.detection import HEAD_BYTES, Detection, FramingOptions
from dissector.protocols.framing.replays import Piece
from dissector.protocols.framing.state import HTTP, TLS, UNDECIDED, ConnectionState
from dissector.protocols.framing.unsynchronised import Run
from tests.dissector.protocols.framing.test_assembly import HELLO
from tests.wire.ranges import WHOLE
from tests.wire.toy import SPEC, TO_BROKER, frame


def head_of(data: bytes) -> Run:
    run = Run(at_start=True)
    run.add(Piece(0, len(data), 1, 1, WHOLE), np.frombuffer(data, np.uint8))
    return run


def heads(options: FramingOptions | None = None) -> tuple[Detection, ConnectionState]:
    known = ConnectionState.new(1)
    known.protocol[0] = UNDECIDED
    known.connection_id[0] = 5
    return Detection((SPEC,), lambda _: (40000, 7000), options or FramingOptions(), []), known


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


def test_ports_that_the_user_names_are_those_of_brokers() -> None:
    assert heads(FramingOptions(forced={7007: 0}))[0].broker_ports == {7000, 7007}


def test_what_contradicts_an_option_is_by_packets_once_it_is_plain() -> None:
    """A first record of TLS in two pieces; what begins as asked is no contradiction."""
    findings: list[Notice] = []
    found = Detection((SPEC,), lambda _: (40000, 7000), FramingOptions(only=0), findings)
    known = heads()[1]
    assert found.recognise(known, 0, head_of(HELLO[:20]), False)
    assert not findings and known.protocol[0] == UNDECIDED
    assert not found.recognise(known, 0, head_of(HELLO), False)
    (finding,) = findings
    assert (finding.connection_id, NOTICES[finding.kind].code) == (5, "read_as_asked")
    for head in (frame(TO_BROKER, b"x"), b"\xff" * 9):
        known.protocol[0] = UNDECIDED
        assert not found.recognise(known, 0, head_of(head), False)
        assert known.protocol[0] == 0
    assert len(findings) == 1


def test_a_proxy_header_is_waited_for_but_not_for_ever() -> None:
    for size in (1, 5, 40):
        assert heads()[0].recognise(heads()[1], 0, head_of((b"PROXY " * 9)[:size]), False)
    found, known = heads()
    assert not found.recognise(known, 0, head_of(b"PROXY " * 9), True)
    endless = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"
    assert not found.recognise(known, 0, head_of(endless.ljust(HEAD_BYTES, b"x")), False)
