"""Captures that lost packets, cut and joined: what is told is what the uncut capture tells."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.anycut import bytes_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.joining.cutting import land, parts
from tests.dissector.observed import CAPTURES, CASES, RANDOM_CASES, name_of
from tests.split import Facts, facts, quiet_places
from tests.wire.recut import is_pcap, with_losses

# By day with the seeds whose holes lie at a boundary, before the first frame behind it, over a part
# without bytes of their direction, where copies of packets lie, and where an id is opened again.
DRAWN = (
    ("pulsar-apache/cpp-c41_unload.pcap", 0.1, 3),
    ("pulsar-apache/cpp-c41_unload.pcap", 0.1, 4),
    ("pulsar-apache/java-j17_blocked_unacked.pcap", 0.02, 4),
    ("pulsar-apache/cpp-c40_killed_Shared.pcap", 0.1, 0),
    ("pulsar/cpp-s22_multi_one_conn.pcap", 0.1, 0),
    ("pulsar/tap-duplicated.pcap", 0.1, 1),
    ("pulsar-apache/cpp-s12_seek-bem.pcap", 0.1, 0),
    ("pulsar-apache/java-j26_backlog_quota.pcap", 0.02, 1),
    ("pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap", 0.02, 1),
    ("pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap", 0.1, 1),
)
ALL = tuple(
    (name_of(case), rate, seed)
    for case in [*CASES, *RANDOM_CASES]
    for rate in (0.02, 0.1)
    for seed in (0, 1)
)
# What says that something is not known.
UNKNOWN = {
    "outcome": ("unknown_gap", "lost_in_gap"),
    "redelivery_cause": ("unknown",),
    "tainted": (True,),
    "baseline_known": (False,),
    "name_source": ("unknown",),
}
# What is known of a request, a delivery and a change of permits by itself.
KEYS = {
    "exchanges": (
        "request_command",
        "request_last_ns",
        "producer_id",
        "sequence_id",
        "consumer_id",
    ),
    "deliveries": ("consumer_id", "ledger_id", "entry_id", "ts"),
    "permits": ("consumer_id", "ts", "event", "delta"),
}
# What joining tells otherwise. A case that no longer differs fails.
_ORDER = "frames of one connection wait at a hole, and frames of another one pass them"
_PROXY = (
    "the first frames of a proxied connection are lost: which connections are its legs is unknown"
)
KNOWN = {
    ("pulsar/fake-f03_senderror_persist.pcap", 0.1, 1): _ORDER,
    ("pulsar/fake-f12_slow_receipts.pcap", 0.1, 0): _ORDER,
    ("pulsar-apache/cpp-s07_shared_rq10.pcap", 0.1, 0): _ORDER,
    ("pulsar-apache/cpp-s08_nack-proxy-any.pcap", 0.02, 0): _PROXY,
    ("pulsar-apache/java-j74_corrupt.pcap", 0.02, 0): _ORDER,
    ("pulsar-apache/java-j74_corrupt.pcap", 0.1, 1): _ORDER,
    ("pulsar-apache/java-j80_geo-link.pcap", 0.1, 1): "a sequence id is shared behind a hole",
}
Row = Mapping[str, Any]


def differing(whole: Facts, joined: Facts) -> Iterator[tuple[str, Row, Row]]:
    """Rows of the whole that are not among the joined ones, each with the one most like it."""
    for table, rows in whole.items():
        lost, new = [*(rows - joined[table]).elements()], [*(joined[table] - rows).elements()]
        assert len(lost) == len(new), table
        for row in lost:
            alike = max(new, key=lambda other: len({*row} & {*other}))
            new.remove(alike)
            yield table, dict(row), dict(alike)


def told_otherwise(row: Row, other: Row, true: Row) -> dict[str, Any]:
    """What the second row tells that neither the first one does nor what is true."""
    return {
        name: (value, other[name], true.get(name))
        for name, value in row.items()
        if other[name] not in (value, true.get(name), None, *UNKNOWN.get(name, ()))
    }


def by_what_is_known(table: str, rows: Facts) -> dict[tuple[Any, ...], Row]:
    """Rows by what names them in any capture of the traffic, but for those that share it."""
    found = defaultdict(list)
    for row in map(dict, rows[table].elements()):
        found[named(table, row)].append(row)
    return {key: same[0] for key, same in found.items() if len(same) == 1}


def named(table: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS.get(table, ()))


@pytest.mark.parametrize(("name", "rate", "seed"), (*DRAWN, *ALL) if LOOKS_AT_ALL else DRAWN)
def test_parts_of_a_lossy_capture_tell_what_the_whole_does(
    name: str, rate: float, seed: int, tmp_path: Path
) -> None:
    data = bytes_of(CAPTURES / name)
    if not is_pcap(data):
        pytest.skip("the sample is no pcap")
    land(data, "true", tmp_path / "true", tmp_path)
    capture = with_losses(data, rate, f"{name} {seed}")
    land(capture, "whole", tmp_path / "whole", tmp_path)
    quiet = quiet_places(capture, tmp_path / "whole")
    drawn = random.Random(f"{name} {rate} {seed}")
    cuts = sorted(drawn.sample(quiet, min(3, len(quiet))))
    for number, part in enumerate(parts(capture, cuts)):
        land(part, f"part{number}", tmp_path / "parts", tmp_path)
    whole = facts(tmp_path / "whole", tmp_path / "closed-whole")
    joined = facts(tmp_path / "parts", tmp_path / "closed-parts")
    true = facts(tmp_path / "true", tmp_path / "closed-true")
    known = {table: by_what_is_known(table, true) for table in whole}
    wrong = [
        (table, otherwise)
        for table, row, other in differing(whole, joined)
        if (otherwise := told_otherwise(row, other, known[table].get(named(table, row), {})))
    ]
    assert bool(wrong) == ((name, rate, seed) in KNOWN), wrong
