"""compare: two runs as captures, lakes and reports; output, conditions, bad input."""

import json
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_FAIL_ON, EXIT_INPUT, EXIT_OK, EXIT_OUTPUT, EXIT_USAGE
from tests.dissector.cli.conftest import Command
from tests.dissector.compare.conftest import LOSSY, QUIET, SAMPLES

CURSUS = SAMPLES / "cursus" / "py-produce.pcap"
FEW = ("--metric", "send_latency", "--metric", "redeliveries")


def test_a_slower_run_is_worse_and_fails_a_job_that_asks(command: Command) -> None:
    result = command("compare", QUIET, LOSSY, *FEW, "--fail-on", "worse")
    assert result.code == EXIT_FAIL_ON and "--fail-on: verdicts.worse > 0" in result.err
    assert result.lines[0].startswith("before ") and str(QUIET) in result.lines[0]
    (line,) = (line for line in result.lines if "send_latency.p50" in line)
    assert line.split()[0] == "worse" and "580 / 588 receipts" in line
    assert command("compare", QUIET, LOSSY, *FEW).code == EXIT_OK
    back = command("compare", LOSSY, QUIET, *FEW, "--fail-on", "worse")
    assert back.code == EXIT_OK and "better" in back.out


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("worse", EXIT_FAIL_ON), ("better", EXIT_FAIL_ON), ("tests == 0", EXIT_FAIL_ON),
        ("verdicts.worse > 0", EXIT_OK),
    ],
)  # fmt: skip
def test_a_job_that_asks_for_a_verdict_fails_where_nothing_could_be_tested(
    asked: str, code: int, command: Command
) -> None:
    result = command("compare", CURSUS, CURSUS, "--metric", "redeliveries", "--fail-on", asked)
    assert "Nothing could be tested" in result.out and result.code == code
    assert ("tests == 0" in result.err) == (code == EXIT_FAIL_ON)
    assert "verdicts" not in result.err


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (("better", "not-comparable", "tests == 0"), EXIT_OK),
        (("verdicts.worse > 1",), EXIT_FAIL_ON),
    ],
)
def test_conditions_are_verdicts_or_expressions(
    conditions: tuple[str, ...], code: int, command: Command
) -> None:
    asked = [word for each in conditions for word in ("--fail-on", each)]
    assert command("compare", QUIET, LOSSY, *FEW, "-q", *asked).code == code


def test_json_has_every_number_of_every_metric(command: Command) -> None:
    found = command("compare", QUIET, LOSSY, "--metric", "send_latency.p50", "--json")
    result = json.loads(found.out)
    assert found.code == EXIT_OK and result["confidence"] == 0.95
    (row,) = result["metrics"]
    assert row["verdict"] == "worse" and row["before"] == {
        "value": 0.76416, "part": None, "count": 580.0, "blocks": row["before"]["blocks"],
    }  # fmt: skip
    assert result["before"]["packets"] == 2452 and result["after"]["packets"] == 2127
    assert result["verdicts"] == {"worse": 1, "better": 0, "no_evidence": 0, "not_comparable": 0}


def test_lakes_reports_and_captures_can_be_mixed(command: Command, tmp_path: Path) -> None:
    assert command("land", QUIET, "--lake", tmp_path / "quiet" / "lake", "-q").code == EXIT_OK
    (tmp_path / "quiet" / "report").mkdir()
    report = command("summary", "--lake", tmp_path / "quiet" / "lake", "--json").out
    (tmp_path / "quiet" / "report" / "report.json").write_text(report)
    options = ("--metric", "send_latency.mean", "--json", "-q")
    rows = [
        json.loads(command("compare", before, LOSSY, *options).out)["metrics"][0]
        for before in (QUIET, tmp_path / "quiet", tmp_path / "quiet" / "lake",
                       tmp_path / "quiet" / "report", tmp_path / "quiet/report/report.json")
    ]  # fmt: skip
    assert rows[0] == rows[1] == rows[2] and rows[3] == rows[4]
    assert {row["verdict"] for row in rows} == {"worse"}


def test_a_page_and_markdown_can_be_had(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "comparison.html"
    result = command("compare", QUIET, LOSSY, *FEW, "--markdown", "--html", target)
    assert result.code == EXIT_OK and result.out.startswith("### Comparison of two runs\n")
    assert "send_latency.p50" in target.read_text("utf-8")
    again = command("compare", QUIET, LOSSY, *FEW, "--html", target)
    assert again.code == EXIT_OUTPUT and "--force replaces it" in again.err
    assert command("compare", QUIET, LOSSY, *FEW, "--html", target, "--force").code == EXIT_OK


def test_confidence_and_the_least_change_decide(command: Command) -> None:
    def verdict(*options: str) -> str:
        out = command(
            "compare", QUIET, LOSSY, "--metric", "send_latency.p50", "--json", *options
        ).out
        return str(json.loads(out)["metrics"][0]["verdict"])

    assert verdict("--confidence", "99") == "worse" == verdict("--least", "20")
    assert verdict("--least", "500") == "no evidence"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere.pcap", QUIET), EXIT_INPUT, "there is no such file"),
        ((QUIET, CURSUS), EXIT_INPUT, "different protocols"),
        ((QUIET, "/dev/null"), EXIT_INPUT, "/dev/null"),
        ((SAMPLES / "pulsar" / "fake-f17_tls.pcap", QUIET), EXIT_INPUT, "nothing to compare"),
        ((QUIET, QUIET, "--metric", "p99"), EXIT_USAGE, "--metric: there is no p99"),
        ((QUIET, QUIET, "--topic", "x"), EXIT_USAGE, "nothing in it matches"),
        ((QUIET, QUIET, "--fail-on", "wrose"), EXIT_USAGE, "wrose is none of worse"),
        ((QUIET, QUIET, "--fail-on", "verdicts.bad > 0"), EXIT_USAGE, "verdicts.bad"),
        ((QUIET, QUIET, "--json", "--markdown"), EXIT_USAGE, "exclude each other"),
        (("-", "-"), EXIT_USAGE, "only one run can come from standard input"),
        ((QUIET, QUIET, "--confidence", "0.95"), EXIT_USAGE, "--confidence"),
        ((QUIET,), EXIT_USAGE, "AFTER"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    arguments: tuple[object, ...], code: int, says: str, command: Command
) -> None:
    result = command("compare", *arguments, "-q")
    assert result.code == code and says in result.err and result.out == ""
    assert len(result.err.splitlines()) == 1


def test_lakes_and_reports_of_nothing_are_said(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "lake" / "_manifest").mkdir(parents=True)
    (tmp_path / "report.json").write_text("{}")
    for name, code in (("empty", EXIT_INPUT), ("lake", EXIT_USAGE), ("report.json", EXIT_INPUT)):
        result = command("compare", QUIET, tmp_path / name, "-q")
        assert result.code == code and len(result.err.splitlines()) == 1, result.err


def test_a_page_is_never_written_over_an_input(command: Command) -> None:
    size = QUIET.stat().st_size
    result = command("compare", QUIET, QUIET, "--html", QUIET, "--force")
    assert result.code == EXIT_OUTPUT and QUIET.stat().st_size == size
