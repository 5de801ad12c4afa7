"""Secrets by their form, wherever they begin; what an AUTH command says beside its token stays."""

import pytest

from dissector.codecs.redaction import cleaned, hidden, masked
from dissector.codecs.secret_forms import BY_FORM, credentials

KEY = b"ghp_" + b"a1" * 31
JWT = b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJCSXVLSFh4MjYifQ.VHhOZEtNcHpjZEN2YWVnR0lKQmRqS01ZanBhQ1JMeDM"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((b"\x0a\x01x" + tag + bytes([66]) + KEY, KEY) for tag in (b"\x12", b"*", b"B", b"z")),
        (b"\x12" + bytes([len(JWT)]) + JWT + b"\x18\x01", JWT),
        (b"\x1aHBearer " + b"k2" * 32 + b"\x00", b"k2" * 32),
        (b"password check failed for bob: Zq8word", b"Zq8word"),
        (b"wrong password for user bob: correcthorse", b"correcthorse"),
        (b"token for tenant public: 7f3aabcdeg1 x", b"7f3aabcdeg1"),
        (b"login with password 'correct horse", b"correct horse"),
        (b'unknown_command command="AUTH alice Zq8word"', b"Zq8word"),
        (b'unknown_command command="auth Zq8word"', b"Zq8word"),
        (b"unknown command: AUTH alice Zq8word", b"Zq8word"),
        (
            b"MIIEo+x/\nabcd\n-----END RSA PRIVATE KEY-----",
            b"MIIEo+x/\nabcd\n-----END RSA PRIVATE KEY-----",
        ),
    ],
)
def test_secrets_are_found_wherever_they_begin(text: bytes, value: bytes) -> None:
    assert cleaned(text) == text.replace(value, hidden(len(value)))


@pytest.mark.parametrize(
    "text",
    [
        b"password authentication failed: timeout",
        b"AUTH failed because of bob",
        b"risk-calculation-engine-results",
        b"password check of tenant public failed at: 2024-01-01T00:00:00Z",
    ],
)
def test_sentences_stay(text: bytes) -> None:
    assert cleaned(text) == text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"AUTH alice Zq8word", b"AUTH alice *******"),
        (b"auth alice Zq8 word", b"auth alice *** ****"),
        (b"AUTH Zq8word", b"AUTH *******"),
        (b"AUTH Zq8word==", b"AUTH *********"),
        (b"AUTH principal=alice token=Zq8word", b"AUTH principal=alice token=*******"),
        (b"AUTH principal=alice Zq8word", b"AUTH principal=alice *******"),
        (b"AUTH Zq8word LIST_CLUSTER", b"AUTH ******* LIST_CLUSTER"),
        (b"METADATA topic=t", b"METADATA topic=t"),
        (b"", b""),
    ],
)
def test_of_an_auth_command_who_it_is_stays(line: bytes, shown: bytes) -> None:
    out = bytearray(line)
    for low, high in credentials(line):
        out[low:high] = b"*" * (high - low)
    assert bytes(out) == shown
    for cut in range(6, len(line)):
        found = credentials(line[:cut], is_cut=True)
        assert b"Zq8" not in masked(line[:cut], found)


def test_texts_that_can_hold_no_secret_of_a_form_are_not_searched_for_it(monkeypatch):
    """Millions of URLs of brokers come in redirects."""

    class Forbidden:
        def finditer(self, _: bytes) -> None:
            raise AssertionError("searched")

    for name in ("_URL", "_SPOKEN", "_SAID", "_REPEATED"):
        monkeypatch.setattr(f"dissector.codecs.secret_forms.{name}", Forbidden())
    urls = b"\0\n".join(b"pulsar://broker-%d.example:6650" % number for number in range(100))
    assert not [span for search in BY_FORM for span in search(urls)]
