"""Latencies of the view: the report's buckets, bounded in topics."""

import numpy as np

from dissector.blocks import Coded, TableBlock
from dissector.limits import NULL
from dissector.tap.latencies import Latencies


def sends(topics: list[str], latencies_ns: list[int], outcome: str = "ok") -> TableBlock:
    count = len(topics)
    columns = {
        "kind": Coded(np.zeros(count, np.int64), ["publish"]),
        "outcome": Coded(np.zeros(count, np.int64), [outcome]),
        "topic": list(topics),
        "latency_ns": np.array(latencies_ns, np.int64),
    }
    return TableBlock("exchanges", count, columns)


def test_percentiles_are_close_to_the_values():
    values = [int(1.07**power * 1000) for power in range(200)]
    found = Latencies()
    for start in range(0, 200, 7):
        found.add(sends(["t"] * len(values[start : start + 7]), values[start : start + 7]))
    for name, permille in (("p50", 500), ("p99", 990)):
        exact = sorted(values)[-(-200 * permille // 1000) - 1] / 1e6
        assert abs(found.of("t")[name] - exact) <= 0.016 * exact + 0.0005
    assert found.of("t")["count"] == 200 and found.of("nothing")["p50"] is None


def test_only_confirmed_sends_with_a_latency_count():
    found = Latencies()
    found.add(sends(["t", "t"], [NULL, 5]))
    found.add(sends(["t"], [7], outcome="error"))
    assert found.of("t")["count"] == 1


def test_topics_beyond_the_bound_are_counted_together():
    found = Latencies(max_topics=2)
    found.add(sends(["a", "b", "c", "d", "a"], [1, 2, 3, 4, 5]))
    assert [found.of(name)["count"] for name in ("a", "b", "c", "other")] == [2, 1, 0, 2]
