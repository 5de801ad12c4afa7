"""summary, report, analyze: numbers, conditions, missing parts (Spark: tests/spark_jobs)."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.exits import (
    EXIT_DEPENDENCY,
    EXIT_FAIL_ON,
    EXIT_INPUT,
    EXIT_OK,
    EXIT_OUTPUT,
    EXIT_PARTIAL,
    EXIT_USAGE,
)
from dissector.findings import totals
from dissector.findings.totals import totals_rules
from tests.dissector.cli.conftest import SAMPLES, Command, truth
from tests.dissector.spark import hide_spark
from tests.hard.tape import Tape, capture
from tests.wire import cursus, packets


def test_a_summary_has_the_numbers_of_the_manifest(command: Command, nacks: Path) -> None:
    result = command("summary", nacks, "--json")
    assert result.code == EXIT_OK
    report = json.loads(result.out)
    seen = truth(nacks)["observed_by_client"]
    assert report["coverage"]["total"]["packets"] == truth(nacks)["packets"]
    assert report["coverage"]["total"]["frames"] == sum(truth(nacks)["frames"].values())
    assert report["send_latency"]["total"]["outcomes"] == {"ok": seen["sent_ok"]}
    assert report["redelivery"]["total"]["redelivered"] == seen["recv_redelivered"]
    text = command("summary", nacks).out
    assert f"{seen['sent_ok']} sends with {seen['sent_ok']} messages, all of them confirmed" in text


@pytest.mark.usefixtures("few_rules")
@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("redelivery.total.redelivered > 0", EXIT_FAIL_ON),
        ("checksum_failures.total.mismatch > 0", EXIT_OK),
        ("coverage.total.nothing > 0", EXIT_USAGE),
    ],
)
def test_conditions_decide_the_exit_code(
    command: Command, nacks: Path, condition: str, code: int
) -> None:
    result = command("summary", nacks, "--fail-on", condition)
    assert result.code == code
    assert (condition in result.err) == (code == EXIT_FAIL_ON)


RESTART = SAMPLES / "java-j73_broker_restart-bem.pcap"


def test_a_summary_of_a_part_has_the_sends_of_that_time(command: Command) -> None:
    def sends(*options: str) -> tuple[int, list[str]]:
        result = command("summary", RESTART, "--json", *options)
        assert result.code == EXIT_OK
        report = json.loads(result.out)
        found = report["findings"]["findings"]
        return report["send_latency"]["total"]["sends"], [one["id"] for one in found]

    whole = sends()
    # The same time, said in two ways.
    before, after = sends("--until", "2026-11-21T09:52:45"), sends("--since", "-10.6s")
    assert before[0] + after[0] == whole[0] == 114 and before[0] == 39
    assert whole[1] == after[1] == before[1] == ["D40"]  # it lasted through both
    assert sends("--topic", "j73")[0] == 114


@pytest.mark.parametrize("name", ["summary", "findings"])
def test_a_time_that_is_none_is_told_before_anything_is_read(command: Command, name: str) -> None:
    result = command(name, "no such file.pcap", "--since", "-5 apples")
    assert result.code == EXIT_USAGE and "'-5 apples' is no time" in result.err


NOTHING = (("--topic", "other"), ("--client", "192.0.2.0/24"), ("--until", "1999-01-01"))


# Findings select as a summary does, but for what is made of it.
@pytest.mark.parametrize(
    ("name", "parts"),
    [("findings", NOTHING[1:2])]
    + [(n, NOTHING) for n in ("summary", "sql", "frames", "connections")],
)
def test_a_part_without_rows_is_told_in_one_line(
    command: Command, name: str, parts: tuple[tuple[str, str], ...], nacks: Path
) -> None:
    for asked in parts:
        query = ["select 1 as one"] if name == "sql" else []
        result = command(name, "-q", nacks, *query, *asked)
        assert result.code == EXIT_USAGE and result.out == "", result.out
        assert len(result.err.splitlines()) == 1 and "matches" in result.err


def test_findings_of_a_part_are_those_of_that_time(command: Command) -> None:
    for options, count in (
        (("--until", "-16.5s"), 0),
        (("--since", "-12s"), 1),
        (("--client", "10.0.0.0/8"), 1),
    ):
        result = command("findings", RESTART, "--json", *options)
        assert len(json.loads(result.out)["findings"]) == count, options


@pytest.mark.usefixtures("few_rules")
def test_a_partial_input_is_said_beside_the_numbers(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(nacks.read_bytes()[:-5])
    result = command("summary", cut)
    assert result.code == EXIT_PARTIAL and "send latency" in result.out
    assert command("summary", cut, "--strict").code == EXIT_INPUT


@pytest.mark.usefixtures("no_plots", "few_rules")
def test_analyze_lands_and_reports(command: Command, nacks: Path, tmp_path: Path) -> None:
    result = command("analyze", nacks, "-o", tmp_path, "--exact")
    assert result.code == EXIT_OK, result.err
    assert "engine: duckdb" in result.err
    assert result.lines[-1] == f"report: {tmp_path / 'report' / 'report.html'}"
    assert len(list((tmp_path / "lake" / "_manifest").iterdir())) == 1
    said = (tmp_path / "report" / "report.json").read_text("utf-8")
    assert said == command("summary", nacks, "--json", "--exact").out
    condition = "redelivery.total.redelivered > 0"
    assert command("analyze", nacks, "-o", tmp_path, "--fail-on", condition).code == EXIT_FAIL_ON


@pytest.mark.usefixtures("no_plots", "few_rules")
def test_report_reads_a_lake_that_is_there(command: Command, nacks: Path, tmp_path: Path) -> None:
    missing = command("report", "--lake", tmp_path / "lake", "-o", tmp_path / "out")
    assert missing.code == EXIT_INPUT and not (tmp_path / "out").exists()
    (capture,) = command("land", nacks, "--lake", tmp_path / "lake", "--tallies").lines
    result = command(
        "report", "--lake", tmp_path / "lake", "-o", tmp_path / "out", "--capture", capture
    )
    assert (result.code, result.lines) == (EXIT_OK, [str(tmp_path / "out" / "report.html")])
    assert "captures read anew: 0 of 1" in result.err, "it was counted when it landed"
    by_lake = command("summary", "--lake", tmp_path / "lake", "--capture", capture, "--json")
    assert by_lake.out == command("summary", nacks, "--json").out
    for wrong in (["summary"], ["summary", nacks, "--lake", tmp_path / "lake"],
                  ["summary", nacks, "--capture", capture]):  # fmt: skip
        assert command(*wrong).code == EXIT_USAGE
    # Another capture that cannot be read is named, and does not keep from reading this one.
    (tmp_path / "lake" / "_manifest" / "c-other.json").write_text("{")
    for chosen, code in ((("--capture", capture), EXIT_OK), ((), EXIT_PARTIAL)):
        result = command("report", "--lake", tmp_path / "lake", "-o", tmp_path / "out", *chosen)
        assert result.code == code and ("c-other.json" in result.err) == (code == EXIT_PARTIAL)
        assert result.lines == [str(tmp_path / "out" / "report.html")]
    (tmp_path / "file").write_text("no folder")
    blocked = command("report", "--lake", tmp_path / "lake", "-o", tmp_path / "file" / "out")
    assert blocked.code == EXIT_OUTPUT


def test_a_capture_without_a_lake_leads_to_analyze(command: Command, nacks: Path) -> None:
    result = command("report", nacks)
    assert result.code == EXIT_USAGE and "Missing option '--lake'" in result.err
    assert "dissector analyze" in result.err and "dissector land" in result.err


def test_without_spark_the_way_out_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, nacks: Path, tmp_path: Path
) -> None:
    command("land", nacks, "--lake", tmp_path / "lake")
    hide_spark(monkeypatch)
    place = ("--lake", tmp_path / "lake", "-o", tmp_path / "out")
    result = command("report", *place, "--engine", "spark")
    assert result.code == EXIT_DEPENDENCY
    assert "pip install" in result.err and "dissector summary" in result.err


@pytest.mark.parametrize("name", ["summary", "report", "analyze"])
def test_a_wrong_path_is_told_before_anything_is_read(
    command: Command, tmp_path: Path, name: str
) -> None:
    where = {"summary": ["absent.pcap"], "report": ["--lake", "absent", "-o", tmp_path / "new"],
             "analyze": ["absent.pcap", "-o", tmp_path / "new"]}[name]  # fmt: skip
    result = command(name, *where, "--fail-on", "send_latency.total.latency_ms.p98 > 3")
    assert (
        result.code == EXIT_USAGE and "did you mean send_latency.total.latency_ms.p9" in result.err
    )
    assert not (tmp_path / "new").exists(), "nothing was made, and nothing looked for"


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may come so far as to make a report."""

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a report was made")

    monkeypatch.setattr("dissector.cli.report._make_report", started)


