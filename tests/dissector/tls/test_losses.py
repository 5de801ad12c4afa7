"""Packets that a tap lost of encrypted connections: what is told of the rest is so in the whole."""

import ssl
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import pytest

from dissector.tls.keylog import KeyLog
from tests.anycut import rows_of
from tests.choosing import LOOKS_AT_ALL, examples
from tests.dissector.observed import Tables
from tests.dissector.test_lost_packets import (
    ANSWERED,
    BLAMED,
    by_request,
    known_balances,
    last_heard,
)
from tests.dissector.tls.seen import CAPTURES, SAMPLES
from tests.wire import captures, tls
from tests.wire.recut import with_losses

RATES = (0.02, 0.1)
SEEDS = range(examples(4, 2))
RECORDED = ("go-tls12-resumed", "go-tls13-keyupdates", "tls12-aes128gcm")
SPOKEN = tuple(
    f"{name} {suite}"
    for name in ("java-j12_nack", "java-j15_ackreceipt", "java-j21_seek", "java-j60_txn_commit")
    for suite in ("TLS 1.3", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305")
)
CONTENT = (
    "direction", "command", "request_id", "producer_id", "consumer_id", "sequence_id", "ledger_id",
    "entry_id", "permits", "message_count", "crc32c_stored", "frame_bytes",
)  # fmt: skip


class Whole(NamedTuple):
    """A capture without a loss, what opens it, and its rows."""

    capture: bytes
    keys: bytes
    tables: Tables


@cache
def whole(name: str) -> Whole:
    if name in RECORDED:
        capture = (CAPTURES / f"{name}.pcap").read_bytes()
        keys = (CAPTURES / f"{name}.keys").read_bytes()
    else:
        sample, suite = name.split(" ", 1)
        is_13 = suite == "TLS 1.3"
        settings: dict[str, Any] = {} if is_13 else {"ciphers": suite}
        spoken = tls.spoken(
            tls.conversation_of(SAMPLES / "pulsar-apache" / f"{sample}.pcap"),
            version=ssl.TLSVersion.TLSv1_3 if is_13 else ssl.TLSVersion.TLSv1_2, **settings,
        )  # fmt: skip
        capture, keys = captures.pcap(tls.packets_of(spoken.wire)), spoken.keys.encode()
    return Whole(capture, keys, rows_of(capture, keys=KeyLog(keys)))


def whole_frames(tables: Tables) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(row[name] for name in CONTENT)
        for row in tables["frames"]
        if row["status"] == "complete"
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", RECORDED + SPOKEN if LOOKS_AT_ALL else RECORDED)
def test_what_lost_records_leave_is_told_as_in_the_whole(name: str, rate: float, seed: int) -> None:
    capture, keys, expected = whole(name)
    said = rows_of(with_losses(capture, rate, f"{name} {seed}"), keys=KeyLog(keys))
    frames, all_frames = whole_frames(said), whole_frames(expected)
    assert not frames - all_frames
    opened = {
        row["connection_id"]
        for row in said["connections"]
        if row["tls_decryption"] in ("decrypted", "partly")
    }
    if len(opened) == len(expected["connections"]):
        missing = {row[0] for row in all_frames - frames}
        assert missing <= {row["direction"] for row in said["events"] if row["event"] != "fin"}
        assert not missing or any(row["code"] == "gap_lost" for row in said["notices"])
    answered = {key: row for key, row in by_request(expected).items() if row["outcome"] in ANSWERED}
    heard = last_heard(said)
    for key, row in by_request(said).items():
        if (there := answered.get(key)) is None:
            continue
        assert row["latency_ns"] in (None, there["latency_ns"]), key
        is_blamed = row["outcome"] in BLAMED and not row["tainted"]
        assert not is_blamed or there["response_last_ns"] >= heard[key[0]], key
    balances, known = known_balances(said), known_balances(expected)
    assert not {key for key in balances.keys() & known.keys() if balances[key] - known[key]}
