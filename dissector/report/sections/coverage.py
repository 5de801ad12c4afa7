"""Coverage: packets and bytes read, the share that could be decoded, and notices."""

from typing import Any, Final

from dissector.limits import MAX_NOTICE_TEXTS
from dissector.packet.unread import UNREAD_CODES, unread_of
from dissector.protocols import PROTOCOL_NAMES
from dissector.queries.catalogue import catalogue
from dissector.report.descriptions import SERIOUS, notice_sentence
from dissector.report.formatting import bytes_text, many, share_text
from dissector.report.merged_tables import MergedTables, one_way_connections, proxy_peer_count
from dissector.report.numbers import Row, counts_by, high, instant, known, low, nulls_last, share
from dissector.report.section import Judged, Section
from dissector.schemas.enums import OTHER_PROTOCOLS


def _ignored(files: list[Row]) -> dict[str, int]:
    """Ignored packets of all files, by reason."""
    counts: dict[str | None, int] = {}
    for file in files:
        for reason, count in dict(file["packets_ignored_by_reason"] or ()).items():
            counts[reason] = counts.get(reason, 0) + count
    return known(counts)


def _span(files: list[Row]) -> Row:
    first = low(file["first_ts_ns"] for file in files)
    last = high(file["last_ts_ns"] for file in files)
    span = None if first is None or last is None else last - first
    return {
        "first_ts_ns": first,
        "last_ts_ns": last,
        "first_ts": instant(first),
        "last_ts": instant(last),
        "span_ns": span,
    }


def _files(files: list[Row]) -> Row:
    return {
        "captures": len({file["capture"] for file in files}),
        "files": len(files),
        "file_bytes": sum(file["file_bytes"] or 0 for file in files),
        "truncated_files": sum(bool(file["is_truncated"]) for file in files),
        "packets": sum(file["packets"] or 0 for file in files),
        "packets_tcp": sum(file["packets_tcp"] or 0 for file in files),
        "packets_ignored_by_reason": _ignored(files),
        "dropped_by_interface": _dropped(files),
        "clock_steps": sum(file["clock_steps"] or 0 for file in files),
        **_span(files),
    }


def _dropped(files: list[Row]) -> int | None:
    """Packets that the interface dropped; None if no file says, which differs from 0."""
    reported = [file["dropped_by_interface"] for file in files]
    counts = [count for count in reported if count is not None]
    return sum(counts) if counts else None


def _connections(rows: list[Row], unfinished: list[Row]) -> Row:
    """Sums over connections.

    Args:
        rows: of the query of connections. unfinished: of connections without a row, known by their
            frames alone.
    """
    sums = catalogue()["connections"].sums
    total = {name: sum(row[name] for row in rows) for name in sums}
    recognised = [row for row in rows if row["protocol"] in PROTOCOL_NAMES]
    others = [row for row in rows if row["protocol"] in OTHER_PROTOCOLS]
    other_bytes = sum(row["stream_bytes"] for row in others)
    by_protocol = counts_by([*rows, *unfinished], "protocol", "connections")
    by_start, by_end = (counts_by(rows, name, "connections") for name in ("started", "ended"))
    without_row = sum(row["connections"] for row in unfinished)
    return {
        "connections": total.pop("connections") + without_row,
        "unfinished_connections": without_row,
        "unfinished_frames": sum(row["frames"] for row in unfinished),
        "connections_by_protocol": known(by_protocol),
        "connections_by_start": known(by_start),
        "connections_by_end": known(by_end),
        "tls_opaque_connections": by_protocol.get("tls", 0),
        **total,
        "other_protocols_bytes": other_bytes,
        "decoded_share": share(total["decoded_bytes"], total["stream_bytes"] - other_bytes),
        "decoded_share_of_recognised": share(
            sum(row["decoded_bytes"] for row in recognised),
            sum(row["stream_bytes"] for row in recognised),
        ),
    }


def _frames(rows: list[Row]) -> Row:
    by_command: dict[str, dict[str, int]] = {}
    for row in rows:
        commands = by_command.setdefault(row["direction"] or "unknown", {})
        name = row["command"] or "unknown"
        commands[name] = commands.get(name, 0) + row["frames"]
    return {
        "frames": sum(row["frames"] for row in rows),
        "frame_bytes": sum(row["frame_bytes"] for row in rows),
        "frames_by_status": known(counts_by(rows, "status", "frames")),
        "frames_by_command": {
            direction: dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
            for direction, counts in sorted(by_command.items())
        },
    }


