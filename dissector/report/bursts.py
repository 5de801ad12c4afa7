"""Storms of connecting: how many connections one client opened to one broker within a short time.

A scan opens a million of them from as many addresses, so nothing here is done once per connection
but what arrays do.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.report.numbers import NS_PER_S
from dissector.report.rows import Mask, codes

SPAN_NS: Final = 10 * NS_PER_S
_PAIR: Final = ("client_ip", "broker_ip", "broker_port")


class Bursts(NamedTuple):
    """Pairs of a client and a broker, int64[pairs] each, in the order of their first connections.

    first: row of the pair's first connection; opened: connections; vain: those that came to
    nothing; peak: the most that were opened within SPAN_NS; at_ns: when these began.
    """

    first: Int64Array
    opened: Int64Array
    vain: Int64Array
    peak: Int64Array
    at_ns: Int64Array


def bursts_of(opened: pa.Table, wholes: pa.Array, is_vain: Mask) -> Bursts:
    """Bursts of connections whose opening was captured.

    Args:
        opened: their rows (names.LEGS), each with its time.
        wholes: what their captures are part of. is_vain: which of them came to nothing.
    """
    times = opened.column("first_ts_ns").to_numpy()
    order = np.lexsort((opened.column("connection_id").to_numpy(), times))
    columns = [opened.column(name).combine_chunks().take(pa.array(order)) for name in _PAIR]
    pairs, first = codes(wholes.take(pa.array(order)), *columns)
    found = Bursts(
        order[first],
        np.bincount(pairs, minlength=len(first)),
        np.bincount(pairs[is_vain[order]], minlength=len(first)),
        np.zeros(len(first), np.int64),
        np.zeros(len(first), np.int64),
    )
    by_pair = np.argsort(pairs, kind="stable")
    _find_peaks(pairs[by_pair], times[order][by_pair], found)
    return found


@kernel
def _find_peaks(pairs: Int64Array, times: Int64Array, found: Bursts) -> None:
    """Write peak and at_ns. pairs, times: int64[rows], sorted by pair, then time."""
    oldest = 0
    for row in range(len(pairs)):
        pair = pairs[row]
        while pairs[oldest] != pair or times[row] - times[oldest] > SPAN_NS:
            oldest += 1
        if row - oldest + 1 > found.peak[pair]:
            found.peak[pair] = row - oldest + 1
            found.at_ns[pair] = times[oldest]
