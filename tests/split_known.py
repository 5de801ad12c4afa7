"""Rows of samples that differ when these are split, and why: what a cut destroys.

By sample and way; how many rows, or values of reports where no row differs. They are those of
`python -m tests.split --seed 1`, with `--reports` those of reports.
"""

from typing import Final

FRAME: Final = """
A frame was under way: the first capture has its beginning and the second its end, and neither what
it says. Its row, and what follows from it: the answer of a request, its time, balances."""
NOTHING_TOLD: Final = """
The first frames behind the border do not tell what they are (plain words of Cursus), and are
skipped: their exchanges lack the other half."""
LEGS: Final = """
The border lies between the handshakes of the two legs of a proxied connection and their first
frames, by which they are known as a pair: each message counts on both."""
NO_CHECKSUM: Final = """
Messages without a checksum: two taps that show the same one at other moments have nothing to know
it by, and are joined no more than captures of two brokers."""
START: Final = """
Of a side that begins at a border nothing leaves for a reorder window: a hole that opens meanwhile
lies a few frames later, and taints another exchange than in the whole."""

KNOWN: Final[dict[str, dict[str, int]]] = {
    FRAME: {
        "apr26-raw_commands.pcap anywhere": 2,
        "go-auth_sasl.pcap anywhere": 1,
        "go-batch_gzip.pcap anywhere": 2,
        "go-batch_lz4_precreated.pcap anywhere": 1,
        "go-broker_stall_ack_timeout.pcap anywhere": 1,
        "go-consume_polling.pcap anywhere": 2,
        "go-consume_streaming.pcap anywhere": 2,
        "go-group_rebalance_two_consumers.pcap anywhere": 1,
        "go-idempotent.pcap anywhere": 2,
        "go-ipv6_loopback.pcap anywhere": 2,
        "go-produce_singles_acks_0.pcap anywhere": 3,
        "go-produce_singles_acks_1.pcap anywhere": 1,
        "py-eventstore_txn_offsets.pcap anywhere": 1,
        "py-produce.pcap anywhere": 1,
        "py-produce_batches_idem.pcap anywhere": 1,
        "raw-commands_all.pcap anywhere": 1,
        "cpp-s03_batch_none-bem.pcap anywhere": 2,
        "java-j02_pipelined.pcap.gz anywhere": 4,
        "java-j03_batch_none.pcap anywhere": 2,
        "java-j05_chunk64k_zstd.pcap.gz anywhere": 6,
        "java-j24_unload.pcap anywhere": 2,
        "java-j32_encryption.pcap anywhere": 20,
        "java-j80_geo-link.pcap anywhere": 1,
        "mut-loss1-java-j24_unload.pcap anywhere": 189,
        "tap-mirror-batch_none.pcap anywhere": 4,
    },
    NOTHING_TOLD: {
        **{f"apr26-raw_commands.pcap {way}": 4 for way in ("cut", "order", "processes")},
        **{
            f"go-negotiate_structured_errors.pcap {way}": 1 for way in ("cut", "order", "processes")
        },
    },
    NO_CHECKSUM: {
        "cpp-s14_reconnect.pcap connections": 10,
        "cpp-s14_reconnect.pcap both": 10,
        "go_client.pcap connections": 20,
        "go_client.pcap both": 20,
    },
    START: {
        f"tap-caploss.pcap {way}": 2 for way in ("cut", "anywhere", "order", "both", "processes")
    },
    LEGS: {
        f"cpp-s08_nack-proxy-any.pcap {way}": 75
        for way in ("cut", "anywhere", "order", "both", "processes")
    },
}

ALONE: Final = """
Captures that share no connection are counted each by itself: how many connections a client opened
within ten seconds, on both sides of the border."""
LIFE: Final = """
Behind the border a broker sends signs of life alone, four zero bytes each: nothing tells that they
are frames."""
CHAIN: Final = """
A client looked a topic up before the border and opened it behind, on another connection: the chain
of its steps begins behind the border, and all lists of chains are of other ones."""

CUT: Final = ("cut", "order", "processes")
KNOWN_IN_REPORTS: Final[dict[str, dict[str, int]]] = {
    ALONE: {
        "py-consume_polling.pcap anywhere": 3,
        **{f"py-eventstore_txn_offsets.pcap {way}": 4 for way in CUT},
        **{f"go-ipv6_loopback.pcap {way}": 1 for way in CUT},
        "cpp-s12_seek.pcap both": 1,
    },
    CHAIN: {
        **{f"cpp-s15_errors.pcap {way}": 71 for way in (*CUT, "anywhere")},
        "cpp-s15_errors.pcap connections": 95,
        "cpp-s15_errors.pcap both": 115,
    },
    LIFE: {
        **{f"go-consume_polling.pcap {way}": 2 for way in CUT},
        **{f"go-crash_redelivery_streaming.pcap {way}": 2 for way in CUT},
        **{f"go-group_rebalance_two_consumers.pcap {way}": 4 for way in CUT},
        **{f"go-ipv6_loopback.pcap {way}": 2 for way in CUT},
    },
}
