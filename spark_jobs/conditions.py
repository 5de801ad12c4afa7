"""Evaluates Spark's pushed-down conditions, so that rejected rows never leave the task.

Spark pushes conditions only if its setting for filters of Python sources is on, and only in a
special planning worker, which `are_asked` detects: in any other, a reader with conditions is an
error.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dissector.sources.rings import Chain, capture_id
from dissector.spark.schemas import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

_PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
# The types with the same order and equality in Spark and Arrow.
_TYPES: Final = ("bigint", "string", "boolean")
# Functions of the column and the value of the condition.
_COMPARISONS: Final = {
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
}
_PATTERNS: Final = {
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "match_substring",
}


def are_asked() -> bool:
    """Whether this process is the worker in which Spark pushes conditions down."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PLANNER in sys.modules or getattr(main, "name", None) == _PLANNER


def taken(table: str, conditions: Sequence["Filter"]) -> Iterator["Filter"]:
    """The conditions on a table that `_mask` supports."""
    kinds = {field.name: field.dataType.simpleString() for field in spark_schema(table).fields}
    for condition in conditions:
        inner = _innermost(condition)
        name = type(inner).__name__
        is_known = name in _COMPARISONS or name in _PATTERNS
        is_known = is_known or name in ("EqualNullSafe", "In", "IsNull", "IsNotNull")
        path: Sequence[str] = getattr(inner, "attribute", ())
        if is_known and len(path) == 1 and kinds.get(path[0]) in _TYPES:
            yield condition


def _innermost(condition: Any) -> Any:
    return _innermost(condition.child) if type(condition).__name__ == "Not" else condition


def chosen(batch: "pa.RecordBatch", conditions: Sequence["Filter"]) -> "pa.RecordBatch":
    """The rows of a batch for which all conditions are true: not false, not null."""
    for condition in conditions:
        batch = batch.filter(_mask(batch, condition))
    return batch


def _mask(batch: "pa.RecordBatch", condition: Any) -> "pa.Array":
    """The result of a condition per row, bool[rows], null where Spark's result is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name = type(condition).__name__
    if name == "Not":
        return pc.invert(_mask(batch, condition.child))
    column = batch.column(condition.attribute[0])
    if name == "IsNull":
        return column.is_null()
    if name == "IsNotNull":
        return column.is_valid()
    if name == "In":
        values = [value for value in condition.value if value is not None]
        is_listed = pc.is_in(column, pa.array(values, column.type))
        # IN is null for a null value, and for a value that is not in a list with a null.
        unknown = pc.invert(is_listed) if len(values) < len(condition.value) else column.is_null()
        return pc.if_else(pc.or_(unknown, column.is_null()), pa.scalar(None, pa.bool_()), is_listed)
    if name in _PATTERNS:
        return getattr(pc, _PATTERNS[name])(column, condition.value)
    if name == "EqualNullSafe":
        if condition.value is None:
            return column.is_null()
        return pc.fill_null(pc.equal(column, pa.scalar(condition.value, column.type)), False)
    value = pa.scalar(condition.value, column.type)
    return getattr(pc, _COMPARISONS[name])(column, value)


def may_hold(chain: Chain, conditions: Sequence["Filter"]) -> bool:
    """Whether rows of a capture can pass, decided by its file name before reading it."""
    beginning = capture_id(chain.base_name, "")
    for condition in conditions:
        names: Sequence[Any]
        match type(condition).__name__, getattr(condition, "attribute", None):
            case "EqualTo" | "EqualNullSafe", ("capture",):
                names = [condition.value]  # type: ignore[attr-defined]
            case "In", ("capture",):
                names = condition.value  # type: ignore[attr-defined]
            case _:
                continue
        if not any(isinstance(name, str) and name.startswith(beginning) for name in names):
            return False
    return True
