"""Every type of subscription with every style of acknowledgement, and what is left open."""

from pathlib import Path

import pytest

from tests.busy.subscriptions import Consumed, every, write_consumed
from tests.busy.test_busy import tables_of

COUNT, LAG = 2_000, 500


@pytest.mark.parametrize("kind", every(LAG), ids=lambda kind: kind.name)
def test_what_is_acknowledged_is_what_the_broker_takes(tmp_path: Path, kind: Consumed) -> None:
    path = tmp_path / "consumed.pcap"
    write_consumed(path, kind, COUNT)
    tables = tables_of(path)
    assert {row["subscription_type"] for row in tables["deliveries"]} == {kind.type}
    assert len(tables["deliveries"]) == COUNT and len(tables["acks"]) == COUNT - kind.lag
    outcomes = [row["outcome"] for row in tables["deliveries"]]
    # Brokers ignore cumulative ACKs on shared subscriptions.
    is_ignored = kind.style == "cumulative" and "hared" in kind.type
    assert outcomes.count("acked") == (0 if is_ignored else COUNT - kind.lag)
