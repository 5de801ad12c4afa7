"""Words of the texts: rows of their tables, without marks."""

from pathlib import Path

from dissector.cli import words


def test_a_row_gives_each_of_its_words_a_sentence(tmp_path: Path) -> None:
    for name in words._DOCS:
        (tmp_path / name).write_text("# Title\n\n| key | meaning |\n|---|---|\n")
    with (tmp_path / "compare.md").open("a") as file:
        file.write("| `a`, `b` (`c`) | see [there](x.md#y): `0` or 1 |\n| plain | no word |\n")
    rows = [row for row in words.words_of(tmp_path) if row["of"].startswith("in docs")]
    assert [row["word"] for row in rows] == ["a", "b", "c"]
    assert {row["of"] for row in rows} == {"in docs/compare.md, Title"}
    assert {row["means"] for row in rows} == {"See there: 0 or 1."}


def test_metrics_have_their_names_in_full() -> None:
    names = {row["word"] for row in words._metrics()}
    assert {"dissector_sends_total", "dissector_findings_total", "dissector_tap_up"} - names == {
        "dissector_tap_up"
    }
