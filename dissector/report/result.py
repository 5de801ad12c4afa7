"""Build a report's JSON from its merged tables, section by section."""

from collections.abc import Iterable
from typing import Any, Final

from dissector.report.descriptions import in_protocol_words
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import Row, nulls_last
from dissector.report.section import Section
from dissector.report.sections import (
    ack_latency,
    checksum_failures,
    connecting,
    coverage,
    errors,
    findings,
    permit_utilization,
    publish_to_delivery,
    redelivery,
    requests,
    send_latency,
    slowest,
)

REPORT_VERSION: Final = 1

# In the order of the report.
SECTIONS: Final[dict[str, Section]] = {
    module.SECTION.name: module.SECTION
    for module in (
        findings,
        coverage,
        send_latency,
        permit_utilization,
        redelivery,
        checksum_failures,
        errors,
        publish_to_delivery,
        ack_latency,
        requests,
        connecting,
        slowest,
    )
}
# Sections that decide the verdicts of captures.
JUDGED: Final = {
    name: section.judged for name, section in SECTIONS.items() if section.judged is not None
}


def sources(merged: MergedTables) -> list[Row]:
    """The report's capture files, by capture and position in it."""
    names = ("capture", "file_name", "file_index", "sha256", "format", "compressed", "file_bytes",
             "packets", "first_packet", "snaplen", "is_truncated")  # fmt: skip
    files = merged.rows("files")
    # Rotations of a tap are one capture, and each has a first file.
    files.sort(key=lambda row: nulls_last(row["capture"], row["file_index"], row["first_ts_ns"]))
    return [{name: row[name] for name in names} for row in files]


def build(
    merged: MergedTables, sections: Iterable[str] = tuple(SECTIONS), verdicts: Row | None = None
) -> dict[str, Any]:
    """The report: {schema_version, sources, and per section its total and lists, verdicts}.

    A report of all sections also has their sentences: `about` in each.

    Args:
        verdicts: the section of that name (`by_capture.verdict_section`), if wanted.
    """
    report: dict[str, Any] = {
        "schema_version": REPORT_VERSION,
        "sources": sources(merged),
        **{name: SECTIONS[name].build(merged) for name in sections},
    }
    if verdicts is not None:
        report["verdicts"] = verdicts
    if any(name not in report for name in SECTIONS):
        return report  # sentences need numbers of other sections
    for name, section in SECTIONS.items():
        report[name] = {"about": in_protocol_words(report, section.about(report)), **report[name]}
    return report
