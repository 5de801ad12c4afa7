"""The order of plain ranges that leave at once."""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.stream.columns import RangeColumns, RangeKind

_AT: Final = {name: number for number, name in enumerate(RangeColumns._fields)}


def order_by_packet(rows: Int64Array, places: Int64Array) -> None:
    """Order what a late key lets out at once of both directions as its packets came.

    rows: int64[columns, rows], in the order of their places in the block.
    """
    endpoint_index, packet = rows[_AT["endpoint_index"]], rows[_AT["packet"]]
    is_mixed = (np.diff(places) == 0) & (np.diff(endpoint_index) != 0)
    for place in set(places[1:][is_mixed].tolist()):
        first, last = np.searchsorted(places, (place, place + 1))
        if (rows[_AT["kind"], first:last] != RangeKind.DATA).any():
            continue
        arrived = packet[first:last].copy()
        for side in (0, 1):
            own = endpoint_index[first:last] == side
            arrived[own] = np.maximum.accumulate(arrived[own])
        order = np.argsort(arrived, kind="stable")
        rows[:, first:last] = rows[:, first:last][:, order]
