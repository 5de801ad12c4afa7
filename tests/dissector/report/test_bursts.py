"""Storms of connecting against a plain count of every window."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.report.bursts import SPAN_NS, bursts_of
from dissector.report.names import LEGS

STARTS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["a", "b", None]), st.integers(0, 40), st.booleans()
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(STARTS)
def test_peaks_are_those_of_every_window(starts: list[tuple[int, str | None, int, bool]]) -> None:
    rows = [
        {"connection_id": n, "client_ip": client, "broker_ip": "x", "broker_port": port,
         "first_ts_ns": seconds * SPAN_NS // 10, "capture": "c"}
        for n, (port, client, seconds, _) in enumerate(starts)
    ]  # fmt: skip
    opened = pa.Table.from_pylist(rows, LEGS)
    vain = np.array([is_vain for *_, is_vain in starts])
    found = bursts_of(opened, opened.column("capture").combine_chunks(), vain)
    seen = set()
    for pair, first in enumerate(found.first.tolist()):
        key = (rows[first]["client_ip"], rows[first]["broker_port"])
        mine = [n for n, (port, client, *_) in enumerate(starts) if (client, port) == key]
        times = sorted(rows[n]["first_ts_ns"] for n in mine)
        windows = [(sum(t <= u <= t + SPAN_NS for u in times), -t) for t in times]
        peak, begun = max(windows)
        assert (found.opened[pair], found.vain[pair]) == (len(mine), sum(vain[mine]))
        assert (found.peak[pair], found.at_ns[pair]) == (peak, -begun)
        assert rows[first]["first_ts_ns"] == times[0]
        seen.add(key)
    assert seen == {(client, port) for port, client, *_ in starts}
