"""Metrics of a tap are sums over the rows that the lake gets, served while it runs."""

import functools
import http.client
import json
import os
import sys
import threading
from collections import Counter
from contextlib import contextmanager

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

from dissector.dissection import Options
from dissector.errors import OutputError, UsageError
from dissector.limits import MAX_WINDOW_BYTES
from dissector.schemas import TABLES as COUNTED
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from dissector.tap.health import Health, Losses
from dissector.tap.loop_metrics import LoopMetrics
from dissector.tap.metric_series import UNKNOWN
from dissector.tap.metrics import TapNumbers
from dissector.tap.playback import FilePlayback
from dissector.tap.rotations import Rotations
from dissector.tap.server import Server, address_of
from dissector.tap.service import Tap, TapSettings
from dissector.tap.windows import Windows
from tests.dissector.observed import CAPTURES, tables_of
from tests.dissector.test_same_rows import SEVERAL
from tests.numbers import Numbers

SOME = (*SEVERAL[:4], "pulsar-apache/java-j40_slow_consumer.pcap", *SEVERAL[9:14])


@functools.cache
def sums_of(name: str, window_bytes: int = MAX_WINDOW_BYTES) -> tuple[Health, TapNumbers]:
    """Sums after all of a capture, for all tests that only read them."""
    return replayed(name, window_bytes=window_bytes)


def replayed(
    name: str, max_series: int = 1000, lake=None, window_bytes: int = MAX_WINDOW_BYTES
) -> tuple[Health, TapNumbers]:
    """Sums after all of a capture."""
    (chain,) = chains([str(CAPTURES / name)]).chains
    source = FilePlayback(chain)
    health, numbers = Health(is_live=False, max_series=max_series), TapNumbers()
    rotations = Rotations(lake, source.name, {}, may_wait=True) if lake else None
    watch = LoopMetrics(health, numbers, rotations)
    tap = Tap(source, TapSettings(Options(), rotate_ns=10**9), rotations, [health, watch])
    windows = Windows(tap, True, [health.sums], None, window_bytes)
    tap.listen(windows)
    watch.tap = tap
    tap.run()
    windows.close()
    watch.look(tap)
    assert health.sums.problem is None
    return health, numbers


@contextmanager
def served(health: Health, numbers: TapNumbers):
    server = Server("127.0.0.1", 0, health, numbers)
    server.start()
    try:

        def get(path: str, accept: str = "text/plain") -> tuple[int, str]:
            link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            link.request("GET", path, headers={"Accept": accept})
            answer = link.getresponse()
            text = answer.read().decode()
            link.close()
            return answer.status, text

        yield get
    finally:
        server.close()


def samples(text: str, parse=plain_metrics) -> dict[tuple, float]:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def counted(found: dict[tuple, float], name: str, *labels: str) -> Counter:
    """Samples of one name, by the values of some labels."""
    result: Counter = Counter()
    for (sample, *pairs), value in found.items():
        if sample == name and value:
            result[tuple(dict(pairs)[label] for label in labels)] += int(value)
    return result


def by(rows: list[dict], *names: str, weight: str | None = None) -> Counter:
    result: Counter = Counter()
    for row in rows:
        key = tuple(UNKNOWN if row[name] is None else row[name] for name in names)
        result[key] += 1 if weight is None else row[weight] or 0
    return Counter({key: count for key, count in result.items() if count})


@pytest.mark.parametrize("name", SOME)
def test_counters_are_the_rows_of_the_tables(name):
    tables = tables_of(str(CAPTURES / name))
    with served(*sums_of(name)) as get:
        values = samples(get("/metrics")[1])
    frames = tables["frames"]
    passed_on = {row["connection_id"] for row in tables["connections"] if row["leg"] == "broker"}
    # What is counted once, of frames their checksums.
    exchanges, deliveries, acks, checked = (
        [row for row in tables[table] if row["connection_id"] not in passed_on]
        for table in ("exchanges", "deliveries", "acks", "frames")
    )
    sends = [row for row in exchanges if row["kind"] == "publish"]
    again = [row for row in deliveries if row["is_redelivered"]]
    place = ("topic", "subscription")
    pairs = [
        (("frames_total", "direction", "command"), by(frames, "direction", "command")),
        (("frame_bytes_total", "direction"), by(frames, "direction", weight="frame_bytes")),
        (
            ("checksums_total", "direction", "verdict"),
            by([row for row in checked if row["checksum"]], "direction", "checksum"),
        ),
        (("sends_total", "topic", "outcome"), by(sends, "topic", "outcome")),
        (("sent_messages_total", "topic"), by(sends, "topic", weight="message_count")),
        (("deliveries_total", *place), by(deliveries, *place)),
        (("redeliveries_total", *place, "cause"), by(again, *place, "redelivery_cause")),
        (("acks_total", *place, "action"), by(acks, *place, "action")),
        (
            ("errors_total", "command", "error_code"),
            by([row for row in exchanges if row["error_code"]], "request_command", "error_code"),
        ),
        (
            ("connections_closed_total", "protocol", "ended"),
            by(tables["connections"], "protocol", "ended"),
        ),
        (("notices_total", "code"), by(tables["notices"], "code")),
        (
            ("send_latency_seconds_count", "topic", "outcome"),
            by([row for row in sends if row["latency_ns"] is not None], "topic", "outcome"),
        ),
    ]
    for (metric, *labels), rows in pairs:
        assert counted(values, f"dissector_{metric}", *labels) == rows, metric
    total = sum(row["latency_ns"] or 0 for row in sends) / 1e9
    assert sum(
        value for (metric, *_), value in values.items()
        if metric == "dissector_send_latency_seconds_sum"
    ) == pytest.approx(total)  # fmt: skip
    assert values["dissector_gap_bytes_total",] == sum(
        row[f"gap_bytes_{way}"] or 0
        for row in tables["connections"]
        for way in ("to_broker", "to_client")
    )
    (file,) = tables["capture_files"]
    assert values["dissector_tap_packets_received_total",] == file["packets"]
    assert values["dissector_tap_packets_tcp_total",] == file["packets_tcp"]
    assert counted(values, "dissector_tap_packets_ignored_total", "reason") == Counter(
        {(reason,): count for reason, count in file["packets_ignored_by_reason"] or ()}
    )


