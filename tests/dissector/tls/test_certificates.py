"""Whose a certificate is, of any bytes."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.tls.certificates import certificate_facts


@given(st.binary(max_size=200))
def test_any_bytes_are_a_certificate_or_none(data: bytes) -> None:
    certificate_facts(data)
    certificate_facts(b"\x30\x82" + len(data).to_bytes(2, "big") + data)
