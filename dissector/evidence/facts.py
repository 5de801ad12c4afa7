"""Facts of a capture for an evidence bundle: its files, its totals, what it could not observe.

They contain no name from the capture.
"""

from typing import TYPE_CHECKING, Any, Final

from dissector.evidence.frame_selection import Chosen
from dissector.queries.duckdb_engine import quoted

if TYPE_CHECKING:
    from dissector.queries.sandbox import Sandbox

_FILE: Final = (
    *("sha256", "file_bytes", "format", "compressed", "packets", "link_types", "snaplen"),
    *("first_ts_ns", "last_ts_ns", "is_truncated", "dropped_by_interface", "packets_tcp"),
    *("clock_steps", "schema_version"),
)
_IDS: Final = (
    *("request_id", "producer_id", "consumer_id", "sequence_id", "ledger_id", "entry_id"),
    *("message_count", "permits", "redelivery_count", "checksum"),
)


def capture_facts(engine: "Sandbox", capture: str) -> dict[str, Any]:
    """Return the manifest's entry on the capture's files."""
    file_rows = engine.rows(
        f"SELECT {', '.join(_FILE)} FROM capture_files WHERE capture = {quoted(capture)} "
        "ORDER BY file_index",
    )
    return {"sources": file_rows}


def sentences(engine: "Sandbox", chosen: Chosen) -> dict[int, list[str]]:
    """Return comments for the last packets of chosen frames: role, command, ids, outcome."""
    name = quoted(chosen.capture)
    ids = ", ".join(f"f.{column}" for column in _IDS)
    frame_rows = engine.rows(
        f"SELECT f.frame_no, f.last_packet, f.command, f.status, {ids}, "
        "any_value(e.outcome) AS outcome, any_value(e.latency_ns) AS latency_ns "
        "FROM frames AS f JOIN (SELECT DISTINCT frame_no FROM chosen) AS c USING (frame_no) "
        f"LEFT JOIN exchanges AS e ON e.capture = {name} AND e.request_frame_no = f.frame_no "
        f"WHERE f.capture = {name} GROUP BY ALL ORDER BY f.frame_no",
    )
    texts_by_packet: dict[int, list[str]] = {}
    for row in frame_rows:
        words = [f"{chosen.roles[row['frame_no']][1]}: {row['command'] or row['status']}"]
        words += [f"{key} {row[key]}" for key in _IDS if row[key] is not None]
        if row["outcome"] is not None:
            words.append(f"outcome {row['outcome']}")
        if row["latency_ns"] is not None:
            words.append(f"latency {row['latency_ns'] / 1e6:.3f} ms")
        texts_by_packet.setdefault(row["last_packet"], []).append(", ".join(words))
    return texts_by_packet


def whole(engine: "Sandbox", capture: str) -> dict[str, Any]:
    """Return counts of the whole capture, and sentences about what it could not observe."""
    name = quoted(capture)
    (totals,) = engine.rows(
        f"SELECT (SELECT count(*) FROM frames WHERE capture = {name}) AS frames, "
        "count(*) AS connections, coalesce(sum(gap_bytes_to_broker + gap_bytes_to_client), 0) "
        "::BIGINT AS gap_bytes, coalesce(sum(snaplen_cut_bytes_to_broker + "
        "snaplen_cut_bytes_to_client), 0)::BIGINT AS cut_bytes, "
        "count(*) FILTER (started = 'midstream') AS midstream, "
        "count(*) FILTER (protocol = 'tls') AS tls, "
        "count(*) FILTER ((packets_to_broker = 0) <> (packets_to_client = 0)) AS one_way "
        f"FROM connections WHERE capture = {name}",
    )
    return {
        "frames": totals["frames"],
        "often": _often(engine, name),
        "unseen": _unseen(totals, capture_facts(engine, capture)["sources"]),
    }


def _often(engine: "Sandbox", name: str) -> list[str]:
    counts = engine.rows(
        "SELECT request_command, outcome, count(*) AS n FROM exchanges "
        f"WHERE capture = {name} AND request_frame_no IS NOT NULL GROUP BY ALL "
        "ORDER BY request_command, n DESC, outcome",
    )
    lines = ["In the whole capture:", "", "| request | outcome | how many |", "|---|---|---|"]
    lines += [
        f"| {row['request_command'] or 'unknown'} | {row['outcome']} | {row['n']:,} |"
        for row in counts
    ]
    return lines


def _unseen(totals: dict[str, Any], files: list[dict[str, Any]]) -> list[str]:
    """Return sentences about what is missing; the last one holds for every capture."""
    dropped = sum(row["dropped_by_interface"] or 0 for row in files)
    facts = (
        (totals["gap_bytes"], "bytes of streams that were on the wire and are not in the capture"),
        (totals["cut_bytes"], "bytes cut by the snap length"),
        (dropped, "packets dropped while capturing"),
        (totals["midstream"], "connections that began before the capture"),
        (totals["tls"], "connections in TLS, which are opaque"),
        (totals["one_way"], "connections seen in one direction only"),
        (sum(bool(row["is_truncated"]) for row in files), "files that are cut at their end"),
    )
    lines = [f"- {count:,} {text}" for count, text in facts if count]
    if not lines:
        lines.append("- Nothing is missing between its first and its last packet.")
    lines.append("- What happens inside client, broker and bookies: only what they sent is seen.")
    return lines
