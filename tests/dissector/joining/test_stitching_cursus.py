"""Captures of Cursus that are stitched have the rows of the whole, but for places and lags."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dissector.joining import stitching, stitching_cursus
from dissector.joining.closing import CLOSED
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import parts, read
from tests.dissector.joining.test_closing import rows_of, whole
from tests.dissector.joining.test_stitching import joined, land, landed
from tests.dissector.test_lost_packets import whole as sample_of
from tests.dissector.test_one_direction import one_way
from tests.hard.damage import Tap
from tests.split import quiet_places

# Sample, in how many parts, by a seed: redeliveries after a crash, rebalances, transactions,
# requests that wait together, refusals, streams and polls, two copies of a batch.
CUTS = (
    ("go-crash_redelivery_streaming.pcap", 3, 1),
    ("go-crash_redelivery_streaming.pcap", 5, 2),
    ("go-group_rebalance_two_consumers.pcap", 3, 3),
    ("py-eventstore_txn_offsets.pcap", 2, 4),
    ("go-broker_stall_ack_timeout.pcap", 5, 5),
    ("go-consume_streaming.pcap", 3, 6),
    ("py-consume_polling.pcap", 2, 7),
    ("java-produce_acks0.pcap", 3, 8),
    ("raw-commands_all.pcap", 5, 9),
)
# Sample, share of packets that are lost, seed.
LOSSES = (
    ("go-consume_polling.pcap", 0.15, 0),
    ("go-crash_redelivery_streaming.pcap", 0.15, 2),
    ("go-group_rebalance_two_consumers.pcap", 0.15, 1),
    ("go-auth_sasl.pcap", 0.15, 1),
)


@pytest.mark.parametrize(("sample", "count", "seed"), CUTS)
def test_parts_have_the_rows_of_the_whole(
    sample: str, count: int, seed: int, tmp_path: Path
) -> None:
    """Cut where no frame is under way, and landed in any order."""
    name = f"../cursus/{sample}"
    data = read(name)
    land(data, "whole", tmp_path / "whole", tmp_path)
    draw = random.Random(seed)
    quiet = quiet_places(data, tmp_path / "whole")
    pieces = parts(data, sorted(draw.sample(quiet, count - 1)))
    draw.shuffle(pieces)
    tables = joined(landed(tmp_path, pieces), tmp_path / "joined")
    for table in CLOSED:
        mine, theirs = rows_of(tables[table]), rows_of(whole(name)[table])
        assert (mine - theirs, theirs - mine) == (Counter(), Counter()), table


@pytest.mark.parametrize(("sample", "lost", "seed"), LOSSES)
def test_what_holes_hide_is_hidden_behind_a_border(
    sample: str, lost: float, seed: int, tmp_path: Path
) -> None:
    """Commits, and answers to them: their deliveries lie in other captures than the holes."""
    data = Tap.read(read(f"../cursus/{sample}")).without(lost, seed).bytes()
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        theirs = ends_of(lake.table("deliveries"))
    quiet = quiet_places(data, tmp_path / "whole")
    pieces = parts(data, sorted(random.Random(seed).sample(quiet, 2)))
    assert ends_of(joined(landed(tmp_path, pieces), tmp_path / "joined")["deliveries"]) == theirs
    assert any(outcome == "unknown_gap" for *_, outcome in theirs)


def ends_of(deliveries: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = ("ts", "topic", "partition", "entry_id", "outcome")
    return Counter(tuple(row[name] for name in columns) for row in deliveries.to_pylist())


# Streams that are fetched again, streams of events, commits of several groups.
ONE_WAY = (
    "go-batch_lz4_precreated.pcap",
    "go-crash_redelivery_streaming.pcap",
    "go-eventstore.pcap",
    "raw-commands_all.pcap",
    "v010-publisher_consumer.pcap",
)


@pytest.mark.parametrize("sample", ONE_WAY)
def test_parts_without_the_client_have_the_deliveries_of_the_whole(
    sample: str, tmp_path: Path
) -> None:
    data = one_way(*sample_of(f"cursus/{sample}"), "to_client")
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        theirs = rows_of(lake.table("deliveries"))
    quiet = quiet_places(data, tmp_path / "whole")
    pieces = parts(data, sorted(random.Random(1).sample(quiet, 2)))
    mine = rows_of(joined(landed(tmp_path, pieces), tmp_path / "joined")["deliveries"])
    assert mine and not mine - theirs, "captures that nothing joins are not among them"


def test_a_batch_that_is_cut_waits_beside_requests_that_wait(tmp_path: Path) -> None:
    """Requests are sent ahead of answers, and the boundary lies inside a batch among them."""
    name = "../../tests/dissector/joining/raw-pipelined.pcap.gz"
    tables = joined(landed(tmp_path, parts(read(name), [156])), tmp_path / "joined")
    for table in ("exchanges", "deliveries"):
        mine, theirs = rows_of(tables[table]), rows_of(whole(name)[table])
        assert (mine - theirs, theirs - mine) == (Counter(), Counter()), table


def test_an_answer_that_cannot_be_read_behind_a_border_shifts_no_pair(tmp_path: Path) -> None:
    """It lies in what is skipped at the beginning of its capture, where no frame goes on."""
    name = "../cursus/apr26-raw_commands.pcap"
    tables = joined(landed(tmp_path, parts(read(name), [18])), tmp_path / "joined")
    mine, theirs = rows_of(tables["exchanges"]), rows_of(whole(name)["exchanges"])
    ((lost, _),) = (theirs - mine).items()
    ((found, _),) = (mine - theirs).items()
    assert dict(lost)["request_command"] == dict(found)["request_command"] == "LIST"
    assert dict(lost)["outcome"] == "ok" and dict(found)["outcome"] == "lost_in_gap"


def test_what_comes_again_too_often_is_told_by_first_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read("../cursus/go-crash_redelivery_streaming.pcap")
    lake = landed(tmp_path, parts(data, [100]))
    by_ranges = joined(lake, tmp_path / "ranges")["deliveries"]
    assert sum(by_ranges["is_redelivered"].to_pylist()) > 1
    monkeypatch.setitem(stitching.BOUNDS, "{compared}", 0)
    by_offsets = joined(lake, tmp_path / "offsets")["deliveries"]
    assert by_offsets["is_redelivered"].equals(by_ranges["is_redelivered"])
    assert by_offsets["redelivery_cause"].equals(by_ranges["redelivery_cause"])


def test_every_statement_makes_a_table_of_its_own() -> None:
    made = [
        statement.split()[2]
        for step in stitching_cursus.STEPS
        for statement in stitching.statements(step)
    ]
    assert len(made) == len(set(made)) > 20
