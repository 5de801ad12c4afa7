"""Values of keys that mean a secret, also on the line behind the key and behind a length."""

import pytest

from dissector.codecs.redaction import cleaned, hidden
from dissector.codecs.secret_keys import is_secret


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"token=\nZq8word next", b"Zq8word"),
        (b"token=\r\n  Zq8word== next", b"Zq8word=="),
        (b'{"token":\n  "Zq8word"}', b"Zq8word"),
        (b"Authorization:\r\n Bearer Zq8word", b"Bearer Zq8word"),
        (b"\x12Apwd=Zq8word " + b"x " * 40, b"Zq8word"),
        (b"\x00\x00\x000pwd=Zq8word " + b"x " * 40, b"Zq8word"),
    ],
)
def test_values_are_found_wherever_they_begin(text: bytes, value: bytes) -> None:
    assert cleaned(text) == text.replace(value, hidden(len(value)))


@pytest.mark.parametrize(
    "text", [b"token=\ntopic=orders", b"token:\nreason: none", b"token=\n\nfoo", b"Apwdx=plain"]
)
def test_the_next_line_may_be_of_its_own(text: bytes) -> None:
    assert cleaned(text) == text


def test_keys_are_read_by_their_parts() -> None:
    assert is_secret("x-api-key") and not is_secret("tokenCount")
