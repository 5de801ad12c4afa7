"""Findings of a capture stand beside what packets show of them."""

from dissector.evidence import showing
from dissector.findings.finding import Finding


def finding(incidents: int, **measured: object) -> Finding:
    return Finding(
        "D06", "code", "Title", "error", "proven", "", "c", {}, 0, 1, ((0, 1),) * incidents, 60,
        measured, {}, (), (), "What.",
    )  # fmt: skip


def test_the_nearest_finding_stands_beside_each() -> None:
    before = [finding(1, n=3), finding(1, n=5)]
    pairs = showing.beside(before, [finding(2, n=5), finding(1, n=3, name="x")])
    rows = [pair.as_row() for pair in pairs]
    assert [pair.is_same for pair in pairs] == [True, False]
    lines = showing.sentences(rows)
    assert lines[0] == "The packets alone show D06 (Title) with the same numbers."
    assert lines[1].endswith("but with other numbers: incidents 1 in the capture, 2 here.")
    alone = showing.beside(before[:1], [])
    (line,) = showing.sentences([alone[0].as_row()])
    assert line == "The packets alone cannot show D06 (Title): it takes the rest of the capture."
