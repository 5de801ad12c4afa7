"""docs/commands.md is what the program says."""

from pathlib import Path

import click
import pytest

from dissector.cli.document import all_commands, commands_page, help_text, main
from dissector.cli.exits import EXITS
from dissector.notices import NOTICES
from tests.dissector.cli.conftest import Command

PAGE = Path(__file__).resolve().parents[3] / "docs" / "commands.md"


def test_the_page_is_the_one_that_the_program_makes() -> None:
    assert PAGE.read_text("utf-8") == commands_page(), (
        "run: python -m dissector.cli.document docs/commands.md"
    )


def test_help_on_the_page_is_help_on_the_screen(process: Command) -> None:
    for name, command in (all_commands()[0], all_commands()[5], all_commands()[-3]):
        shown = process(*name.split(" ")[1:], "--help", COLUMNS="80")
        assert shown.out.rstrip("\n") == help_text(name, command)


def test_every_command_option_code_and_notice_is_on_the_page() -> None:
    page = commands_page()
    for name, command in all_commands():
        assert f"\n## {name}\n" in page
        for option in command.params:
            if isinstance(option, click.Option):
                assert all(each in page for each in option.opts)
    assert all(f"\n| {code} | " in page for code, _ in EXITS)
    assert all(f"\n| `{kind.code}` | {kind.severity} | " in page for kind in NOTICES)


def test_the_page_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path / "page.md")])
    main(["--help"])
    assert (tmp_path / "page.md").read_text("utf-8") == capsys.readouterr().out
