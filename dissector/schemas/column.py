"""Declarations of tables and columns of the lake's schema (without pyarrow)."""

from typing import Final, NamedTuple

# Column types of the lake, by their Spark names.
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
    """The protobuf fields of a column of `frames`, for the plan that parses Pulsar frames.

    paths: fields by the part of the frame: `command.send.num_messages`, with `*` for every command
        that has the field; `broker_entry.…`; `metadata.…`; `metadata_of_message.…` for metadata of
        a MESSAGE only.
    null: a value that means null.
    default: written if the enclosing message is present and the field is absent.
    present: a column that is true if the field is present.
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
    null: when the value is null, NEVER if it never is.
    repeats: a text column with few distinct values, which a dictionary encodes well.
    wire: the protobuf fields of its values.
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
    row: meaning of one row.
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
    """Declare the protobuf fields of a column of `frames`; see Wire."""
    return column._replace(wire=Wire(paths, null, default, present))


def names(name: str, meaning: str, null: str = NEVER) -> Column:
    """A column of lists of text."""
    return Column(name, "array<string>", "", meaning, null)
