"""From the parts of a report to its JSON, section by section."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from dissector.report.explained import explained
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


def sources(parts: Parts) -> list[Row]:
    """The files behind the report, in order of capture and place in it."""
    names = ("capture", "file_name", "file_index", "sha256", "format", "compressed", "file_bytes",
             "packets", "first_packet", "snaplen", "is_truncated")  # fmt: skip
    found = parts.rows("files")
    # Rotations of a tap are one capture, and each has a first file.
    found.sort(key=lambda row: nulls_last(row["capture"], row["file_index"], row["first_ts_ns"]))
    return [{name: row[name] for name in names} for row in found]


def build(
    parts: Parts, sections: Iterable[str] = tuple(SECTIONS), verdicts: Row | None = None
) -> dict[str, Any]:
    """The report: {schema_version, sources, and per section its total and lists, verdicts}.

    Args:
        verdicts: the section of that name (`dissector.report.captures.section`), if it is wanted.
    """
    found: dict[str, Any] = {
        "schema_version": REPORT_VERSION,
        "sources": sources(parts),
        **{name: SECTIONS[name](parts) for name in sections},
    }
    if verdicts is not None:
        found["verdicts"] = verdicts
    return explained(found)
