"""Reports to judge: of nothing, and of frames alone."""

import copy
from typing import Any

from dissector.report.outlook import remarks
from dissector.report.verdict import Remark
from tests.numbers import Numbers


def empty() -> dict[str, Any]:
    return copy.deepcopy(Numbers().result())


def decoded() -> dict[str, Any]:
    """A report of some frames of which nothing else is known."""
    report = empty()
    report["coverage"]["total"]["frames"] = 9
    return report


def of(report: dict[str, Any], section: str) -> list[Remark]:
    return [remark for remark in remarks(report) if remark.section == section]
