"""What leaves at once is in the order of its packets."""

import numpy as np

from dissector.stream.columns import RangeColumns, RangeKind
from dissector.tls.packet_order import order_by_packet


def ordered(*given: tuple[int, int, int], kind: int = RangeKind.DATA) -> list[tuple[int, int]]:
    """Endpoint and packet of rows that are given as place, endpoint, packet."""
    rows = RangeColumns.new(len(given))
    rows.kind[:] = kind
    places, rows.endpoint_index[:], rows.packet[:] = np.array(given).T
    order_by_packet(rows.matrix, np.array(places))
    return list(zip(rows.endpoint_index.tolist(), rows.packet.tolist(), strict=True))


def test_both_directions_of_a_place_are_merged_by_packet() -> None:
    given = [(3, 0, 1), (3, 0, 5), (3, 1, 2), (3, 1, 9), (4, 0, 7), (4, 0, 6)]
    assert ordered(*given) == [(0, 1), (1, 2), (0, 5), (1, 9), (0, 7), (0, 6)]


def test_no_direction_changes_its_own_order() -> None:
    """A packet that was sent again has a lower number than what went before it in the stream."""
    assert ordered((3, 0, 6), (3, 0, 2), (3, 1, 4)) == [(1, 4), (0, 6), (0, 2)]


def test_ends_and_gaps_stay_where_they_are() -> None:
    assert ordered((3, 0, 6), (3, 1, 4), kind=RangeKind.FIN) == [(0, 6), (1, 4)]
