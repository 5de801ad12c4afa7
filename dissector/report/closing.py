"""The section `closing`: the changes that joining captures made to their rows."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from dissector import protocols
from dissector.joining.closing import SCHEMAS as CLOSED_SCHEMAS
from dissector.joining.links import JoinPlan
from dissector.joining.merged import COUNTERS
from dissector.limits import MAX_STRADDLING
from dissector.queries.plain_values import plain_rows
from dissector.report.formatting import many
from dissector.report.numbers import nulls_last
from dissector.schemas.small_tables import no_rows

Row = dict[str, Any]
CHANGED: Final = ("changes", "cut", "skipped")  # tables of joining that the section reads


def section(
    plan: JoinPlan, captures: Iterable[str], tables: Mapping[str, pa.Table]
) -> dict[str, Any]:
    """The section `closing` of the report.

    Args:
        plan: of all captures of the report.
        captures: their names.
        tables: changes, cut and skipped of the joined captures (see `dissector.joining.merged`).
    """
    handovers = {(handover.before, handover.after) for handover in plan.handovers}
    straddling = _straddling(plan, tables["cut"], tables["skipped"])
    lost = [row for row in straddling if row["fate"] == "lost"]
    content: dict[str, Any] = {
        "total": {
            "captures": len(set(captures)),
            "captures_joined": len(plan.captures),
            "groups": len(plan.groups),
            "connections_continued": len(handovers),
            "bytes_missing_between": sum(max(0, each.missing or 0) for each in plan.handovers),
            "frames_straddling": len(straddling),
            "frames_lost": len(lost),
            **_changed(tables["changes"]),
        },
        "groups": [
            {"group": group.number, "captures": list(group.captures)} for group in plan.groups
        ],
        "copies": [{"capture": name} for name in plan.copies],
        "straddling": straddling[:MAX_STRADDLING],
    }
    return {"about": about(content), **content}


def about(section: Row) -> str:
    """The section's sentences."""
    total = section["total"]
    counted = total["frames_straddling"] - total["frames_lost"]
    sentences = [
        "What captures know only together: a connection that goes on in the next one, a message "
        "that is published in one and delivered in another."
    ]
    of_all = f"of {many(total['captures'], 'capture', 'captures')}"
    if total["captures_joined"]:
        groups = many(total["groups"], "group", "groups")
        sentences.append(f"{total['captures_joined']:,} {of_all} are joined, in {groups}.")
    else:
        sentences.append(f"None {of_all} has to be joined with another.")
    if total["frames_straddling"]:
        frames = many(total["frames_straddling"], "frame", "frames")
        sentences.append(
            f"{frames} begin in one capture and end in the next: {counted} counted, being sends "
            f"and deliveries that say whose they are, and {total['frames_lost']} lost."
        )
    if total["bytes_missing_between"]:
        missing = many(total["bytes_missing_between"], "byte", "bytes")
        sentences.append(f"{missing} are missing between captures.")
    if section["copies"]:
        copies = many(len(section["copies"]), "capture", "captures")
        sentences.append(
            f"{copies} with the same traffic as another one: what both hold counts once, but in "
            "coverage."
        )
    return " ".join(sentences)


def of_nothing() -> dict[str, Any]:
    """The section where no captures were joined."""
    tables = {name: no_rows(CLOSED_SCHEMAS[name]) for name in CHANGED}
    return section(JoinPlan((), {}, (), ()), (), tables)


def _changed(changes: pa.Table) -> dict[str, Any]:
    totals: dict[str, Any] = dict.fromkeys(COUNTERS, 0)
    outcomes: dict[str, Counter[str]] = {
        f"{prefix}outcomes_{moment}": Counter()
        for prefix in ("", "delivery_")
        for moment in ("before", "after")
    }
    for row in plain_rows(changes):
        for name in COUNTERS:
            totals[name] += row[name] if row["moment"] == "after" else -row[name]
        prefix = {"exchanges": "", "deliveries": "delivery_"}.get(row["table"])
        if prefix is not None:
            outcomes[f"{prefix}outcomes_{row['moment']}"][str(row["value"])] += row["rows"]
    return totals | {name: dict(sorted(counts.items())) for name, counts in outcomes.items()}


def _keeps_place(command: str | None) -> bool:
    """Whether a cut frame counts: in protocols that pair answers by order, every frame does. The
    look-up loads the protocols, so call it only for such frames: few lakes have any."""
    are_ordered = {spec.is_ordered for spec in protocols.PROTOCOLS if command in spec.commands}
    return are_ordered == {True}


def _straddling(plan: JoinPlan, cut: pa.Table, skipped: pa.Table) -> list[Row]:
    """Frames that begin in one capture and end in the next: at most one per direction of each
    continued connection."""
    key = ("capture", "connection_id", "direction")
    begun_at = {tuple(row[name] for name in key): row for row in _sorted(cut)}
    rest_at = {tuple(row[name] for name in key): row["bytes"] for row in _sorted(skipped)}
    connections = []
    for handover in sorted(plan.handovers):
        begun = begun_at.get((*handover.before, handover.direction))
        rest = rest_at.get((*handover.after, handover.direction))
        if begun is None and (rest or 0) <= max(0, -(handover.missing or 0)):
            continue  # the skipped bytes belong to a frame that the first capture has
        command = begun["command"] if begun else None
        is_named = begun is not None and (
            begun["producer_id"] is not None or begun["consumer_id"] is not None
        )
        is_counted = _keeps_place(command) or (command in ("SEND", "MESSAGE") and is_named)
        connections.append(
            {
                "capture": handover.before[0], "connection_id": handover.before[1],
                "next_capture": handover.after[0], "next_connection_id": handover.after[1],
                "direction": handover.direction, "command": command,
                "frame_no": begun["frame_no"] if begun else None,
                "frame_bytes": begun["frame_bytes"] if begun else None,
                "skipped_bytes": rest,
                # A frame with a producer's or consumer's id counts, as one cut by a snap length.
                "fate": "counted" if is_counted else "lost",
            }
        )  # fmt: skip
    return connections


def _sorted(rows: pa.Table) -> list[Row]:
    order = "frame_no" if "frame_no" in rows.schema.names else "bytes"
    # Python sorts: loading Arrow's compute functions takes long.
    return sorted(plain_rows(rows), key=lambda row: nulls_last(row["capture"], row[order]))
