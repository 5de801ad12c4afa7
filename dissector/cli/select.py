"""Selections: check an expression against the columns of a table, and apply it to rows."""

import operator as signs
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from dissector.cli import expression, suggestions
from dissector.cli.expression import (
    Column,
    Comparison,
    Flag,
    Junction,
    Literal,
    Membership,
    Negation,
    Node,
    Value,
)
from dissector.cli.local_time import shown_time
from dissector.errors import NothingMatchesError
from dissector.schemas import TABLES

if TYPE_CHECKING:
    from dissector.queries.selection import Selection

# Sign: Arrow's function, Python's function, the sign with exchanged operands.
_SIGNS: Final = (
    ("==", "equal", signs.eq, "=="),
    ("!=", "not_equal", signs.ne, "!="),
    ("<", "less", signs.lt, ">"),
    ("<=", "less_equal", signs.le, ">="),
    (">", "greater", signs.gt, "<"),
    (">=", "greater_equal", signs.ge, "<="),
)
_ARROW_NAMES: Final = {sign: name for sign, name, _, _ in _SIGNS}
_OPERATORS: Final = {sign: function for sign, _, function, _ in _SIGNS}
_MIRRORED: Final = {sign: mirrored for sign, _, _, mirrored in _SIGNS}

# Types of literals that a column may be compared with, by its kind.
_LITERAL_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "number": (int, float),  # a float that is whole: 1.5e6
    "text": (str,),
    "flag": (bool,),
    "time": (str,),
    "list": (int, str),
}
_KIND_WORDS: Final = {
    "number": "a whole number of 64 bits",
    "text": "text",
    "flag": "true or false",
    "time": 'a time such as "2026-01-31T23:59:59"',
    "list": "a list: use contains, or compare it with null",
}
Kinds = Mapping[str, str]  # column name -> number, text, flag, time or list


def check(text: str, node: Node, kinds: Kinds) -> None:
    """Check an expression against the columns of a table.

    Raises:
        UsageError: a column is missing, or a comparison makes no sense for its column.
    """
    for comparison in expression.comparisons_of(node):
        left, right = comparison.left, comparison.right
        if isinstance(left, Column) and isinstance(right, Column):
            is_word = right.name not in kinds and "." not in right.name
            if is_word and kinds.get(left.name) in ("text", "time"):
                expression.refuse(text, right.at, suggestions.quoted(left.name, right.name))
    for column in expression.columns_of(node):
        if column.name not in kinds:
            expression.refuse(text, column.at, no_column(column.name, kinds))
    _check_kinds(text, node, kinds)


def no_column(name: str, kinds: Kinds) -> str:
    """The error text of a missing column."""
    return f"no column {name}; {suggestions.instead_of_column(name, kinds)}"


def _check_kinds(text: str, node: Node, kinds: Kinds) -> None:
    match node:
        case Junction(_, parts):
            for part in parts:
                _check_kinds(text, part, kinds)
        case Negation(inner):
            _check_kinds(text, inner, kinds)
        case Flag(column):
            if kinds[column.name] != "flag":
                expression.refuse(text, column.at, f"compare {column.name} with something")
        case Membership(left, values, _):
            for value in values:
                _check_literal(text, left, value, kinds)
        case Comparison():
            _check_comparison(text, node, kinds)


def _check_comparison(text: str, node: Comparison, kinds: Kinds) -> None:
    operator, left, right, at = node
    if isinstance(left, Literal) and isinstance(right, Literal):
        expression.refuse(text, left.at, "a column name belongs on one side")
    if operator in ("contains", "matches"):
        if isinstance(left, Literal) or isinstance(right, Column) or right.value is None:
            expression.refuse(
                text, at, f"'{operator}' takes a column before it and a value after it"
            )
        kind = kinds[left.name]
        if kind != "text" and (operator, kind) != ("contains", "list"):
            expression.refuse(text, at, f"'{operator}' is for text and {left.name} is none")
        _check_literal(text, left, right, kinds, is_whole=False)
        if operator == "matches":
            _check_pattern(text, right)
        return
    if isinstance(left, Column) and isinstance(right, Column):
        if kinds[left.name] != kinds[right.name] or kinds[left.name] == "list":
            expression.refuse(text, at, f"{left.name} and {right.name} cannot be compared")
        return
    column, literal = (left, right) if isinstance(left, Column) else (right, left)
    assert isinstance(column, Column) and isinstance(literal, Literal)
    if literal.value is None:
        if operator not in ("==", "!="):
            expression.refuse(text, at, "null can only be compared by == and !=")
    elif kinds[column.name] == "list":
        expression.refuse(text, at, f"{column.name} is {_KIND_WORDS['list']}")
    else:
        _check_literal(text, column, literal, kinds, is_whole=operator in ("==", "!="))


def _check_literal(
    text: str, column: Column, literal: Literal, kinds: Kinds, is_whole: bool = True
) -> None:
    """is_whole: the value is compared as a whole, not searched for in another one."""
    kind = kinds[column.name]
    value = literal.value
    fits = isinstance(value, _LITERAL_KINDS[kind]) and isinstance(value, bool) == (kind == "flag")
    if fits and isinstance(value, int | float) and not isinstance(value, bool):
        fits = value == value // 1 and -(2**63) <= value < 2**63
    if value is not None and not fits:
        expression.refuse(text, literal.at, f"{column.name} is {_KIND_WORDS[kind]}")
    if kind == "text" and isinstance(value, str) and is_whole:
        hint = suggestions.instead_of_value(column.name, value)
        if hint:
            expression.refuse(text, literal.at, hint)
    if kind == "time" and isinstance(value, str):
        try:
            read_time(value)
        except ValueError:
            expression.refuse(text, literal.at, f"{column.name} is {_KIND_WORDS['time']}")


