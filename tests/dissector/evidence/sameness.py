"""Whether two captures say the same, names apart."""

from collections.abc import Sequence
from typing import Any

from tests.hard.tape import Row, Tables

# Texts that name something: equal ones must stay equal, others must stay others.
NAMING = frozenset(
    (
        *("topic", "producer_name", "subscription", "consumer_name", "name", "client_ip"),
        *("broker_ip", "community_id", "partition_key", "ordering_key", "error_text"),
        *("real_topic", "real_subscription", "replicated_from", "tls_sni", "proxied_client_ip"),
        *("chunk_uuid", "crc32c_stored", "tunnel_id", "client_version", "server_version"),
        "feature_flags",
    )
)
# What follows from bytes that are others, or is made of several names.
OTHERS = frozenset(
    (
        *("connection_key", "detail", "crc32c_computed", "sha256", "file_bytes", "file_name"),
        *("format", "properties", "payload_sha256", "text", "dissector_version", "compressed"),
        *("initial_position", "key_hash", "tls_version", "tls_cipher", "tls_alpn", "tls_resumed"),
        *("tls_handshake_ns", "tls_alert_to_broker", "tls_alert_to_client", "tls_decryption"),
        *("tls_certificate_subject", "tls_certificate_not_before_ns"),
        "tls_certificate_not_after_ns",
    )
)


def shape(values: list[Any]) -> list[int | None]:
    """Each value as the number of the first one that equals it."""
    seen: dict[str, int] = {}
    return [None if each is None else seen.setdefault(repr(each), len(seen)) for each in values]


def plain(rows: list[Row]) -> dict[str, list[Any]]:
    """Columns of a table without names."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return {
        name: shape(values) if name in NAMING else values
        for name, values in columns.items()
        if name not in OTHERS
    }


def notices(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Notices in no order of names; how much was hidden is another number."""
    names = ("code", "connection_id", "packet", "frame_no", "bytes")
    return sorted(
        tuple(row[name] if row[name] is not None else -1 for name in names)
        for row in rows
        if row["code"] != "redacted"
    )


def assert_same(one: Tables, other: Tables, but: Sequence[str] = ()) -> None:
    assert notices(one.get("notices", [])) == notices(other.get("notices", []))
    for table in sorted((set(one) | set(other)) - {"notices"}):
        mine, theirs = plain(one.get(table, [])), plain(other.get(table, []))
        assert mine.keys() == theirs.keys(), table
        for name in mine.keys() - set(but):
            assert mine[name] == theirs[name], (table, name)
