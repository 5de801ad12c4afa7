"""Every sample as if its capture had begun anywhere, with its topics unloaded at its end."""

import pytest

from tests.accounting import check
from tests.anycut import bytes_of
from tests.dissector.observed import CAPTURES, Case, few_cases, name_of
from tests.fuzz.seeds import MOST_BYTES
from tests.fuzz.targets import rows_of
from tests.wire.recut import is_pcap
from tests.wire.unloads import Opened, opened_in, packet_count, small, unloaded

SAMPLES = few_cases([
    Case(path.parent.name, path.name)
    for path in CAPTURES.glob("*/*.pcap*")
    if is_pcap(bytes_of(path))
])  # fmt: skip
SHARES = (0, 3, 40, 80)  # percent of the packets that are left out; 3 or more
KEPT = 300  # packets at most


def cut_and_checked(data: bytes, opened: list[Opened], first: int) -> int:
    """Dissect what begins there; returns how many frames there are behind the unload."""
    tables = rows_of(unloaded(data, opened, first, first + KEPT))
    check(tables)
    return len(tables.get("frames", []))


@pytest.mark.parametrize("case", SAMPLES, ids=name_of)
def test_a_capture_that_begins_anywhere_ends_and_adds_up(case: Case) -> None:
    data = bytes_of(case.path)
    opened = opened_in(rows_of(data))
    count = packet_count(data)
    for share in SHARES:
        cut_and_checked(data, opened, max(count * share // 100, 3 if share else 0))
    seed = small(data, opened, MOST_BYTES)
    check(rows_of(seed))


def test_the_unload_is_read() -> None:
    """What is said behind the last packet are frames of the connection."""
    data = bytes_of(CAPTURES / "pulsar-apache" / "java-j01_plain.pcap")
    opened = opened_in(rows_of(data))
    first = packet_count(data) // 2
    without = len(rows_of(unloaded(data, [], first, first + KEPT))["frames"])
    assert cut_and_checked(data, opened, first) >= without + 5 * len(opened) > without
