"""Checksum failures: frames whose CRC32C does not match, and their peers' answers to them."""

from typing import Any, Final

from dissector.limits import MAX_FAILURES
from dissector.report import numbers
from dissector.report.crc_errors import Difference, difference, of_checksum_field
from dissector.report.formatting import count_text, many
from dissector.report.merged_tables import MergedTables, is_without_permits
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, not_evaluated

# Verdicts on a mismatch: the comment of the view `mismatches` says how they are derived.
VERDICTS: Final = ("confirmed_by_peer", "capture_artefact", "unconfirmed")
_NOT_APPLICABLE: Final = "frames of Cursus carry no checksum"
_CONNECTION: Final = ("head_capture", "connection_id")
_ENDS: Final = ("client_ip", "client_port", "broker_ip", "broker_port")


def _group(frames: list[Row]) -> Row:
    """The numbers of one group of frames that can carry a checksum."""
    counts = numbers.counts_by(frames, "checksum", "frames")
    of = numbers.grouped(frames, ("checksum",))
    notes = numbers.counts_by(of.get(("not_evaluated",), ()), "checksum_note", "frames")
    verdicts = numbers.counts_by(of.get(("mismatch",), ()), "verdict", "frames")
    ok, mismatch = counts.get("ok", 0), counts.get("mismatch", 0)
    return {
        "evaluated": ok + mismatch,
        "ok": ok,
        "mismatch": mismatch,
        "absent": counts.get("absent", 0),
        "not_evaluated": counts.get("not_evaluated", 0),
        "not_evaluated_by_reason": numbers.known(notes),
        **{verdict: verdicts.get(verdict, 0) for verdict in VERDICTS},
        "rate": numbers.share(mismatch, ok + mismatch),
    }


def _listed(frames: list[Row], keys: tuple[str, ...]) -> list[tuple[Row, Row]]:
    """Each group's first row and its numbers, groups with most mismatches first."""
    listed = [(rows[0], _group(rows)) for rows in numbers.grouped(frames, keys).values()]
    listed.sort(
        key=lambda pair: (
            -pair[1]["mismatch"],
            -pair[1]["evaluated"],
            numbers.nulls_last(*(pair[0][key] for key in keys)),
        )
    )
    return listed


def _differs(row: Row) -> Row:
    """The least damage that explains the mismatch, in bytes of the frame from 0.

    It is derived from both checksums; another copy of the entry tells which of them is right.
    """
    nothing = {"differs": None, "differs_at": None, "differs_masks": None}
    sizes = (row["metadata_bytes"], row["payload_bytes"])
    stored, computed = row["crc32c_stored"], row["crc32c_computed"]
    if None in (*sizes, stored, computed):
        return nothing
    size = 4 + sum(sizes)
    if row["copy_crc32c"] is not None and row["copy_crc32c"] != stored:
        differs: Difference | None = of_checksum_field(stored, row["copy_crc32c"], size)
    else:
        differs = difference(stored, computed, size)
    if differs is None:
        return nothing
    return {
        "differs": differs.kind,
        "differs_at": [row["frame_bytes"] - distance for distance in differs.distances],
        "differs_masks": list(differs.masks),
    }


def _failures(merged: MergedTables) -> list[Row]:
    """The first mismatches by time, each with its damage."""
    failures = merged.rows("checksum_failures")
    failures.sort(key=lambda row: numbers.nulls_last(row["at_ns"], row["capture"], row["frame_no"]))
    listed = []
    for row in failures[:MAX_FAILURES]:
        damage = _differs(row)
        del row["copy_crc32c"]
        row["ts"] = numbers.instant(row.pop("at_ns"))
        worth = {name: row.pop(name) for name in ("verdict", "evidence_frame_no")}
        listed.append(row | worth | damage)
    return listed


def checksum_failures(merged: MergedTables) -> dict[str, Any]:
    """The section `checksum_failures`: total, by_direction, by_topic, by_connection, failures."""
    rows = merged.rows("checksums")
    by_topic = [row for row in rows if row["grouping"] == "topic"]
    by_connection = [row for row in rows if row["grouping"] == "connection"]
    reason = _NOT_APPLICABLE if is_without_permits(merged) else None
    total = numbers.applicable(_group(by_topic), reason)
    if merged.only_totals:
        return {"total": total}
    return {
        "total": total,
        "by_direction": [
            {"direction": row["direction"], **group}
            for row, group in _listed(by_topic, ("direction",))
        ],
        "by_topic": [
            {"topic": row["topic"], **group} for row, group in _listed(by_topic, ("topic",))
        ],
        "by_connection": [
            {
                "capture": row["head_capture"],
                "connection_id": row["connection_id"],
                **group,
                **{name: row[name] for name in _ENDS},
            }
            for row, group in _listed(by_connection, _CONNECTION)
        ],
        "failures": _failures(merged),
    }


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["checksum_failures"]["total"]
    if total["not_applicable"]:
        return f"Not applicable: {total['not_applicable']}."
    absent = f" {count_text(total['absent'])} carry none." if total["absent"] else ""
    return (
        "Share of SEND and MESSAGE frames whose checksum (CRC32C) does not match their bytes. It "
        f"covers {many(total['evaluated'], 'frame')} that were captured whole.{absent}"
        f"{not_evaluated(report, total['not_evaluated_by_reason'])} A mismatch is damage on the "
        "wire only if the receiver reports it, too."
    )


SECTION: Final = Section(
    "checksum_failures",
    checksum_failures,
    about,
    ("checksums", "checksum_failures", "directions"),
    Judged("checksums", lambda total: total["mismatch"]),
)
