"""Reports of real captures: those of a lake, of one of its captures, and of files are the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.main import run
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import SAMPLES
from tests.dissector.lake.samples import landed
from tests.reports import differences, reported, summary

CURSUS = "../cursus/go-crash_redelivery_streaming.pcap"
# With a proxied pair, TLS, damage and a start in the middle.
NAMES = (
    "java-j74_corrupt.pcap", "java-j24_unload.pcap", "java-j12_nack.pcap",
    "java-j40_slow_consumer.pcap", "java-j61_txn_abort.pcap", "java-j16_dlq_retry.pcap",
    "java-j72_midstream.pcap", "cpp-s08_nack-proxy-any.pcap",
    "mut-snap200-java-j03_batch_lz4.pcap", "../pulsar/tap-caploss.pcap", "java-j35_tls.pcap",
    CURSUS, "../cursus/raw-commands_all.pcap",
)  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return landed(
        tmp_path_factory.mktemp("real") / "lake", [f"pulsar-apache/{name}" for name in NAMES]
    )


@pytest.fixture(scope="module")
def whole(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reported(lake, tmp_path_factory.mktemp("report") / "out")


def test_the_report_of_real_captures_is_their_summary(whole: dict[str, Any]) -> None:
    assert differences(whole, summary(*(SAMPLES / name for name in NAMES))) == []
    assert whole["closing"]["total"]["captures_joined"] == 0
    total = whole["coverage"]["total"]
    assert total["captures"] == len(NAMES) and total["tls_opaque_connections"] > 0
    assert whole["checksum_failures"]["total"]["confirmed_by_peer"] == 1
    assert whole["redelivery"]["total"]["by_cause"].keys() >= {"unload", "explicit", "txn_abort"}


@pytest.mark.parametrize("name", ["java-j40_slow_consumer.pcap", CURSUS])
def test_the_report_of_one_capture_is_its_summary(
    lake: Path, whole: dict[str, Any], tmp_path: Path, name: str
) -> None:
    alone = summary(SAMPLES / name)
    capture = alone["sources"][0]["capture"]
    report = reported(lake, tmp_path / "out", captures=(capture,))
    assert differences(report, alone) == []
    rows = [row for row in whole["verdicts"]["by_capture"] if row["capture"] == capture]
    assert report["verdicts"]["by_capture"] == rows  # there it is made from what is kept
    if name == CURSUS:
        assert report["permit_utilization"]["total"]["not_applicable"]
        assert report["redelivery"]["total"]["by_cause"]["rebalance"] > 0
    else:
        assert len(report["permit_utilization"]["balance_over_time"]["points"]) >= 7


def test_exact_percentiles_are_values_that_occurred(
    lake: Path, tmp_path: Path, whole: dict[str, Any]
) -> None:
    report = reported(lake, tmp_path / "out", exact=True, sections=("send_latency",))
    with open_lake(lake) as opened:
        rows = opened.table("exchanges").to_pylist()
    topics = {row["topic"]: row for row in report["send_latency"]["by_topic"]}
    for topic in ("persistent://public/default/j12", "persistent://public/default/j40"):
        values = sorted(
            row["latency_ns"] for row in rows
            if row["topic"] == topic and row["kind"] == "publish" and row["outcome"] == "ok"
        )  # fmt: skip
        exact = topics[topic]["latency_ms"]
        for name, permille in (("p50", 500), ("p90", 900), ("p99", 990)):
            rank = -(-len(values) * permille // 1000)
            assert exact[name] == pytest.approx(values[rank - 1] / 1e6, abs=0.0006), (topic, name)
        near = {row["topic"]: row for row in whole["send_latency"]["by_topic"]}[topic]
        assert near["latency_ms"]["p50"] == pytest.approx(exact["p50"], rel=0.016)


def test_a_real_capture_landed_twice_is_cut_by_topic_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted by eye in the list of frames: `dissector frames java-j16_dlq_retry.pcap`."""
    for name in ("night.pcap", "the-same-night.pcap"):
        shutil.copy(SAMPLES / "java-j16_dlq_retry.pcap", tmp_path / name)
        assert run(["land", str(tmp_path / name), "--lake", str(tmp_path / "lake"), "-q"]) == 0
    capsys.readouterr()
    # From the third SEND on, that included, up to two redeliveries, these not.
    part = ["--since", "2026-11-21T09:46:56.210296", "--until", "2026-11-21T10:46:56.612932+01:00"]
    paths = ["--lake", str(tmp_path / "lake"), "-o", str(tmp_path / "out")]
    assert run(["report", *paths, "--engine", "duckdb", "--topic", "j16", *part]) == 0
    (first, second) = sorted(path.stem for path in (tmp_path / "lake" / "_manifest").iterdir())
    assert f"{second} is not counted: all its files are in {first}" in capsys.readouterr().err
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert report["coverage"]["not_counted"] == [{"capture": second, "held_by": first}]
    assert report["selection"]["topics"] == ["persistent://public/default/j16"]
    sends = report["send_latency"]["total"]
    assert (sends["sends"], sends["messages"], sends["outcomes"]) == (4, 4, {"ok": 4})
    latency = sends["latency_ms"]
    assert (latency["min"], latency["max"], latency["mean"]) == (3.647, 4.271, 4.024)
    for window, begin in (("minute", "09:46:00"), ("hour", "09:00:00"), ("day", "00:00:00")):
        (only,) = sends[f"per_{window}"]
        assert only[window] == f"2026-11-21T{begin}.000000Z" and only["sends"] == 4
    total = report["redelivery"]["total"]
    assert (total["deliveries"], total["redelivered"]) == (4, 0)
    assert [row["topic"] for row in report["send_latency"]["by_topic"]] == [
        "persistent://public/default/j16"
    ]
