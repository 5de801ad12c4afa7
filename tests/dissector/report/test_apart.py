"""The report of captures landed apart is the report of the whole, places apart."""

import copy
from pathlib import Path

import pyarrow.parquet as pq

from dissector.joining.closing import CLOSED, closed_schema
from tests.dissector.joining.cutting import SAMPLES, land, read
from tests.dissector.report.apart import CUTS, WHOLE, Apart, without_places
from tests.reports import SOME_RULES, differences, reported, summary
from tests.split import told
from tests.wire.recut import with_losses

SECTIONS = (
    "send_latency", "permit_utilization", "publish_to_delivery", "redelivery", "ack_latency",
    "connecting", "requests", "errors",
)  # fmt: skip


def test_every_section_is_that_of_the_whole(apart: Apart) -> None:
    whole = summary(*(SAMPLES / name for name in (*CUTS, *WHOLE)))
    found = copy.deepcopy(apart.report)
    closing = found.pop("closing")
    assert closing["total"]["captures"] == 10 and closing["total"]["captures_joined"] == 9
    assert closing["total"]["groups"] == 4 and closing["straddling"] == []
    assert closing["total"]["exchanges_answered_later"] > 0
    assert closing["total"]["redeliveries_recognised"] > 50
    assert whole.pop("closing")["total"]["captures_joined"] == 0
    told = differences(without_places(found), without_places(whole))
    assert [text for text in told if "notice" not in text and "limits" not in text] == []
    assert whole["coverage"]["total"]["connections"] == found["coverage"]["total"]["connections"]


def test_both_sides_of_a_proxy_landed_apart_count_once(tmp_path: Path) -> None:
    """As they do in a capture of both, but for connections that carry no message."""
    for side in ("front", "back"):
        land(read(f"cpp-s08_nack-proxy-{side}.pcap"), side, tmp_path / "lake", tmp_path)
    report = reported(tmp_path / "lake", tmp_path / "report", rules=SOME_RULES)
    both = summary(SAMPLES / "cpp-s08_nack-proxy-any.pcap")
    assert [row["capture"][:6] for row in report["closing"]["copies"]] == ["c-back"]
    for section in ("send_latency", "redelivery", "permit_utilization"):
        for key in ("sends", "messages", "deliveries", "redelivered", "granted", "delivered"):
            expected = both[section]["total"].get(key)
            assert report[section]["total"].get(key) == expected, (section, key)
    assert report["redelivery"]["total"]["redelivered"] > 0


def test_closed_rows_are_written_and_lead_to_their_frames(apart: Apart) -> None:
    folder = apart.folder / "tables"
    exchanges = pq.read_table(folder / "closed_exchanges").to_pylist()
    later = [row for row in exchanges if row["response_capture"] is not None]
    assert later and all(row["response_capture"] != row["own_capture"] for row in later)
    assert not [row for row in exchanges if row["outcome"] == "orphan_response"]
    for table in CLOSED:
        there = pq.read_table(folder / f"closed_{table}")
        assert there.num_rows > 0
        assert sorted(there.schema.names) == sorted(closed_schema(table).names)
    deliveries = pq.read_table(folder / "closed_deliveries").to_pylist()
    places = {(r["own_capture"], r["own_connection_id"], r["frame_no"]) for r in deliveries}
    again = [row for row in deliveries if row["previous_frame_no"] is not None]
    for row in again:
        capture = row["previous_capture"] or row["own_capture"]
        assert (capture, row["previous_connection_id"], row["previous_frame_no"]) in places
    assert {row["previous_capture"] is None for row in again} == {True, False}
    assert any(row["previous_connection_id"] != row["own_connection_id"] for row in again)
    total = apart.report["closing"]["total"]
    assert total["outcomes_before"].keys() > total["outcomes_after"].keys()


def test_two_taps_that_lost_different_packets_tell_what_one_of_them_does(tmp_path: Path) -> None:
    """The second one is a copy: what it shows of the same connections counts in coverage alone."""
    data = read("java-j24_unload.pcap")
    for seed in ("a", "b"):
        part = with_losses(data, 0.1, seed)
        land(part, seed, tmp_path / "both", tmp_path)
        land(part, seed, tmp_path / seed, tmp_path)
    both, first = (
        told(tmp_path / lake, tmp_path / f"report-{lake}", sections=SECTIONS)
        for lake in ("both", "a")
    )
    assert both["connecting"]["total"]["opened"] == 1
    assert differences(first, both) == []
