"""The table over time: each number against plain Python over rows, and parts against the whole."""

import struct
from collections import Counter
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from dissector.dissection import Options
from dissector.errors import UsageError
from dissector.lake.land import land_chains
from dissector.lake.reader import open_lake
from dissector.queries.selection import EVERYTHING, Asked, Selection
from dissector.report.over_time import over_time
from dissector.sources.rings import chains
from tests.dissector.observed import CAPTURES, tables_of

S = 1_000_000_000
RESTART = CAPTURES / "pulsar-apache" / "java-j73_broker_restart-bem.pcap"
NACKS = CAPTURES / "pulsar-apache" / "java-j12_nack.pcap"
CURSUS = CAPTURES / "cursus" / "py-produce.pcap"


def table(folder: Path, *paths: Path, step: int | None = None, what: Selection = EVERYTHING) -> Any:
    lake = folder / "-".join(path.stem for path in paths)
    if not lake.exists():
        plan = chains([str(path) for path in paths], "none")
        assert all(each.landed for each in land_chains(plan.chains, lake, Options(), None, 1))
    with open_lake(lake) as opened:
        work = folder / "work"
        work.mkdir(exist_ok=True)
        return over_time(opened, work, 1, (), what, step)


def micros_ns(row: dict[str, Any]) -> int:
    return round(row["ts"].timestamp() * 1_000_000) * 1000


@pytest.mark.parametrize("path", [RESTART, NACKS, CURSUS], ids=lambda path: path.stem)
@pytest.mark.parametrize("step", [S // 10, S], ids=["100 ms", "1 s"])
def test_numbers_of_a_step_are_those_of_its_rows(tmp_path: Path, path: Path, step: int) -> None:
    seen = tables_of(str(path))
    publishes = [row for row in seen["exchanges"] if row["kind"] == "publish"]
    sends = [row for row in publishes if row["outcome"] != "orphan_response"]
    answers = [row for row in publishes if row["response_last_ns"] is not None]
    acks = [row for row in seen["acks"] if row["action"] == "ack"]
    ended = [row for row in seen["connections"] if row["ended"] in ("fin", "rst")]
    times = {
        "sends": [row["request_last_ns"] for row in sends],
        "receipts": [row["response_last_ns"] for row in answers if not row["error_code"]],
        "refused": [row["response_last_ns"] for row in answers if row["error_code"]],
        "deliveries": list(map(micros_ns, seen["deliveries"])),
        "acks": list(map(micros_ns, acks)),
        "opened": [r["first_ts_ns"] for r in seen["connections"] if r["started"] == "syn"],
        "closed": [row["last_ts_ns"] for row in ended],
    }
    made = table(tmp_path, path, step=step)
    first = min(row["first_ts_ns"] for row in seen["capture_files"]) // step
    last = max(row["last_ts_ns"] for row in seen["capture_files"]) // step
    assert [row["ts_ns"] // step for row in made["rows"]] == list(range(first, last + 1))
    assert made["step_ms"] * 1_000_000 == step
    for name, at in times.items():
        counts = Counter(each // step for each in at)
        assert [row[name] for row in made["rows"]] == [
            counts[number] for number in range(first, last + 1)
        ], name
    for row in made["rows"]:
        latencies = sorted(
            each["latency_ns"] for each in sends
            if each["outcome"] == "ok" and each["latency_ns"] is not None
            and each["request_last_ns"] // step == row["ts_ns"] // step
        )  # fmt: skip
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            rank = ceil(share * len(latencies)) - 1
            expected = round(latencies[rank] / 1e6, 3) if latencies else None
            assert row["latency_ms"][name] == pytest.approx(expected, abs=0.0011)


def test_what_consumers_hold_is_what_was_delivered_less_what_was_acked(tmp_path: Path) -> None:
    """Of one consumer, whose permits are all known."""
    step = S // 20
    seen, rows = tables_of(str(NACKS)), table(tmp_path, NACKS, step=step)["rows"]
    acked = {row["frame_no"]: row for row in seen["deliveries"] if row["outcome"] == "acked"}
    again = [row for row in seen["acks"] if row["action"] == "redeliver"]
    for row in rows:
        end = row["ts_ns"] + step
        held = 0
        for each in seen["deliveries"]:
            until = (
                micros_ns(each) + each["ack_latency_ns"]
                if each["frame_no"] in acked
                else min(
                    micros_ns(asked)
                    for asked in again
                    if asked["entry_id"] == each["entry_id"] and asked["ts"] >= each["ts"]
                )
            )
            held += micros_ns(each) < end <= until
        assert row["unacked"] == held
        before = [each for each in seen["permits"] if micros_ns(each) < end]
        is_open = before and end < max(each["last_ts_ns"] for each in seen["connections"])
        if is_open and before[-1]["event"] != "reset":
            assert row["permits"] in (before[-1]["available_after"], None)
    known = [row["permits"] for row in rows if row["permits"] is not None]
    assert known[0] == 1000 and known[-1] == 970
    assert max(row["unacked"] for row in rows) == 20 and rows[-1]["unacked"] == 0


def test_steps_of_disjoint_windows_are_those_of_the_whole(tmp_path: Path) -> None:
    whole = table(tmp_path, RESTART, step=S)
    limits = (None, "2026-11-21T09:52:40", "2026-11-21T09:52:50", None)
    parts = []
    for since, until in pairwise(limits):
        parts += table(tmp_path, RESTART, step=S, what=Asked(since, until).selection())["rows"]
    assert parts == whole["rows"]
    none = table(tmp_path, RESTART, step=S, what=Asked(topics=["other"]).selection())["rows"]
    assert len(none) == len(whole["rows"]) and not any(row["sends"] for row in none)


def test_a_step_that_nobody_names_gives_a_short_table(tmp_path: Path) -> None:
    for path in (RESTART, NACKS, CURSUS):
        rows = table(tmp_path, path)["rows"]
        assert 5 <= len(rows) <= 61
    with pytest.raises(UsageError, match="steps are too many"):
        table(tmp_path, RESTART, step=1_000_000)


def test_what_lies_between_two_captures_was_not_captured(tmp_path: Path) -> None:
    made = table(tmp_path, NACKS, RESTART, step=10 * S)["rows"]
    between = [row for row in made if not row["is_captured"]]
    assert len(made) - len(between) in (3, 4, 5) and len(between) > 30
    assert all(row["sends"] is None and row["unacked"] is None for row in between)
    assert sum(row["sends"] for row in made if row["is_captured"]) == 114 + 20


def test_a_capture_that_was_cut_and_landed_apart_has_the_same_table(tmp_path: Path) -> None:
    whole, at, records = NACKS.read_bytes(), 24, []
    while at < len(whole):
        records.append(at)
        at += 16 + struct.unpack_from("<I", whole, at + 8)[0]
    middle = records[len(records) // 2]
    parts = tmp_path / "one.pcap", tmp_path / "two.pcap"
    parts[0].write_bytes(whole[:middle])
    parts[1].write_bytes(whole[:24] + whole[middle:])
    assert table(tmp_path, *parts, step=S // 10) == table(tmp_path, NACKS, step=S // 10)
