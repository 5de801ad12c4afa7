"""Requests that are no publishes, row by row: round trips by command, and the steps of setting up.

The rows of `exchanges` do not say who asked. That matters for PING alone, which both sides send:
the frames seen before say it.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.limits import NULL
from dissector.report.parts import SETUP, SETUP_COMMANDS
from dissector.report.rows import Rows
from dissector.report.tallies import REQUESTS, Accumulator, concat

MAX_KEYS: Final = 1 << 19
MAX_PINGS: Final = 1 << 17  # pings of clients whose answer is still to come
MAX_STEPS: Final = 1 << 17  # requests by which clients find their broker and open something


class RoundTrips:
    """Round trips by command, and one row per step of setting up."""

    def __init__(self) -> None:
        self._requests = Accumulator(REQUESTS, MAX_KEYS)
        self._pings: dict[tuple[Any, ...], None] = {}
        self._steps: list[pa.Table] = []
        self._step_rows = 0
        self._left_out = 0

    def add_frames(self, rows: Rows) -> None:
        """Remember which pings went to the broker, from rows of `frames`."""
        rows = rows.where(rows.equals("command", "PING") & rows.equals("direction", "to_broker"))
        if len(rows) == 0:
            return
        names = (rows.numbers(name).tolist() for name in ("connection_id", "frame_no"))
        for key in zip(*names, strict=True):
            self._pings[(rows.capture, *key)] = None
        while len(self._pings) > MAX_PINGS:
            del self._pings[next(iter(self._pings))]

    def _askers(self, rows: Rows) -> pa.Array:
        """Who asked, for pings only: client or broker."""
        is_ping = rows.equals("request_command", "PING")
        found: list[str | None] = [None] * len(rows)
        if is_ping.any():
            connections = rows.numbers("connection_id").tolist()
            frames = rows.numbers("request_frame_no").tolist()
            for place in np.flatnonzero(is_ping).tolist():
                key = (rows.capture, connections[place], frames[place])
                is_of_client = self._pings.pop(key, False) is None
                found[place] = "client" if is_of_client else "broker"
        return pa.array(found, pa.string())

    def add(self, rows: Rows) -> None:
        """Take in rows of `exchanges`; publishes are left out."""
        rows = rows.where(~rows.equals("kind", "publish"))
        if len(rows) == 0:
            return
        latency = rows.numbers("latency_ns")
        is_timed = rows.equals("outcome", "ok", "error") & (latency != NULL)
        self._requests.add(
            {
                **rows.columns("connection_id", "kind", "request_command", "outcome"),
                "asked_by": self._askers(rows),
                "bucket": pa.array(rows.numbers("latency_bucket"), mask=~is_timed),
                "requests": pa.array(np.ones(len(rows), np.int64)),
                "tainted": pa.array(rows.flags("tainted").astype(np.int64)),
                "latencies": pa.array(is_timed.astype(np.int64)),
                "latency_ns": pa.array(latency, mask=~is_timed),
            }
        )
        is_step = rows.equals("request_command", *SETUP_COMMANDS)
        is_step &= rows.numbers("request_first_ns") != NULL
        if is_step.any():
            places = np.flatnonzero(is_step)
            room = MAX_STEPS - self._step_rows
            self._left_out += max(0, len(places) - room)
            self._steps.append(rows.take(places[:room]).kept(SETUP))
            self._step_rows += min(len(places), room)

    def tables(self) -> dict[str, pa.Table]:
        """The tally and the steps."""
        return {"requests": self._requests.settle(), "setup": concat(self._steps, SETUP)}

    def limits(self) -> dict[str, int]:
        """What was left out."""
        return {
            "summary_keys_limit": self._requests.left_out,
            "summary_setup_limit": self._left_out,
        }
