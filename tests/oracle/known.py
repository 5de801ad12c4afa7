"""Where the oracle and the program differ, by name, and why: what is not listed here is a fault.

A line goes when its reason does: the test fails for a difference that is not there, too.
"""

from typing import Final, NamedTuple

from tests.oracle.facts import Difference


class Known(NamedTuple):
    """Differences of one capture with one reason. rows: by table and column, how many."""

    capture: str
    reason: str
    rows: dict[tuple[str, str], int]

    def differences(self) -> list[Difference]:
        """One by one."""
        return [Difference(self.capture, *place, count) for place, count in self.rows.items()]


# Columns that the oracle does not make, and why not.
NOT_MADE: Final = {
    ("exchanges", "origin_capture"): "joining alone fills it",
    ("deliveries", "origin_capture"): "joining alone fills it",
    ("permits", "origin_capture"): "joining alone fills it",
    ("deliveries", "lag"): "what the broker adds to a MESSAGE is in no column of frames",
}
IN_SAMPLES: Final[tuple[Known, ...]] = ()
_SENT_BEFORE: Final = ("deliveries", "publish_to_delivery_ns")
RECEIPTS_LATE: Final = (
    "a connection waits at a hole for what it misses while others go on: its receipts come when the"
    " deliveries of their entries are written"
)
# By the share of packets that is missing.
IN_LOSSY: Final = {
    lost: (Known("cpp-c40_killed_Shared.pcap", RECEIPTS_LATE, {_SENT_BEFORE: rows}),)
    for lost, rows in ((0.03, 23), (0.1, 22))
}