@functools.cache
def report_of(name: str) -> dict:
    summary = Numbers()
    (chain,) = chains([str(CAPTURES / name)]).chains
    for block in dissect(chain, Options()):
        if block.table in COUNTED:
            summary.add(block.table, arrow_batch(block))
    return summary.result()


PROXIED = "pulsar-apache/cpp-s08_nack-proxy-any.pcap"


@pytest.mark.parametrize("name", (*SOME, "pulsar-apache/cpp-s15_errors.pcap"))
def test_metrics_are_the_numbers_of_the_report(name):
    """Each side of a proxied connection is counted once, as in the report."""
    health, numbers = sums_of(name)
    sums, report = health.sums, report_of(name)
    coverage, sends = report["coverage"]["total"], report["send_latency"]["total"]
    redelivery, sums_of_checks = report["redelivery"], report["checksum_failures"]["total"]

    def total(name: str, label: str | None = None) -> dict | int:
        counts = sums.counts[name]
        if label is None:
            return sum(counts.values.values())
        found: Counter = Counter()
        for key, count in counts.values.items():
            found[key[counts.labels.index(label)]] += count
        return dict(found)

    assert health.packets_seen == coverage["packets"]
    assert numbers.packets_tcp == coverage["packets_tcp"]
    assert dict(numbers.ignored) == coverage["packets_ignored_by_reason"]
    assert total("frames") == coverage["frames"]
    assert total("frame_bytes") == coverage["frame_bytes"]
    whole = coverage["frames_by_status"].get("complete", 0)
    assert total("damaged") == coverage["frames"] - whole
    assert total("connections", "ended") == coverage["connections_by_end"]
    assert total("connections", "protocol") == coverage["connections_by_protocol"]
    assert total("notices", "code") == coverage["notices_by_code"]
    assert (health.gaps, health.gap_bytes) == (coverage["gaps"], coverage["gap_bytes"])
    assert health.retransmitted == coverage["retransmitted_packets"]
    assert total("sends", "outcome") == sends["outcomes"]
    assert total("send_bytes") == sends["request_bytes"]
    assert total("resent") == (sends["resent"] or 0)
    times = sums.durations["send_latency"].buckets
    latencies = [
        count for key, buckets in times.items() if "ok" in key for count in buckets.values()
    ]
    assert sum(latencies) == sends["latency_ms"]["count"]
    verdicts = ("ok", "mismatch", "absent", "not_evaluated")
    found = total("checksums", "verdict")
    assert [found.get(each, 0) for each in verdicts] == [sums_of_checks[each] for each in verdicts]
    assert total("mismatches") == sums_of_checks["mismatch"]
    total_of = redelivery["total"]
    assert total("deliveries") == total_of["deliveries"]
    assert total("redeliveries") == total_of["redelivered"]
    assert total("acks", "action").get("redeliver", 0) >= (total_of["ids_requested"] or 0)
    assert total("errors") == report["errors"]["total"]["answers"]
    groups = report["permit_utilization"]["by_subscription"]
    for name, counts in (
        ("granted", sums.balances.granted), ("delivered", sums.balances.delivered),
    ):  # fmt: skip
        assert sum(counts.values.values()) == sum(group[name] or 0 for group in groups)


