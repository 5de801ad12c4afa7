"""What is read together: the captures of a lake in units, each of which is counted by itself.

A unit is a group of captures that belong together (`links`), or one capture. What is found in the
rows of a unit depends on nothing else, so that it can be kept until the unit changes.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from dissector.lake.manifest import Manifest, to_json
from dissector.report.summary import capture_steps, span_step_ns
from spark_jobs import links
from spark_jobs.links import Plan
from spark_jobs.shared import shared_captures
from spark_jobs.tables import names_in

NOTHING: Final = Plan((), {}, {}, (), ())


class Unit(NamedTuple):
    """Captures that are counted together; digest: of all that decides what is found in them."""

    captures: tuple[str, ...]
    digest: str


def digests(captures: Iterable[Manifest]) -> dict[str, str]:
    """What tells whether the rows of a capture are still those that were read, by its name."""
    found: dict[str, list[str]] = {}
    for capture in captures:
        text = hashlib.sha256(to_json(capture).encode()).hexdigest()
        for name in names_in(capture):
            found.setdefault(name, []).append(text)
    return {name: _digest(sorted(texts)) for name, texts in found.items()}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def capture_spans(files: pa.Table) -> dict[str, tuple[int, int]]:
    """Times of the first and the last packet of each capture (rows of capture_files); 0 if none."""
    found: dict[str, tuple[int, int]] = {}
    for row in files.select(["capture", "first_ts_ns", "last_ts_ns"]).to_pylist():
        first, last = row["first_ts_ns"], row["last_ts_ns"]
        if first is None or last is None:
            found.setdefault(row["capture"], (0, 0))
            continue
        before = found.get(row["capture"], (0, 0))
        known = before if before != (0, 0) else (first, last)
        found[row["capture"]] = (min(known[0], first), max(known[1], last))
    return found


def plan(files: pa.Table, connections: pa.Table, sends: DataFrame, got: DataFrame) -> Plan:
    """Which captures belong together.

    Args:
        files: capture_files of all captures.
        connections: of all captures, with links.COLUMNS.
        sends, got: of `shared`, of all captures.
    """
    if len(set(files.column("capture").to_pylist())) < 2:
        return NOTHING
    shared = shared_captures(sends, got, clusters(files, sends))
    spans = capture_spans(files)
    rows = connections.sort_by([("capture", "ascending"), ("connection_id", "ascending")])
    return links.plan(rows.to_pylist(), spans, shared.captures, shared.views, shared.twins)


def clusters(files: pa.Table, like: DataFrame) -> DataFrame:
    """The label of each capture's cluster, in the session of other rows."""
    rows = sorted({(row["capture"], row["cluster"] or "") for row in files.to_pylist()})
    labels = {name: label or None for name, label in rows}  # the greatest, if files disagree
    schema = "capture string, cluster string"
    return like.sparkSession.createDataFrame(list(labels.items()), schema)


def steps(files: pa.Table, whole: Plan) -> dict[str | None, int]:
    """The step of series over time of each capture; captures that were joined have one."""
    found = capture_steps(files)
    for group in whole.groups:
        mine = pc.is_in(files.column("capture"), pa.array(group.captures))
        found |= dict.fromkeys(group.captures, span_step_ns(files.filter(mine)))
    return found


def units(whole: Plan, captures: Mapping[str, str]) -> list[Unit]:
    """All captures, given with their digests, in units."""
    found = []
    for group in whole.groups:
        mine = set(group.captures)
        content = [
            [(name, captures[name]) for name in group.captures],
            [list(group.floors), group.is_in_turn],
            sorted((*place, chain) for place, chain in whole.chains.items() if place[0] in mine),
            sorted(
                (seam.before, seam.after, seam.direction, seam.missing or 0, seam.missing is None)
                for seam in whole.seams
                if seam.after[0] in mine
            ),
        ]
        found.append(Unit(group.captures, _digest(content)))
    alone = captures.keys() - whole.captures
    for name in sorted(alone):
        twins = sorted(place[1] for place in whole.twins if place[0] == name)
        found.append(Unit((name,), _digest([name, captures[name], twins])))
    return found


def part_of(whole: Plan, captures: frozenset[str]) -> Plan:
    """The plan of some units, by all their captures."""
    groups = tuple(group for group in whole.groups if group.captures[0] in captures)
    numbers = {group.number for group in groups}
    return Plan(
        groups,
        {place: chain for place, chain in whole.chains.items() if place[0] in captures},
        {key: place for key, place in whole.heads.items() if key[0] in numbers},
        tuple(seam for seam in whole.seams if seam.after[0] in captures),
        (),
        frozenset(place for place in whole.twins if place[0] in captures),
    )
