"""A lake with its captures joined: the tables that the sections read, and what joining changed."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dissector.protocols.cursus.commands import NAMES
from dissector.report.explained import joined_about
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from spark_jobs import borders, closing, links
from spark_jobs.links import Plan, Row
from spark_jobs.tables import CONNECTION, OTHER_PLACES, LakeTables, flag
from spark_jobs.workspace import Workspace

# Commands that only Cursus has; a frame that is one of them keeps its place though it is cut.
_CURSUS: Final = frozenset(NAMES) - {"UNKNOWN", "SUBSCRIBE"}
CLOSED: Final = ("exchanges", "deliveries", "permits")
_LAKE_TABLE: Final = {"producer_names": "producers", "consumer_names": "consumers"}
# How the rows of one connection become one; whatever is not named here is the first that is known.
_LEAST: Final = ("first_ts_ns",)
_GREATEST: Final = ("last_ts_ns", "max_message_bytes")
_OF_THE_LAST: Final = ("ended", "ended_packet")
_NOT_SUMMED: Final = ("isn", "first_seq", "last_seq", "fin_packet")
_UNKNOWN: Final = ("none", "unknown")
MAX_STRADDLING: Final = 10_000
COUNTERS: Final = (
    "exchanges_answered_later", "deliveries_ended_later", "redeliveries_recognised",
    "publishes_recognised", "balances_carried",
)  # fmt: skip
# Rows of joined captures by outcome (of permits: by event), each by itself and joined.
CHANGES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("capture", "moment", "table", "value")),
        *((name, pa.int64()) for name in ("rows", *COUNTERS)),
    ]
)
# Frames of joined captures that the end of the capture cut, and bytes before the first frame.
_DIRECTION: Final = (
    ("capture", pa.string()), ("connection_id", pa.int64()), ("direction", pa.string()),
)  # fmt: skip
CUT: Final = pa.schema(
    [
        *_DIRECTION,
        ("command", pa.string()),
        *((name, pa.int64()) for name in ("frame_no", "frame_bytes", "producer_id", "consumer_id")),
    ]
)
SKIPPED: Final = pa.schema([*_DIRECTION, ("bytes", pa.int64())])


class Joined:
    """The tables of a lake whose captures are joined where they belong together.

    tables: what to read in the place of the lake's own tables.
    """

    def __init__(
        self, lake: LakeTables, plan: Plan, connections: list[Row], work: Workspace
    ) -> None:
        """plan: of captures of the lake; connections: theirs, rows with links.COLUMNS."""
        self._lake = lake
        self._work = work
        self.plan = plan
        self.connections = connections
        self.tables: dict[str, DataFrame] = {}
        if plan.groups:
            self._join()
        if plan.twins:
            places = sorted(plan.twins)
            twins = lake.spark.createDataFrame(places, "capture string, connection_id bigint")
            for name in ("connections", "legs"):
                rows = self.tables.get(name, lake.read("connections"))
                self.tables[name] = with_twins(rows, twins)

    def _join(self) -> None:
        lake = self._lake
        names = ("frames", "acks", "exchanges", "deliveries", "notices", "messages")
        tables = {name: lake.read(name) for name in names}
        twice = borders.left_out(tables["frames"], self.plan, self.connections)
        if twice:
            for name in ("frames", "acks", "deliveries", "messages"):
                tables[name] = self.tables[name] = borders.without(tables[name], twice)
        closed = closing.close(tables, self.plan, self.connections, self._work)
        for name, rows in self._work.all_settled(closed, "closed/").items():
            # Where a consumer closed is told of joined ones only.
            rest = self._of_others(lake.read(_LAKE_TABLE.get(name, name)))
            self.tables[name] = rest.unionByName(rows, allowMissingColumns=True)
        merged, behind = self._joined_connections()
        settled = self._work.all_settled({"merged": merged, "behind": behind}, "closed/")
        rest = self._of_others(lake.read("connections"))
        self.tables["connections"] = rest.unionByName(settled["merged"])
        self.tables["legs"] = self.tables["connections"].unionByName(settled["behind"])

    def _of_others(self, rows: DataFrame) -> DataFrame:
        """The lake's own rows of captures that are in no group."""
        return rows.where(~F.col("capture").isin(*self.plan.captures))

    def _joined_connections(self) -> tuple[DataFrame, DataFrame]:
        """One row per joined connection; and those that lie behind one, as they are named in the
        rows of frames and acks."""
        placed = self._lake.spark.createDataFrame(closing.places(self.plan, self.connections))
        placed = F.broadcast(placed.select("group", "rank", "chain", *CONNECTION, "head_capture",
                                           "head_connection_id"))  # fmt: skip
        rows = self._lake.read("connections").join(placed, on=CONNECTION)
        merged = merged_connections(rows)
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
        names = [column.name for column in TABLES["connections"].columns]
        return merged, behind.select(*names)

    # -- what joining changed

    def parts(self) -> dict[str, tuple[DataFrame, pa.Schema]]:
        """What the section `closing` is made from; nothing where nothing was joined."""
        if not self.plan.groups:
            return {}
        frames = self.tables.get("frames", self._lake.read("frames"))
        here = F.col("capture").isin(*self.plan.captures)
        cut = frames.where(here & (F.col("status") == "cut_by_end"))
        skipped = self._mine("notices").where(F.col("code") == "midstream_start")
        return {
            "changes": (self._changes(), CHANGES),
            "cut": (cut, CUT),
            "skipped": (skipped, SKIPPED),
        }

    def _mine(self, table: str) -> DataFrame:
        """The lake's own rows of captures that are joined."""
        return self._lake.read(table).where(F.col("capture").isin(*self.plan.captures))

    def _changes(self) -> DataFrame:
        found: DataFrame | None = None
        for table, conditions in _conditions().items():
            closed = self.tables[table].where(F.col("own_capture").isin(*self.plan.captures))
            for moment, rows in (("before", self._mine(table)), ("after", closed)):
                value = F.col("outcome" if "outcome" in rows.columns else "event")
                sums = [
                    F.sum(flag(conditions[name]) if name in conditions else F.lit(0).cast("bigint"))
                    .alias(name)
                    for name in COUNTERS
                ]  # fmt: skip
                counted = rows.groupBy("capture", value.alias("value")).agg(
                    F.count(F.lit(1)).alias("rows"), *sums
                )
                counted = counted.withColumns({"moment": F.lit(moment), "table": F.lit(table)})
                found = counted if found is None else found.unionByName(counted)
        assert found is not None
        return found


