"""Series of metrics are tallies: what they name is there, and rows become what they say."""

from collections import Counter
from pathlib import Path

import pytest

from dissector.dissection import Options
from dissector.queries.catalogue import catalogue, used_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.sources.rings import chains
from dissector.tap.metric_series import label_text
from dissector.tap.metrics import COUNTERS, HISTOGRAMS
from dissector.tap.playback import FilePlayback
from dissector.tap.service import Tap, TapSettings
from dissector.tap.sums import DURATIONS, SERIES, Sums
from dissector.tap.window_tables import Rows, columns_of, name_tables, name_views
from dissector.tap.windows import Window, Windows
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_metrics import SOME
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_translated import addresses_of
from tests.wire.recut import translated

PLACE = ("topic", "subscription")
# What series say as the tallies of reports say it: keys, sums, and a key with the value of rows.
AS_REPORTED = {
    "frames": ("frames", ("direction", "command"), ("frames",), ()),
    "frame_bytes": ("frames", ("direction",), ("frame_bytes",), ()),
    "checksums": ("checksums", ("direction", "checksum"), ("frames",), ("grouping", "topic")),
    "sends": ("sends", ("topic", "outcome"), ("sends",), ()),
    "send_messages": ("sends", ("topic",), ("messages",), ()),
    "send_bytes": ("sends", ("topic",), ("request_bytes",), ()),
    "resent": ("sends", ("topic",), ("resent",), ()),
    "requests": ("requests", ("outcome", "request_command"), ("requests",), ()),
    "errors": ("refused", ("error_code", "request_command"), ("answers",), ()),
    "deliveries": ("deliveries", PLACE, ("deliveries",), ()),
    "redeliveries": (
        "deliveries", (*PLACE, "redelivery_cause"), ("deliveries",), ("is_redelivered", True),
    ),
    "application": ("application", ("topic",), ("application_ns",), ()),
    "publish_to_delivery": ("transits", PLACE, ("publish_to_delivery_ns",), ()),
}  # fmt: skip
TALLIES = sorted({each[0] for each in AS_REPORTED.values()} | {"ack_commands"})


class Reporting:
    """Asks the tallies of reports. found: rows by tally."""

    def __init__(self) -> None:
        self.texts = {name: catalogue()[name].per_capture() for name in TALLIES}
        self.texts["redeliver_requests"] = catalogue()["redeliver_requests"].per_capture()
        self.views = used_views("\n".join(self.texts.values()))
        self.columns = columns_of(self.texts.values(), self.views)
        self.found: dict[str, list[dict]] = {}

    def take(self, window: Window, rows: Rows) -> None:
        with DuckdbEngine(threads=1) as db:
            name_tables(db, window.run, window.last_ns, rows, self.columns)
            name_views(db, self.columns)
            db.shared_views(self.views)
            self.found = {name: db.table(text).to_pylist() for name, text in self.texts.items()}

    def fail(self, window: Window, error: Exception) -> None:
        raise error


@pytest.mark.parametrize("name", SOME)
def test_a_window_has_the_sums_of_the_report_s_tallies(name):
    (chain,) = chains([str(CAPTURES / name)]).chains
    tap = Tap(FilePlayback(chain), TapSettings(Options()))
    sums, reporting = Sums(), Reporting()
    windows = Windows(tap, True, [sums, reporting], None, 1 << 30)
    tap.listen(windows)
    tap.run()
    windows.close()
    assert sums.problem is None and any(reporting.found.values())
    for series, (tally, keys, added, condition) in AS_REPORTED.items():
        expected: Counter[tuple] = Counter()
        for row in reporting.found[tally]:
            if not condition or row[condition[0]] == condition[1]:
                key = tuple(label_text(row[each]) for each in keys)
                expected[key] += sum(row[each] or 0 for each in added)
        found = sums.durations[series].sums if series in sums.durations else sums.counts[series]
        assert {**found.values} == {key: n for key, n in expected.items() if n}, series
    acks: Counter[tuple] = Counter()
    for row in reporting.found["ack_commands"]:
        acks[*map(label_text, (row["topic"], row["subscription"])), "ack"] += row["ids"]
    for row in reporting.found["redeliver_requests"]:
        key = (*map(label_text, (row["topic"], row["subscription"])), "redeliver")
        acks[key] += row["ids_requested"] + row["requests_for_all"]
    assert sums.counts["acks"].values == acks


def sums_of(path: Path) -> dict[str, dict]:
    """The sums of a file that a tap plays back."""
    (chain,) = chains([str(path)]).chains
    tap, sums = Tap(FilePlayback(chain), TapSettings(Options())), Sums()
    windows = Windows(tap, True, [sums], None, 1 << 30)
    tap.listen(windows)
    tap.run()
    windows.close()
    assert sums.problem is None
    return {name: dict(counts.values) for name, counts in sums.all_counts() if counts.values}


def test_packets_behind_a_translation_add_nothing_to_what_is_counted_once(tmp_path):
    """But to what was captured, frames and packets, as with both sides of a proxy."""
    path = CAPTURES / "pulsar-apache" / "java-j12_nack.pcap"
    data, tables = whole("pulsar-apache/java-j12_nack.pcap")
    (tmp_path / "both.pcap").write_bytes(translated(data, addresses_of(tables)))
    one, both = sums_of(path), sums_of(tmp_path / "both.pcap")
    differing = {name for name in one.keys() | both.keys() if one.get(name) != both.get(name)}
    assert {"sends", "deliveries", "redeliveries", "acks", "checksums"} <= {*one}
    of_packets = {"connections", "notices", "frames", "frame_bytes", "retransmitted"}
    assert differing <= of_packets


def test_every_series_names_a_tally_its_keys_and_its_sums():
    known = {**catalogue(), **catalogue("live")}
    for each in (*SERIES, *DURATIONS):
        query = known[each.query_name]
        named = {*each.labels.values(), *(key for key, _ in (*each.where, *each.unless))}
        assert named <= {*query.keys}, each
        assert {*each.sums} <= {*query.merging}, each
    assert all("bucket" in known[each.query_name].keys for each in DURATIONS)


def test_every_metric_has_its_sums():
    sums = Sums()
    assert {name for _, name, _ in COUNTERS} <= {*sums.counts}
    assert {name for _, name, _ in HISTOGRAMS} == {*sums.durations}
    assert all(not counts.values for _, counts in sums.all_counts())


def test_numbers_that_are_missing_are_said():
    sums = Sums()
    sums.fail(Window("run", None, 0, 0), MemoryError("no more of it"))
    assert sums.problem == "numbers of a window are missing: MemoryError: no more of it"
