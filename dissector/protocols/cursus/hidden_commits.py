"""Times by which commits may be hidden: by missing bytes, or behind missing answers.

A member commits on a connection of its own, or on one for each commit, so a gap affects all earlier
deliveries to its group, on any connection.
"""

from dissector.limits import MAX_GROUP_MEMBERS, NULL


class HiddenCommits:
    """The latest time by which a commit may be hidden, by group, in ns."""

    def __init__(self) -> None:
        self._by_group: dict[int, int] = {}
        self._of_all = self._of_any = -1

    def note(self, group: int, ns: int) -> None:
        """Note a commit that may be hidden. group: NULL if it may be any group's."""
        self._of_any = max(self._of_any, ns)
        if group == NULL or (
            len(self._by_group) >= MAX_GROUP_MEMBERS and group not in self._by_group
        ):
            self._of_all = max(self._of_all, ns)
        else:
            self._by_group[group] = max(self._by_group.get(group, -1), ns)

    def last(self, group: int) -> int:
        """The time up to which a group's (NULL: any) deliveries may be committed, -1 for none."""
        if group == NULL:
            return self._of_any
        return max(self._of_all, self._by_group.get(group, -1))
