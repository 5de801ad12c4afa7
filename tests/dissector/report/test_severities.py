"""One judge: what is wrong in a capture is as bad on every output, over all sample captures."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.main import run
from dissector.cli.terminal import Paint
from dissector.cli.text_report import text_report
from dissector.report.headlines import WRONG, headlines
from dissector.report.page import page
from tests.dissector.observed import CASES, CURSUS_CASES, name_of
from tests.dissector.test_manifests_sentences import reports

WORDS = {"error": "bad", "warning": "look", "info": "note", "ok": "ok"}
CAPTURES = Path(__file__).resolve().parents[3] / "captures"
# Captures that are bad in different ways: damaged, cut, one-way, encrypted, refused, fine.
SEVERAL = (
    "pulsar/fake-f08_badcrc.pcap", "pulsar/tap-oneway.pcap", "pulsar/var-snaplen96.pcap",
    "pulsar-apache/java-j35_tls.pcap", "pulsar/fake-f02_errors.pcap", "cursus/go-auth_sasl.pcap",
    "pulsar-apache/java-j01_plain.pcap",
)  # fmt: skip


def rows_of(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(word, section, rule) of what report.json says is wrong."""
    found = report["findings"]["findings"]
    words = [(WORDS[row["severity"]], row["section"] or "findings", row["id"]) for row in found]
    return [each for each in words if each[0] in WRONG]


def on_page(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(word, section of the link, text) of each line on the page."""
    text = page(report)
    text = text[text.index('<ul class="headlines">') :]
    pattern = (
        r'<li class="[\w]+"><span class="mark">(\w*)</span><span>(.*?)</span><a href="#([\w-]+)"'
    )
    matches = re.findall(pattern, text[: text.index("<nav")], re.DOTALL)
    return [(word, section, html.unescape(said)) for word, said, section in matches]


def on_terminal(report: dict[str, Any]) -> list[str]:
    lines = text_report(report, Paint("never"))
    return [line[2:6].strip() for line in lines if re.match(r"  (bad |look|note|ok  )  ", line)]


@pytest.mark.parametrize("case", [*CASES, *CURSUS_CASES], ids=name_of)
def test_a_capture_is_as_bad_on_all_outputs(case: Any) -> None:
    report = reports()[name_of(case)]
    (row,) = report["verdicts"]["by_capture"]
    wrong = rows_of(report)
    lines = [(one.word, one.anchor or one.section, one.text) for one in headlines(report)]
    words = [word for word, *_ in lines]
    # The list of findings, the lines of page and terminal, and the row of the captures' table.
    assert bool(wrong) == any(word in WRONG for word in words) == (row["verdict"] in WRONG)
    for word in WRONG:
        has = any(each == word for each, *_ in wrong)
        assert has == (word in words) == bool(row[word])
    for section, mark in row["sections"].items():
        found = [each for each, of, _ in wrong if of == section]
        assert (mark in WRONG) == bool(found), (section, mark, found)
        if found:
            assert mark == min(found, key=WRONG.index)
    # No sentence calls well, or worth a note, what a finding of its section calls wrong.
    for word, section, text in lines:
        if section in {of for _, of, _ in wrong}:
            assert word not in ("ok", "note"), (section, text)
    assert on_terminal(report) == [word for word in words if word]


@pytest.mark.usefixtures("no_plots")
def test_the_command_findings_says_what_report_and_summary_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in SEVERAL:
        file = str(CAPTURES / name)
        assert run(["findings", "-q", "--json", file]) in (0, 3)
        found = json.loads(capsys.readouterr().out)["findings"]
        assert run(["summary", "-q", "--json", file]) in (0, 3)
        told = json.loads(capsys.readouterr().out)
        of_command = [(row["id"], row["severity"], row["text"]) for row in found]
        rows = told["findings"]["findings"]
        assert of_command == [(row["id"], row["severity"], row["text"]) for row in rows], name
        assert told["verdicts"]["by_capture"][0]["bad"] == len(
            {(row["id"], row["title"]) for row in rows if row["severity"] == "error"}
        )
        assert [each for each, *_ in on_page(told) if each] == on_terminal(told)
