"""Errors: answers that refuse something, and the incidents they form."""

from typing import Any, Final

from dissector.limits import MAX_ERROR_TEXTS, MAX_LISTED_INCIDENTS
from dissector.report import numbers
from dissector.report.formatting import many
from dissector.report.merged_tables import MergedTables, is_direction_missing
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, counted, not_evaluated

# Requests of Cursus clients that brokers always refuse, without harm: a LEAVE_GROUP without its
# generation, and a LIST that names a topic.
EXPECTED: Final = frozenset((("LEAVE_GROUP", "missing_generation"), ("LIST", "unknown_command")))


def _incident(row: Row) -> Row:
    shown = ("request_command", "response_command", "error_code", "topic", "subscription",
             "error_text", "answers", "connections", "clients")  # fmt: skip
    columns = ("capture", "connection_id", "request_frame_no", "response_frame_no", "packet")
    return {
        **{name: row[name] for name in shown},
        "first_ts": numbers.instant(row["first_ns"]),
        "last_ts": numbers.instant(row["last_ns"]),
        "span_ms": numbers.milliseconds(row["last_ns"] - row["first_ns"]),
        **{name: row[name] for name in columns},
    }


def _group(rows: list[Row], connections: str, texts: list[Row]) -> Row:
    """The numbers of some answers. connections: the column of their connections' count; texts: rows
    by time."""
    commands: dict[str | None, int] = {}
    for row in rows:
        name = row["request_command"] or row["response_command"]
        commands[name] = commands.get(name, 0) + row["answers"]
    seen = dict.fromkeys(row["error_text"] for row in texts if row["error_text"])
    return {
        "answers": sum(row["answers"] for row in rows),
        "incidents": sum(row["incidents"] for row in rows),
        "by_request": numbers.known(commands),
        "connections": sum(row[connections] for row in rows),
        "topics": len({row["topic"] for row in rows if row["topic"] is not None}),
        "first_ts": numbers.instant(numbers.low(row["first_ns"] for row in rows)),
        "last_ts": numbers.instant(numbers.high(row["last_ns"] for row in rows)),
        "texts": list(seen)[:MAX_ERROR_TEXTS],
    }


def _by_code(rows: list[Row], texts: list[Row]) -> list[Row]:
    listed = []
    for (code,), rows_of_code in numbers.grouped(rows, ("error_code",)).items():
        texts_of_code = [row for row in texts if row["error_code"] == code]
        listed.append(
            {"error_code": code, **_group(rows_of_code, "connections_of_code", texts_of_code)}
        )
    listed.sort(key=lambda row: (-row["answers"], numbers.nulls_last(row["error_code"])))
    return listed


def _by_text(texts: list[Row]) -> list[Row]:
    order = sorted(
        texts,
        key=lambda row: (-row["answers"], numbers.nulls_last(row["error_code"], row["error_text"])),
    )
    return [
        {
            **{name: row[name] for name in ("error_code", "error_text", "answers")},
            "first_ts": numbers.instant(row["first_ns"]),
        }
        for row in order[:MAX_LISTED_INCIDENTS]
    ]


def errors(merged: MergedTables) -> dict[str, Any]:
    """The section `errors`: total, by_code, by_text, incidents."""
    rows = merged.rows("refused")
    texts = merged.rows("refused_texts")
    texts.sort(key=lambda row: (row["first_ns"], numbers.nulls_last(row["first_frame_no"])))
    incidents = [_incident(row) for row in merged.rows("incidents")]
    incidents.sort(
        key=lambda row: (
            -row["answers"],
            row["first_ts"] or "",
            numbers.nulls_last(row["capture"], row["response_frame_no"]),
        )
    )
    total = _group(rows, "connections", texts)
    total["expected"] = sum(
        row["answers"] for row in rows if (row["request_command"], row["error_code"]) in EXPECTED
    )
    if is_direction_missing(merged, "to_client"):
        total = numbers.unseen(total, "answers", "incidents", "connections", "topics", "expected")
    return {
        "total": total,
        "by_code": _by_code(rows, texts),
        "by_text": _by_text(texts),
        "incidents": incidents[:MAX_LISTED_INCIDENTS],
    }


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["errors"]["total"]
    frames = report["coverage"]["total"]["frames"]
    if total["answers"] is None:
        return (
            "Answers that refuse a request, of any command. The direction of the answers was not "
            "captured, so nothing is known of them."
        )
    return (
        "Answers that refuse a request, of any command; repeats of one request within two minutes "
        f"are one incident. {counted(total['answers'], 'answer')} in "
        f"{counted(total['incidents'], 'incident')}, in {many(frames, 'frame')}."
        f"{not_evaluated(report, {})} What a client refuses by itself never reaches the wire."
    )


SECTION: Final = Section(
    "errors",
    errors,
    about,
    ("refused", "refused_texts", "incidents", "directions"),
    Judged("errors", lambda total: total["answers"]),
)
