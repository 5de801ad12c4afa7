"""Brokers that began anew: captures of them share every name and number, and no message.

What clients of each saw is the judge: a lake has the redeliveries of its captures, and no more.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.dissector.joining.cutting import land, read
from tests.dissector.joining.test_brokers import SETS
from tests.reports import SOME_RULES, reported

redeliveries = partial(reported, sections=("redelivery",), rules=SOME_RULES)
COUNTS = ("deliveries", "redelivered", "messages")


def counts(report: dict[str, Any]) -> Counter[str]:
    total = report["redelivery"]["total"]
    counts = Counter({name: total[name] for name in COUNTS})
    return counts + Counter({f"cause {cause}": n for cause, n in total["by_cause"].items()})


@pytest.mark.parametrize("names", SETS, ids=lambda names: names[0])
def test_a_lake_reports_the_redeliveries_of_its_captures(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    captures = [
        land(read(f"../pulsar/{name}"), name.partition(".")[0], tmp_path / "lake", tmp_path)
        for name in names
    ]
    lake = tmp_path / "lake"
    each = [counts(redeliveries(lake, tmp_path / "one", captures=(name,))) for name in captures]
    report = reported(lake, tmp_path / "report", rules=SOME_RULES)
    assert counts(report) == sum(each, Counter()) and counts(report)["deliveries"] > 0
    assert report["closing"]["total"]["captures_joined"] == 0
    (topic,) = {row["topic"] for row in report["redelivery"]["by_subscription"]}
    assert topic
