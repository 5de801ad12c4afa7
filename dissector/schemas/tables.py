"""All tables by name, in the order of the documentation, and the version of their schema."""

from typing import Final

from dissector.schemas import (
    acks,
    capture_files,
    connections,
    consumers,
    deliveries,
    events,
    exchanges,
    findings,
    frames,
    messages,
    notices,
    permits,
    producers,
)
from dissector.schemas.column import Table

SCHEMA_VERSION: Final = 4

TABLES: Final[dict[str, Table]] = {
    module.TABLE.name: module.TABLE
    for module in (
        capture_files,
        connections,
        frames,
        producers,
        consumers,
        messages,
        acks,
        exchanges,
        deliveries,
        permits,
        events,
        notices,
    )
}
# First schema version of each table that version 1 lacks.
SINCE: Final = {"events": 3}
# Tables that reports write, declared in the same way.
OF_REPORTS: Final[dict[str, Table]] = {findings.TABLE.name: findings.TABLE}