@pytest.mark.parametrize("place", ["lake", "lake/frames", "lake/new", "link"])
@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "forced"])
def test_a_report_is_never_written_into_its_lake(
    command: Command, nacks: Path, tmp_path: Path, place: str, force: tuple[str], no_report: None
) -> None:
    lake = tmp_path / "lake"
    assert command("land", nacks, "--lake", lake).code == EXIT_OK
    (tmp_path / "link").symlink_to("lake")
    before = sorted(path for path in tmp_path.rglob("*"))
    result = command("report", "--lake", lake, "-o", tmp_path / place, *force)
    assert result.code == EXIT_OUTPUT and "choose another -o" in result.err, result.err
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_lake_in_what_a_report_replaces_stays(
    command: Command, nacks: Path, tmp_path: Path, no_report: None
) -> None:
    lake = tmp_path / "out" / "tables"
    assert command("land", nacks, "--lake", lake).code == EXIT_OK
    result = command("report", "--lake", lake, "-o", tmp_path / "out", "--force")
    assert result.code == EXIT_OUTPUT and (lake / "_manifest").is_dir()


def test_folders_with_other_files_are_refused_before_anything_is_read(
    command: Command, nacks: Path, tmp_path: Path, no_report: None
) -> None:
    for folder in (tmp_path / "out", tmp_path / "all" / "report"):
        folder.mkdir(parents=True)
        (folder / "thesis.txt").write_text("mine")
    assert command("land", nacks, "--lake", tmp_path / "lake").code == EXIT_OK
    for arguments in (
        ("report", "--lake", tmp_path / "lake", "-o", tmp_path / "out"),
        ("analyze", nacks, "-o", tmp_path / "all"),
    ):
        result = command(*arguments)
        assert result.code == EXIT_OUTPUT and "holds other files (thesis.txt)" in result.err
    assert not (tmp_path / "all" / "lake").exists()