def _check_pattern(text: str, literal: Literal) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), str(literal.value))
    except pa.ArrowInvalid as error:
        reason = str(error).rpartition(":")[2].strip()
        expression.refuse(text, literal.at, f"this pattern cannot be read: {reason}")


def read_time(text: str) -> datetime:
    """Parse an ISO 8601 time; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


# -- applied to a table of Arrow columns


def question(table: str, node: Node) -> str:
    """A query of the values of an expression's first column."""
    column = next((one.name for one in expression.columns_of(node)), "connection_id")
    (kind,) = (one.type for one in TABLES[table].columns if one.name == column)
    few = kind not in ("bigint", "timestamp[us, UTC]")
    return f"select {f'distinct {column}' if few else f'min({column}), max({column})'} from {table}"


def no_row(table: str, node: Node | None, part: "Selection") -> NothingMatchesError:
    """The error if no row matches an expression and the other options."""
    what = f"no row of {table} matches the selection{part.words(shown_time)}"
    return NothingMatchesError(what, part.question if node is None else question(table, node))


def mask(node: Node, table: Any) -> Any:
    """The rows of a pyarrow Table or RecordBatch that an expression selects.

    Returns:
        a pyarrow boolean array without nulls, one value per row.
    """
    import pyarrow.compute as pc

    match node:
        case Junction(operator, parts):
            result = mask(parts[0], table)
            join = pc.and_ if operator == "and" else pc.or_
            for part in parts[1:]:
                result = join(result, mask(part, table))
            return result
        case Negation(inner):
            return pc.invert(mask(inner, table))
        case Flag(column):
            return pc.fill_null(_plain(table.column(column.name)), False)
        case Membership(left, values, _):
            return _mask_membership(table.column(left.name), values)
        case Comparison():
            return _mask_comparison(node, table)


def _plain(column: Any) -> Any:
    """One contiguous array without a dictionary."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunks at all
            column = pa.concat_arrays(column.chunks)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _scalar(literal: Literal, column: Any) -> Any:
    """A literal in the type that the column is compared in."""
    import pyarrow as pa

    value = literal.value
    if pa.types.is_timestamp(column.type):
        return pa.scalar(read_time(str(value)), column.type)
    return pa.scalar(int(value) if isinstance(value, float) else value)


def _mask_membership(column: Any, values: tuple[Literal, ...]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = _plain(column)
    result = pa.array([False] * len(plain), pa.bool_())
    for value in values:
        test = pc.is_null(plain) if value.value is None else pc.equal(plain, _scalar(value, plain))
        result = pc.or_(result, pc.fill_null(test, False))
    return result


def _mask_comparison(node: Comparison, table: Any) -> Any:
    import pyarrow.compute as pc

    operator, left, right, _ = node
    if isinstance(left, Literal):  # 5 < x is x > 5
        operator, left, right = _MIRRORED.get(operator, operator), right, left
    assert isinstance(left, Column)
    column = _plain(table.column(left.name))
    if isinstance(right, Literal):
        if right.value is None:
            return pc.is_null(column) if operator == "==" else pc.is_valid(column)
        if operator == "contains":
            return _mask_contains(column, right)
        if operator == "matches":
            return pc.fill_null(pc.match_substring_regex(column, str(right.value)), False)
        other = _scalar(right, column)
    else:
        other = _plain(table.column(right.name))
    return pc.fill_null(getattr(pc, _ARROW_NAMES[operator])(column, other), False)


def _mask_contains(column: Any, literal: Literal) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.fill_null(pc.match_substring(column, str(literal.value)), False)
    rows = (value is not None and literal.value in _members(value) for value in column.to_pylist())
    return pa.array(list(rows), pa.bool_())


def _members(value: list[Any]) -> list[Any]:
    """The elements of a list; of a map its keys."""
    return [element[0] if isinstance(element, tuple) else element for element in value]


# -- applied to single values (--fail-on, where names are paths into report.json)


def holds(node: Node, value_of: Callable[[str], Value]) -> bool:
    """Whether an expression is true of the values that a function gives for its names."""
    match node:
        case Junction("and", parts):
            return all(holds(part, value_of) for part in parts)
        case Junction(_, parts):
            return any(holds(part, value_of) for part in parts)
        case Negation(inner):
            return not holds(inner, value_of)
        case Flag(column):
            return value_of(column.name) is True
        case Membership(left, values, _):
            return value_of(left.name) in [literal.value for literal in values]
        case Comparison(operator, left, right, _):
            if isinstance(left, Literal):
                operator, left, right = _MIRRORED.get(operator, operator), right, left
            value, other = (
                value_of(side.name) if isinstance(side, Column) else side.value
                for side in (left, right)
            )
            return _compare(operator, value, other, isinstance(right, Literal))


def _compare(sign: str, left: Any, right: Any, is_literal: bool) -> bool:
    """Compare two values; values of different types are unequal and unordered."""
    if is_literal and right is None:
        return bool((left is None) == (sign == "=="))
    if left is None or right is None:
        return False
    if sign == "contains":
        return right in (left if isinstance(left, str) else _members(left))
    if sign == "matches":
        return re.search(right, left) is not None
    try:
        return bool(_OPERATORS[sign](left, right))
    except TypeError:
        return False
