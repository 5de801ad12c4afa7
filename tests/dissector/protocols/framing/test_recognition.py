"""The first bytes of a connection, or an option, decide its protocol."""

from dissector.notices import NOTICES
from dissector.protocols.framing.detection import Detection, FramingOptions
from dissector.protocols.framing.recognition import HEAD_BYTES, recognise
from dissector.protocols.framing.state import HTTP, TLS, UNDECIDED
from tests.dissector.protocols.framing.test_assembly import HELLO
from tests.wire.buffers import Held
from tests.wire.toy import SPEC, TO_BROKER, frame


class Begun(Held):
    """The first bytes of a connection between ports 40000 and 7000."""

    def __init__(self, data: bytes, options: FramingOptions | None = None) -> None:
        super().__init__()
        self.detection = Detection((SPEC,), options or FramingOptions())
        self.detection.apply_options(self.state)
        self.state.connections.ports[0] = 40000 << 16 | 7000
        self.state.pool.buffers.at_start[self.buffer] = 1
        self.add(data)

    def needs_more(self, is_final: bool = False) -> bool:
        found = bool(recognise(self.context(), 0, is_final))
        self.detection.read_names(self.state)
        return found

    @property
    def protocol(self) -> int:
        return int(self.state.connections.protocol[0])


def test_tls_waits_for_its_first_record_and_names_the_server() -> None:
    begun = Begun(HELLO[:20])
    assert begun.needs_more()
    begun.add(HELLO[20:])
    assert not begun.needs_more()
    assert (begun.protocol, begun.detection.server_names) == (TLS, {7: "broker.lan"})


def test_a_cut_first_record_is_tls_all_the_same() -> None:
    begun = Begun(HELLO[:20])
    assert not begun.needs_more(is_final=True)
    assert (begun.protocol, begun.detection.server_names) == (TLS, {})


def test_a_proxy_header_is_taken_off_and_what_follows_is_looked_at() -> None:
    header = b"PROXY TCP4 10.9.8.7 10.0.0.2 5000 7000\r\n"
    begun = Begun(header + b"GET / HTTP/1.1\r\n\r\n")
    assert not begun.needs_more()
    assert (begun.protocol, begun.detection.proxied) == (HTTP, {7: "10.9.8.7"})
    assert begun.data[:4] == b"GET "
    many = Begun(header * 90 + b"GET / HTTP/1.1\r\n\r\n")
    assert not many.needs_more() and many.protocol == HTTP


def test_options_come_before_content() -> None:
    for options in (FramingOptions(forced={7000: 0}), FramingOptions(only=0)):
        begun = Begun(HELLO, options)
        begun.needs_more()
        assert begun.protocol == 0
    begun = Begun(HELLO, FramingOptions(forced={7001: 0}))
    begun.needs_more()
    assert begun.protocol == TLS


def test_what_contradicts_an_option_is_noted_once_it_is_plain() -> None:
    """A first record of TLS in two pieces; what begins as asked is no contradiction."""
    begun = Begun(HELLO[:20], FramingOptions(only=0))
    assert begun.needs_more()
    assert begun.state.notices.used[0] == 0 and begun.protocol == UNDECIDED
    begun.add(HELLO[20:])
    assert not begun.needs_more() and begun.state.notices.used[0] == 1
    notices = begun.state.notices.rows
    assert NOTICES[notices.kind[0]].code == "read_as_asked"
    assert (notices.connection_id[0], notices.packet[0]) == (7, 1)
    for head in (frame(TO_BROKER, b"x"), b"\xff" * 9):
        other = Begun(head, FramingOptions(only=0))
        assert not other.needs_more()
        assert other.protocol == 0 and other.state.notices.used[0] == 0


def test_a_proxy_header_is_waited_for_but_not_for_ever() -> None:
    for size in (1, 5, 40):
        assert Begun((b"PROXY " * 9)[:size]).needs_more()
    assert not Begun(b"PROXY " * 9).needs_more(is_final=True)
    endless = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"
    assert not Begun(endless.ljust(HEAD_BYTES, b"x")).needs_more()