def _conditions() -> dict[str, dict[str, Column]]:
    return {
        "exchanges": {"exchanges_answered_later": F.col("response_capture").isNotNull()},
        "deliveries": {
            "deliveries_ended_later": F.col("ack_capture").isNotNull(),
            "redeliveries_recognised": F.col("previous_capture").isNotNull(),
            "publishes_recognised": F.col("publish_to_delivery_ns").isNotNull(),
        },
        "permits": {"balances_carried": F.col("baseline_known")},
    }


def section(plan: Plan, captures: Iterable[str], found: dict[str, pa.Table]) -> dict[str, Any]:
    """The section `closing` of the report.

    Args:
        plan: of all captures of the report.
        captures: their names.
        found: CHANGES, CUT and SKIPPED of those that were joined, by their name.
    """
    seams = {(seam.before, seam.after) for seam in plan.seams}
    straddling = _straddling(plan, found["cut"], found["skipped"])
    lost = [row for row in straddling if row["fate"] == "lost"]
    made: dict[str, Any] = {
        "total": {
            "captures": len(set(captures)),
            "captures_joined": len(plan.captures),
            "groups": len(plan.groups),
            "connections_continued": len(seams),
            "bytes_missing_between": sum(max(0, seam.missing or 0) for seam in plan.seams),
            "frames_straddling": len(straddling),
            "frames_lost": len(lost),
            **_changed(found["changes"]),
        },
        "groups": [
            {"group": group.number, "captures": list(group.captures)} for group in plan.groups
        ],
        "copies": [{"capture": name} for name in plan.copies],
        "straddling": straddling[:MAX_STRADDLING],
    }
    return {"about": joined_about(made), **made}


