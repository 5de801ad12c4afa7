"""Where commits may be hidden: in bytes that are missing, and behind answers that are.

A member commits on a connection of its own, or on one for each commit, so a hole matters for all
that its group was given before, on whichever connection.
"""

from dissector.limits import MAX_GROUP_MEMBERS, NULL


class HiddenCommits:
    """By group the latest time by which a commit of it may be hidden, in ns."""

    def __init__(self) -> None:
        self._by_group: dict[int, int] = {}
        self._of_all = self._of_any = -1

    def note(self, group: int, ns: int) -> None:
        """One may be hidden. group: NULL if it may be that of any."""
        self._of_any = max(self._of_any, ns)
        if group == NULL or (
            len(self._by_group) >= MAX_GROUP_MEMBERS and group not in self._by_group
        ):
            self._of_all = max(self._of_all, ns)
        else:
            self._by_group[group] = max(self._by_group.get(group, -1), ns)

    def last(self, group: int) -> int:
        """Until when what was given may be committed, -1 for never. group: NULL if unknown."""
        if group == NULL:
            return self._of_any
        return max(self._of_all, self._by_group.get(group, -1))
