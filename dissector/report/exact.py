"""Percentiles of send latency from the values themselves (`--exact`), over rows of all captures.

Values do not add up as sums do: nothing of this is kept.
"""

from collections.abc import Callable
from importlib import resources
from typing import Final

import pyarrow as pa

from dissector.report.numbers import PERCENTILES
from dissector.report.sections.send_latency import GROUPINGS

_NAMES: Final = ("topic", "producer_name", "client_ip", "broker_ip")


def exact_query() -> str:
    """The query of all percentiles: one row per list, measure and group.

    Columns: grouping, the name of a list of the section; topic, producer_name, client_ip,
    broker_ip, null unless the list has them; measure, latency, transmit or logical; a column per
    percentile, ns: the value of rank ceil(count * share), from 1.
    """
    values = resources.files("dissector.queries").joinpath("exact.sql").read_text("utf-8")
    ranked = " UNION ALL ".join(_ranked(name, keys) for name, keys in GROUPINGS.items())
    return f"WITH timed AS (\n{values.strip()}\n) {ranked}"


def _ranked(grouping: str, keys: tuple[str, ...]) -> str:
    part = ", ".join(("measure", *keys))
    names = ", ".join(
        name if name in keys else f"CAST(NULL AS STRING) AS {name}" for name in _NAMES
    )
    values = ", ".join(
        f"max(CASE WHEN place = greatest(1, floor_div(number * {permille} + 999, 1000)) "
        f"THEN value_ns END) AS {name}"
        for name, permille in PERCENTILES
    )
    return (
        f"SELECT '{grouping}' AS grouping, {names}, measure, {values} FROM ("
        f"SELECT {part}, value_ns, row_number() OVER (PARTITION BY {part} ORDER BY value_ns) "
        f"AS place, count(*) OVER (PARTITION BY {part}) AS number FROM timed) AS numbered "
        f"GROUP BY {part}"
    )


def exact(table: Callable[[str], pa.Table]) -> pa.Table:
    """All percentiles. table: runs a query over the tables of a lake, prelude included."""
    return table(exact_query())
