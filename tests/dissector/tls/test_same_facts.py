"""What is told of a capture is told of the same traffic in TLS, with a key log, and no more."""

from typing import Any, Final

import pytest

from dissector.tls.keylog import KeyLog
from tests.anycut import differences, rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import Tables
from tests.dissector.test_capture_times import WHOLE, sample
from tests.wire.in_tls import Told, told
from tests.wire.recut import beginning_at, records, with_losses

SUITES: Final = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
# A proxy's capture that ends within a frame has packets behind a hole.
ALL: Final = tuple(name for name in WHOLE if "nack-proxy-any" not in name)
# Transactions, a proxy's header before a connection, lookups by HTTP, TLS as it is, large frames.
FEW: Final = (
    "cursus/go-transactions.pcap",
    "cursus/tls-mixed.pcap",
    "pulsar/cpp-s24_big.pcap",
    "pulsar-apache/java-j34_http_lookup.pcap",
    "pulsar-apache/java-j83_haproxy-v1.pcap",
)
SAMPLES: Final = ALL if LOOKS_AT_ALL else FEW
each_sample = pytest.mark.parametrize("name", SAMPLES)
OF_TLS: Final = ("sni", "version", "cipher", "resumed", "handshake_ns", "decryption",
                 "overhead_bytes_to_broker", "overhead_bytes_to_client")  # fmt: skip
OF_BYTES: Final = ("payload_bytes", "stream_bytes", "last_seq", "unparsed_bytes", "decoded_bytes")
LEFT_OUT: Final = {
    "connections": {
        "history",
        *(f"tls_{each}" for each in OF_TLS),
        *(f"{each}_{way}" for each in OF_BYTES for way in ("to_broker", "to_client")),
    },
    "frames": {"stream_offset"},
    "events": {"stream_offset"},
    "notices": {"stream_offset"},
}


def without(tables: Tables) -> Tables:
    """Rows without columns of bytes on the wire, and of TLS; and without how many checksums were
    left to the network card."""
    return {
        table: [
            {name: value for name, value in row.items() if name not in LEFT_OUT.get(table, ())}
            for row in rows
            if row.get("code") != "checksum_offload"
        ]
        for table, rows in tables.items()
    }


def in_tls(made: Told, capture: bytes | None = None) -> Tables:
    keys = KeyLog(made.keys.encode())
    return rows_of(made.in_tls if capture is None else capture, keys=keys)


@pytest.mark.parametrize("suite", SUITES)
@each_sample
def test_facts_in_tls_are_those_of_the_plain_traffic(name: str, suite: str) -> None:
    made = told(sample(name), suite)
    assert differences(without(rows_of(made.plain)), without(in_tls(made))) == {}


@each_sample
def test_of_connections_from_before_the_capture_nothing_is_told(name: str) -> None:
    """Their handshake was not captured: no key fits, and no bytes happen to be a frame."""
    made = told(sample(name), SUITES[0])
    count = sum(1 for _ in records(made.in_tls))
    for left_out in (4, 5, 6, 7, count // 3, count // 2):
        tables = in_tls(made, beginning_at(made.in_tls, left_out))
        closed = {
            row["connection_id"]
            for row in tables["connections"]
            if row["started"] != "syn" and row["tls_decryption"] != "decrypted"
        }
        for table in ("frames", "exchanges", "deliveries", "permits", "producers", "consumers"):
            assert not any(row["connection_id"] in closed for row in tables[table]), table


def frames(tables: Tables) -> set[Any]:
    names = ("direction", "command", "frame_bytes", "request_id", "sequence_id")
    rows = [row for row in tables["frames"] if row["status"] == "complete"]
    return {tuple(row[name] for name in names) for row in rows}


@each_sample
def test_behind_lost_records_no_frame_is_told_that_was_not_sent(name: str) -> None:
    made = told(sample(name), SUITES[0])
    found = frames(in_tls(made, with_losses(made.in_tls, 0.05, name)))
    assert found <= frames(in_tls(made))
