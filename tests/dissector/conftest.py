"""What the captures of random clients show and the program does not tell right yet.

A test that passes takes its line with it: the marks are strict.
"""

from typing import Final

import pytest

# By test and capture; what else names the case, or nothing.
UNMENDED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    # Traced: an ack that was cut before a request to redeliver everything (`redelivery_requested`
    # is told, 80 rows); a delivery that was cut between a seek and another one (cause `seek`); a
    # close that was cut (`conn_closed`, and causes). The same is to be expected of what was lost,
    # or is on another connection.
    "test_what_is_told_is_what_the_whole_packets_tell": {
        "batches-12": ("120", "200", "400"),
        "chunks-12": ("120", "200", "400"),
        "closes-11": ("120", "200", "400"),
        "cumulative-11": ("96", "120", "200", "400"),
        "kills-11": ("96", "120"),
        "late_acks-24": ("96", "120", "200"),
        "redeliver-11": ("120", "200", "400"),
        "seeks-12": ("120", "200"),
    },
    "test_what_is_told_is_what_all_connections_tell": {
        "chunks-12": ("",), "closes-11": ("",), "redeliver-11": ("",),
    },
    "test_balances_and_causes_that_are_told_are_right": {
        "closes-11": ("0.02-0", "0.15-0", "0.15-2"),
        "cumulative-11": ("0.15-0",),
        "redeliver-11": ("0.02-1", "0.02-2", "0.15-1"),
        "seeks-12": ("0.02-1", "0.15-1", "0.15-2"),
    },
    # Acks and deliveries before the first packet decide what becomes of the ones behind it.
    "test_what_is_told_is_what_the_whole_capture_tells": {
        "batches-12": ("",), "chunks-12": ("",), "closes-11": ("",), "late_acks-24": ("",),
        "redeliver-11": ("",), "seeks-12": ("",),
    },
    "test_what_is_told_so_far_is_what_the_whole_capture_tells": {"late_acks-24": ("",)},
    # Joined parts know more, or less, than the whole with its holes.
    "test_parts_of_a_lossy_capture_tell_what_the_whole_does": {
        "closes-11": ("0.02-0", "0.1-0", "0.1-1"),
        "redeliver-11": ("0.02-0", "0.1-0"),
        "seeks-12": ("0.1-1",),
    },
    # Reports of parts of the time.
    "test_parts_of_the_time_add_up_to_the_whole": {"batches-12": ("",), "closes-11": ("",)},
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    names = {
        f"{test}[pulsar-random/{capture}.pcap.gz{case and '-'}{case}]"
        for test, captures in UNMENDED.items()
        for capture, cases in captures.items()
        for case in cases
    }
    for item in items:
        if item.name in names:
            item.add_marker(pytest.mark.xfail(reason="known, not mended", strict=True))
