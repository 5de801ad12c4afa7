"""From the parts of a report to its JSON: settle names and legs, then section by section."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from dissector.report.captures import captures_judged
from dissector.report.explained import explained
from dissector.report.names import (
    name_consumers,
    name_producers,
    without_refused,
    without_twins,
)
from dissector.report.numbers import Row, nulls_last
from dissector.report.parts import Parts
from dissector.report.sections.ack_latency import ack_latency
from dissector.report.sections.checksum_failures import checksum_failures
from dissector.report.sections.connecting import connecting
from dissector.report.sections.coverage import coverage
from dissector.report.sections.errors import errors
from dissector.report.sections.permit_utilization import permit_utilization
from dissector.report.sections.publish_to_delivery import publish_to_delivery
from dissector.report.sections.redelivery import redelivery
from dissector.report.sections.requests import requests
from dissector.report.sections.send_latency import send_latency
from dissector.report.sections.slowest import slowest

REPORT_VERSION: Final = 1

SECTIONS: Final[dict[str, Callable[[Parts], dict[str, Any]]]] = {
    "coverage": coverage,
    "send_latency": send_latency,
    "permit_utilization": permit_utilization,
    "redelivery": redelivery,
    "checksum_failures": checksum_failures,
    "errors": errors,
    "publish_to_delivery": publish_to_delivery,
    "ack_latency": ack_latency,
    "requests": requests,
    "connecting": connecting,
    "slowest": slowest,
}
# Tables whose rows count once per connection, whatever is in the capture twice.
_OF_WIRE: Final = ("files", "connections", "frames", "notices", "messages", "entries", "exact")


def settle(parts: Parts) -> Parts:
    """Leave out the second legs of proxied connections and fill in names that were learnt late."""
    settled = dict(parts.tables)
    for name, table in parts.tables.items():
        if name in _OF_WIRE:
            continue
        table = without_twins(table, parts.names)
        if "producer_id" in table.schema.names and "topic" in table.schema.names:
            table = name_producers(table, parts.names)
        if "consumer_id" in table.schema.names and "topic" in table.schema.names:
            table = name_consumers(table, parts.names)
        settled[name] = table
    # A consumer's own name stands in `consumers` only.
    consumers = without_refused(settled["consumers"], parts.names)
    nameless = pa.nulls(consumers.num_rows, pa.string())
    consumers = consumers.append_column("consumer_name", nameless)
    settled["consumers"] = name_consumers(consumers, parts.names)
    return parts._replace(tables=settled)


def _sources(parts: Parts) -> list[Row]:
    """The files behind the report, in order of capture and place in it."""
    names = ("capture", "file_name", "file_index", "sha256", "format", "compressed", "file_bytes",
             "packets", "first_packet", "snaplen", "is_truncated")  # fmt: skip
    found: list[Row] = parts.tables["files"].to_pylist()
    found.sort(key=lambda row: nulls_last(row["capture"], row["file_index"]))
    return [{name: row[name] for name in names} for row in found]


def build(parts: Parts, sections: Iterable[str] = tuple(SECTIONS)) -> dict[str, Any]:
    """The report: {schema_version, sources, verdicts, and per section its total and lists}."""
    settled = settle(parts)
    found = {
        "schema_version": REPORT_VERSION,
        "sources": _sources(settled),
        **{name: SECTIONS[name](settled) for name in sections},
    }
    if found.keys() >= SECTIONS.keys():
        found["verdicts"] = captures_judged(settled, found, SECTIONS)
    return explained(found)
