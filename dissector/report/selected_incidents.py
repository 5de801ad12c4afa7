"""Select rules' incidents that are in a part of a lake: rules always judge the whole lake."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dissector.findings.finding import FRAME
from dissector.queries.catalogue import MAY_FAIL
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selection import Selection
from dissector.report.partitions import Inputs, tables_of
from dissector.schemas.small_tables import NUMBER, TEXT, small_table

_SUBJECT = "subject_"
FrameKey = tuple[str, int]  # capture, frame_no


def selected_incidents(
    tables: Mapping[str, pa.Table], read: Inputs, selection: Selection
) -> dict[str, pa.Table]:
    """Tables by query; tables of rules are restricted to the selected incidents.

    An incident belongs to a client if one of its frames does; an incident without frames, if its
    subject is that client, or names none.
    """
    if selection.is_everything:
        return {**tables}
    rows = {name: table.to_pylist() for name, table in tables.items() if name.startswith(MAY_FAIL)}
    shown = {frame for each in rows.values() for row in each for frame in _frames(row)}
    own = _of_clients(shown, read, selection) if selection.clients else shown

    def has(row: Mapping[str, Any]) -> bool:
        subject = {
            name.removeprefix(_SUBJECT): value
            for name, value in row.items() if name.startswith(_SUBJECT)
        }  # fmt: skip
        frames = [*_frames(row)]
        is_seen = not frames or any(frame in own for frame in frames)
        if frames:  # behind a proxy, the subject's address is the proxy's
            subject.pop("client_ip", None)
        return is_seen and selection.has(row.get("first_ns"), row.get("last_ns"), subject)

    kept = {name: pa.array(list(map(has, each)), pa.bool_()) for name, each in rows.items()}
    return {
        name: rows.filter(kept[name]) if name in kept else rows for name, rows in tables.items()
    }


def _frames(row: Mapping[str, Any]) -> Iterator[FrameKey]:
    """The frames of an incident."""
    for name, value in row.items():
        if name.startswith(f"{FRAME}_") and value is not None:
            yield row["capture"], int(value)


def _of_clients(frames: set[FrameKey], read: Inputs, selection: Selection) -> set[FrameKey]:
    """The given frames that are on connections of the selected clients."""
    with DuckdbEngine() as engine:
        what = Selection(clients=selection.clients)
        tables_of(read, read.captures, None, what).open(engine)
        engine.register("shown", small_table(sorted(frames), capture=TEXT, no=NUMBER))
        on_connections = engine.table(
            "SELECT f.capture, f.frame_no FROM frames AS f JOIN shown AS s "
            "ON s.capture = f.capture AND s.no = f.frame_no"
        )
    return {(row["capture"], row["frame_no"]) for row in on_connections.to_pylist()}
