"""The site of the documentation builds without a warning, and has what the program has."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.cli.document import all_commands
from dissector.findings.loading import load_rules
from dissector.notices import NOTICES
from dissector.report.result import SECTIONS
from dissector.schemas import TABLES

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(page: Path) -> str:
    """The words of a page."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_every_command_has_its_help(site: Path) -> None:
    text = text_of(site / "commands.html")
    assert all(name in text for name, _ in all_commands())


def test_every_table_and_column_is_explained(site: Path) -> None:
    text = text_of(site / "lake.html")
    names = {name for name in TABLES} | {
        column.name for table in TABLES.values() for column in table.columns
    }
    assert [name for name in names if name not in text] == []


def test_every_notice_finding_section_and_bound_is_in_the_reference(site: Path) -> None:
    reference = site / "reference"
    notices = text_of(reference / "notices.html")
    assert [kind.code for kind in NOTICES if kind.code not in notices] == []
    findings = text_of(reference / "findings.html")
    rules, _ = load_rules()
    titles = [words.title for rule in rules for words in rule.words.values()]
    assert len(titles) > 40 and [rule.code for rule in rules if rule.code not in findings] == []
    report = text_of(reference / "report.html")
    assert [name for name in SECTIONS if name not in report] == []
    bounds = text_of(reference / "bounds.html")
    limits = (ROOT / "dissector" / "limits.py").read_text("utf-8")
    matches = re.findall(r"(?m)^([A-Z][A-Z0-9_]+): Final = ", limits)
    assert [name for name in matches if name not in bounds] == []


def test_the_start_is_the_readme_with_links_into_the_site(site: Path) -> None:
    start = (site / "index.html").read_text("utf-8")
    assert 'href="compiled-code.html"' in start and "docs/compiled-code.md" not in start
