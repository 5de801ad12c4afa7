"""Permits of consumers, by the protocol's rules: one object per consumer, row by row.

A consumer has permits from its first FLOW above zero on: deliveries subtract from the balance, and
both sides clear it at a reset (the consumer is closed, or seeks). Time between two rows counts
under the earlier row's balance; while that is unknown, it does not count.

- *exhausted*: time with a balance of 0 or less.
- *stall*: such a time that is long, and that a grant which lifts the balance above 0 ends. If
  messages had waited, one follows that grant soon: it is *confirmed*. One that nothing ended is
  open.
- *quiet*: a long time with permits left and no delivery. A passive observer cannot know why.

Times are µs. A row that is older than the one before it adds no time. Tests compare this with the
queries over a lake (`dissector/queries/permits.sql`), and the tap's, which see a window at a time.
"""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass
class Stall:
    """A time without permits. end_us: None if open; confirmed: None if not judged."""

    start_frame_no: int | None
    start_us: int
    end_frame_no: int | None = None
    end_us: int | None = None
    confirmed: int | None = None


@dataclass
class Balance:
    """The balance of one consumer, from its rows of `permits` in order and the end of its time."""

    rows: list[Row]
    end_us: int | None
    long_us: int
    soon_us: int
    stalls: list[Stall] = field(default_factory=list)
    quiets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        last = self.rows[-1]["ts"] if self.rows else 0
        self.closed_us = last if self.end_us is None else max(last, self.end_us)
        self.balances = self._balances()
        self._find_stalls()
        self._find_quiets()

    def _balances(self) -> list[int | None]:
        """The balance after each row; None if unknown, or the consumer has no permits."""
        balances: list[int | None] = []
        has_permits = False
        for row in self.rows:
            if row["event"] == "reset":
                has_permits = False
            if row["event"] == "grant" and row["delta"] and row["delta"] > 0:
                has_permits = True
            balances.append(row["available_after"] if has_permits else None)
        return balances

    def _find_stalls(self) -> None:
        """Stalls: runs of rows without permits, each with the row that ends it."""
        place = 0
        while place < len(self.rows):
            if not self._is_empty(place):
                place += 1
                continue
            behind = place
            while behind < len(self.rows) and self._is_empty(behind):
                behind += 1
            first = self.rows[place]
            stall = Stall(first["frame_no"], first["ts"])
            if behind == len(self.rows):
                if self.closed_us - stall.start_us >= self.long_us:
                    self.stalls.append(stall)
            else:
                last = self.rows[behind]
                is_lifted = last["event"] == "grant" and self.balances[behind] is not None
                if is_lifted and last["ts"] - stall.start_us >= self.long_us:
                    stall.end_frame_no, stall.end_us = last["frame_no"], last["ts"]
                    stall.confirmed = self._is_followed(behind)
                    self.stalls.append(stall)
            place = behind

    def _is_followed(self, grant: int) -> int:
        """1 if a delivery follows this grant soon, before permits run out again; else 0."""
        for place in range(grant + 1, len(self.rows)):
            row = self.rows[place]
            if row["event"] == "delivery":
                return int(row["ts"] - self.rows[grant]["ts"] <= self.soon_us)
            if row["event"] == "reset" or self._is_empty(place):
                return 0
        return 0

    def _find_quiets(self) -> None:
        """Times with permits left, from the row that left them to a delivery or their end."""
        start: int | None = None
        for row, balance in zip(self.rows, self.balances, strict=True):
            has_left = balance is not None and balance > 0
            if start is not None and (row["event"] == "delivery" or not has_left):
                self.quiets.append(row["ts"] - start)
                start = None
            if start is None and has_left:
                start = row["ts"]
        if start is not None:
            self.quiets.append(self.closed_us - start)
        self.quiets = [each for each in self.quiets if each >= self.long_us]

    def _is_empty(self, place: int) -> bool:
        balance = self.balances[place]
        return balance is not None and balance <= 0

    def _spans(self) -> list[tuple[int, int]]:
        """Balance and duration of the time after each row, if the balance is known."""
        times = [row["ts"] for row in self.rows] + [self.closed_us]
        return [
            (balance, max(0, times[place + 1] - times[place]))
            for place, balance in enumerate(self.balances)
            if balance is not None
        ]

    @property
    def exhausted_us(self) -> int:
        """Time without permits."""
        return sum(passed for balance, passed in self._spans() if balance <= 0)

    def numbers(self) -> dict[str, int | None]:
        """All sums, under the names that `permits.sql` gives them; None where there is no value."""
        changes = [row for row in self.rows if row["event"] != "reset"]
        known = [row for row in changes if row["available_after"] is not None]
        balances = [row["available_after"] for row in known]
        unacked = [row["unacked_after"] for row in changes if row["unacked_after"] is not None]
        grants = [row["delta"] or 0 for row in changes if row["event"] == "grant"]
        quota = next((grant for grant in grants if grant > 0), 0)
        open_us = [self.closed_us - each.start_us for each in self.stalls if each.end_us is None]
        return {
            "grants": len(grants),
            "granted": sum(grants),
            "deliveries": len(changes) - len(grants),
            "delivered": _moved(changes, "delivery"),
            "known_rows": len(known),
            "unknown_rows": len(changes) - len(known),
            "known_granted": _moved(known, "grant"),
            "known_delivered": _moved(known, "delivery"),
            "start_balance": balances[0] - (known[0]["delta"] or 0) if known else 0,
            "first_grant": quota,
            "available_min": min(balances, default=None),
            "available_max": max(balances, default=None),
            "unacked_max": max(unacked, default=None),
            "observed_us": sum(passed for _, passed in self._spans()),
            "occupied": sum(max(0, quota - left) * passed for left, passed in self._spans()),
            "exhausted_us": self.exhausted_us,
            "open_stall_us": sum(open_us),
            "quiet": len(self.quiets),
            "quiet_us": sum(self.quiets),
            "quiet_us_max": max(self.quiets, default=0),
        }


def _moved(rows: list[Row], event: str) -> int:
    """Permits granted by rows of this kind, or spent by deliveries."""
    return sum(abs(row["delta"] or 0) for row in rows if row["event"] == event)
