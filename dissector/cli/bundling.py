"""The parts of a bundle besides its packets: their rows, numbers, readable tables, and the page."""

import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from dissector.cli import render
from dissector.cli.frame_lines import FrameLines
from dissector.cli.local_time import as_data, time_text
from dissector.cli.terminal import Paint, counted, safe_text
from dissector.codecs.printable import json_text

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.evidence.showing import Shown
    from dissector.lake.reader import Lake

FRAMES: Final = "frames"
TABLES: Final = ("exchanges", "permits", "deliveries")
NUMBERS: Final = "numbers.json"
README: Final = "README.md"
REDACTION: Final = "redaction.txt"
# Columns of the readable tables; the others are in the Parquet files beside them.
_READABLE: Final = {
    "exchanges": (
        *("request_frame_no", "request_command", "response_frame_no", "response_command"),
        *("outcome", "latency_ns", "error_code", "topic", "producer_name", "producer_id"),
        *("sequence_id", "attempt", "message_count", "ledger_id", "entry_id", "error_text"),
    ),
    "permits": (
        *("frame_no", "connection_id", "consumer_id", "event", "delta", "available_after"),
        *("unacked_after", "baseline_known", "topic", "subscription"),
    ),
    "deliveries": (
        *("frame_no", "topic", "subscription", "consumer_id", "ledger_id", "entry_id"),
        *("message_count", "redelivery_count", "is_redelivered", "redelivery_cause", "outcome"),
        *("ack_frame_no", "ack_latency_ns", "checksum"),
    ),
}
_NO_NUMBERS: Final = ("sources", "verdicts", "findings")  # names of files, and sentences
# Per named selection: what it shows, how that is known, and what else could look the same.
_SELECTED: Final = {
    "checksum mismatch": (
        "Frames carry a checksum that their bytes do not have.",
        "How it is known: CRC32C over the captured bytes is not the one that stands in the frame.",
        "What else looks the same: bytes that only the capture changed; then the receiver took no "
        "offence.",
    ),
    "stall": (
        "Consumers were without permits for a second or more.",
        "How it is known: what FLOW granted, less what was delivered, was used up.",
        "What else looks the same: FLOW commands that the capture lost.",
    ),
    "redelivery loop": (
        "Entries were delivered three times or more to one subscription.",
        "How it is known: deliveries with the same ledger and entry.",
        "What else looks the same: a seek, or a client that asks again on purpose.",
    ),
    "error": (
        "Requests were refused.",
        "How it is known: the broker's answers, by request id.",
        "What else looks the same: requests that ask whether something exists.",
    ),
    "lost receipt": (
        "Sends were answered by neither a receipt nor an error.",
        "How it is known: the producer's sends and the broker's answers, by sequence id.",
        "What else looks the same: an answer that the capture lost.",
    ),
}
_OWN_COLUMNS: Final = ("capture", "origin_capture")


