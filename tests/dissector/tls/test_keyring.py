"""Which key a direction gets, and why it has none."""

from dissector.tls import facts
from dissector.tls.direction import Direction
from dissector.tls.greeting import Greeting
from dissector.tls.handshake import Message
from dissector.tls.keylog import KeyLog
from dissector.tls.keyring import KeyRing
from dissector.tls.sessions import Sessions
from tests.wire import tls


def greeted(written: tls.Written) -> Greeting:
    greeting = Greeting()
    greeting.take(0, Message.CLIENT_HELLO, written.wire[0][1][9:], 0)
    size = int.from_bytes(written.wire[1][1][6:9], "big")
    greeting.take(1, Message.SERVER_HELLO, written.wire[1][1][9 : 9 + size], 0)
    return greeting


def test_it_says_why_there_is_no_key() -> None:
    written = tls.begun_13("TLS_AES_128_GCM_SHA256")
    greeting = greeted(written)
    assert KeyRing(None, Sessions()).missing(Greeting()) == facts.NO_HELLO
    assert KeyRing(None, Sessions()).missing(greeting) == facts.NO_KEY_LOG
    assert KeyRing(KeyLog(), Sessions()).missing(greeting) == facts.NO_KEY_LOG
    other = tls.begun_13("TLS_AES_128_GCM_SHA256", 2).keys.encode()
    ring = KeyRing(KeyLog(other), Sessions())
    assert ring.missing(greeting) == facts.NO_KEY and not ring.has_grown
    ring.keys.add(written.keys.encode())
    assert ring.has_grown and ring.missing(greeting) == ""
    one = "".join(line for line in written.keys.splitlines(True) if line.startswith("CLIENT"))
    ring = KeyRing(KeyLog(one.encode()), Sessions())
    assert ring.unlock(Direction(1), greeting) == facts.PARTLY
    side = Direction(0)
    assert ring.unlock(side, greeting) == "" and side.opener is not None
    master = KeyLog(tls.begun_12(next(n for n in tls.KINDS if "WITH" in n)).keys.encode())
    assert KeyRing(master, Sessions()).missing(greeting) != ""  # a line of the other version
