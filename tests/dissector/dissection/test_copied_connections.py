"""Connections that are copies of others."""

import numpy as np

from dissector.dissection.copied_connections import CopiedConnections, with_translations
from dissector.limits import NULL
from dissector.notice_rows import NoticeRows, empty_rows
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.interface import CLIENT_LEG, PROXY_LEG, ConnectionFacts
from dissector.stream.records import Connections


def test_copies_are_told_once_and_known_until_they_close() -> None:
    notices = empty_rows(3)
    rows = NoticeRows(notices)
    rows.kind[:] = [
        NOTICE_NUMBER[code] for code in ("translated_copy", "gap_lost", "translated_copy")
    ]
    rows.connection_id[:] = 4, 5, 7
    copies = CopiedConnections()
    copies.note(notices)
    assert copies.take_new() == (4, 7) and copies.take_new() == ()
    assert copies.open == {4, 7}
    assert copies.close(np.array([5, 7, 9])) == {7}
    assert copies.open == {4}


def test_facts_get_leg_and_twin_unless_a_proxy_gave_them() -> None:
    rows = Connections.new(4)
    rows.connection_id[:] = 5, 6, 7, 8
    rows.copy_of[:] = NULL, 5, NULL, NULL
    rows.twin[:] = 6, NULL, NULL, 9
    proxied = ConnectionFacts(leg=PROXY_LEG, twin_connection_id=3)
    facts = with_translations(rows, {5: ConnectionFacts(client_version="c"), 8: proxied})
    assert facts[5] == ConnectionFacts(client_version="c", leg=CLIENT_LEG, twin_connection_id=6)
    assert facts[6] == ConnectionFacts(leg=PROXY_LEG, twin_connection_id=5)
    assert 7 not in facts and facts[8] == proxied