@as_data()
def derived(lake: "Lake", roles: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
    """The parts that are derived from the packets.

    Args:
        lake: of these packets alone. roles: frame numbers by role.
    """
    by_frame = {number: role for role, numbers in roles.items() for number in numbers}
    parts = _frames(lake, by_frame)
    for name in TABLES:
        table = lake.table(name)
        table = table.drop_columns([each for each in _OWN_COLUMNS if each in table.column_names])
        parts[f"{name}.parquet"] = _parquet(table)
        parts[f"{name}.txt"] = _text_table(table.select(_READABLE[name])).encode()
    parts[NUMBERS] = (json_text(numbers(lake), indent=1, sort_keys=True) + "\n").encode()
    return parts


def _frames(lake: "Lake", by_frame: Mapping[int, str]) -> dict[str, bytes]:
    paint = Paint("never")
    table = lake.table(FRAMES)
    names = [name for name in table.column_names if name not in _OWN_COLUMNS]
    in_words = FrameLines(paint, None)
    lines: list[str] = []
    texts: list[str] = []
    for batch in table.to_batches():
        for row in render.rows_of(batch, names):
            role = by_frame.get(row["frame_no"])
            lines.append(render.json_line({"role": role, **row}, keeps_nulls=False))
            mark = "*" if role == "selected" else "+" if role else " "
            texts += [] if texts else [f"  {in_words.heading(row)}"]
            *day, line = in_words.lines(row)
            texts += [*(f"  {each}" for each in day), f"{mark} {line}"]
    texts.append("")
    texts.append("* selected   + belongs to one that is   the others lie in the same packets")
    return {
        f"{FRAMES}.jsonl": "".join(f"{line}\n" for line in lines).encode(),
        f"{FRAMES}.txt": "".join(f"{line}\n" for line in texts).encode(),
    }


def _parquet(table: "pa.Table") -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _text_table(table: "pa.Table") -> str:
    """Rows as text, in columns of their values' width."""
    names = table.column_names
    cells = [
        [safe_text(render.field_text(value)) or "-" for value in row.values()]
        for row in table.to_pylist()
    ]
    if not cells:
        return "(none)\n"
    widths = [max(len(row[index]) for row in [names, *cells]) for index in range(len(names))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        + "\n"
        for row in [names, *cells]
    )


def numbers(lake: "Lake") -> dict[str, Any]:
    """The numbers of a lake's report, without sentences and file names."""
    from dissector.queries.duckdb_engine import DuckdbEngine
    from dissector.report.pipeline import ALL, make_report

    with TemporaryDirectory(prefix="dissector-") as work:
        engine = partial(DuckdbEngine, threads=1)
        made = make_report(lake, Path(work), engine, ALL, has_memory=False)
    return {name: value for name, value in made.report.items() if name not in _NO_NUMBERS}


# -- the page


def _opening(manifest: Mapping[str, Any], shown: Sequence["Shown"]) -> list[str]:
    """The page's first lines: title, meaning, how it is known, what else could look the same."""
    if not shown:
        name = manifest["what"]
        return [f"# Evidence: {name}", *(f"\n{line}" for line in _SELECTED.get(name, ()))]
    from dissector.evidence.showing import sentences

    first = min(shown, key=lambda each: not each.is_same)
    lines = [f"# {first.one.number}: {first.one.title}"]
    for line in first.text().split("\n"):
        lines += ["", _escaped(line)]
    others = [f"{each.one.number} ({each.one.title})" for each in shown if each is not first]
    if others:
        lines += ["", f"Of the same rule: {'; '.join(others)}."]
    lines += [f"\n{line}" for line in sentences([each.as_row() for each in shown])]
    return lines


def page(
    manifest: Mapping[str, Any], source: Mapping[str, Any], lake: "Lake", selected: Sequence[int],
    shown: Sequence["Shown"] = (),
) -> str:  # fmt: skip
    """The page to paste into a report.

    Args:
        manifest: of the bundle. source: facts of the whole capture. selected: frame numbers in
            the bundle. shown: the bundle's findings.
    """
    chosen = set(selected)
    exchanges = [
        row
        for row in lake.table("exchanges").to_pylist()
        if {row["request_frame_no"], row["response_frame_no"]} & chosen
    ]
    deliveries = [row for row in lake.table("deliveries").to_pylist() if row["frame_no"] in chosen]
    frames = [row for row in lake.table(FRAMES).to_pylist() if row["frame_no"] in chosen]
    lines = [
        *_opening(manifest, shown), "",
        *_when(frames, source, lake.table("connections").to_pylist()), "",
        "## What the selected frames say", "",
        *_of_frames(frames), *_of_exchanges(exchanges), *_of_deliveries(deliveries), "",
        "## How often", "",
        *source["often"], "",
        "## How it was measured", "",
        f"By `dissector` {manifest['versions']['dissector']}, passively, from captured packets: "
        f"`{manifest['command']}`. Times are the capture's; a latency runs from the last byte of a "
        "request to the last byte of its answer, both as seen where the capture was taken.", "",
        *manifest["shown"], "",
        "## What the capture could not see", "",
        *source["unseen"], "",
        "## What was changed before sharing", "",
        *manifest["changed"], "",
        "## How to look at it", "",
        "`packets.pcapng` opens in Wireshark; a comment stands on each packet that matters, and "
        "packet numbers in the texts are Wireshark's. `frames.txt`, `exchanges.txt`, `permits.txt` "
        "and `deliveries.txt` are for reading, the Parquet files and `frames.jsonl` for tools. "
        "With `pip install pulsar-dissector`:", "",
        "    dissector verify BUNDLE.zip",
        "    dissector summary BUNDLE.zip",
        f"    dissector frames BUNDLE.zip -V -Y 'frame_no in ({_listed(selected)})'",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5]))


