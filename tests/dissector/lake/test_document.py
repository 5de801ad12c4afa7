"""docs/lake.md against the schema."""

from pathlib import Path

import pytest

from dissector.lake.document import lake_page, main

PAGE = Path(__file__).parents[3] / "docs" / "lake.md"


def test_the_page_in_the_docs_is_current() -> None:
    assert PAGE.read_text("utf-8") == lake_page(), (
        "run: python -m dissector.lake.document docs/lake.md"
    )


def test_the_generator_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert capsys.readouterr().out == lake_page()
    main([str(tmp_path / "x.md")])
    assert (tmp_path / "x.md").read_text("utf-8") == lake_page()
