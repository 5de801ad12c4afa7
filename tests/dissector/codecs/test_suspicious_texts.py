"""Of many texts all that hold a secret are found, and hardly one that holds none."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.redaction import secrets
from dissector.codecs.suspicious_texts import suspicious

SECRETS_AMONG = (
    *(b"password=hunter22", b"\x0a\x08password\x12\x04hush", b"J\x08password=abcd"),
    *(b'"8password: x1y2z3', b"ghp_" + b"a1" * 20, b"u:pw1@host", b"eyJhbGciOiJIUzI1NiJ9.e30.x"),
    *(b"Bearer abc123", b"x\0\npwd=abc1"),
)


@given(
    st.lists(st.binary(max_size=40) | st.text("pw:=@ghsidkey_eyJA1\0\n", max_size=30), max_size=90),
    st.lists(st.tuples(st.integers(0, 89), st.sampled_from(SECRETS_AMONG)), max_size=4),
)
@settings(max_examples=150)
def test_of_many_texts_none_is_left_out_that_holds_a_secret(
    drawn: list[bytes | str], planted: list[tuple[int, bytes]]
) -> None:
    """Also behind lengths, which are looked for in each text, and only where there is one."""
    texts = [each if isinstance(each, bytes) else each.encode() for each in drawn]
    texts += [b"persistent://public/default/orders-%d" % number for number in range(90)]
    for place, secret in planted:
        texts[place] = secret
    wanted = [place for place, text in enumerate(texts) if secrets(text)]
    assert set(wanted) <= set(suspicious(texts))


def test_of_masses_of_names_few_are_looked_at() -> None:
    texts = [b"persistent://public/default/%06x" % (number * 977) for number in range(5000)]
    texts[77], texts[4096] = b"password=x1", b"J1tooken"
    assert suspicious(texts) == [77]
