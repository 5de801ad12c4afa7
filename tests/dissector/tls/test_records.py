"""Where records begin, and which packet carried which of their plain bytes."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.stream import columns
from dissector.tls import records
from dissector.tls.records import RecordStream, StreamRange, shares
from tests.wire import tls

BOTH = columns.STARTS_PACKET | columns.ENDS_PACKET


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 60), st.integers(5, 13)
)
def test_plain_bytes_are_shared_out_among_all_packets(
    sizes: list[int], plain: int, lead: int
) -> None:
    end = sum(sizes)
    plain = max(1, min(plain, end - lead))
    pieces, at = [], 0
    for number, size in enumerate(sizes):
        pieces.append(StreamRange(at, at + size, number, number * 10, BOTH))
        at += size
    spans = shares(pieces, 0, end, lead, plain)
    assert sum(span.size for span in spans) == plain and all(span.size > 0 for span in spans)
    packets = [span.packet for span in spans]
    assert packets == sorted(set(packets)) and packets[-1] == len(sizes) - 1
    if plain >= len(sizes):
        assert packets == list(range(len(sizes)))
    elif plain > 1:
        assert packets[0] == 0


def test_a_header_says_a_length_or_nothing() -> None:
    assert records.body_bytes(memoryview(b"\x17\x03\x03\x00\x10")) == 16
    for odd in (b"\x13\x03\x03\x00\x10", b"\x17\x04\x03\x00\x10", b"\x17\x03\x03\xff\xff"):
        assert records.body_bytes(memoryview(odd)) == -1


@given(st.integers(0, 60), st.integers(1, 30))
def test_behind_a_hole_each_place_of_a_record_is_found_once(noise: int, cut: int) -> None:
    stream = RecordStream()
    stream.begin_search(1000)
    record = tls.record(23, b"x" * 25)
    data = bytes(noise) + record * 3
    found = []
    for at in range(0, len(data), cut):
        part = data[at : at + cut]
        stream.add(StreamRange(1000 + at, 1000 + at + len(part), 0, 0, 0), memoryview(part))
        found += [stream.start + place for place in stream.candidates(17)]
        stream.forget_searched()
    assert found == [1000 + noise + len(record) * number for number in range(3)]
