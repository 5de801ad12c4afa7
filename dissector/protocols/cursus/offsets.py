"""A set of offsets that a group has fetched from a partition."""

from bisect import bisect_right


class Intervals:
    """A set of offsets as intervals that do not touch, in rising order."""

    def __init__(self) -> None:
        self._edges: list[int] = []  # first, exclusive end, first, exclusive end, ...

    def covered(self, first: int, last: int) -> bool:
        """Whether some offset from first to last is in the set."""
        at = bisect_right(self._edges, first)
        if at & 1:
            return True
        return at < len(self._edges) and self._edges[at] <= last

    def add(self, first: int, last: int) -> None:
        """Add the offsets from first to last."""
        edges = self._edges
        stop = last + 1
        if edges and edges[-1] == first:
            edges[-1] = stop
            return
        low = bisect_right(edges, first - 1)
        high = bisect_right(edges, stop)
        between: list[int] = []
        if not low & 1:
            between.append(first)
        if not high & 1:
            between.append(stop)
        if low & 1 and edges[low - 1] <= first and edges[low] >= stop:
            return
        edges[low:high] = between

    def top(self) -> int:
        """The offset after the last one, 0 for an empty set."""
        return self._edges[-1] if self._edges else 0

    def top_first(self) -> int:
        """The first offset of the last interval, 0 for an empty set."""
        return self._edges[-2] if self._edges else 0

    def drop_top(self) -> None:
        """Remove the last interval."""
        del self._edges[-2:]

    def __len__(self) -> int:
        return len(self._edges) // 2
