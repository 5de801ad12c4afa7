"""However TCP cuts a stream into segments, the rows are the same: real captures, cut elsewhere."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.anycut import at_random, behind, bytes_of, differences, each_byte, frame_starts, rows_of
from tests.dissector.observed import CAPTURES, Tables
from tests.wire.recut import Places, recut

# Short captures in which every kind of frame and of beginning is.
CURSUS = (
    "cursus/apr26-raw_commands.pcap",
    "cursus/go-batch_gzip.pcap",
    "cursus/go-consume_streaming.pcap",
    "cursus/go-eventstore.pcap",
    "cursus/go-idempotent.pcap",
    "cursus/go-negotiate_structured_errors.pcap",
    "cursus/go-produce_singles_acks_0.pcap",
    "cursus/java-produce_acks0.pcap",
    "cursus/py-txn_token_in_payload.pcap",
    "cursus/raw-commands_all.pcap",
    "cursus/raw-seed_positional.pcap",
    "cursus/tls-mixed.pcap",
)
PULSAR = (
    "pulsar/cpp-s01_handshake_producer.pcap",
    "pulsar/cpp-s18_keepalive.pcap",
    "pulsar/fake-f14_batch_index_ack.pcap",
    "pulsar/fake-f17_tls.pcap",
    "pulsar/tap-oneway.pcap",
    "pulsar/var-any-sll1.pcap",
    "pulsar-apache/go-g06_txn-bem.pcap",
    "pulsar-apache/java-j12_nack_batch_index.pcap",
    "pulsar-apache/java-j34_http_lookup.pcap",
    "pulsar-apache/java-j83_haproxy-v1.pcap",
    "pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap",
)
each = pytest.mark.parametrize("name", (*CURSUS, *PULSAR))


@cache
def whole(name: str) -> tuple[bytes, Tables]:
    capture = bytes_of(CAPTURES / name)
    return capture, rows_of(capture)


def differs(name: str, places: Places) -> dict[str, Any]:
    capture, tables = whole(name)
    cut = recut(capture, places)
    assert len(cut) > len(capture)
    return differences(tables, rows_of(cut))


@each
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 11])
def test_frames_may_be_cut_behind_any_of_their_first_bytes(name: str, count: int) -> None:
    """A length prefix, a command's tag, a word: a header comes in two segments."""
    starts = frame_starts(whole(name)[1])
    if starts:
        assert differs(name, behind(starts, count)) == {}


@each
def test_every_byte_may_come_in_a_segment_of_its_own(name: str) -> None:
    """Also TLS, HTTP and the header that a proxy puts before a connection."""
    assert differs(name, each_byte) == {}


@settings(max_examples=40)
@given(st.sampled_from((*CURSUS, *PULSAR)), st.integers(0, 1 << 32))
def test_segments_may_be_cut_anywhere(name: str, seed: int) -> None:
    assert differs(name, at_random(seed)) == {}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_keepalives_of_brokers_stay_where_their_length_is_cut(count: int) -> None:
    """Four zero bytes are a whole frame of Cursus, and prove nothing where they are searched."""
    name = "cursus/go-ipv6_loopback.pcap"
    tables = whole(name)[1]
    kept = [row for row in tables["frames"] if row["command"] == "KEEPALIVE"]
    assert kept
    assert differs(name, behind(frame_starts(tables), count)) == {}
