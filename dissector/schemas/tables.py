"""All tables by name, in the order in which users meet them, and the version of their schema."""

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
# The version with which a table came, of those that the first did not have.
SINCE: Final = {"events": 3}
# What reports write, in the same words.
OF_REPORTS: Final[dict[str, Table]] = {findings.TABLE.name: findings.TABLE}
