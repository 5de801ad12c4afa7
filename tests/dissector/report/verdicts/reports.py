"""Reports to judge: of nothing, and of frames alone."""

import copy
from typing import Any

from dissector.report.verdict import Remark
from dissector.report.verdicts import remarks
from tests.numbers import empty_report


def empty() -> dict[str, Any]:
    """A report of nothing, which is the caller's to change."""
    return copy.deepcopy(empty_report())


def decoded() -> dict[str, Any]:
    """A report of some frames of which nothing else is known."""
    report = empty()
    report["coverage"]["total"]["frames"] = 9
    return report


def of(report: dict[str, Any], section: str) -> list[Remark]:
    return [remark for remark in remarks(report) if remark.section == section]
