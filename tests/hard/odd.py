"""What tests about odd files share: the captures of `source_cases`, and what must come of them."""

from collections.abc import Sequence
from pathlib import Path

from dissector.cli.exits import EXIT_INPUT
from tests.dissector.cli.conftest import Command
from tests.hard import source_cases as made
from tests.hard.cases import Case, all_cases
from tests.hard.tape import Tables, capture, dissected

COMMANDS = ("land", "summary", "frames", "connections")


def cases(id: str, *words: str) -> list[Case]:
    """The captures of a case, of this page's module: all, or those with these words."""
    return [
        each
        for each in all_cases()
        if each.id == id
        and each.words in vars(made).keys() | NAMED
        and (not words or each.words in words)
    ]


NAMED = (
    {f"{magic}_{side}" for magic in made.MAGICS.values() for side in made.ORDERS.values()}
    | set(made.COMPRESSORS)
    | {f"ring_{number}" for number in range(made.RING_FILES)}
)


def content(id: str, words: str) -> bytes:
    (found,) = cases(id, words)
    return found.make()


def whole() -> Tables:
    """What comes of the undamaged conversation."""
    return dissected(capture(made.records()))


def same(found: Tables, other: Tables) -> bool:
    """Whether all rows are equal but those about files and about the capture as a whole."""
    return {name: found[name] for name in found if name != "capture_files"} == {
        name: other[name] for name in other if name != "capture_files"
    }


def without_times(tables: Tables) -> Tables:
    """The rows without what is a time or a duration."""
    return {
        name: [
            {key: value for key, value in row.items() if key != "ts" and "_ns" not in key}
            for row in rows
        ]
        for name, rows in tables.items()
    }


def check_codes(
    command: Command, path: Path, code: int, words: str = "", names: Sequence[str] = COMMANDS
) -> None:
    """Every command that reads captures ends with this code and says these words.

    names: which, `land` among them; all, unless another test tells that they are alike.
    """
    lake = path.parent / "lake"
    for name in names:
        ended = command(name, path, *(["--lake", lake] if name == "land" else []))
        assert ended.code == code, (name, ended)
        assert "Traceback" not in ended.err
        assert words in ended.err
    assert len(list(lake.glob("_manifest/*.json"))) == (code != EXIT_INPUT)
