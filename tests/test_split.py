"""Reports say the same however traffic is split: some captures; `python -m tests.split` has all."""

from pathlib import Path

import pytest

from tests.choosing import LOOKS_AT_ALL
from tests.dissector.joining.remembering import Remembering
from tests.split import EVERY, WAYS, compare, folder_and_name, known_rows, landed, samples, unlike
from tests.split_known import KNOWN, KNOWN_IN_REPORTS

# Messages that are asked for again, refusals on several connections, a group of Cursus;
# transactions that are aborted, in the other ways.
SPLITS = {
    "java-j12_nack.pcap": ("cut",),
    "java-j26_backlog_quota.pcap": ("order",),
    "../cursus/go-group_rebalance_two_consumers.pcap": ("rotations",),
}
OTHERS = tuple(way for way in EVERY if (way,) not in SPLITS.values())
SPLITS["java-j61_txn_abort.pcap"] = EVERY if LOOKS_AT_ALL else OTHERS


@pytest.fixture(autouse=True)
def joined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What facts and report are of is joined for one of them."""
    remembering = Remembering(tmp_path)
    for module in ("tests.dissector.joining.cutting", "dissector.report.aggregation_cache"):
        monkeypatch.setattr(f"{module}.close_group", remembering.close)


@pytest.mark.parametrize("name", SPLITS)
def test_facts_and_report_are_the_same_however_a_capture_is_split(name: str) -> None:
    said = compare(name, SPLITS[name], 1, has_report=True)
    assert len(said) == len(SPLITS[name])
    assert all(": 0 of " in line for line in said), said


def test_what_is_known_to_differ_does_and_no_more() -> None:
    # Two taps of a connection from before, and packets that were sent again at a boundary; where
    # the broker closed a connection is told of deliveries in a capture before.
    said = compare("java-j73_broker_restart-bem.pcap", ("both",), 1, has_report=True)
    assert said == ["java-j73_broker_restart-bem.pcap both: 0 of 413 rows differ"]
    said = compare("../cursus/apr26-raw_commands.pcap", ("anywhere",), 1, has_report=False)
    assert said[0] == "../cursus/apr26-raw_commands.pcap anywhere: 2 of 26 rows differ"
    assert compare("java-j61_txn_abort.pcap", ("cut",), 2, has_report=False)[0].startswith("java")


def test_what_differs_is_told_by_table_and_columns() -> None:
    with landed("java-j12_nack.pcap") as whole:
        changed = {name: rows.copy() for name, rows in whole.facts.items()}
        first, second, third = list(changed["exchanges"])[:3]
        for row in (first, second, third):
            changed["exchanges"][row] -= 1
        changed["exchanges"][tuple((k, not v if k == "tainted" else v) for k, v in first)] += 1
        gone = {"exchanges: tainted": 1, "exchanges: missing": 2}
        assert unlike(whole.facts, {name: +rows for name, rows in changed.items()}) == gone
        assert unlike(changed, whole.facts)["exchanges: more"] == 2
        assert unlike(whole.facts, whole.facts) == {}


def test_what_is_known_is_of_samples_and_ways() -> None:
    names = set(map(folder_and_name, samples()))
    assert len(names) == len(samples())
    listed = [
        entry.split()
        for known in (KNOWN, KNOWN_IN_REPORTS)
        for rows in known.values()
        for entry in rows
    ]
    assert {name for name, _ in listed} <= names and {way for _, way in listed} <= {*WAYS}
    # Of two samples of one name it is one of them.
    assert known_rows("../pulsar/cpp-s15_errors.pcap", "cut", in_report=True) == 71
    assert known_rows("cpp-s15_errors.pcap", "cut", in_report=True) == 0
    assert all(reason.strip().endswith((".", ":")) for reason in (*KNOWN, *KNOWN_IN_REPORTS))
