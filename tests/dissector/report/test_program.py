"""Another text of the program, another version of what it asks: another digest."""

from pathlib import Path

import pytest

from dissector.report import program


def test_the_program_is_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules, queries and templates, its own text, and the packages that it asks."""
    (tmp_path / "rules").mkdir()
    monkeypatch.setattr(program, "_PACKAGE_FOLDER", tmp_path)
    digest = program.program.__wrapped__
    seen = {digest()}
    for name, content in (("rules/a.sql", "1"), ("rules/a.sql", "2"), ("page.html", "2")):
        (tmp_path / name).write_text(content)
        seen.add(digest())
    (tmp_path / "page.html").rename(tmp_path / "other.html")
    seen.add(digest())
    monkeypatch.setattr(program, "program_digest", lambda: "another text")
    seen.add(digest())
    monkeypatch.setattr(program, "version", lambda name: "0")
    seen.add(digest())
    assert len(seen) == 7
