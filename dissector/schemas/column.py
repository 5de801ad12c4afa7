"""What a table and a column are: the words in which the lake's schema is declared (no pyarrow)."""

from typing import Final, NamedTuple

# The types of the lake, by the names that Spark gives them.
TYPES: Final = (
    "bigint",
    "boolean",
    "string",
    "timestamp[us, UTC]",
    "array<bigint>",
    "array<string>",
    "map<string,bigint>",
    "map<string,string>",
)
NEVER: Final = "never"


class Column(NamedTuple):
    """One column of a table.

    name, type: as in the files, type one of TYPES; unit: of the number, empty where it has none;
    meaning: one sentence for users; null: when the value is null, NEVER if it is always there;
    repeats: a text column whose few values come again and again, so that a dictionary pays.
    """

    name: str
    type: str
    unit: str
    meaning: str
    null: str
    repeats: bool = True


class Table(NamedTuple):
    """One table of the lake.

    name: of its folder; row: what one row stands for; columns: in the order of the files.
    """

    name: str
    row: str
    columns: tuple[Column, ...]


def number(name: str, unit: str, meaning: str, null: str = NEVER) -> Column:
    """A column of 64-bit signed integers."""
    return Column(name, "bigint", unit, meaning, null)


def flag(name: str, meaning: str, null: str = NEVER) -> Column:
    """A column of true and false."""
    return Column(name, "boolean", "", meaning, null)


def name(name: str, meaning: str, null: str = NEVER) -> Column:
    """A text column with few values that repeat: names, enums, addresses."""
    return Column(name, "string", "", meaning, null)


def text(name: str, meaning: str, null: str = NEVER) -> Column:
    """A text column whose values rarely repeat."""
    return Column(name, "string", "", meaning, null, repeats=False)


def integers(name: str, meaning: str, null: str = NEVER) -> Column:
    """A column of lists of integers."""
    return Column(name, "array<bigint>", "", meaning, null)


def names(name: str, meaning: str, null: str = NEVER) -> Column:
    """A column of lists of text."""
    return Column(name, "array<string>", "", meaning, null)
