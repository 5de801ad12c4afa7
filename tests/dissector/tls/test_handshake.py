"""Hellos and certificates as OpenSSL writes them, and any bytes in their place."""

import ssl

from hypothesis import given
from hypothesis import strategies as st

from dissector.tls import handshake
from dissector.tls.certificates import certificate_facts
from tests.wire import tls


def test_hellos_say_what_is_asked_for_and_chosen() -> None:
    hello = handshake.client_hello(tls.client_hello(bytes(range(32)), name="a.test")[4:])
    assert hello is not None
    assert (hello.random, hello.server_name) == (bytes(range(32)), "a.test")
    assert not hello.has_early_data
    answer = handshake.server_hello(tls.server_hello(bytes(32), 0x1302, is_13=True)[4:])
    assert answer is not None
    assert (answer.version, answer.suite, answer.is_retry) == (0x0304, 0x1302, False)


def test_a_retry_is_no_answer() -> None:
    body = tls.server_hello(handshake.HELLO_RETRY_RANDOM, 0x1301, is_13=True)[4:]
    answer = handshake.server_hello(body)
    assert answer is not None and answer.is_retry


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    handshake.client_hello(body)
    handshake.server_hello(body)
    handshake.encrypted_extensions(body)
    handshake.certificate(body)


def test_a_certificate_has_a_subject_and_dates() -> None:
    with open(tls.certificate()[0]) as file:
        der = ssl.PEM_cert_to_DER_cert(file.read())
    facts = certificate_facts(der)
    assert facts is not None and facts.subject == tls.SUBJECT
    assert facts.not_before_ns == tls.NOT_BEFORE.timestamp() * 10**9
    for size in range(len(der)):
        certificate_facts(der[:size])
        certificate_facts(der[:size] + bytes([der[size] ^ 0xFF]) + der[size + 1 :])
