"""What a lake says of a run: the numbers of its report, by cell and topic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dissector.cli.main import run as command
from dissector.compare.comparing import compared
from dissector.compare.lake_run import CELLS, Clock, taken
from dissector.compare.runs import RATIOS, Run
from dissector.compare.testing import Ranked
from dissector.errors import InputError, UsageError
from dissector.queries.selection import Asked
from tests.dissector.compare.conftest import LOSSY, QUIET, SAMPLES, RunOf
from tests.numbers import Numbers

Row = dict[str, Any]
STALLED = SAMPLES / "pulsar-apache" / "java-j40_slow_consumer.pcap"
SAMPLES_OF_ALL = (
    QUIET, LOSSY, STALLED, SAMPLES / "pulsar-apache" / "java-j12_nack.pcap",
    SAMPLES / "pulsar-apache" / "java-j74_corrupt.pcap",
    SAMPLES / "pulsar-apache" / "java-j23_errors.pcap",
    SAMPLES / "cursus" / "py-produce.pcap",
)  # fmt: skip


def report_of(path: Path, capsys: pytest.CaptureFixture[str]) -> Row:
    capsys.readouterr()
    assert command(["summary", str(path), "--json", "--exact", "-q"]) in (0, 3)
    report: Row = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.parametrize("path", SAMPLES_OF_ALL, ids=lambda path: path.name)
def test_the_numbers_are_those_of_the_report(
    path: Path, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    run, report = run_of(path), report_of(path, capsys)
    sends = report["send_latency"]["total"]
    for measure, expected in (
        ("send_latency", sends["latency_ms"]),
        ("logical_latency", sends["logical_latency_ms"]),
        ("transmit", sends["transmit_ms"]),
        ("publish_to_delivery", report["publish_to_delivery"]["total"]["transit_ms"]),
        ("ack_latency", report["ack_latency"]["total"]["ack_latency_ms"]),
    ):
        found = run.values.get((measure, None))
        assert (found.number if found else 0) == expected["count"], measure
        if found is not None:
            is_exact = measure in ("send_latency", "logical_latency", "transmit")
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                value = Ranked(found).at(share) / 1e6
                off = 0.0005 if is_exact else 0.017  # those are in histograms
                assert value == pytest.approx(expected[name], rel=off, abs=0.0006), (measure, name)
            assert found.mean().ratio / 1e6 == pytest.approx(expected["mean"], rel=5e-4, abs=6e-4)
    redelivered, checksums = report["redelivery"]["total"], report["checksum_failures"]["total"]
    for metric, share in (
        ("redeliveries", redelivered["rate_entries"]),
        ("checksum_failures", checksums["rate"]),
        ("permits_exhausted", report["permit_utilization"]["total"]["exhausted_share"]),
    ):
        series = run.series.get((metric, None))
        assert (series is None) == (share is None), metric
        if series is not None:
            assert series.ratio == pytest.approx(share, abs=2e-5), metric
    refused = run.series.get(("sends_refused", None))
    assert (refused.part.sum() if refused else 0) == sends["outcomes"].get("error", 0)
    opened = run.series.get(("connections_failed", None))
    assert (opened.whole.sum() if opened else 0) == report["connecting"]["total"]["opened"]


def test_requests_are_measured_by_command(quiet: Run) -> None:
    commands = {m.partition(".")[2] for m, _ in quiet.values if m.startswith("request_latency")}
    assert {"CONNECT", "LOOKUP", "PRODUCER", "SUBSCRIBE"} <= commands and "PING" not in commands


def test_messages_per_second_are_those_from_the_first_to_the_last(quiet: Run) -> None:
    series = quiet.series["messages_sent", None]
    assert series.part.sum() == 917 and len(series.part) <= CELLS + 1
    assert 4.9 < series.whole.sum() < 5.1  # of 5.6 s of capture


def test_a_run_against_itself_is_no_evidence_everywhere(quiet: Run, lossy: Run) -> None:
    for run in (quiet, lossy):
        rows = compared(run, run)["metrics"]
        assert {row["verdict"] for row in rows} == {"no evidence", "not comparable"}


def test_a_network_that_loses_packets_is_found(quiet: Run, lossy: Run) -> None:
    comparison = compared(quiet, lossy)
    worse = {row["metric"] for row in comparison["metrics"] if row["verdict"] == "worse"}
    assert {"send_latency.p50", "send_latency.mean", "publish_to_delivery.p50"} <= worse
    assert comparison["verdicts"]["better"] == 0
    back = compared(lossy, quiet)
    better = {row["metric"] for row in back["metrics"] if row["verdict"] == "better"}
    assert better == worse and back["verdicts"]["worse"] == 0


@pytest.mark.parametrize("one", range(3))
def test_pieces_of_one_capture_do_not_differ(one: int, run_of: RunOf) -> None:
    folder = SAMPLES / "pulsar"
    pieces = [run_of(folder / f"ring.pcap{number}") for number in (one, one + 1)]
    assert compared(*pieces)["verdicts"]["worse"] == 0
    assert compared(*pieces)["verdicts"]["better"] == 0


def test_captures_of_a_lake_are_one_run(run_of: RunOf, quiet: Run, lossy: Run) -> None:
    both = run_of(QUIET, LOSSY)
    assert both.values["send_latency", None].number == 580 + 588
    assert both.topics.keys() == quiet.topics.keys() | lossy.topics.keys()
    # The hours between the two are no time in which nothing was sent.
    assert 9.5 < both.series["messages_sent", None].whole.sum() < 12
    assert len(both.digests) == 2


def test_topics_can_be_selected(run_of: RunOf) -> None:
    name = "persistent://public/default/lat"
    assert set(run_of(QUIET, LOSSY, what=Asked(topics=["lat"]).selection()).topics) == {name}
    with pytest.raises(UsageError, match="nothing in it matches: topic x"):
        run_of(QUIET, what=Asked(topics=["x"]).selection())


def test_a_capture_without_a_known_frame_is_refused(run_of: RunOf) -> None:
    with pytest.raises(InputError, match="no frame of Pulsar or Cursus"):
        run_of(SAMPLES / "pulsar" / "fake-f17_tls.pcap")


def test_permits_are_shared_out_to_the_cells_they_last() -> None:
    """A consumer with permits for 2 s, then without for 1 s, twice over."""
    numbers = Numbers()
    start = 1_700_000_000_000_000
    rows = []
    for at, event, delta, after in ((0, "grant", 1, 1), (2, "delivery", -1, 0),
                                    (3, "grant", 1, 1), (5, "delivery", -1, 0)):  # fmt: skip
        rows.append({
            "connection_id": 0, "consumer_id": 1, "incarnation": 0, "frame_no": at, "event": event,
            "ts": start + at * 1_000_000, "delta": delta, "available_after": after,
        })  # fmt: skip
    table = pa.Table.from_pylist(rows)
    times = table.column("ts").cast(pa.timestamp("us", "UTC"))
    numbers.add("permits", table.set_column(table.schema.get_field_index("ts"), "ts", times))
    last_ns = (start + 6_000_000) * 1000
    ends = {"connection_id": [0], "first_ts_ns": [start * 1000], "last_ts_ns": [last_ns]}
    numbers.add("connections", pa.table(ends))
    run = taken(numbers.opened(), Clock([(start * 1000, last_ns)]), "x")
    found = run.series["permits_exhausted", None]
    assert found.whole.sum() == pytest.approx(6) and found.part.sum() == pytest.approx(2)
    seconds = np.add.reduceat(found.part, np.arange(0, len(found.part), CELLS // 6 + 1))
    assert seconds == pytest.approx([0, 0, 1, 0, 0, 1], abs=0.02)


def test_the_clock_has_cells_only_where_something_was_captured() -> None:
    clock = Clock([(1000, 5096), (2000, 3000), (10**9, 10**9 + 4096), (0, 0)])
    assert (clock.first_ns, clock.width_ns) == (1000, 2)
    cells = clock.between(0, 10**9)
    assert len(cells) == pytest.approx(4096, abs=4) and cells[0] == 0
    assert clock.between(-5, -1).tolist() == [] == clock.between(10**6, 10**6).tolist()


def test_every_ratio_is_counted_by_the_queries(run_of: RunOf) -> None:
    names = {name for name, _ in run_of(STALLED).series}
    assert names == RATIOS.keys()
