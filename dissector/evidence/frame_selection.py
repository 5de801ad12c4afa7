"""Selects the frames of an evidence bundle: those that filters match, and related frames.

Everything is SQL over the tables of a lake; names from a user are values of a table, never part of
a statement.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dissector.errors import NothingMatchesError, UsageError
from dissector.limits import MAX_SELECTED_FRAMES
from dissector.queries.duckdb_engine import quoted
from dissector.queries.sandbox import HIDDEN
from dissector.queries.selection import EVERYTHING, Selection
from dissector.tls.facts import DECRYPTED, PARTLY

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.findings.finding import Finding
    from dissector.queries.sandbox import Sandbox

# Queries of the frames that show a finding, by its key: capture, connection_id, frame_no.
FINDINGS: Final = {
    "checksum_mismatch": "SELECT capture, connection_id, frame_no FROM wrong_checksums",
    "stall": "SELECT capture, connection_id, began_frame_no AS frame_no FROM stalls "
    "WHERE lasted_ms >= 1000 UNION ALL SELECT capture, connection_id, ended_frame_no FROM stalls "
    "WHERE lasted_ms >= 1000 AND ended_frame_no IS NOT NULL",
    "redelivery_loop": "SELECT d.capture, d.connection_id, d.frame_no FROM deliveries AS d JOIN ("
    "SELECT capture, topic, subscription, ledger_id, entry_id FROM deliveries "
    "WHERE ledger_id IS NOT NULL OR entry_id IS NOT NULL "
    "GROUP BY ALL HAVING count(*) >= 3) AS l ON l.capture = d.capture "
    "AND l.topic IS NOT DISTINCT FROM d.topic "
    "AND l.subscription IS NOT DISTINCT FROM d.subscription "
    "AND l.ledger_id IS NOT DISTINCT FROM d.ledger_id "
    "AND l.entry_id IS NOT DISTINCT FROM d.entry_id",
    "error": "SELECT capture, connection_id, frame_no FROM refused WHERE frame_no IS NOT NULL "
    "UNION ALL SELECT capture, connection_id, response_frame_no FROM refused "
    "WHERE response_frame_no IS NOT NULL",
    "lost_receipt": "SELECT capture, connection_id, frame_no FROM lost_receipts",
}
_FRAME_KEY: Final = ("capture", "connection_id", "frame_no")
_AT_ONCE: Final = 5000
# Roles of frames, in order of precedence.
SELECTED: Final = "selected"
ANSWER: Final = "answer"
REQUEST: Final = "request"
RESENT: Final = "sent again"
ACKNOWLEDGED: Final = "acknowledgement"
EARLIER: Final = "delivered before"
SET_UP: Final = "set-up"
_FIRST_COMMANDS: Final = (
    *("CONNECT", "CONNECTED", "AUTH_CHALLENGE", "AUTH_RESPONSE"),
    *("AUTH", "NEGOTIATE", "PROTOCOL_INFO", "JOIN_GROUP", "SYNC_GROUP", "INIT_PRODUCER_ID"),
)
_PARTNERS: Final = (
    (ANSWER, "SELECT e.connection_id, e.response_frame_no AS frame_no FROM exchanges AS e "
     "JOIN chosen AS c ON c.frame_no = e.request_frame_no WHERE e.capture = {}"),
    (REQUEST, "SELECT e.connection_id, e.request_frame_no AS frame_no FROM exchanges AS e "
     "JOIN chosen AS c ON c.frame_no = e.response_frame_no WHERE e.capture = {}"),
    (RESENT, "SELECT o.connection_id, o.request_frame_no AS frame_no FROM exchanges AS o "
     "JOIN exchanges AS e ON e.capture = o.capture AND e.kind = 'publish' AND o.kind = 'publish' "
     "AND e.topic = o.topic AND e.producer_name = o.producer_name "
     "AND e.sequence_id = o.sequence_id "
     "JOIN chosen AS c ON c.frame_no = e.request_frame_no WHERE o.capture = {}"),
    (ACKNOWLEDGED, "SELECT d.connection_id, d.ack_frame_no AS frame_no FROM deliveries AS d "
     "JOIN chosen AS c ON c.frame_no = d.frame_no WHERE d.capture = {}"),
    (EARLIER, "SELECT f.connection_id, f.frame_no FROM deliveries AS d "
     "JOIN chosen AS c ON c.frame_no = d.frame_no "
     "JOIN frames AS f ON f.capture = d.capture AND f.frame_no = d.previous_frame_no "
     "WHERE d.capture = {}"),
)  # fmt: skip
_OPENING: Final = tuple(
    f"SELECT p.connection_id, p.{column} AS frame_no FROM {table}s AS p WHERE p.capture = {{}} "
    f"AND EXISTS (SELECT 1 FROM frames AS f JOIN chosen AS c ON c.frame_no = f.frame_no "
    f"WHERE f.capture = p.capture AND f.connection_id = p.connection_id "
    f"AND f.{table}_id = p.{table}_id AND f.incarnation IS NOT DISTINCT FROM p.incarnation)"
    for table in ("producer", "consumer")
    for column in ("opened_frame_no", "ready_frame_no", "closed_frame_no")
)
_FIRST_GRANTS: Final = (
    "SELECT p.connection_id, min(p.frame_no) AS frame_no FROM permits AS p "
    "WHERE p.capture = {} AND p.event = 'grant' AND EXISTS (SELECT 1 FROM frames AS f "
    "JOIN chosen AS c ON c.frame_no = f.frame_no WHERE f.capture = p.capture "
    "AND f.connection_id = p.connection_id AND f.consumer_id = p.consumer_id "
    "AND f.incarnation IS NOT DISTINCT FROM p.incarnation) "
    "GROUP BY p.connection_id, p.consumer_id, p.incarnation"
)
_CONNECTING: Final = (
    "SELECT f.connection_id, f.frame_no FROM frames AS f WHERE f.capture = {} "
    f"AND f.command IN ({', '.join(repr(name) for name in _FIRST_COMMANDS)}) "
    "AND f.connection_id IN (SELECT connection_id FROM chosen)"
)
Mask = Callable[["pa.RecordBatch"], Any]


class Filters(NamedTuple):
    """A user's filters; a frame must match all.

    keep: mask of rows of frames, for -Y.
    available: SQL query of the values of the columns that -Y names.
    frames: first and last number.
    slowest: number of slowest exchanges.
    finding: a key of FINDINGS, or a rule by its number or code.
    """

    keep: Mask | None = None
    connections: Sequence[int] = ()
    frames: Sequence[tuple[int, int]] = ()
    selection: Selection = EVERYTHING
    slowest: int | None = None
    finding: str | None = None
    available: str | None = None

    @property
    def question(self) -> str:
        """A query of the values from which one of the filters selects."""
        if self.available is None and self.selection.is_everything:
            return "select min(frame_no), max(frame_no), max(connection_id) from frames"
        return self.available or self.selection.question

    @property
    def is_everything(self) -> bool:
        """Whether nothing is selected."""
        return self == Filters()


class Chosen(NamedTuple):
    """Chosen frames of a capture. roles: connection and role by frame number."""

    capture: str
    roles: dict[int, tuple[int, str]]

    def of_role(self, role: str) -> list[int]:
        """Return the sorted numbers of the frames with a role."""
        return sorted(number for number, (_, own) in self.roles.items() if own == role)


def choose(
    engine: "Sandbox", filters: Filters, findings: Sequence["Finding"] = (),
    part: "Sandbox | None" = None,
) -> Chosen:  # fmt: skip
    """Return the selected frames and related ones: answers, repetitions, acknowledgements, and the
    commands that opened their connections, producers and consumers.

    Args:
        findings: of the rule that the filters name.
        part: engine over the lake's rows within the filters' selection; None for all.

    Raises:
        UsageError: nothing is selected, or too much, or frames of several captures, or decrypted
            frames.
    """
    source = "frames"
    if filters.finding is not None:
        shown = FINDINGS.get(filters.finding) or _shown_by(findings)
        source = f"frames SEMI JOIN ({shown}) USING (capture, frame_no)"
    if part is not None:
        query = "SELECT capture, frame_no FROM frames WHERE frame_no IS NOT NULL"
        engine.register("part", part.table(query))
        source += f" SEMI JOIN {HIDDEN}.part USING (capture, frame_no)"
    frames_by_capture: dict[str, list[tuple[int, int]]] = {}
    columns = ", ".join(_FRAME_KEY) if filters.keep is None else "*"
    total = 0
    for answer in engine.answers(f"SELECT {columns} FROM {source} WHERE {_conditions(filters)}"):
        for batch in answer.batches():
            kept = batch if filters.keep is None else batch.filter(filters.keep(batch))
            total += kept.num_rows
            if total > MAX_SELECTED_FRAMES and filters.slowest is None:
                raise UsageError(
                    f"the selection has more than {MAX_SELECTED_FRAMES:,} frames: select more"
                    " closely, or share the whole capture (dissector anonymize)"
                )
            cells = (kept.column(name).to_pylist() for name in _FRAME_KEY)
            for capture, connection, number in zip(*cells, strict=True):
                frames_by_capture.setdefault(capture, []).append((connection, number))
    if filters.slowest is not None:
        frames_by_capture = _slowest(engine, frames_by_capture, filters.slowest)
    if not frames_by_capture and filters.finding is not None:
        raise UsageError(
            f"--finding {filters.finding}: no frame shows it here, so nothing was written; what is "
            "found: dissector findings INPUT"
        )
    if not frames_by_capture:
        raise NothingMatchesError(
            "no frame matches the selection: nothing was written", filters.question
        )
    if len(frames_by_capture) > 1:
        raise UsageError(
            f"the selection is in {len(frames_by_capture)} captures and a bundle is of one: "
            "name one of them, of a lake with --capture"
        )
    ((capture, frames),) = frames_by_capture.items()
    chosen = Chosen(capture, {number: (connection, SELECTED) for connection, number in frames})
    engine.rows("CREATE OR REPLACE TABLE chosen (connection_id BIGINT, frame_no BIGINT)")
    _put(engine, list(chosen.roles.items()))
    _raise_if_encrypted(engine, capture)
    _add_partners(engine, chosen)
    return chosen


def _raise_if_encrypted(engine: "Sandbox", capture: str) -> None:
    """Refuse decrypted frames: a bundle has no keys, so its reader could not decrypt them."""
    (row,) = engine.rows(
        "SELECT count(*) AS inside FROM chosen SEMI JOIN (SELECT connection_id FROM connections "
        f"WHERE capture = {quoted(capture)} "
        f"AND tls_decryption IN ({quoted(DECRYPTED)}, {quoted(PARTLY)})) USING (connection_id)"
    )
    if row["inside"]:
        raise UsageError(
            f"{row['inside']} of the selected frames came out of TLS, and a bundle holds no keys: "
            "`dissector frames INPUT --keylog FILE -Y EXPR -w OUT.pcapng --with-secrets` writes "
            "packets and keys, for whom you trust"
        )


def _shown_by(findings: Sequence["Finding"]) -> str:
    """Return a query of the frames that are evidence of a rule's findings.

    Raises:
        UsageError: the findings have no frame.
    """
    keys = ", ".join(
        f"({quoted(finding.capture)}, {evidence.frame_no})"
        for finding in findings
        for evidence in finding.evidence
    )
    if not keys:
        raise UsageError(
            f"--finding {findings[0].number}: it is found and no frame shows it; dissector "
            "anonymize makes a copy of all"
        )
    return f"SELECT * FROM (VALUES {keys}) AS shown(capture, frame_no)"


def _conditions(filters: Filters) -> str:
    parts = ["frame_no IS NOT NULL"]
    if filters.connections:
        parts.append(f"connection_id IN ({', '.join(map(str, filters.connections))})")
    if filters.frames:
        spans = (f"frame_no BETWEEN {first} AND {last}" for first, last in filters.frames)
        parts.append(f"({' OR '.join(spans)})")
    return " AND ".join(parts)


def _slowest(
    engine: "Sandbox", frames_by_capture: dict[str, list[tuple[int, int]]], count: int
) -> dict[str, list[tuple[int, int]]]:
    """Return requests and answers of the slowest exchanges whose request is selected."""
    selected = {
        (capture, number) for capture, frames in frames_by_capture.items() for _, number in frames
    }
    exchanges = engine.each_row(
        "SELECT capture, connection_id, request_frame_no, response_frame_no FROM exchanges "
        "WHERE latency_ns IS NOT NULL AND request_frame_no IS NOT NULL "
        "ORDER BY latency_ns DESC, capture, request_frame_no"
    )
    chosen: dict[str, list[tuple[int, int]]] = {}
    keys = ("capture", "request_frame_no")
    slow = (row for row in exchanges if tuple(row[key] for key in keys) in selected)
    for row in islice(slow, count):
        capture, connection, request, response = row.values()
        chosen.setdefault(capture, []).append((connection, request))
        if response is not None:
            chosen[capture].append((connection, response))
    return chosen


def _add_partners(engine: "Sandbox", chosen: Chosen) -> None:
    """Add related frames, each with the first role that matches."""
    set_up = [(SET_UP, query) for query in (*_OPENING, _FIRST_GRANTS, _CONNECTING)]
    for role, query in (*_PARTNERS, *set_up, *_PARTNERS[:2]):
        new = {
            row["frame_no"]: (row["connection_id"], role)
            for row in engine.rows(query.format(quoted(chosen.capture)))
            if row["frame_no"] is not None and row["frame_no"] not in chosen.roles
        }
        chosen.roles.update(new)
        _put(engine, list(new.items()))


def _put(engine: "Sandbox", frames: list[tuple[int, tuple[int, str]]]) -> None:
    for start in range(0, len(frames), _AT_ONCE):
        some = frames[start : start + _AT_ONCE]
        values = ", ".join(f"({connection}, {number})" for number, (connection, _) in some)
        engine.rows(f"INSERT INTO chosen VALUES {values}")