def _notices(rows: list[Row]) -> Row:
    hidden = [row for row in rows if row["code"] == "redacted"]
    return {
        "notices_by_code": known(counts_by(rows, "code", "notices")),
        "notices_by_severity": known(counts_by(rows, "severity", "notices")),
        "shortened_bytes": sum(
            row["bytes"] or 0 for row in rows if row["code"] == "packets_shortened"
        ),
        "redacted": {
            "captures": sum(row["notices"] for row in hidden),
            "bytes": sum(row["bytes"] or 0 for row in hidden),
        },
    }


def _kinds_and_texts(rows: list[Row]) -> Row:
    """Kinds of ignored packets, and the texts of notices about whole captures. rows: of the query
    `capture_notices`."""
    unread: dict[str, int] = {}
    texts: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: (row["code"], row["text"])):
        kind = unread_of(row["text"]) if row["code"] in UNREAD_CODES else None
        if kind is not None:
            unread[kind[0]] = unread.get(kind[0], 0) + kind[1] * row["notices"]
        elif row["text"] not in texts.setdefault(row["code"], []):
            texts[row["code"]].append(row["text"])
    by_count = sorted(unread.items(), key=lambda item: (-item[1], item[0]))
    return {
        "packets_unread_by_kind": dict(by_count),
        "notice_texts": {code: some[:MAX_NOTICE_TEXTS] for code, some in texts.items()},
    }


def _limits(notices: Row) -> dict[str, int]:
    """The dissection's limits that were reached, with counts."""
    return {
        code: count for code, count in notices["notices_by_code"].items() if code.endswith("_limit")
    }


def _group(
    files: list[Row],
    connections: list[Row],
    unfinished: list[Row],
    frames: list[Row],
    notices: list[Row],
) -> Row:
    of_connections = _connections(connections, unfinished)
    return {**_files(files), **of_connections, **_frames(frames), **_notices(notices)}


def _by(rows: list[Row], key: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def coverage(merged: MergedTables) -> dict[str, Any]:
    """The section `coverage`: total, by_capture, by_protocol."""
    names = ("files", "connections", "unfinished", "frames", "notices")
    tables = [merged.rows(name) for name in names]
    total = _group(*tables)
    total["one_way_connections"] = {
        direction: count for direction, count in one_way_connections(merged).items() if count
    }
    total["broker_leg_connections"] = proxy_peer_count(merged)
    total["limits_hit"] = _limits(total)
    total |= _kinds_and_texts(merged.rows("capture_notices"))
    total["serious_notices"] = [
        f"{notice_sentence(total, code)} ({code}, {many(count, 'time')})"
        for code, count in total["notices_by_code"].items()
        if code in SERIOUS
    ]
    if merged.only_totals:
        return {"total": total}
    of_captures = [_by(table, "capture") for table in tables]
    by_capture = [
        {"capture": capture, **_group(*(groups.get(capture, []) for groups in of_captures))}
        for capture in sorted(of_captures[0], key=nulls_last)
    ]
    of_protocols, open_of, frames_of = (_by(table, "protocol") for table in tables[1:4])
    by_protocol = [
        {
            "protocol": protocol,
            **_connections(of_protocols.get(protocol, []), open_of.get(protocol, [])),
            **_frames(frames_of.get(protocol, [])),
        }
        for protocol in sorted({*of_protocols, *open_of}, key=nulls_last)
    ]
    return {"total": total, "by_capture": by_capture, "by_protocol": by_protocol}


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["coverage"]["total"]
    one_way = sum(total["one_way_connections"].values())
    lacks = f" Of {many(one_way, 'connection')} one direction is missing." if one_way else ""
    return (
        f"What was read: {many(total['packets'], 'packet')} with "
        f"{bytes_text(total['stream_bytes'])} of stream in "
        f"{many(total['connections'], 'connection')}. decoded_share is the share of these bytes in "
        f"whole frames; the rest was not captured, was cut, or is no Pulsar.{lacks} What is "
        "missing here is missing in every other section."
    )


SECTION: Final = Section(
    "coverage",
    coverage,
    about,
    ("connections", "unfinished", "frames", "notices", "capture_notices", "directions"),
    Judged(
        "coverage",
        lambda total: total["decoded_share"],
        lambda share: share_text(share) if share < 0.99 else "",
    ),
)
