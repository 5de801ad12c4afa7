"""Sessions lead to the connection under which a key log has their secret."""

import pytest

from dissector import limits
from dissector.tls.sessions import Sessions


def test_a_name_leads_to_a_random_until_others_push_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TLS_SESSIONS", 2)
    sessions = Sessions()
    assert sessions.random_of(b"") is None and sessions.random_of(b"one") is None
    sessions.remember(b"one", b"a")
    sessions.remember(b"two" * 9999, b"b")
    sessions.remember(b"one", b"c")  # given anew: the other one is older
    sessions.remember(b"three", b"d")
    found = [sessions.random_of(name) for name in (b"one", b"two" * 9999, b"three")]
    assert found == [b"c", None, b"d"]
