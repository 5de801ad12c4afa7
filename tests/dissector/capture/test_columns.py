"""The shared state of the scans."""

from dissector.capture.columns import (
    InterfaceColumns,
    load32,
    new_scan_state,
)
from dissector.limits import NULL
from tests.dissector.codecs.test_integers import as_array


def test_no_time_was_seen_at_first():
    assert new_scan_state().last_ts_ns[0] == NULL


def test_interfaces_start_without_usable_time():
    assert InterfaceColumns.new(3).multiplier.tolist() == [0, 0, 0]


def test_load_follows_the_byte_order():
    data = as_array(b"\x01\x02\x03\xff")
    assert load32(data, 0, 1) == 0x010203FF
    assert load32(data, 0, 0) == 0xFF030201
