"""Errors: answers that refuse something, and how many incidents they are."""

from typing import Any, Final

from dissector.report.names import is_blind
from dissector.report.numbers import NS_PER_S, Row, instant, known, milliseconds, nulls_last, unseen
from dissector.report.parts import MAX_INCIDENTS, Parts

# Clients repeat a refused request with growing pauses, at most a minute apart by default; a longer
# silence begins a new incident.
INCIDENT_PAUSE_NS: Final = 120 * NS_PER_S
MAX_TEXTS: Final = 5
# What clients of Cursus send in every run though its brokers never take it, and live with: a
# LEAVE_GROUP without its generation, and a LIST that names a topic.
EXPECTED: Final = frozenset((("LEAVE_GROUP", "missing_generation"), ("LIST", "unknown_command")))


def _what(row: Row) -> tuple[Any, ...]:
    """What was refused: equal for repeats of one request, also by several clients of one topic.

    Publishes are refused one by one, so each entry is its own; a request without a topic is told
    apart by the client that asked.
    """
    entry = (row["producer_name"], row["sequence_id"]) if row["kind"] == "publish" else ()
    asker = () if row["topic"] is not None else (row["client_ip"],)
    command = row["request_command"] or row["response_command"]
    return (command, row["error_code"], row["topic"], row["subscription"], *entry, *asker)


def incidents(found: list[Row]) -> list[list[Row]]:
    """Answers of one incident together, each incident in order of time."""
    groups: dict[tuple[Any, ...], list[list[Row]]] = {}
    for row in found:
        runs = groups.setdefault(_what(row), [])
        if runs and row["at_ns"] - runs[-1][-1]["at_ns"] <= INCIDENT_PAUSE_NS:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [run for runs in groups.values() for run in runs]


def _count(found: list[Row], *names: str) -> int:
    return len({tuple(row[name] for name in names) for row in found})


def _incident(run: list[Row]) -> Row:
    first, last = run[0], run[-1]
    names = ("request_command", "response_command", "error_code", "topic", "subscription")
    places = ("capture", "connection_id", "request_frame_no", "response_frame_no", "packet")
    return {
        **{name: first[name] for name in names},
        "error_text": first["error_text"],
        "answers": len(run),
        "connections": _count(run, "capture", "connection_id"),
        "clients": _count(run, "client_ip"),
        "first_ts": instant(first["at_ns"]),
        "last_ts": instant(last["at_ns"]),
        "span_ms": milliseconds(last["at_ns"] - first["at_ns"]),
        **{name: first[name] for name in places},
    }


def _group(found: list[Row], runs: list[list[Row]]) -> Row:
    texts = dict.fromkeys(row["error_text"] for row in found if row["error_text"])
    commands: dict[str | None, int] = {}
    for row in found:
        name = row["request_command"] or row["response_command"]
        commands[name] = commands.get(name, 0) + 1
    return {
        "answers": len(found),
        "incidents": len(runs),
        "by_request": known(commands),
        "connections": _count(found, "capture", "connection_id"),
        "topics": _count([row for row in found if row["topic"] is not None], "topic"),
        "first_ts": instant(found[0]["at_ns"]) if found else None,
        "last_ts": instant(found[-1]["at_ns"]) if found else None,
        "texts": list(texts)[:MAX_TEXTS],
    }


def _listed(found: list[Row], runs: list[list[Row]], keys: tuple[str, ...]) -> list[Row]:
    groups: dict[tuple[Any, ...], tuple[list[Row], list[list[Row]]]] = {}
    for row in found:
        groups.setdefault(tuple(row[key] for key in keys), ([], []))[0].append(row)
    for run in runs:
        groups[tuple(run[0][key] for key in keys)][1].append(run)
    listed = [
        {**dict(zip(keys, key, strict=True)), **_group(*both)} for key, both in groups.items()
    ]
    listed.sort(key=lambda row: (-row["answers"], nulls_last(*(row[key] for key in keys))))
    return listed


def errors(parts: Parts) -> dict[str, Any]:
    """The section `errors`: total, by_code, by_text, incidents."""
    found: list[Row] = parts.tables["errors"].to_pylist()
    found.sort(
        key=lambda row: (
            row["at_ns"],
            nulls_last(
                row["capture"],
                row["response_frame_no"],
                row["connection_id"],
                row["request_frame_no"],
            ),
        )
    )
    runs = incidents(found)
    listed = [_incident(run) for run in runs]
    listed.sort(
        key=lambda row: (
            -row["answers"],
            row["first_ts"] or "",
            nulls_last(row["capture"], row["response_frame_no"]),
        )
    )
    # Texts of one code differ in names and numbers; a run may hold several, its first one counts.
    total = _group(found, runs)
    total["expected"] = sum(
        (row["request_command"], row["error_code"]) in EXPECTED for row in found
    )
    if is_blind(parts.names, "to_client"):
        total = unseen(total, "answers", "incidents", "connections", "topics", "expected")
    return {
        "total": total,
        "by_code": _listed(found, runs, ("error_code",)),
        "by_text": _texts(found),
        "incidents": listed[:MAX_INCIDENTS],
    }


def _texts(found: list[Row]) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        groups.setdefault((row["error_code"], row["error_text"]), []).append(row)
    listed = [
        {
            "error_code": code,
            "error_text": text,
            "answers": len(rows),
            "first_ts": instant(rows[0]["at_ns"]),
        }
        for (code, text), rows in groups.items()
    ]
    listed.sort(key=lambda row: (-row["answers"], nulls_last(row["error_code"], row["error_text"])))
    return listed[:MAX_INCIDENTS]
