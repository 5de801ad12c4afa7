"""Survey captures and plan, by the survey, which of them are joined.

The survey of a capture is three small tables: its files, its connections, and its *presence*, the
lowest and highest message numbers by topic and producer, ledger and subscription. Two captures can
share a message only if their presences overlap; only then their rows are read (`shared`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.joining import links
from dissector.joining.files import CaptureFiles, JoinSettings, database, make_views
from dissector.joining.links import JoinPlan
from dissector.joining.shared import PRESENCE, SENDS_PRESENCE, overlapping, shared_captures
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import TEXT, as_schema, no_rows, small_table

if TYPE_CHECKING:
    import duckdb

_CONNECTIONS: Final = pa.schema([arrow_schema("connections").field(name) for name in links.COLUMNS])
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "files": arrow_schema("capture_files"),
    "connections": _CONNECTIONS,
    "presence": PRESENCE,
}

# Connections whose endpoints are in several captures, if one can continue another or be its copy.
_CANDIDATES: Final = """
WITH several AS (
  SELECT connection_key FROM connections GROUP BY connection_key HAVING count(DISTINCT capture) > 1
),
timed AS (
  SELECT connection_key, started, isn_to_broker, first_ts_ns, max(last_ts_ns) OVER (
    PARTITION BY connection_key ORDER BY first_ts_ns, last_ts_ns, capture
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS until_ns
  FROM connections SEMI JOIN several USING (connection_key)
),
wanted AS (
  SELECT connection_key FROM timed GROUP BY connection_key
  HAVING bool_or(started = 'midstream') OR bool_or(until_ns >= first_ts_ns)
    OR count(isn_to_broker) > count(DISTINCT isn_to_broker)
)
SELECT connections.* FROM connections SEMI JOIN wanted USING (connection_key)
ORDER BY capture, connection_id
"""


class SurveyTables(NamedTuple):
    """The survey of some captures: tables of SCHEMAS, whose rows can be cached per capture."""

    files: pa.Table
    connections: pa.Table
    presence: pa.Table


def known(source: CaptureFiles, settings: JoinSettings, *, is_alone: bool = False) -> SurveyTables:
    """Survey the captures of a source.

    Args:
        is_alone: the source is the only capture, so only its files are read.

    Raises:
        DependencyError: DuckDB is not installed.
    """
    if is_alone and (rows := _plain_files(source)) is not None:
        return SurveyTables(rows, no_rows(_CONNECTIONS), no_rows(PRESENCE))
    with database(settings) as db:
        make_views(db, source, ("capture_files",))
        files = _table(db, "FROM capture_files ORDER BY capture, file_index", SCHEMAS["files"])
        if is_alone:
            return SurveyTables(files, no_rows(_CONNECTIONS), no_rows(PRESENCE))
        make_views(db, source, ("connections", "exchanges", "deliveries"))
        return SurveyTables(
            files,
            _table(db, "FROM connections ORDER BY capture, connection_id", _CONNECTIONS),
            _table(db, SENDS_PRESENCE, PRESENCE),
        )


def _plain_files(source: CaptureFiles) -> pa.Table | None:
    """The rows of capture_files of one capture as this version lands it; None for any other source.
    They are read without a database: to open one takes longer than some of its queries."""
    paths = source.here(("capture_files",)).files["capture_files"]
    if len(paths) != 1 or source.only or source.has_rotations or source.is_mixed:
        return None
    try:
        with pq.ParquetFile(paths[0]) as file:
            return as_schema(file.read(SCHEMAS["files"].names), SCHEMAS["files"])
    except (OSError, ValueError, KeyError):  # DuckDB reads the file next and reports the error
        return None


def plan(
    known: SurveyTables,
    open_source: Callable[[frozenset[str]], CaptureFiles],
    settings: JoinSettings,
) -> JoinPlan:
    """Plan which captures are joined.

    Args:
        known: the survey of all captures.
        open_source: returns the files of captures by name.
    """
    spans = capture_spans(known.files)
    if len(spans) < 2:
        return links.NOTHING
    with database(settings) as db:
        db.register("connections", known.connections)
        rows = _table(db, _CANDIDATES, _CONNECTIONS).to_pylist()
        wholes = links.wholes(rows, spans)
        for name, table in (
            ("presence", known.presence),
            ("clusters", _clusters(known.files)),
            ("wholes", small_table(wholes.items(), capture=TEXT, whole=TEXT)),
        ):
            db.register(name, table)
        names = overlapping(db)
        if not names:
            return links.plan(rows, spans)
        make_views(db, open_source(names), ("exchanges", "deliveries"))
        shared = shared_captures(db)
    return links.plan(rows, spans, shared.captures, shared.views, shared.proxy_peers)


def capture_spans(files: pa.Table) -> dict[str, tuple[int, int]]:
    """Times of the first and the last packet of each capture (rows of capture_files); 0 if none."""
    spans: dict[str, tuple[int, int]] = {}
    for row in files.select(["capture", "first_ts_ns", "last_ts_ns"]).to_pylist():
        first, last = row["first_ts_ns"], row["last_ts_ns"]
        if first is None or last is None:
            spans.setdefault(row["capture"], (0, 0))
            continue
        before = spans.get(row["capture"], (0, 0))
        known = before if before != (0, 0) else (first, last)
        spans[row["capture"]] = (min(known[0], first), max(known[1], last))
    return spans


def _clusters(files: pa.Table) -> pa.Table:
    """The label of each capture's cluster: the last one by alphabet, if its files differ."""
    pairs = files.select(["capture", "cluster"]).to_pylist()
    rows = sorted({(row["capture"], row["cluster"] or "") for row in pairs})
    labels = {name: label or None for name, label in rows}
    return small_table(labels.items(), capture=TEXT, cluster=TEXT)


def _table(db: "duckdb.DuckDBPyConnection", query: str, schema: pa.Schema) -> pa.Table:
    return as_schema(db.sql(query).to_arrow_table().select(schema.names), schema)
