"""Rows of samples that differ when these are split, and why: what a cut destroys.

By sample (with its folder) and way; how many rows, or values of reports where no row differs: those
of `python -m tests.split --seed 1`, with `--reports` those of reports.
"""

from typing import Final

FRAME: Final = """
A frame was under way: the first capture has its beginning and the second its end, and neither what
it says. Its row, and what follows from it: the answer of a request, its time, balances."""
NOTHING_TOLD: Final = """
The first frames behind the boundary do not tell what they are (plain words of Cursus), and are
skipped: their exchanges lack the other half."""
LEGS: Final = """
The boundary lies between the handshakes of the two legs of a proxied connection and their first
frames, by which they are known as a pair: each message counts on both."""
NO_CHECKSUM: Final = """
Messages without a checksum: two taps that show the same one at other moments have nothing to know
it by, and are joined no more than captures of two brokers."""
ANEW: Final = """
A producer of one half begins anew behind the boundary: its sends lack their topic. Not mended."""

CUT: Final = ("cut", "order", "processes")
KNOWN: Final[dict[str, dict[str, int]]] = {
    FRAME: {
        "cursus/apr26-raw_commands.pcap anywhere": 2,
        "cursus/go-auth_sasl.pcap anywhere": 1,
        "cursus/go-batch_gzip.pcap anywhere": 2,
        "cursus/go-batch_lz4_precreated.pcap anywhere": 1,
        "cursus/go-broker_stall_ack_timeout.pcap anywhere": 1,
        "cursus/go-consume_polling.pcap anywhere": 2,
        "cursus/go-consume_streaming.pcap anywhere": 2,
        "cursus/go-group_rebalance_two_consumers.pcap anywhere": 1,
        "cursus/go-idempotent.pcap anywhere": 2,
        "cursus/go-ipv6_loopback.pcap anywhere": 2,
        "cursus/go-produce_singles_acks_0.pcap anywhere": 3,
        "cursus/go-produce_singles_acks_1.pcap anywhere": 1,
        "cursus/py-eventstore_txn_offsets.pcap anywhere": 1,
        "cursus/py-produce.pcap anywhere": 1,
        "cursus/py-produce_batches_idem.pcap anywhere": 1,
        "cursus/raw-commands_all.pcap anywhere": 1,
        "pulsar-apache/cpp-s03_batch_none-bem.pcap anywhere": 2,
        "pulsar-apache/java-j02_pipelined.pcap.gz anywhere": 4,
        "pulsar-apache/java-j03_batch_none.pcap anywhere": 2,
        "pulsar-apache/java-j05_chunk64k_zstd.pcap.gz anywhere": 6,
        "pulsar-apache/java-j24_unload.pcap anywhere": 2,
        "pulsar-apache/java-j32_encryption.pcap anywhere": 20,
        "pulsar-apache/java-j80_geo-link.pcap anywhere": 1,
        "pulsar-apache/mut-loss1-java-j24_unload.pcap anywhere": 189,
        "pulsar/tap-mirror-batch_none.pcap anywhere": 4,
    },
    NOTHING_TOLD: {
        **{f"cursus/apr26-raw_commands.pcap {way}": 4 for way in CUT},
        **{f"cursus/go-negotiate_structured_errors.pcap {way}": 1 for way in CUT},
    },
    NO_CHECKSUM: {
        "pulsar/cpp-s14_reconnect.pcap connections": 10,
        "pulsar/cpp-s14_reconnect.pcap both": 10,
        "pulsar/go_client.pcap connections": 20,
        "pulsar/go_client.pcap both": 20,
    },
    ANEW: {"pulsar-random/redeliver-11.pcap.gz both": 29},
    LEGS: {
        f"pulsar-apache/cpp-s08_nack-proxy-any.pcap {way}": 75 for way in (*CUT, "anywhere", "both")
    },
}

ALONE: Final = """
Captures that share no connection and no message are counted each by itself: the connections that a
client opened within ten seconds, on both sides of the boundary, the chain of its steps if it looked
a topic up before the boundary and opened it behind on another connection, and messages with the ids
of others on connections before. In one group they say what the whole says, but nothing tells that
they are of one network: addresses come again, as in the 143 pairs of samples that follow each other
within ten seconds."""
LIFE: Final = """
Behind the boundary a broker sends signs of life alone, four zero bytes each. A lake has how many
they were: the length of a frame that goes on is four bytes, too."""

KNOWN_IN_REPORTS: Final[dict[str, dict[str, int]]] = {
    ALONE: {
        "cursus/py-consume_polling.pcap anywhere": 3,
        **{f"cursus/py-eventstore_txn_offsets.pcap {way}": 4 for way in CUT},
        **{f"cursus/go-ipv6_loopback.pcap {way}": 1 for way in CUT},
        "pulsar/cpp-s12_seek.pcap both": 1,
        "pulsar/fake-f11_auth_challenge.pcap both": 1,
        "pulsar-apache/cpp-s08_nack-proxy-back.pcap both": 20,
        "pulsar-apache/cpp-s08_nack-proxy-front.pcap both": 24,
        "pulsar-apache/node-flex.pcap both": 10,
        "pulsar-apache/java-j80_geo-link.pcap both": 35,
        "pulsar-live/live-broker_restart.pcap.gz both": 3,
        "pulsar-live/live-short_runs.pcap both": 6,
        **{f"pulsar/cpp-s15_errors.pcap {way}": 71 for way in (*CUT, "anywhere")},
        "pulsar/cpp-s15_errors.pcap connections": 95,
        "pulsar/cpp-s15_errors.pcap both": 115,
    },
    LIFE: {
        **{f"cursus/go-consume_polling.pcap {way}": 2 for way in CUT},
        **{f"cursus/go-crash_redelivery_streaming.pcap {way}": 2 for way in CUT},
        **{f"cursus/go-group_rebalance_two_consumers.pcap {way}": 4 for way in CUT},
        **{f"cursus/go-ipv6_loopback.pcap {way}": 2 for way in CUT},
    },
}
