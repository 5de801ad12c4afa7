"""Texts against code: transcripts are run, and whatever a user can name is explained somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dissector.cli.document import all_commands
from dissector.cli.exits import EXITS
from dissector.lake.document import lake_page
from dissector.notices import NOTICES
from dissector.report.result import SECTIONS
from dissector.schemas import TABLES
from tests.dissector.report.made import RandomCapture, batch
from tests.numbers import Numbers

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TEXTS = {
    path.name: path.read_text("utf-8") for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
}
ALL = "\n".join(TEXTS.values())
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def transcripts() -> list[tuple[str, str]]:
    """Each command of the console blocks of some texts, with the output that is shown."""
    transcripts = []
    for block in BLOCK.findall(README + TEXTS["compare.md"]):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            transcripts.append((line, output))
    return transcripts


@pytest.mark.parametrize(("line", "shown"), transcripts(), ids=[line for line, _ in transcripts()])
def test_transcripts_are_what_the_program_prints(line: str, shown: str, tmp_path: Path) -> None:
    """A line `…` stands for any number of lines. Words on standard error come last."""
    folder = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", line.replace("--lake lake", f"--lake {tmp_path / 'lake'}")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "COLUMNS": "80"},
        check=False,
    )
    printed = done.stdout + done.stderr
    pieces = [re.escape(piece) for piece in re.split(r"^…\n", shown, flags=re.MULTILINE)]
    assert re.fullmatch("(?:.*\n)*?".join(pieces), printed), printed


def test_the_first_screen_is_a_sentence_a_transcript_and_an_install_line() -> None:
    screen = README.split("\n")[:45]
    assert screen[0].startswith("# ")
    assert screen[2].endswith(".") and not screen[2].startswith(("`", "-", "#"))
    text = "\n".join(screen)
    assert "```console\n$ dissector " in text
    assert "make install" in text or "pip install" in text


def test_help_in_the_readme_is_help_of_the_program() -> None:
    assert any(line == "dissector --help" for line, _ in transcripts())


@pytest.mark.parametrize("name", [name for name, _ in all_commands()])
def test_every_command_is_in_the_texts_with_its_options(name: str) -> None:
    command = dict(all_commands())[name]
    page = TEXTS["commands.md"]
    start = page.index(f"\n## {name}\n")
    section = page[start : page.index("\n## ", start + 1)]
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:  # else it is refused
            assert all(each in section for each in (*option.opts, *option.secondary_opts))
    if name != "dissector":
        assert name.split(" ")[1] in README


def test_every_table_and_column_is_in_the_texts() -> None:
    page = TEXTS["lake.md"]
    assert page == lake_page(), "run: python -m dissector.lake.document docs/lake.md"
    for table in TABLES.values():
        assert f"\n## {table.name}\n" in page
        assert all(f"| `{column.name}` |" in page for column in table.columns)


def test_every_notice_exit_code_and_section_of_the_report_is_in_the_texts() -> None:
    assert all(f"`{kind.code}`" in ALL for kind in NOTICES)
    for code, _ in EXITS:
        assert re.search(rf"^\| {code} \|", ALL, re.MULTILINE)
    assert all(f"`{section}`" in README for section in SECTIONS)


def keys_of(value: object) -> set[str]:
    """All keys of a report's sections but names of things: outcomes, commands, topics."""
    keys: set[str] = set()
    if isinstance(value, dict):
        for key, inner in value.items():
            keys.add(key)
            if not (isinstance(inner, dict) and key.endswith(COUNTED)):
                keys |= keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            keys |= keys_of(inner)
    return keys


COUNTED = ("outcomes", "_by_reason", "_by_protocol", "_by_start", "_by_end", "_by_status",
           "_by_command", "_by_code", "_by_severity", "by_cause", "by_request",
           "limits_hit", "validation_errors")  # fmt: skip


def test_every_number_of_a_report_is_explained() -> None:
    summary = Numbers()
    tables = RandomCapture(4).tables
    for name in sorted(tables, key=lambda name: name != "frames"):
        summary.add(name, batch(name, tables[name]))
    report = summary.result()
    page = TEXTS["metrics.md"]
    # Columns of the lake that stand in lists are explained with the lake.
    known = {column.name for table in TABLES.values() for column in table.columns}
    for section in (*SECTIONS, "verdicts"):
        start = page.index(f"\n## {section}\n")
        words = set(re.findall(r"\w+", page))
        assert f"\n## {section}\n" in page[start:]
        for row in (*report["findings"]["findings"], *report["findings"]["verdicts"]):
            row["measured"] = row["thresholds"] = {}  # what each rule measures is its own
        missing = keys_of(report[section]) - words - known - IN_LISTS
        assert not missing, f"{section}: {sorted(missing)}"


# Plain in the lists where they stand: a name, a place or a time of the row.
IN_LISTS = {
    "minute", "points", "p50_ms", "p99_ms", "max_ms", "mean_ms", "available_min", "available_max",
    "available_last",
    "stall_ms", "start_ts", "confirmed", "request_packet", "response_packet", "packet",
    "send_outcome", "send_error_code",
}  # fmt: skip


def test_links_between_texts_lead_somewhere() -> None:
    for name, text in TEXTS.items():
        folder = ROOT if (ROOT / name).is_file() else ROOT / "docs"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (folder / target).exists(), f"{name}: {target}"


def test_captures_that_the_makefile_names_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = re.findall(r"captures/[\w./-]+\.pcap(?:\.gz)?", makefile)
    assert len(named) >= 6 and all((ROOT / name).is_file() for name in named)


def test_what_the_makefile_runs_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for module in re.findall(r"python -m (tests\.\w+)", makefile):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for name in re.findall(r"^make (\w[\w-]*)", "\n".join(TEXTS.values()), re.MULTILINE):
        assert f"\n{name}:" in makefile, name
    tests = makefile.split("KERNEL_TESTS := $(addprefix tests/dissector/,")[1].split(")")[0]
    for name in tests.replace("\\", " ").split():
        assert (ROOT / "tests" / "dissector" / name).exists(), name


def test_the_licence_is_the_one_that_the_package_says() -> None:
    assert (ROOT / "LICENSE").read_text("utf-8").lstrip().startswith("Apache License")
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text("utf-8")
