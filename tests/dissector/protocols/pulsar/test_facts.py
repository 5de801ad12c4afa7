"""Pulsar's part as a whole, on real captures: handshakes, proxies, detail, secrets."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.plain import rows_of_block

CAPTURES = Path(__file__).resolve().parents[4] / "captures"
PROXY = "pulsar-apache/cpp-s08_nack-proxy-any.pcap"


@cache
def tables_of(name: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {}
    (chain,) = chains([str(CAPTURES / name)]).chains
    for block in dissect(chain, Options(**options)):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


def test_handshakes_are_columns_of_their_connections() -> None:
    (row,) = tables_of("pulsar-apache/java-j12_nack.pcap")["connections"]
    assert (row["client_version"], row["server_version"]) == (
        "Pulsar-Java-v4.0.6",
        "Pulsar Server4.0.6",
    )
    assert (row["protocol_version"], row["max_message_bytes"]) == (21, 5 << 20)
    assert row["feature_flags"][:2] == ["supports_auth_refresh", "supports_broker_entry_metadata"]
    assert row["leg"] is None and row["twin_connection_id"] is None


def test_both_sides_of_a_proxy_are_a_pair() -> None:
    """The client's two connections: lookups, which the proxy answers itself, and data."""
    rows = {row["connection_id"]: row for row in tables_of(PROXY)["connections"]}
    proxy_sides = {number: (row["leg"], row["twin_connection_id"]) for number, row in rows.items()}
    assert proxy_sides == {
        0: (None, None),
        1: (None, None),
        2: ("client", 3),
        3: ("broker", 2),
        4: (None, None),
    }
    assert (rows[2]["broker_port"], rows[3]["broker_port"]) == (6652, 6650)
    assert rows[2]["client_version"] == rows[3]["client_version"] == "Pulsar-CPP-v4.2.0"


def test_what_a_proxy_passes_on_is_neither_sent_again_nor_delivered_again() -> None:
    """The client saw 25 messages, of which it had asked for 5 again."""
    tables = tables_of(PROXY)
    for connection in (2, 3):
        sends = [
            row
            for row in tables["exchanges"]
            if row["connection_id"] == connection and row["kind"] == "publish"
        ]
        assert [row["attempt"] for row in sends] == [1] * 20
        assert {row["outcome"] for row in sends} == {"ok"}
        deliveries = [row for row in tables["deliveries"] if row["connection_id"] == connection]
        again = Counter(row["is_redelivered"] for row in deliveries)
        assert again == {False: 20, True: 5}
    assert Counter(row["connection_id"] for row in tables["messages"]) == {2: 45, 3: 45}


def test_rare_commands_have_detail_and_frequent_ones_only_on_demand() -> None:
    name = "pulsar-apache/java-j24_unload.pcap"
    rare = {row["frame_no"]: row["detail"] for row in tables_of(name)["frames"]}
    full = {row["frame_no"]: row for row in tables_of(name, want_detail="all")["frames"]}
    none = {row["detail"] for row in tables_of(name, want_detail="none")["frames"]}
    assert none == {None} and rare.keys() == full.keys()
    shown = {full[number]["command"] for number, detail in rare.items() if detail is not None}
    assert {"CONNECT", "CONNECTED", "PRODUCER", "SUBSCRIBE", "LOOKUP_RESPONSE"} <= shown
    assert not shown & {"SEND", "SEND_RECEIPT", "MESSAGE", "ACK", "FLOW", "PING", "PONG"}
    for row in full.values():
        assert json.loads(row["detail"])["command"]["type"] == row["command"]


TOKEN = "FAKE-eyJ"  # how the client's token begins


def test_tokens_are_hidden_unless_told_otherwise() -> None:
    name = "pulsar/cpp-s20_auth_token.pcap"
    hidden = tables_of(name, want_detail="all")
    (row,) = [row for row in hidden["frames"] if row["command"] == "CONNECT"]
    connect = json.loads(row["detail"])["command"]["connect"]
    assert connect["auth_method_name"] == "token"
    assert connect["auth_data"].startswith("<redacted: ")
    assert TOKEN not in str(hidden) and TOKEN.encode().hex() not in str(hidden)
    shown = tables_of(name, want_detail="all", redact=False)
    assert TOKEN.encode().hex() in str(shown)


def test_a_receipt_whose_send_was_lost_is_none_of_the_next_incarnation() -> None:
    rows = tables_of("pulsar-apache/mut-loss1-java-j24_unload.pcap")["exchanges"]
    found = [
        (row["request_frame_no"], row["response_frame_no"], row["incarnation"], row["outcome"])
        for row in rows
        if row["producer_id"] == 0 and row["sequence_id"] == 213
    ]
    assert found == [(715, 762, 2, "ok"), (None, 704, 1, "orphan_response")]


def test_bytes_that_are_missing_inside_a_frame_leave_the_balance_known() -> None:
    """Until a frame comes of which not even the command was captured."""
    tables = tables_of("pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap")
    balances = [(row["frame_no"], row["available_after"]) for row in tables["permits"]]
    assert balances == [(9, 1000), (20, 950), (23, 900), (33, None), (35, None)]
    (cut,) = (row for row in tables["frames"] if row["command"] is None)
    assert cut["frame_no"] == 32
