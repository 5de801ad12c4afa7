"""A capture of one direction: what is told is what both directions tell, or that it is unknown."""

import io
import ipaddress
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

import pytest

from dissector.cli.main import run
from tests.anycut import rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import Tables
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_snap_length import (
    JUDGED,
    SAMPLES,
    of_rules,
    report_of,
    told_otherwise,
    whole_report,
)
from tests.hard.tape import Tape, capture, dissected
from tests.oracle.conversations import tables_of
from tests.oracle.facts import Oracle
from tests.wire import pulsar
from tests.wire.recut import End, filtered

WAYS: Final = ("to_broker", "to_client")
# Opens in order, which looked like a loop without their answers, and what rules speak of most.
RULED: Final = ("pulsar-live/live-short_runs.pcap", *JUDGED)
# Columns that tell of packets, or of frames as far as they were seen: their meaning says so.
AS_SEEN: Final = {
    *(
        f"connections.{name}{way}"
        for name in ("payload_bytes_", "stream_bytes_", "last_seq_", "gaps_", "gap_bytes_",
                     "snaplen_cut_bytes_", "zero_window_ns_")
        for way in WAYS
    ),
    *(
        f"connections.{name}"
        for name in ("history", "first_ts_ns", "last_ts_ns", "started", "ended", "role_source",
                     "protocol")
    ),
    "exchanges.outcome",  # checked below
    "exchanges.tainted",
}  # fmt: skip
# An answer of Cursus without its request names its own producer and number; of two frames that
# answer one request each is a row.
_UNASKED: Final = {"exchanges", "exchanges.producer_name", "exchanges.sequence_id"}
# A receipt of a copy names its place in the source cluster, which its send tells.
_COPIES: Final = {"exchanges.sequence_id", "exchanges.highest_sequence_id"}
KNOWN: Final = {
    ("pulsar-apache/java-j80_geo-link.pcap", "to_client"): _COPIES,
    # The client closes what the broker had refused.
    ("pulsar/fake-f02_errors.pcap", "to_broker"): {"consumers.closed_frame_no"},
    # FLOW before the answer to SUBSCRIBE changes nothing.
    ("pulsar-random/late_acks-24.pcap.gz", "to_broker"): {"permits.delta"},
}


def one_way(capture: bytes, tables: Tables, way: str) -> bytes:
    """A pcap file with the packets of one direction, as a mirror of half a port gives it."""
    brokers = {
        (ipaddress.ip_address(row["broker_ip"]).packed, row["broker_port"])
        for row in tables["connections"]
    }

    def is_kept(source: End, target: End) -> bool:
        if (source in brokers) == (target in brokers):
            return True
        return (target in brokers) == (way == "to_broker")

    return filtered(capture, is_kept)


def openings(tables: Tables) -> list[tuple[str, int, int, int]]:
    """The producers and consumers that were opened, by their connection, id and incarnation."""
    return sorted(
        (kind, row["connection_id"], row[f"{kind}_id"], row["incarnation"])
        for kind in ("producer", "consumer")
        for row in tables[f"{kind}s"]
        if row["opened_frame_no"] is not None
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_is_what_both_directions_tell(name: str, way: str) -> None:
    data, tables = whole(name)
    half = rows_of(one_way(data, tables, way))
    known = AS_SEEN | KNOWN.get((name, way), set())
    if name.startswith("cursus/") and way == "to_client":
        known |= _UNASKED
    found = [each for each in told_otherwise(tables, half) if each[0] not in known]
    assert not found, found[:5]
    if name.startswith("pulsar"):
        kept = sum(row["direction"] == way for row in tables["frames"])
        assert len(half["frames"]) == kept, "nothing of the direction is lost"
    seen = {row["direction"] for row in half["frames"]}
    assert seen <= {way, "unknown"}
    for row in half["exchanges"]:
        assert row["latency_ns"] is None
        assert row["outcome"] in ("other_side_not_captured", "not_awaited", "orphan_response")
        assert row["outstanding_before"] is None or row["outcome"] == "not_awaited"
    for row in half["connections"]:
        assert row["closed_first_by"] is None
    if way == "to_broker" and name.startswith("pulsar"):
        assert openings(half) == openings(tables), "what was closed unseen was opened again"
    for row in half["deliveries"]:
        assert row["ack_frame_no"] is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SAMPLES if LOOKS_AT_ALL else RULED)
def test_no_rule_finds_what_it_does_not_find_in_both(name: str, way: str, tmp_path: Path) -> None:
    """But for those that say that a direction is missing, and how much of the other was read."""
    data, tables = whole(name)
    true = of_rules(whole_report(name))
    told = of_rules(report_of(one_way(data, tables, way), tmp_path / "half"))
    assert told <= {*true, "V01", "V06"}


@pytest.mark.parametrize(("way", "hidden"), [("to_broker", "receipts"), ("to_client", "sends")])
def test_the_picture_of_a_page_says_what_was_not_captured(
    way: str, hidden: str, tmp_path: Path
) -> None:
    data, tables = whole("pulsar-apache/java-j24_unload.pcap")
    (tmp_path / "half.pcap").write_bytes(one_way(data, tables, way))
    with redirect_stdout(io.StringIO()):
        assert run(["analyze", "-q", str(tmp_path / "half.pcap"), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report" / "report.html").read_text("utf-8")
    assert f"{hidden} not captured" in text and f"{hidden} 0" not in text


@pytest.mark.parametrize(
    ("is_client_captured", "is_ended", "outcome"),
    [(True, True, "conn_closed"), (True, False, "unacked_at_end"), (False, True, "unknown_gap")],
)
def test_a_consumer_that_says_nothing_is_known_not_to_have_acked_if_its_packets_were_captured(
    is_client_captured: bool, is_ended: bool, outcome: str
) -> None:
    """It was there before the capture, and sends TCP acknowledgements only."""
    tape = Tape()
    for entry in range(3):
        place = {"ledgerId": 7, "entryId": entry}
        command = pulsar.command("MESSAGE", consumer_id=1, message_id=place)
        tape.frame(False, pulsar.entry(command, pulsar.metadata("p", entry), b"hi"))
    if is_ended:
        tape.close()
    tape.packets = [each for each in tape.packets if is_client_captured or not each.to_broker]
    data = capture(tape.records())
    assert [row["outcome"] for row in dissected(data)["deliveries"]] == [outcome] * 3
    assert Oracle(tables_of({"silent": (data, ())})).differences() == []