def _when(
    frames: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any],
    connections: Sequence[Mapping[str, Any]],
) -> list[str]:
    times = [row[name] for row in frames for name in ("first_ts_ns", "last_ts_ns")]
    topics = sorted({row["topic"] for row in frames if row["topic"]})
    lines = [
        f"{counted(len(frames), 'frame')} selected of {counted(source['frames'], 'frame')}, "
        f"{time_text(min(times))} to {time_text(max(times))}."
    ]
    if topics:
        shown = ", ".join(f"`{_escaped(topic)}`" for topic in topics[:5])
        lines.append(f"Topic: {shown}" + (" …" if len(topics) > 5 else "") + ".")
    versions = sorted(
        {
            f"{who} {row[f'{name}_version']}"
            for who, name in (("client", "client"), ("broker", "server"))
            for row in connections
            if row[f"{name}_version"]
        },
        reverse=True,
    )[:8]
    if versions:
        lines.append(f"Versions: {', '.join(map(_escaped, versions))}.")
    return lines


def _escaped(text: str) -> str:
    """A wire text with markup escaped."""
    plain = safe_text(text)
    return "".join(f"\\{sign}" if sign in "`*_[]<>|#" else sign for sign in plain)


def _counts(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[tuple[Any, ...], int]:
    counts: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0]))))


def _of_frames(frames: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| command | frames | checksum |", "|---|---|---|"]
    for (command, checksum), count in _counts(frames, "command", "checksum").items():
        lines.append(f"| {command or 'cut'} | {count:,} | {checksum or '-'} |")
    return lines


def _of_exchanges(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = ["", "| request | outcome | how many | least ms | median ms | most ms |"]
    lines.append("|---|---|---|---|---|---|")
    for (command, outcome), count in _counts(rows, "request_command", "outcome").items():
        times = sorted(
            row["latency_ns"]
            for row in rows
            if (row["request_command"], row["outcome"]) == (command, outcome)
            and row["latency_ns"] is not None
        )
        spread = (times[0], times[(len(times) - 1) // 2], times[-1]) if times else ()
        cells = " | ".join(f"{each / 1e6:.3f}" for each in spread) or "- | - | -"
        lines.append(f"| {command or 'unknown'} | {outcome} | {count:,} | {cells} |")
    return lines


def _of_deliveries(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = ["", "| deliveries | outcome | sent again because of | how many |", "|---|---|---|---|"]
    for (again, outcome, cause), count in _counts(
        rows, "is_redelivered", "outcome", "redelivery_cause"
    ).items():
        lines.append(
            f"| {'again' if again else 'first'} | {outcome} | {cause or '-'} | {count:,} |"
        )
    return lines


def same(name: str, mine: bytes, theirs: bytes | None) -> bool:
    """Whether a part equals its recomputed contents.

    Further columns and numbers of a newer program are no difference.

    Args:
        mine: recomputed; theirs: of the bundle.
    """
    if theirs is None or mine == theirs:
        return mine == theirs
    try:
        if name.endswith(".parquet"):
            return _same_rows(mine, theirs)
        if name.endswith(".jsonl"):
            pairs = zip(mine.splitlines(), theirs.splitlines(), strict=True)
            return all(_holds(json.loads(one), json.loads(other)) for one, other in pairs)
        return name == NUMBERS and _holds(json.loads(mine), json.loads(theirs))
    except (ValueError, RecursionError):
        return False


def _holds(mine: Any, theirs: Any) -> bool:
    """Whether `mine` contains all of `theirs`."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        return all(name in mine and _holds(mine[name], value) for name, value in theirs.items())
    if isinstance(theirs, list) and isinstance(mine, list):
        is_long = len(mine) == len(theirs)
        return is_long and all(_holds(*pair) for pair in zip(mine, theirs, strict=True))
    return bool(mine == theirs)


def _same_rows(mine: bytes, theirs: bytes) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        manifest = pq.read_table(io.BytesIO(theirs))
        return bool(pq.read_table(io.BytesIO(mine)).select(manifest.column_names).equals(manifest))
    except (pa.ArrowException, KeyError):
        return False