def _changed(changes: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(COUNTERS, 0)
    outcomes: dict[str, Counter[str]] = {
        f"{prefix}outcomes_{moment}": Counter()
        for prefix in ("", "delivery_")
        for moment in ("before", "after")
    }
    for row in changes.to_pylist():
        for name in COUNTERS:
            found[name] += row[name] if row["moment"] == "after" else -row[name]
        prefix = {"exchanges": "", "deliveries": "delivery_"}.get(row["table"])
        if prefix is not None:
            outcomes[f"{prefix}outcomes_{row['moment']}"][str(row["value"])] += row["rows"]
    return found | {name: dict(sorted(counts.items())) for name, counts in outcomes.items()}


def _straddling(plan: Plan, cut: pa.Table, skipped: pa.Table) -> list[Row]:
    """Frames that begin in one capture and end in the next, one per direction at most where
    nothing is missing between them."""
    key = ("capture", "connection_id", "direction")
    begun_at = {tuple(row[name] for name in key): row for row in _sorted(cut)}
    rest_at = {tuple(row[name] for name in key): row["bytes"] for row in _sorted(skipped)}
    found = []
    for seam in sorted(plan.seams):
        begun = begun_at.get((*seam.before, seam.direction))
        rest = rest_at.get((*seam.after, seam.direction))
        if begun is None and (rest or 0) <= max(0, -(seam.missing or 0)):
            continue  # what was skipped is in a frame that the first capture has
        command = begun["command"] if begun else None
        is_named = begun is not None and (
            begun["producer_id"] is not None or begun["consumer_id"] is not None
        )
        is_counted = command in _CURSUS or (command in ("SEND", "MESSAGE") and is_named)
        found.append(
            {
                "capture": seam.before[0], "connection_id": seam.before[1],
                "next_capture": seam.after[0], "next_connection_id": seam.after[1],
                "direction": seam.direction, "command": command,
                "frame_no": begun["frame_no"] if begun else None,
                "frame_bytes": begun["frame_bytes"] if begun else None,
                "skipped_bytes": rest,
                # What tells whose it is counts, as a frame does that a snap length cut.
                "fate": "counted" if is_counted else "lost",
            }
        )  # fmt: skip
    return found


def _sorted(rows: pa.Table) -> list[Row]:
    order = "frame_no" if "frame_no" in rows.schema.names else "bytes"
    found: list[Row] = rows.sort_by([("capture", "ascending"), (order, "ascending")]).to_pylist()
    return found


def closed_schema(table: str) -> pa.Schema:
    """The columns of the closed rows of a table."""
    schema = arrow_schema(table)
    own = ("own_capture", "own_connection_id", *OTHER_PLACES[table], "order_no")
    kinds = {True: pa.string(), False: pa.int64()}
    fields = [
        pa.field(name, kinds[name.endswith("capture")]) for name in own if name not in schema.names
    ]
    return pa.schema([*schema, *fields])


def merged_connections(rows: DataFrame) -> DataFrame:
    """One row per joined connection, under its head. rows: of connections, with rank and head."""
    heads = ["head_capture", "head_connection_id"]
    names = [column.name for column in TABLES["connections"].columns]
    sums = _summed()
    made = []
    for name in names:
        if name in ("capture", "connection_id"):
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
    return found.select(*names)


def with_twins(connections: DataFrame, twins: DataFrame) -> DataFrame:
    """Connections of which some (capture, connection_id) are in another capture, too: these are
    what the broker's leg of a proxied pair is, whose twin has no number here."""
    marked = twins.withColumn("is_twin", F.lit(True))
    rows = connections.join(F.broadcast(marked), on=CONNECTION, how="left")
    twin = F.coalesce("twin_connection_id", F.lit(-1).cast("bigint"))
    is_twin = F.col("is_twin").isNotNull()
    return rows.withColumns(
        {
            "leg": F.when(is_twin, F.lit("broker")).otherwise(F.col("leg")),
            "twin_connection_id": F.when(is_twin, twin).otherwise(F.col("twin_connection_id")),
        }
    ).select(*connections.columns)


def _last(name: str) -> Column:
    """A column of _OF_THE_LAST, of the capture in which the connection ended; one whose directions
    ended in different captures is closed, though it was open at the end of each."""
    fins = [f"fin_packet_{way}" for way in links.WAYS]
    ended_at = F.when(F.col("ended") != "capture_end", F.col("rank"))
    is_open = F.min(ended_at).isNull()
    is_closed = is_open & F.max(fins[0]).isNotNull() & F.max(fins[1]).isNotNull()
    at = F.greatest(*fins)
    packet = F.max_by(at, F.when(at.isNotNull(), F.col("rank")))
    told = {"ended": F.lit("fin"), "ended_packet": packet}
    last = F.coalesce(F.min_by(name, ended_at), F.max_by(name, "rank"))
    return F.when(is_closed, told[name]).otherwise(last)


def _summed() -> Iterable[str]:
    kept = {f"{name}_{way}" for name in _NOT_SUMMED for way in links.WAYS}
    return {
        column.name
        for column in TABLES["connections"].columns
        if column.name.endswith(links.WAYS) and column.name not in kept
    }