@pytest.mark.parametrize("name", ["pulsar-apache/java-j40_slow_consumer.pcap", SEVERAL[10]])
def test_permits_are_those_of_the_report(name):
    health, _ = sums_of(name)
    balances = health.sums.balances
    for group in report_of(name)["permit_utilization"]["by_subscription"]:
        key = (group["topic"], group["subscription"])
        assert balances.granted.values.get(key, 0) == group["granted"]
        assert balances.delivered.values.get(key, 0) == group["delivered"]
        confirmed = balances.stalls.values.get((*key, "yes"), 0)
        assert confirmed == (group["stalls"]["confirmed"]["count"] or 0)
    assert not balances.now(health.now_ns() // 1000)["available"]  # all are closed


def everything(health: Health) -> dict[str, dict]:
    """All that a scrape shows of rows. A name that is learnt late is known from there on."""
    sums = health.sums
    found = {name: dict(counts.values) for name, counts in sums.all_counts()}
    found |= {name: times.buckets for name, times in sums.durations.items()}
    del found["application"]  # of clocks, which are known better and better: see test_clocks
    balances = sums.balances
    found["stalls"], found["delivered"] = balances.stalls.values, balances.delivered.values
    return found | balances.now(health.now_ns() // 1000)


@pytest.mark.parametrize("name", (*SOME[:3], *SOME[4:6]))
def test_no_sum_depends_on_how_large_windows_are(name):
    expected = everything(sums_of(name)[0])
    if name == PROXIED:  # only what follows it tells that a handshake is the proxy's own
        del expected["requests"]
    for window_bytes in (40_000, 5_000):
        found = everything(sums_of(name, window_bytes)[0])
        assert {key: found[key] for key in expected} == expected


def test_label_sets_beyond_the_bound_are_other_and_counted():
    with served(*replayed(SEVERAL[10], max_series=1)) as get:
        values = samples(get("/metrics")[1])
    frames = counted(values, "dissector_frames_total", "command")
    assert ("other",) in frames and len(frames) == 2
    assert values["dissector_label_sets_left_out_total", ("metric", "frames")] > 0
    assert sum(frames.values()) == len(tables_of(str(CAPTURES / SEVERAL[10]))["frames"])


def test_both_formats_say_the_same(tmp_path):
    with served(*replayed(SEVERAL[10], lake=tmp_path)) as get:
        plain = samples(get("/metrics")[1])
        status, text = get("/metrics", "application/openmetrics-text; version=1.0.0")
        assert status == 200 and text.endswith("# EOF\n")
        opened = samples(text, open_metrics)
    passing = ("dissector_tap_silent_seconds",)
    assert set(plain) == set(opened)
    assert all(opened[key] == value for key, value in plain.items() if key != passing)
    assert plain["dissector_tap_rotations_total", ("outcome", "landed")] > 0
    assert plain["dissector_tap_landing",] == 1


def test_each_sample_of_a_tap_with_a_cluster_has_its_name():
    health, _ = sums_of(SEVERAL[10])
    with served(health, TapNumbers("c\x1b")) as get:
        named = get("/metrics")[1]
    with served(health, TapNumbers()) as get:
        unnamed = samples(get("/metrics")[1])
    with_names = {key: value for key, value in samples(named).items()}
    assert all(("cluster", r"c\x1b") in pairs for _, *pairs in with_names)
    assert {(name, *(each for each in pairs if each[0] != "cluster")) for name, *pairs in
            with_names} == unnamed.keys()  # fmt: skip


def test_health_says_whether_data_flows_and_is_complete():
    health, numbers = Health(is_live=True), TapNumbers()
    with served(health, numbers) as get:
        status, text = get("/healthz")
        assert status == 503 and json.loads(text)["reasons"] == ["no packet came yet"]
        health.packets_seen = 5
        assert get("/healthz")[0] == 200
        health.losses = Losses(0, 0, ("eth1",), None)
        assert get("/healthz")[0] == 503  # half of what is tapped may be unseen
        health.lost(Losses(3, 0, (), None), 0, 0)
        status, text = get("/healthz")
        said = json.loads(text)
        assert status == 503 and said["flows"] and not said["complete"]
        assert said["dropped_by_kernel"] == 3
        health.lost(Losses(3, 0, ("eth1",), "disk full"), 0, 0)
        reasons = json.loads(get("/healthz")[1])["reasons"]
        assert "interface down: eth1" in reasons and "disk full" in reasons
        assert get("/")[0] == 200 and get("/nothing")[0] == 404


@pytest.mark.skipif(sys.platform != "linux", reason="threads share one priority elsewhere")
def test_whoever_asks_waits_rather_than_packets():
    class Asked(Health):
        def report(self):
            self.nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            return super().report()

    health = Asked(is_live=True)
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with served(health, TapNumbers()) as get:
        get("/healthz")
    assert health.nice == max(before, 4)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_addresses_are_of_loopback_unless_said():
    assert address_of("9401") == ("127.0.0.1", 9401)
    assert address_of("0.0.0.0:80") == ("0.0.0.0", 80)
    assert address_of("[::1]:80") == ("::1", 80)
    for text in ("x", "1.2.3.4", "host:", "host:99999"):
        with pytest.raises(UsageError):
            address_of(text)


def test_a_port_that_is_taken_is_said():
    health, numbers = Health(is_live=False), TapNumbers()
    server = Server("127.0.0.1", 0, health, numbers)
    with pytest.raises(OutputError, match="choose another port"):
        Server("127.0.0.1", server.port, health, numbers)
    server.close()
