"""Generates the words of `dissector explain`: python -m dissector.cli.words docs FILE.

FILE is dissector/data/words.jsonl: one word of a table in docs/*.md, or one metric, per line.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dissector.cli.document import all_commands
from dissector.lake.settings import LakeSettings

# Pages whose tables describe words of reports, comparisons and ready views.
_DOCS: Final = ("metrics.md", "compare.md", "sql.md")
_ROW: Final = re.compile(r"^\| (`.+?) \|\s+(.+) \|$")


def words_of(docs: Path) -> Iterator[dict[str, str]]:
    """Each word, its subject, and its meaning."""
    for name in _DOCS:
        heading = ""
        for line in (docs / name).read_text("utf-8").splitlines():
            if line.startswith("#"):
                heading = line.lstrip("# ").replace("`", "")
            elif (row := _ROW.match(line)) is not None:
                meaning = _plain(row[2])
                for word in re.findall(r"`([^`]+)`", row[1]):
                    yield {"word": word, "of": f"in docs/{name}, {heading}", "means": meaning}
    yield from _settings()
    yield from _metrics()
    for name, command in all_commands():
        means = _plain(command.get_short_help_str(200))
        yield {"word": name.partition(" ")[2] or name, "of": "a command of the program",
               "means": means}  # fmt: skip


def _settings() -> Iterator[dict[str, str]]:
    for each in dataclasses.fields(LakeSettings):
        means = _plain(str(each.metadata["meaning"]))
        yield {"word": each.name, "of": "a setting of the files of a lake", "means": means}


def _metrics() -> Iterator[dict[str, str]]:
    from dissector.tap.finding_incidents import FindingNumbers
    from dissector.tap.health import Health
    from dissector.tap.metrics import TapCollector, TapNumbers

    numbers = TapNumbers()
    numbers.findings = FindingNumbers({}, {}, {})
    for family in TapCollector(Health(is_live=False), numbers).collect():
        word = f"{family.name}{'_total' if family.type == 'counter' else ''}"
        yield {
            "word": word, "of": f"a metric of a tap, {family.type}", "means": family.documentation,
        }  # fmt: skip


def _plain(cell: str) -> str:
    """A cell without Markdown, as a sentence; links become their texts."""
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).replace("`", "").replace(r"\|", "|")
    return f"{text[0].upper()}{text[1:]}".rstrip(".") + "."


def document(docs: Path) -> str:
    """The contents of the file of words."""
    lines = dict.fromkeys(json.dumps(row, ensure_ascii=False) for row in words_of(docs))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(document(Path(sys.argv[1])), "utf-8")
