"""Key schedules and openers against published vectors and a writer of its own."""

import pytest

from dissector.tls.ciphers import TrafficSecret, openers12
from dissector.tls.suites import SUITES
from tests.wire import tls


def test_keys_of_tls_1_3_are_those_of_rfc_8448() -> None:
    """RFC 8448, section 3: the server's handshake traffic secret, its key and iv."""
    secret = bytes.fromhex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38")
    traffic = TrafficSecret(SUITES[0x1301], secret)
    assert traffic._part("key", 16).hex() == "3fce516009c21727d0f2e4e86ee403bc"
    assert traffic._part("iv", 12).hex() == "5d313eb2671276ee13000b30"


@pytest.mark.parametrize("name", list(tls.KINDS))
def test_what_is_not_authentic_gives_nothing(name: str) -> None:
    begun = tls.begun_12(name) if "WITH" in name else tls.begun_13(name)
    suite = SUITES[tls.KINDS[name].number]
    record = memoryview(begun.writers[0].record(b"plain bytes"))
    number = begun.writers[0].sequence - 1
    if "WITH" in name:
        _, random, secret = begun.keys.split()
        server_random = begun.wire[1][1][11:43]
        opener, _ = openers12(
            suite, bytes.fromhex(secret), bytes.fromhex(random), server_random, False
        )
    else:
        opener = TrafficSecret(suite, begun.writers[0].secret).opener()
    header, body = bytes(record[:5]), record[5:]
    opened = opener.open(number, header, body)
    assert opened is not None and bytes(opened).startswith(b"plain bytes")
    assert opener.open(number + 1, header, body) is None
    for size in range(len(body)):
        assert opener.open(number, header, body[:size]) is None
    for at in range(len(body)):
        other = bytearray(body)
        other[at] ^= 0x40
        assert opener.open(number, header, memoryview(other)) is None
