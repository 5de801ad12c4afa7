"""Packets that the snap length cut: what is told is what whole ones tell, or that it is unknown."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from dissector.cli.terminal import Paint
from dissector.cli.text_report import text_report
from dissector.report.page import page
from tests.anycut import rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.joining.cutting import land
from tests.dissector.observed import (
    CAPTURES,
    CASES,
    CURSUS_CASES,
    RANDOM_CASES,
    Tables,
    few_cases,
    name_of,
)
from tests.dissector.test_lost_packets import whole
from tests.reports import reported
from tests.wire.recut import cut_short

LENGTHS: Final = (96, 120, 200, 400)
SAMPLES: Final = (
    sorted(
        f"{folder}/{path.name}"
        for folder in ("pulsar", "pulsar-apache", "pulsar-live", "pulsar-random", "cursus")
        for path in (CAPTURES / folder).glob("*.pcap*")
    )
    if LOOKS_AT_ALL
    else sorted(
        map(name_of, [*few_cases(CASES), *few_cases(RANDOM_CASES), *few_cases(CURSUS_CASES)])
    )
)

# Rules spoke of each of these when they took what was cut off for what did not happen.
JUDGED: Final = (
    "pulsar-apache/java-j12_nack.pcap", "pulsar-apache/java-j17_blocked_unacked.pcap",
    "pulsar-live/live-paused.pcap", "pulsar-live/live-very_slow.pcap",
)  # fmt: skip

Row = Mapping[str, Any]
# Connection, direction and offset in its stream.
Place = tuple[int, str, int]

# What says that something is not known; of columns that always hold a word.
UNKNOWN: Final = {
    "exchanges.outcome": ("lost_in_gap", "response_cut", "orphan_response"),
    "exchanges.tainted": (True,),
    "deliveries.outcome": ("unknown_gap",),
    "deliveries.redelivery_cause": ("unknown", "pre_capture"),
    "deliveries.checksum": ("not_evaluated",),
    "permits.baseline_known": (False,),
    "frames.status": ("cut_by_snaplen",),
    "frames.checksum": ("not_evaluated",),
    "frames.checksum_note": ("snaplen",),
    "connections.protocol": ("unknown",),
    "connections.tls_decryption": ("no_hello",),
}


def is_beginning(row: Row, told: Any, whole: Any) -> bool:
    """Whether a text, or each member of a JSON object, is the beginning of the whole one."""
    if told[:1] != "{" or whole[:1] != "{":
        return bool(whole.startswith(told))
    one, other = json.loads(told), json.loads(whole)
    return all(
        str(other.get(name, "")).startswith(str(value).removesuffix(" more>").rsplit("<", 1)[0])
        for name, value in one.items()
    )


def is_less(row: Row, told: Any, whole: Any) -> bool:
    return bool(told <= whole)


# Columns of what was seen: their meaning says so. What may stand there.
AS_SEEN: Final[dict[str, Callable[[Row, Any, Any], bool]]] = {
    # Of an answer without a request it is the answer's own time.
    "exchanges.ts": lambda row, told, whole: row["outcome"] == "orphan_response",
    "exchanges.kind": lambda row, told, whole: row["request_command"] is None,
    "exchanges.attempt": is_less,
    "exchanges.error_text": is_beginning,
    "frames.error_text": is_beginning,
    "frames.detail": is_beginning,
    "deliveries.is_redelivered": is_less,
    "deliveries.previous_frame_no": is_less,
    **{
        f"{table}.name_source": lambda row, told, whole: told != "observed"
        for table in ("frames", "producers", "consumers")
    },
    # Numbers the openings that were seen.
    **{
        f"{table}.incarnation": is_less
        for table in ("frames", "exchanges", "deliveries", "permits", "acks", "producers",
                      "consumers")
    },
    # Says what closed it as far as was seen.
    **{
        f"{table}.closed_by": lambda row, told, whole: told in ("connection", "capture_end")
        for table in ("producers", "consumers")
    },
    **{
        f"connections.{counter}_{way}": rule
        for way in ("to_broker", "to_client")
        for counter, rule in {
            "frames": is_less,
            "decoded_bytes": is_less,
            "snaplen_cut_bytes": lambda row, told, whole: told > whole,
            "unparsed_bytes": lambda row, told, whole: True,
        }.items()
    },
}  # fmt: skip
# Columns that number frames or connections, or name the capture.
NUMBERS: Final = {"frame_no", "previous_connection_id", "capture", "origin_capture"}
_ANSWERS: Final = {
    f"exchanges.{name}"
    for name in ("response_command", "response_frame_no", "response_first_ns", "response_last_ns",
                 "latency_ns", "latency_bucket", "outcome", "ledger_id", "entry_id")
}  # fmt: skip
# What is told otherwise: a sample with the snap length, and the columns; a case that tells nothing
# otherwise any more must go.
KNOWN: Final[dict[str, set[str]]] = {
    # The frames that closed a producer and opened it again are cut off: a send and the same one
    # sent again are of one incarnation, and the receipt is the first one's.
    "pulsar-apache/cpp-c41_unload.pcap 120": _ANSWERS,
    "pulsar-apache/java-j24_unload.pcap 120": _ANSWERS,
    "pulsar-apache/java-j24_unload.pcap 200": _ANSWERS,
    "pulsar-apache/mut-loss1-java-j24_unload.pcap 200": _ANSWERS,
    # Chunks share a sequence id, and the sends of some are cut off.
    **{
        f"pulsar-apache/java-j05_chunk64k_zstd.pcap.gz {length}": _ANSWERS
        for length in (120, 200, 400)
    },
    # A receipt of a copy names its place in the source cluster, which the cut metadata has.
    **{
        f"pulsar-apache/java-j80_geo-link.pcap {length}": {
            *_ANSWERS, "exchanges.sequence_id", "exchanges.highest_sequence_id",
        }
        for length in LENGTHS
    },
    # Its stand-in of a broker answers a request twice, and the first answer is cut off.
    "pulsar/fake-f02_errors.pcap 96": {"consumers.closed_frame_no"},
    "pulsar/fake-f02_errors.pcap 120": {
        *_ANSWERS, "consumers.closed_frame_no", "exchanges.error_code", "exchanges.error_text",
        "frames.topic",
    },
    # The ack names an entry of which another delivery was cut off.
    "pulsar/cpp-s08_nack.pcap 120": {"deliveries.outcome"},
    "pulsar/tap-duplicated.pcap 120": {"deliveries.outcome"},
    # Refusals are cut off: openings that followed them are repetitions of the first.
    "pulsar-apache/java-j26_backlog_quota.pcap 200": {"producers.epoch"},
}  # fmt: skip


def places(tables: Tables) -> dict[int, Place]:
    return {
        row["frame_no"]: (row["connection_id"], row["direction"], row["stream_offset"])
        for row in tables["frames"]
    }


def key_of(table: str, row: Row, at: Mapping[int, Place]) -> tuple[Any, ...]:
    """What names a row in any capture of the traffic."""
    place = at.get(row.get("frame_no", 0))
    if table == "exchanges":
        asked = row["request_frame_no"]
        return (asked is None, at[row["response_frame_no"] if asked is None else asked])
    if table in ("producers", "consumers"):
        number = row[f"{table.removesuffix('s')}_id"]
        return row["connection_id"], number, at.get(row["opened_frame_no"])
    of = {
        "connections": ("connection_id",),
        "permits": ("connection_id", "consumer_id", "event", "ts"),
        "acks": ("ledger_id", "entry_id", "partition"),
        "messages": ("batch_index",),
    }
    return place, *(row[name] for name in of.get(table, ()))


def other_keys(table: str, row: Row, at: Mapping[int, Place]) -> Iterator[tuple[Any, ...]]:
    """The keys of a row of which the request, or the opening, was cut off."""
    if table == "exchanges" and row["response_frame_no"] is not None:
        yield True, at[row["response_frame_no"]]
    if table in ("producers", "consumers"):
        yield *key_of(table, row, at)[:2], None


def values(row: Row, at: Mapping[int, Place]) -> dict[str, Any]:
    """A row with the places of frames instead of their numbers."""
    return {
        name: at.get(value) if name.endswith("_frame_no") and value is not None else value
        for name, value in row.items()
        if name not in NUMBERS
    }


def ordered(row: dict[str, Any], order: Mapping[Place, int]) -> dict[str, Any]:
    """Its previous delivery by the number of that frame in the whole capture: places of several
    connections have no order."""
    place = row.get("previous_frame_no")
    return row if place is None else {**row, "previous_frame_no": order.get(place, 1 << 62)}


def told_otherwise(tables: Tables, cut: Tables) -> Iterator[tuple[str, Any, Any]]:
    """Column, its whole value and that of the cut capture, where they differ and the latter does
    not say that it is not known; for a row that the whole does not have, the table."""
    at, cut_at = places(tables), places(cut)
    order = {place: number for number, place in at.items()}
    for table in (
        "frames", "exchanges", "deliveries", "permits", "acks", "messages", "producers",
        "consumers", "connections",
    ):  # fmt: skip
        rows = defaultdict(list)
        for row in tables[table]:
            for key in {key_of(table, row, at), *other_keys(table, row, at)}:
                rows[key].append(ordered(values(row, at), order))
        for each in cut[table]:
            row = ordered(values(each, cut_at), order)
            wrong = [_wrong(table, row, one) for one in rows[key_of(table, each, cut_at)]]
            if not wrong:
                yield table, None, row
            else:
                yield from min(wrong, key=len)


def _wrong(table: str, row: Row, true: Row) -> list[tuple[str, Any, Any]]:
    found = []
    for name, value in row.items():
        column = f"{table}.{name}"
        if value is None or value == true[name] or value in UNKNOWN.get(column, ()):
            continue
        is_as_seen = AS_SEEN.get(column)
        if is_as_seen is None or true[name] is None or not is_as_seen(row, value, true[name]):
            found.append((column, true[name], value))
    return found


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_is_what_the_whole_packets_tell(name: str, length: int) -> None:
    data, tables = whole(name)
    cut = rows_of(cut_short(data, length))
    found = [*told_otherwise(tables, cut)]
    known = KNOWN.get(f"{name} {length}", set())
    assert {column for column, *_ in found} <= known, found[:5]
    assert bool(found) == bool(known), "it is no known case any more"
    for row, true in zip(cut["connections"], tables["connections"], strict=True):
        for way in ("to_broker", "to_client"):
            missing = row[f"snaplen_cut_bytes_{way}"] - true[f"snaplen_cut_bytes_{way}"]
            is_less = row[f"decoded_bytes_{way}"] < true[f"decoded_bytes_{way}"]
            assert row[f"stream_bytes_{way}"] == true[f"stream_bytes_{way}"]
            assert missing > 0 or (missing == 0 and not is_less), "what is missing is counted"


# What a frame has from others, which may be cut off.
NAMES: Final = {
    "topic", "subscription", "producer_name", "consumer_name", "name_source", "incarnation",
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_whole_frames_lose_nothing(name: str) -> None:
    data, tables = whole(name)
    place = places(tables)
    true = {place[row["frame_no"]]: row for row in tables["frames"]}
    for length in LENGTHS:
        cut = rows_of(cut_short(data, length))
        at = places(cut)
        for row in cut["frames"]:
            if row["status"] == "complete":
                other = true[at[row["frame_no"]]]
                lost = {key for key, value in row.items() if value is None is not other[key]}
                assert lost <= NAMES


def report_of(data: bytes, folder: Path) -> Row:
    """The part of a report that findings are made of."""
    folder.mkdir()
    land(data, "sample", folder / "lake", folder)
    found: Row = reported(
        folder / "lake", folder / "report", sections=("findings",), tell=lambda _: None
    )
    return found


@cache
def whole_report(name: str) -> Row:
    """`report_of` of a sample."""
    with TemporaryDirectory() as folder:
        return report_of(whole(name)[0], Path(folder) / "whole")


def of_rules(report: Row) -> set[str]:
    """The rules of a report that say more than that all is well."""
    told = [*report["findings"]["findings"], *report["findings"]["verdicts"]]
    return {row["id"] for row in told if row["severity"] in ("warning", "error")}


@pytest.mark.parametrize("length", LENGTHS if LOOKS_AT_ALL else (200,))
@pytest.mark.parametrize("name", SAMPLES if LOOKS_AT_ALL else JUDGED)
def test_no_rule_finds_what_it_does_not_find_in_the_whole(
    name: str, length: int, tmp_path: Path
) -> None:
    """But for the one that says how much of the streams was read."""
    data, _ = whole(name)
    true = of_rules(whole_report(name))
    told = of_rules(report_of(cut_short(data, length), tmp_path / "cut")) - {*true, "V01"}
    assert not told


def test_reports_name_the_snap_length_in_their_first_lines(tmp_path: Path) -> None:
    data, _ = whole("pulsar-apache/java-j24_unload.pcap")
    folder = tmp_path / "lake"
    land(cut_short(data, 200), "sample", folder, tmp_path)
    report = reported(folder, tmp_path / "report", tell=lambda _: None)
    said = "136 KiB cut by the snap length of 200 bytes: what was there is not known"
    lines = [*text_report(report, Paint("never"))]
    assert said in lines[:4]
    hidden = "Some may lie in the 136 KiB that the snap length cut off."
    assert any("never came to it here" in line and hidden in line for line in lines)
    before, _, _ = page(report).partition('class="verdict ')
    assert said in before
    land(data, "sample", tmp_path / "other", tmp_path)
    report = reported(tmp_path / "other", tmp_path / "report", tell=lambda _: None)
    assert not any("snap length" in line for line in text_report(report, Paint("never")))
    assert "not known</p>" not in page(report).partition('class="verdict ')[0]
