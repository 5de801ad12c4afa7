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


class Wire(NamedTuple):
    """Where a column of `frames` comes from, for the plan that reads Pulsar's protobuf fields.

    paths: the fields, by the part of a frame that holds them: `command.send.num_messages`, with `*`
        for every command that has the field; `broker_entry.…`; `metadata.…`;
        `metadata_of_message.…` for what only a MESSAGE has there.
    null: a value that means null.
    default: written where the message around the field is there and the field is not.
    present: a column that says whether the field is there.
    """

    paths: tuple[str, ...] = ()
    null: int | None = None
    default: int | None = None
    present: str = ""


class Column(NamedTuple):
    """One column of a table.

    name, type: as in the files, type one of TYPES.
    unit: of the number, empty where it has none.
    meaning: one sentence for users.
    null: when the value is null, NEVER if it is always there.
    repeats: a text column whose few values come again and again, so that a dictionary pays.
    wire: the fields that fill it.
    """

    name: str
    type: str
    unit: str
    meaning: str
    null: str
    repeats: bool = True
    wire: Wire = Wire()


class Table(NamedTuple):
    """One table of the lake.

    name: of its folder.
    row: what one row stands for.
    columns: in the order of the files.
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


def wired(
    column: Column,
    *paths: str,
    null: int | None = None,
    default: int | None = None,
    present: str = "",
) -> Column:
    """A column of `frames` that is filled from fields of Pulsar's messages; see Wire."""
    return column._replace(wire=Wire(paths, null, default, present))


def names(name: str, meaning: str, null: str = NEVER) -> Column:
    """A column of lists of text."""
    return Column(name, "array<string>", "", meaning, null)
