"""Section headers, interface descriptions and statistics, also hostile ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.capture.interfaces import Interfaces, packet_comments, read_section
from tests.wire.captures import interface, option, section, statistics


def test_a_section_tells_its_byte_order_length_and_version():
    for order in "<>":
        block = section(order, options=option(1, b"x", order))
        found = read_section(block)
        assert found is not None
        assert (found.order, found.block_bytes, found.is_known) == (order, len(block), True)
        assert not read_section(section(order, major=2)).is_known


@given(noise=st.binary(max_size=60))
def test_noise_is_no_section(noise):
    assert read_section(b"\n\r\r\n" + noise) is None or noise[4:8] in (
        b"\x1a\x2b\x3c\x4d",
        b"\x4d\x3c\x2b\x1a",
    )


@given(noise=st.binary(max_size=80), order=st.sampled_from("<>"))
def test_damaged_descriptions_do_no_harm(noise, order):
    interfaces = Interfaces()
    for block in (interface(order=order), statistics(dropped=1, order=order)):
        mixed = block[:8] + noise + block[-4:]
        interfaces.describe(mixed, order)
        interfaces.count_drops(mixed, order, 0)
    assert interfaces.count <= 2


def test_interfaces_keep_their_values_while_the_table_grows():
    interfaces = Interfaces()
    for number in range(100):
        assert interfaces.add(number, number * 2) == number
    assert interfaces.columns.link_type[:100].tolist() == list(range(100))
    assert interfaces.columns.snaplen[:100].tolist() == list(range(0, 200, 2))


def test_drops_are_null_until_statistics_say_something():
    interfaces = Interfaces()
    interfaces.add(1, 0)
    assert interfaces.dropped_from(0) is None
    interfaces.count_drops(statistics(), "<", 0)
    assert interfaces.dropped_from(0) is None
    interfaces.count_drops(statistics(dropped=0), "<", 0)
    assert interfaces.dropped_from(0) == 0
    assert interfaces.dropped_from(1) is None


def test_an_offset_beyond_nanoseconds_leaves_no_usable_time():
    interfaces = Interfaces()
    number = interfaces.add(1, 0, offset_seconds=1 << 60)
    assert interfaces.columns.multiplier[number] == 0


def test_words_of_an_interface_are_kept():
    interfaces = Interfaces()
    said = [(1, b"of the mirror"), (2, b"tap0"), (11, b"\0tcp port 6650"), (1, b"again")]
    block = interface(options=b"".join(option(*each) for each in said))
    assert interfaces.describe(block, "<")
    assert interfaces.texts == {0: ("tap0", "of the mirror\nagain", "tcp port 6650")}
    assert interfaces.describe(interface(options=option(11, b"\1\2")), "<")
    assert interfaces.texts[1].capture_filter == "02"


@pytest.mark.parametrize("order", ["<", ">"])
def test_comments_of_a_packet_are_found_among_its_options(order):
    options = option(2, bytes(4), order) + option(1, b"one", order)
    options += option(1, b"two", order) + option(0, b"", order)
    assert packet_comments(options + option(1, b"behind the end", order), order) == [
        "one",
        "two",
    ]
