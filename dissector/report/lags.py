"""How far consumers lag behind the end of their log (Cursus), by topic and subscription.

A row of `acks` says how many messages lie behind what is committed, a row of `deliveries` how many
lie behind the last one that was handed out. Where the log's end had not been seen neither says
anything, and such a row is counted as not judged. Every partition has a log of its own: the last
lag of a subscription is the sum of its partitions' last ones.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.limits import NULL
from dissector.report.numbers import Row, high
from dissector.report.rows import Rows, nullable
from dissector.report.tallies import LAGS, LAST_LAG_BITS, Accumulator, rows

COMMITTED: Final = "committed"
DELIVERED: Final = "delivered"
MAX_KEYS: Final = 1 << 18
_MOST: Final = (1 << LAST_LAG_BITS) - 1
_KEYS: Final = ("topic", "subscription")


class Lags:
    """The lags of a summary, row by row."""

    def __init__(self) -> None:
        self._lags = Accumulator(LAGS, MAX_KEYS)

    def add(self, found: Rows, which: str) -> None:
        """Take in rows of acks (COMMITTED) or deliveries (DELIVERED).

        Members of groups have no consumer id; a delivery of nothing, which names no entry, and one
        to nobody's group have no lag.
        """
        mask = ~found.known("consumer_id") & found.known("subscription")
        if which == COMMITTED:
            mask &= found.equals("action", "ack")
        else:
            mask &= found.known("entry_id")
        found = found.where(mask)
        if len(found) == 0:
            return
        lag = found.numbers("lag")
        place = (found.numbers("frame_no") << LAST_LAG_BITS) + np.minimum(lag, _MOST)
        self._lags.add(
            {
                **found.columns("connection_id", *_KEYS, "partition"),
                "which": pa.array([which] * len(found)),
                "judged": pa.array((lag != NULL).astype(np.int64)),
                "unjudged": pa.array((lag == NULL).astype(np.int64)),
                "lag": nullable(lag),
                "last": pa.array(place, mask=lag == NULL),
                "at_us": pa.array(found.numbers("ts"), mask=lag == NULL),
            }
        )

    def table(self) -> pa.Table:
        """The tally."""
        return self._lags.settle()

    @property
    def left_out(self) -> int:
        """Keys beyond the bound."""
        return self._lags.left_out


def _lag(found: list[Row], which: str) -> Row:
    """Last and highest lag of some rows; None where nothing of that kind was judged."""
    newest: dict[tuple[Any, ...], Row] = {}
    for row in found:
        if row["which"] == which and row["judged"]:
            log = (*(row[name] for name in _KEYS), row["partition"])
            place = (row["at_us_max"], row["capture"] or "", row["last_max"])
            before = newest.get(log)
            if before is None or place > before["place"]:
                newest[log] = {"place": place, "lag": row["last_max"] & _MOST}
    judged = [row for row in found if row["which"] == which]
    return {
        f"lag_{which}_last": sum(row["lag"] for row in newest.values()) if newest else None,
        f"lag_{which}_max": high(row["lag_max"] for row in judged),
    }


def lag_of(found: list[Row]) -> Row:
    """The lags of a subscription, or of all: rows of `lag_rows`."""
    return {
        **_lag(found, COMMITTED),
        **_lag(found, DELIVERED),
        "lag_not_judged": sum(row["unjudged"] for row in found) if found else None,
    }


def lag_rows(table: pa.Table) -> list[Row]:
    """The tally LAGS per log: who reads what, in which capture."""
    return rows(table, LAGS, ["capture", *_KEYS, "partition", "which"])
