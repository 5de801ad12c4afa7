"""Runs with a known difference, made as rows: latencies in bursts, slow and quick drifts, errors.

What happens in a run depends on its seed alone; a change is put into the rows of one.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dissector.compare.lake_run import Clock, taken
from dissector.compare.runs import Run
from dissector.report.numbers import NS_PER_S
from tests.numbers import Numbers

Floats = npt.NDArray[np.float64]
_BEGIN_NS: Final = 1_700_000_000 * NS_PER_S
TOPICS: Final = ("persistent://public/default/orders", "persistent://public/default/payments")


class Story(NamedTuple):
    """A run. sends: how many; seconds: how long it lasts; drift: of latency, as a share of it, over
    `drift_s` seconds; stalls: per second, each of some 100 ms; refused: share of sends; later: what
    every latency is longer by, as a share."""

    sends: int = 6_000
    seconds: float = 120.0
    drift: float = 0.1
    drift_s: float = 0.5
    stalls: float = 0.1
    refused: float = 0.002
    redelivered: float = 0.005
    later: float = 0.0


def _drift(random: np.random.Generator, story: Story, times: Floats) -> Floats:
    """What a latency is longer by at its time: a walk that comes back."""
    step_s = story.drift_s / 20
    keeps = np.exp(-step_s / story.drift_s)
    steps = int(story.seconds / step_s) + 2
    noise = random.standard_normal(steps) * np.sqrt(1 - keeps**2)
    found = np.empty(steps)
    found[0] = random.standard_normal()
    for at in range(1, steps):
        found[at] = keeps * found[at - 1] + noise[at]
    result: Floats = np.exp(story.drift * found[(times / step_s).astype(int)])
    return result


def made(seed: int, story: Story) -> Run:
    """The run of a seed, by the queries that users get."""
    numbers = Numbers()
    for table, rows in tables(seed, story).items():
        numbers.add(table, rows)
    last_ns = _BEGIN_NS + int(story.seconds * NS_PER_S)
    found = taken(numbers.opened(), Clock([(_BEGIN_NS, last_ns)]), f"run {seed}")
    return found._replace(coverage={"span_ns": last_ns - _BEGIN_NS})


def tables(seed: int, story: Story) -> dict[str, pa.Table]:
    """The rows of a run: exchanges and deliveries."""
    random = np.random.default_rng(seed)
    count = story.sends
    # Sends come in bursts of some ten: half of the gaps are hardly any.
    gaps = random.exponential(1.0, count) * np.where(random.random(count) < 0.8, 0.05, 4.8)
    times = np.cumsum(gaps)
    times *= story.seconds * 0.999 / times[-1]
    latency = 0.002 * np.exp(0.25 * random.standard_normal(count))
    latency *= _drift(random, story, times)
    for begin in random.uniform(0, story.seconds, random.poisson(story.stalls * story.seconds)):
        end = begin + random.exponential(0.1)
        waits = (times >= begin) & (times < end)
        latency[waits] += end - times[waits]
    latency_ns = np.rint(latency * (1 + story.later) * 1e6).astype(np.int64) * 1000
    sent_ns = _BEGIN_NS + np.rint(times * 1e6).astype(np.int64) * 1000
    is_refused = random.random(count) < story.refused
    of = random.integers(0, 2, count)
    topics = pa.array(np.array(TOPICS)[of])
    places = pa.array(np.arange(count))
    connections = pa.array(of)
    ones = pa.array(np.ones(count, np.int64))
    transmit_ns = 1000 * random.integers(0, 9, count)
    exchanges = pa.table({
        "connection_id": connections, "kind": pa.array(["publish"] * count),
        "request_command": pa.array(["SEND"] * count), "request_frame_no": places,
        "request_first_ns": sent_ns - transmit_ns, "request_last_ns": sent_ns,
        "response_last_ns": sent_ns + latency_ns, "latency_ns": latency_ns,
        "transmit_ns": transmit_ns,
        "outcome": pa.array(np.where(is_refused, "error", "ok")), "topic": topics,
        "producer_name": pa.array(["p"] * count), "producer_id": connections,
        "incarnation": pa.array(np.zeros(count, np.int64)), "sequence_id": places,
        "attempt": ones, "message_count": ones,
    })  # fmt: skip
    takes_ns = latency_ns + np.rint(random.gamma(4.0, 0.2, count) * 1e3).astype(np.int64) * 1000
    acks_ns = np.rint(random.exponential(5.0, count) * 1e3).astype(np.int64) * 1000
    deliveries = pa.table({
        "connection_id": connections, "frame_no": places,
        "ts": pa.array((sent_ns + takes_ns) // 1000).cast(pa.timestamp("us", "UTC")),
        "topic": topics, "subscription": pa.array(["s"] * count), "message_count": ones,
        "is_redelivered": pa.array(random.random(count) < story.redelivered),
        "outcome": pa.array(["acked"] * count), "ack_latency_ns": acks_ns,
        "publish_to_delivery_ns": takes_ns,
    })  # fmt: skip
    return {"exchanges": exchanges, "deliveries": deliveries}
