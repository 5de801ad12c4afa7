"""What a handshake says, message by message."""

from dissector.tls.greeting import Greeting
from dissector.tls.handshake import HELLO_RETRY_RANDOM, Message
from tests.wire import tls


def test_hellos_make_the_facts_and_the_last_finished_the_time() -> None:
    greeting = Greeting()
    greeting.take(1, Message.CLIENT_HELLO, tls.client_hello(bytes(32))[4:], 1000)
    assert greeting.client == 1 and not greeting.is_read
    retry = tls.server_hello(HELLO_RETRY_RANDOM, 0x1301, is_13=True)[4:]
    greeting.take(0, Message.SERVER_HELLO, retry, 1500)
    assert greeting.server is None and greeting.is_13
    answer = tls.server_hello(bytes(32), 0x1301, is_13=True)[4:]
    greeting.take(0, Message.SERVER_HELLO, answer, 2000)
    assert greeting.is_read and greeting.facts.version == "TLS 1.3"
    greeting.note_encrypted(0, 2500)
    assert greeting.facts.handshake_ns is None
    greeting.note_encrypted(1, 3000)
    assert greeting.facts.handshake_ns == 2000 and greeting.has_both_encrypted
    greeting.take(1, Message.FINISHED, b"", 3500)
    assert greeting.facts.handshake_ns == 2500


def test_alerts_are_named_but_for_the_end() -> None:
    greeting = Greeting()
    for body in (b"\x01\x00", b"\x02", b"\x09\x28", b""):
        greeting.take_alert(0, body)
    assert greeting.facts.alerts == [None, None]
    greeting.take_alert(1, b"\x02\x2a")
    assert greeting.facts.alerts == [None, "bad_certificate"]
