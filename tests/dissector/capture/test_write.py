"""What is written reads back, by our reader and by another one."""

import io

import dpkt
from hypothesis import given
from hypothesis import strategies as st

from dissector.capture.write import interface_block, packet_block, section_block
from tests.dissector.capture.reading import read_capture

packets = st.lists(
    st.tuples(st.integers(0, (1 << 62) - 1), st.binary(max_size=50), st.integers(0, 9), st.text()),
    max_size=5,
)


@given(found=packets, comment=st.text())
def test_written_packets_read_back(found, comment):
    file = section_block(comment, "tests") + interface_block(1) + interface_block(276, 96, "any")
    for ts_ns, data, more, text in found:
        file += packet_block(data, ts_ns, len(data) + more, more % 2, [text])
    reading = read_capture([file])
    assert reading.facts[0].problems == ()
    assert reading.facts[0].link_types == (1, 276)
    assert [(p.ts_ns, p.data, p.wire_bytes, p.interface) for p in reading.packets] == [
        (ts_ns, data, len(data) + more, more % 2) for ts_ns, data, more, _ in found
    ]


def test_another_reader_understands_it():
    file = section_block("made by a test") + interface_block(113, 0, "any")
    file += packet_block(b"abc", 1_700_000_000_123_456_789, 3, comments=["first"])
    reader = dpkt.pcapng.Reader(io.BytesIO(file))
    assert reader.datalink() == 113
    [(seconds, data)] = list(reader)
    assert data == b"abc" and abs(seconds - 1_700_000_000.123456789) < 1e-6


def test_long_comments_are_cut_at_a_character():
    block = packet_block(b"", 0, 0, comments=["\N{EURO SIGN}" * 30_000])
    assert len(block) <= 32 + 4 + 65536 + 4
    file = section_block() + interface_block(1) + block
    assert read_capture([file]).facts[0].problems == ()
