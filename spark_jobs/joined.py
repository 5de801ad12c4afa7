"""A lake with its captures joined: the tables that the sections read, and what joining changed."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from spark_jobs import closing, links
from spark_jobs.links import Plan, Row
from spark_jobs.shared import shared_captures
from spark_jobs.tables import CONNECTION, OTHER_PLACES, LakeTables, flag

CLOSED: Final = ("exchanges", "deliveries", "permits")
_SUBJECTS: Final = ("producers", "consumers")
# How the rows of one connection become one; whatever is not named here is the first that is known.
_LEAST: Final = ("first_ts_ns",)
_GREATEST: Final = ("last_ts_ns", "max_message_bytes")
_OF_THE_LAST: Final = ("ended", "ended_packet")
_NOT_SUMMED: Final = ("isn", "first_seq", "last_seq", "fin_packet")
_UNKNOWN: Final = ("none", "unknown")
MAX_STRADDLING: Final = 10_000


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


class Joined:
    """The tables of a lake whose captures are joined where they belong together.

    plan: which do; tables: what to read in the place of the lake's own tables.
    """

    def __init__(self, lake: LakeTables, files: pa.Table) -> None:
        self._lake = lake
        self.captures = sorted(set(files.column("capture").to_pylist()))
        self.connections: list[Row] = []
        self.plan = Plan((), {}, {}, (), ())
        self.tables: dict[str, DataFrame] = {}
        self._kept: list[DataFrame] = []
        if len(self.captures) > 1:
            self._join(files)

    def _join(self, files: pa.Table) -> None:
        lake = self._lake
        self.connections = lake.read("connections").select(*links.COLUMNS).toArrow().to_pylist()
        clusters = lake.read("capture_files").select("capture", "cluster").distinct()
        shared = shared_captures(lake.read("exchanges"), lake.read("deliveries"), clusters)
        spans = capture_spans(files)
        self.plan = links.plan(self.connections, spans, shared.captures, shared.views)
        if not self.plan.groups:
            return
        names = ("frames", "acks", "deliveries", "notices")
        closed, out = closing.close(
            {name: lake.read(name) for name in names}, self.plan, self.connections, lake.spark
        )
        self._kept.append(out)
        unread = self._unread()
        for name in (*CLOSED, *_SUBJECTS):
            rest = self._of_others(lake.read(name), unread)
            rows = getattr(closed, name).persist()
            self._kept.append(rows)
            # Where a consumer closed is told of joined ones only.
            self.tables[name] = rest.unionByName(rows, allowMissingColumns=True)
        for name in _SUBJECTS:
            rest = self._of_others(lake.read(name), unread)
            named = f"{name[:-1]}_names"
            self.tables[named] = rest.unionByName(getattr(closed, named))
        self._join_connections()
        # Each section reads them several times.
        for name in ("connections", "legs", *_SUBJECTS):
            self.tables[name] = self.tables[name].persist()
            self._kept.append(self.tables[name])

    def closed(self, table: str) -> DataFrame:
        """The closed rows of one of CLOSED: those of joined captures, none where there are none."""
        rows = self.tables.get(table)
        if rows is None:
            return self._lake.read(table).limit(0)
        return rows.where(F.col("own_capture").isin(*self.plan.captures))

    def close(self) -> None:
        """Drop what was persisted."""
        for rows in self._kept:
            rows.unpersist()
        self._kept.clear()

    def _of_others(self, rows: DataFrame, unread: DataFrame | None = None) -> DataFrame:
        """The lake's own rows of captures that are in no group, and of connections that are not
        read once more, under their heads."""
        others = rows.where(~F.col("capture").isin(*self.plan.captures))
        if unread is None:
            return others
        kept = rows.join(F.broadcast(unread), on=CONNECTION).withColumns(
            {"capture": F.col("head_capture"), "connection_id": F.col("head_connection_id")}
        )
        return others.unionByName(kept.select(*rows.columns))

    def _unread(self) -> DataFrame | None:
        """Connections of groups that `replay` does not read, those of Cursus, with their heads."""
        heads = self.plan.head_of()
        places = [
            (row["capture"], row["connection_id"])
            for row in self.connections
            if row["protocol"] == "cursus"
        ]
        rows = [(*place, *heads[place]) for place in places if place in heads]
        schema = "capture string, connection_id bigint, head_capture string, "
        schema += "head_connection_id bigint"
        return self._lake.spark.createDataFrame(rows, schema) if rows else None

    def _join_connections(self) -> None:
        """`connections`: one row per joined one; `legs`: also those that lie behind it, as they
        are named in the rows of frames and acks."""
        placed = self._lake.spark.createDataFrame(closing.places(self.plan, self.connections))
        placed = F.broadcast(placed.select("group", "rank", "chain", *CONNECTION, "head_capture",
                                           "head_connection_id"))  # fmt: skip
        rows = self._lake.read("connections").join(placed, on=CONNECTION)
        merged = merged_connections(rows)
        others = self._of_others(self._lake.read("connections"))
        self.tables["connections"] = others.unionByName(merged)
        leg = merged.select(
            F.col("capture").alias("head_capture"),
            F.col("connection_id").alias("head_connection_id"),
            F.col("leg").alias("head_leg"), F.col("twin_connection_id").alias("head_twin"),
        )  # fmt: skip
        heads = ["head_capture", "head_connection_id"]
        behind = rows.join(F.broadcast(leg), on=heads).withColumns(
            {"leg": F.col("head_leg"), "twin_connection_id": F.col("head_twin")}
        )
        behind = behind.where(
            (F.col("capture") != F.col("head_capture"))
            | (F.col("connection_id") != F.col("head_connection_id"))
        )
        names = [*(column.name for column in TABLES["connections"].columns), "capture"]
        self.tables["legs"] = self.tables["connections"].unionByName(behind.select(*names))

    # -- what joining changed

    def section(self) -> dict[str, Any]:
        """The section `closing` of the report."""
        seams = {(seam.before, seam.after) for seam in self.plan.seams}
        straddling = self._straddling() if seams else []
        lost = [row for row in straddling if row["fate"] == "lost"]
        return {
            "total": {
                "captures": len(self.captures),
                "captures_joined": len(self.plan.captures),
                "groups": len(self.plan.groups),
                "connections_continued": len(seams),
                "bytes_missing_between": sum(max(0, seam.missing or 0) for seam in self.plan.seams),
                "frames_straddling": len(straddling),
                "frames_lost": len(lost),
                **self._changes(),
            },
            "groups": [
                {"group": group.number, "captures": list(group.captures)}
                for group in self.plan.groups
            ],
            "copies": [{"capture": name} for name in self.plan.copies],
            "straddling": straddling[:MAX_STRADDLING],
        }

    def _changes(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "exchanges_answered_later": 0, "deliveries_ended_later": 0,
            "redeliveries_recognised": 0, "publishes_recognised": 0,
            "balances_carried": 0, "outcomes_before": {}, "outcomes_after": {},
            "delivery_outcomes_before": {}, "delivery_outcomes_after": {},
        }  # fmt: skip
        if not self.plan.groups:
            return found
        known = {
            "exchanges": {},
            "deliveries": {"publishes_recognised": F.col("publish_to_delivery_ns").isNotNull()},
            "permits": {"balances_carried": F.col("baseline_known")},
        }
        elsewhere = {
            "exchanges": {"exchanges_answered_later": F.col("response_capture").isNotNull()},
            "deliveries": {
                "deliveries_ended_later": F.col("ack_capture").isNotNull(),
                "redeliveries_recognised": F.col("previous_capture").isNotNull(),
            },
            "permits": {},
        }
        for table, conditions in known.items():
            apart = self._lake.read(table).where(F.col("capture").isin(*self.plan.captures))
            before = _counted(apart, conditions | elsewhere[table])
            after = _counted(self.closed(table), conditions | elsewhere[table])
            for name in conditions | elsewhere[table]:
                found[name] = after[name].total() - before[name].total()
            prefix = {"exchanges": "", "deliveries": "delivery_"}.get(table)
            if prefix is not None:
                found[f"{prefix}outcomes_before"] = dict(sorted(before["rows"].items()))
                found[f"{prefix}outcomes_after"] = dict(sorted(after["rows"].items()))
        return found

    def _straddling(self) -> list[Row]:
        """Frames that begin in one capture and end in the next, one per direction at most where
        nothing is missing between them."""
        frames = self._lake.read("frames")
        cut = {
            (row["capture"], row["connection_id"], row["direction"]): row
            for row in frames.where(
                (F.col("status") == "cut_by_end") & F.col("capture").isin(*self.plan.captures)
            )
            .select(*CONNECTION, "direction", "frame_no", "command", "frame_bytes", "producer_id",
                    "consumer_id", "stream_offset")
            .toArrow()
            .to_pylist()
        }  # fmt: skip
        skipped = {
            (row["capture"], row["connection_id"], row["direction"]): row["bytes"]
            for row in self._lake.read("notices")
            .where((F.col("code") == "midstream_start")
                   & F.col("capture").isin(*self.plan.captures))
            .select(*CONNECTION, "direction", "bytes")
            .toArrow()
            .to_pylist()
        }  # fmt: skip
        found = []
        for seam in sorted(self.plan.seams):
            begun = cut.get((*seam.before, seam.direction))
            rest = skipped.get((*seam.after, seam.direction))
            if begun is None and not rest:
                continue
            command = begun["command"] if begun else None
            is_named = command in ("SEND", "MESSAGE") and begun is not None and (
                begun["producer_id"] is not None or begun["consumer_id"] is not None
            )  # fmt: skip
            found.append(
                {
                    "capture": seam.before[0], "connection_id": seam.before[1],
                    "next_capture": seam.after[0], "next_connection_id": seam.after[1],
                    "direction": seam.direction, "command": command,
                    "frame_no": begun["frame_no"] if begun else None,
                    "frame_bytes": begun["frame_bytes"] if begun else None,
                    "skipped_bytes": rest,
                    # What tells whose it is counts, as a frame does that a snap length cut.
                    "fate": "counted" if is_named else "lost",
                }
            )  # fmt: skip
        return found


def _counted(rows: DataFrame, conditions: dict[str, Column]) -> dict[str, Counter[str]]:
    """By outcome (of permits: by event) the rows, and those for which each condition holds."""
    key = "outcome" if "outcome" in rows.columns else "event"
    sums = [F.sum(flag(condition)).alias(name) for name, condition in conditions.items()]
    found: dict[str, Counter[str]] = {name: Counter() for name in ("rows", *conditions)}
    for row in rows.groupBy(key).agg(F.count(F.lit(1)).alias("rows"), *sums).collect():
        for name, counter in found.items():
            counter[str(row[key])] += row[name]
    return found


def closed_schema(table: str) -> pa.Schema:
    """The columns of the closed rows of a table."""
    own = ("capture", "own_capture", "own_connection_id", *OTHER_PLACES[table], "order_no")
    kinds = {True: pa.string(), False: pa.int64()}
    fields = [pa.field(name, kinds[name.endswith("capture")]) for name in own]
    return pa.schema([*arrow_schema(table), *fields])


def merged_connections(rows: DataFrame) -> DataFrame:
    """One row per joined connection, under its head. rows: of connections, with rank and head."""
    heads = ["head_capture", "head_connection_id"]
    names = [column.name for column in TABLES["connections"].columns]
    sums = _summed()
    made = []
    for name in names:
        if name == "connection_id":
            continue
        if name in sums:
            value = F.sum(name)
        elif name in _LEAST:
            value = F.min(name)
        elif name in _GREATEST:
            value = F.max(name)
        elif name in _OF_THE_LAST:
            value = _last(name)
        elif name == "protocol":
            known = F.when(~F.col(name).isin(*_UNKNOWN), F.col("rank"))
            value = F.coalesce(F.min_by(name, known), F.max_by(name, "rank"))
        else:
            value = F.min_by(name, F.when(F.col(name).isNotNull(), F.col("rank")))
        made.append(value.alias(name))
    found = rows.groupBy(*heads).agg(*made)
    found = found.withColumns(
        {"capture": F.col("head_capture"), "connection_id": F.col("head_connection_id")}
    )
    return found.select(*names, "capture")


def _last(name: str) -> Column:
    """A column of _OF_THE_LAST; a connection whose directions ended in different captures is
    closed, though it was open at the end of each."""
    fins = [f"fin_packet_{way}" for way in links.WAYS]
    is_open = F.max_by("ended", "rank") == "capture_end"
    is_closed = is_open & F.max(fins[0]).isNotNull() & F.max(fins[1]).isNotNull()
    at = F.greatest(*fins)
    packet = F.max_by(at, F.when(at.isNotNull(), F.col("rank")))
    told = {"ended": F.lit("fin"), "ended_packet": packet}
    return F.when(is_closed, told[name]).otherwise(F.max_by(name, "rank"))


def _summed() -> Iterable[str]:
    kept = {f"{name}_{way}" for name in _NOT_SUMMED for way in links.WAYS}
    return {
        column.name
        for column in TABLES["connections"].columns
        if column.name.endswith(links.WAYS) and column.name not in kept
    }