def test_an_input_among_the_parts_of_a_report_is_refused(
    command: Command, nacks: Path, tmp_path: Path, no_report: None
) -> None:
    inside = tmp_path / "out" / "report" / "tables" / "night.pcap"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(nacks.read_bytes())
    for given in (inside, tmp_path / "out"):
        result = command("analyze", given, "-o", tmp_path / "out", "--force")
        assert result.code == EXIT_OUTPUT and "is an input and lies in" in result.err
    assert inside.read_bytes() == nacks.read_bytes()


@pytest.mark.usefixtures("no_plots", "few_rules")
@pytest.mark.parametrize("name", ["report", "analyze"])
def test_a_terminal_sees_how_far_a_report_is(
    command: Command, nacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    command("land", nacks, "--lake", tmp_path / "lake")
    what = [nacks] if name == "analyze" else ["--lake", tmp_path / "lake"]
    said: list[tuple[str, bool]] = []
    steps = [f"{done} of 4" for done in range(4)]

    @contextmanager
    def bar(unit: str, is_shown: bool, color: str) -> Iterator[Any]:
        said.append((unit, is_shown))
        yield lambda done, total, at: said.append((f"{done} of {total} at {at}", is_shown))

    monkeypatch.setattr("dissector.cli.report.steps_bar", bar)
    quiet = ["-q"] if name == "analyze" else ["--no-progress"]
    for options, is_shown in (([], True), (quiet, False)):
        said.clear()
        for reports in tmp_path.rglob("_sums/reports"):
            shutil.rmtree(reports)  # of one that is found again nothing is made
        assert command(name, *what, "-o", tmp_path / "out", *options).code == EXIT_OK
        assert [text.rpartition(" at ")[0] or text for text, _ in said] == ["report", *steps]
        assert {shown for _, shown in said} == {is_shown}


@pytest.fixture
def unread_command(tmp_path: Path) -> Path:
    """Two requests that nobody answered; the command of one lies in a hole."""
    tape = Tape(broker=(packets.BROKER, 9000))
    tape.open()
    tape.say(True, cursus.enveloped("LIST"))
    tape.say(False, cursus.frame(b"OK topics=none"))
    tape.say(True, cursus.bare("CREATE topic=a"))
    frame = cursus.bare("METADATA topic=a-topic-of-some-length")
    for part in (frame[:5], frame[5:15], frame[15:]):
        tape.say(True, part)
    tape.packets = [each for each in tape.packets if each.payload != frame[5:15]]
    tape.close()
    path = tmp_path / "unread.pcap"
    path.write_bytes(capture(tape.records()))
    return path


@pytest.mark.usefixtures("no_plots")
def test_a_request_whose_command_is_not_read_is_counted_as_unknown(
    command: Command, unread_command: Path, tmp_path: Path
) -> None:
    result = command("summary", unread_command)
    assert result.code == EXIT_OK, result.err
    said = " ".join(result.out.split())  # lines end where the terminal's does
    assert "unanswered when the connection or the capture ended: 1 CREATE, 1 unknown." in said
    assert command("analyze", unread_command, "-o", tmp_path / "result").code == EXIT_OK
    again = command("report", "--lake", tmp_path / "result" / "lake", "-o", tmp_path / "report")
    assert again.code == EXIT_OK, again.err


@pytest.mark.usefixtures("no_plots")
def test_a_judgement_that_fails_is_told_and_the_report_is_there(
    command: Command, nacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = totals_rules()
    rule = known.rules["finding_v12"]._replace(query="SELECT place, nothing_there FROM totals")
    broken = known._replace(rules=dict(known.rules) | {"finding_v12": rule})
    monkeypatch.setattr(totals, "totals_rules", lambda: broken)
    result = command("summary", nacks)
    assert result.code == EXIT_PARTIAL
    assert "failed to judge what was seen here: rule V12" in result.out
    assert "failed at 1 judgement" in result.err and "permit" in result.out
    made = command("analyze", nacks, "-o", tmp_path)
    assert made.code == EXIT_PARTIAL and (tmp_path / "report" / "report.html").exists()


def test_a_lake_that_goes_with_the_command_does_not_wait_for_the_disk(
    command: Command, nacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    assert command("summary", nacks).code == 0 and not forced
    assert command("land", nacks, "--lake", tmp_path / "lake").code == 0 and len(forced) > 10


def test_a_stall_that_is_not_confirmed_is_a_stall(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V09 tells of it, and the page counts it."""
    monkeypatch.setenv("COLUMNS", "200")  # a narrow terminal has two lines for a row
    lines = command("summary", SAMPLES / "java-j40_slow_consumer.pcap").lines
    heading = next(place for place, line in enumerate(lines) if line.strip().startswith("granted"))
    columns = re.split(" {2,}", lines[heading].strip())
    cells = re.split(" {2,}", lines[heading + 1].strip())
    shown = dict(zip(columns, cells, strict=True))
    assert (shown["stalls"], shown["confirmed"]) == ("1", "0")
