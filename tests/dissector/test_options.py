"""Options of a dissection, and which commands have flags of them."""

import json
from collections import Counter

import pytest

from dissector import limits
from dissector.options import LANDING, READING, Options, flags
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.busy.pending import write_pending
from tests.plain import rows_of_block


def test_every_option_with_a_flag_has_it_in_one_kind_of_command() -> None:
    reading, landing = ({each.name for each in flags(kind)} for kind in (READING, LANDING))
    assert landing == {"properties", "payload_sha256", "max_packets"}
    assert not reading & landing
    without = {"want_detail", "want_clients", "follow_connection", "hash_key"}
    assert set(vars(Options())) - reading - landing == without


def test_a_manifest_has_all_options_as_json() -> None:
    told = json.loads(json.dumps(Options(decode_as={80: "cursus", 9: "pulsar"}).as_json()))
    assert list(told["decode_as"]) == ["9", "80"]
    assert told.keys() == vars(Options()).keys() - {"hash_key", "want_clients", "keylog"}


def test_bounds_of_state_shrink_in_proportion_to_the_memory_and_never_grow() -> None:
    assert Options().bounded(1 << 20) == 1 << 20
    sizes = [Options(memory_limit=size << 20).bounded(1 << 20) for size in range(0, 8000, 100)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (limits.LEAST_STATE_ROWS, 1 << 20)
    half = Options(memory_limit=limits.LEAST_MEMORY_BYTES + limits.STATE_BYTES // 2)
    assert half.bounded(1 << 20) == 1 << 19
    assert Options(memory_limit=1).bounded(10) == 10


@pytest.mark.parametrize(("memory", "evicted"), [(None, 0), (1, 5000 - limits.LEAST_STATE_ROWS)])
def test_sends_beyond_a_memory_limit_are_given_up_and_said(tmp_path, memory, evicted) -> None:
    capture = tmp_path / "waiting.pcap"
    write_pending(capture, "outstanding sends", 5000)
    (chain,) = chains([str(capture)]).chains
    rows: dict[str, list[dict]] = {"exchanges": [], "notices": []}
    for block in dissect(chain, Options(memory_limit=memory)):
        if block.table in rows:
            rows[block.table] += rows_of_block(block)
    sends = (row for row in rows["exchanges"] if row["request_command"] == "SEND")
    outcomes = Counter(row["outcome"] for row in sends)
    assert outcomes.total() == 5000 and outcomes["evicted"] == evicted
    assert any("limit" in row["code"] for row in rows["notices"]) == bool(evicted)
