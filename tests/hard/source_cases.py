"""Captures whose files are odd: formats, interfaces, clocks, damage, rings, drops."""

import gzip
import lzma
import struct
from collections.abc import Callable, Sequence

import lz4.frame
import zstandard

from tests.hard.cases import case
from tests.hard.tape import START_NS, STEP_NS, Packet, Tape, capture, talk
from tests.wire import captures, packets
from tests.wire.captures import (
    IXIA_HARDWARE,
    IXIA_SOFTWARE,
    LINUX_SLL,
    MICROSECONDS,
    MODIFIED,
    NANOSECONDS,
    RAW,
    Record,
    block,
    enhanced_packet,
    interface,
    option,
    pcap_header,
    pcap_record,
    section,
    simple_packet,
    statistics,
)

SENDS = 6
ORDERS = {"<": "little", ">": "big"}
MAGICS = {
    MICROSECONDS: "microseconds",
    NANOSECONDS: "nanoseconds",
    MODIFIED: "modified",
    IXIA_HARDWARE: "ixia_hardware",
    IXIA_SOFTWARE: "ixia_software",
}
# At the levels that take least time: what they write is read in the same way.
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "zstd": lambda data: zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data),
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
    "xz": lambda data: lzma.compress(data, preset=0),
}
SECRET = b"CLIENT_RANDOM " + b"0123456789abcdef" * 4 + b" " + b"fedcba9876543210" * 6
COMMENT = "kept by the one who captured it"
Y2038_NS = (1 << 31) * 10**9
Y2106_NS = (1 << 32) * 10**9


def conversation() -> Tape:
    """What all captures of this module hold, each in its own way."""
    return talk(SENDS, seed=9)


def records(start_ns: int = START_NS) -> list[Record]:
    """Its packets as Ethernet frames, the first at this time."""
    return talk(SENDS, seed=9, start_ns=start_ns).records()


def _named(id: str, name: str, make: Callable[[], bytes]) -> None:
    make.__name__ = name
    case(id)(make)


# -- B09: magic numbers, versions, compression

for _magic, _name in MAGICS.items():
    for _order, _side in ORDERS.items():
        _named(
            "B09",
            f"{_name}_{_side}",
            lambda magic=_magic, order=_order: captures.pcap(records(), magic=magic, order=order),
        )
for _codec, _compress in COMPRESSORS.items():
    _named("B09", _codec, lambda compress=_compress: compress(capture(records())))


@case("B09")
def lengths_swapped() -> bytes:
    return captures.pcap(records(), version=captures.SWAPPED_LENGTHS)


@case("B09")
def frame_checksum_bits() -> bytes:
    """The upper half of the link type says that 4 bytes of checksum follow each frame."""
    with_checksums = [Record(each.ts_ns, each.data + b"\xfc\xfc\xfc\xfc") for each in records()]
    return captures.pcap(with_checksums, link_type=captures.ETHERNET | 0x2400_0000)


# -- B10: interfaces


def _of_link(record: Record, link_type: int) -> bytes:
    """An Ethernet frame as another link layer has it."""
    if link_type == RAW:
        return record.data[14:]
    if link_type == LINUX_SLL:
        return packets.linux_sll(record.data[14:])
    return record.data


# Link type, resolution, units per second, seconds added, snap length of each interface.
INTERFACES: Sequence[tuple[int, int, int, int, int]] = (
    (captures.ETHERNET, 6, 10**6, 0, 0),
    (RAW, 9, 10**9, 0, 65_535),
    (LINUX_SLL, 0x80 | 20, 1 << 20, 0, 262_144),
    (captures.ETHERNET, 3, 10**3, 1_600_000_000, 0),
)


def _units(ts_ns: int, number: int) -> int:
    _, _, per_second, offset, _ = INTERFACES[number]
    seconds, rest = divmod(ts_ns - offset * 10**9, 10**9)
    return seconds * per_second + -(-rest * per_second // 10**9)


def _interface_block(number: int, order: str = "<") -> bytes:
    link_type, resolution, _, offset, snaplen = INTERFACES[number]
    return interface(
        link_type=link_type, snaplen=snaplen, resolution=resolution, offset_seconds=offset,
        order=order,
    )  # fmt: skip


def _on_interface(record: Record, number: int, order: str = "<") -> bytes:
    data = _of_link(record, INTERFACES[number][0])
    return enhanced_packet(_units(record.ts_ns, number), data, interface_id=number, order=order)


@case("B10")
def several_interfaces() -> bytes:
    """Packets take turns among interfaces of different clocks and link types."""
    heads = [_interface_block(number) for number in range(len(INTERFACES))]
    body = [_on_interface(each, n % len(INTERFACES)) for n, each in enumerate(records())]
    return section() + b"".join(heads + body)


@case("B10")
def interface_after_packets() -> bytes:
    """Each interface is described where its first packet comes."""
    packets = records()
    share = -(-len(packets) // len(INTERFACES))
    out = section()
    for n, each in enumerate(packets):
        if n % share == 0:
            out += _interface_block(n // share)
        out += _on_interface(each, n // share)
    return out


# -- B11: blocks


@case("B11")
def sections_of_both_orders() -> bytes:
    """Two sections, the second of the other byte order, with interfaces numbered anew."""
    packets = records()
    half = len(packets) // 2
    out = section("<") + _interface_block(1, "<") + _interface_block(0, "<")
    first = INTERFACES[1]
    for each in packets[:half]:
        out += enhanced_packet(_units(each.ts_ns, 1), _of_link(each, first[0]))
    out += section(">") + _interface_block(0, ">")
    for each in packets[half:]:
        out += enhanced_packet(_units(each.ts_ns, 0), each.data, order=">")
    return out


@case("B11")
def blocks_of_all_kinds() -> bytes:
    """Names, secrets, statistics, custom and unknown blocks, and comments, between packets."""
    between = [
        block(10, struct.pack("<II", 0x544C534B, len(SECRET)) + SECRET),
        block(4, struct.pack("<HH", 1, 9) + bytes([10, 0, 0, 1]) + b"host\0" + bytes(7)),
        statistics(dropped=0),
        block(0x0BAD, b"\x00\x00\x7e\xd9custom"),
        block(0x4000_0BAD, b"\x00\x00\x7e\xd9custom"),
        block(0x0BAD_F00D, b"what is this"),
        block(9, bytes(20)),
    ]
    comment = option(1, COMMENT.encode()) + option(0, b"")
    out = section(options=comment)
    out += interface(resolution=9, options=option(2, b"tap0") + option(1, b"of the mirror"))
    for n, each in enumerate(records()):
        out += between[n % len(between)]
        out += enhanced_packet(each.ts_ns, each.data, options=comment)
    return out


@case("B11")
def packets_without_time() -> bytes:
    return section() + interface() + b"".join(simple_packet(each.data) for each in records())


# -- B12: damage


@case("B12")
def cut_tail() -> bytes:
    return capture(records())[:-9]


@case("B12")
def cut_tail_of_blocks() -> bytes:
    return captures.pcapng(records())[:-9]


@case("B12")
def captured_longer_than_the_wire() -> bytes:
    return capture([Record(each.ts_ns, each.data, len(each.data) - 3) for each in records()])


@case("B12")
def captured_beyond_the_snap_length() -> bytes:
    return capture(records(), snaplen=60)


@case("B12")
def nothing_captured() -> bytes:
    """Two packets more than the conversation has, of which no byte was kept."""
    packets = records()
    packets.insert(3, Record(packets[3].ts_ns, b"", 60))
    return capture([*packets, Record(packets[-1].ts_ns, b"", 0)])


DAMAGED_RECORD = 12


@case("B12")
def huge_record() -> bytes:
    """The lengths of a record in the middle are absurd."""
    parts = [pcap_record(each) for each in records()]
    head = parts[DAMAGED_RECORD][:8] + struct.pack("<II", 0x7FFF_FFFF, 0x7FFF_FFFF)
    parts[DAMAGED_RECORD] = head + parts[DAMAGED_RECORD][16:]
    return pcap_header() + b"".join(parts)


@case("B12")
def swallowing_record() -> bytes:
    """A record in the middle claims more bytes than the rest of the file has."""
    parts = [pcap_record(each) for each in records()]
    head = parts[DAMAGED_RECORD][:8] + struct.pack("<II", 200_000, 200_000)
    parts[DAMAGED_RECORD] = head + parts[DAMAGED_RECORD][16:]
    return pcap_header() + b"".join(parts)


@case("B12")
def hole_of_zeros() -> bytes:
    """A disk lost the bytes of three records and a half."""
    parts = [pcap_record(each) for each in records()]
    lost = b"".join(parts[DAMAGED_RECORD : DAMAGED_RECORD + 3])
    half = parts[DAMAGED_RECORD + 3]
    parts[DAMAGED_RECORD : DAMAGED_RECORD + 4] = [bytes(len(lost) + 20), half[20:]]
    return pcap_header() + b"".join(parts)


@case("B12")
def huge_block() -> bytes:
    parts = [enhanced_packet(each.ts_ns, each.data) for each in records()]
    broken = parts[DAMAGED_RECORD]
    parts[DAMAGED_RECORD] = broken[:4] + struct.pack("<I", 0x7FFF_FFFC) + broken[8:]
    return section() + interface(resolution=9) + b"".join(parts)


# -- B13: files without packets


@case("B13")
def empty() -> bytes:
    return b""


@case("B13")
def text() -> bytes:
    return b"the capture is on the other machine\n" * 3


@case("B13")
def html() -> bytes:
    return b"<!DOCTYPE html>\n<html><head><title>302 Found</title></head></html>\n"


@case("B13")
def header_only() -> bytes:
    return pcap_header()


@case("B13")
def header_only_of_blocks() -> bytes:
    return section() + interface()


# -- B14: time


@case("B14")
def year_2038() -> bytes:
    """Seconds of 31 bits end in the middle."""
    return capture(records(Y2038_NS - 20 * STEP_NS))


@case("B14")
def year_2106() -> bytes:
    """Seconds of 32 bits end in the middle, as pcapng may say it."""
    return captures.pcapng(records(Y2106_NS - 20 * STEP_NS))


@case("B14")
def before_1970() -> bytes:
    out = section() + interface(resolution=9, offset_seconds=-1_000_000)
    return out + b"".join(enhanced_packet(each.ts_ns, each.data) for each in records(0))


STEP_BACK_NS = 3_600 * 10**9


@case("B14")
def clock_steps_back() -> bytes:
    """Someone sets the clock back by an hour in the middle."""
    packets = records()
    half = len(packets) // 2
    late = [each._replace(ts_ns=each.ts_ns - STEP_BACK_NS) for each in packets[half:]]
    return capture(packets[:half] + late)


@case("B14")
def times_out_of_order() -> bytes:
    """Two queues of a card: every second packet carries a stamp of a little earlier."""
    packets = records()
    return capture(
        [each._replace(ts_ns=each.ts_ns - 2 * STEP_NS * (n % 2)) for n, each in enumerate(packets)]
    )


@case("B14")
def fractions_of_a_second_and_more() -> bytes:
    """Each time is said with one second less and a billion nanoseconds more."""
    out = pcap_header()
    for each in records():
        seconds, rest = divmod(each.ts_ns, 10**9)
        lengths = len(each.data), len(each.data)
        out += struct.pack("<IIII", seconds - 1, rest + 10**9, *lengths) + each.data
    return out


@case("B14")
def times_beyond_all_years() -> bytes:
    """Three packets carry a time that 64 bits of nanoseconds cannot say."""
    packets = records()
    parts = [enhanced_packet(each.ts_ns, each.data) for each in packets]
    for n in (4, 5, 9):
        parts[n] = enhanced_packet((1 << 64) - 5, packets[n].data)
    return section() + interface(resolution=9) + b"".join(parts)


# -- B54: ring files

RING_FILES = 3


def ring_file(number: int) -> bytes:
    """One of the files over which the conversation was spread, in order from 0."""
    packets = records()
    edges = [len(packets) * n // RING_FILES for n in range(RING_FILES + 1)]
    return capture(packets[edges[number] : edges[number + 1]])


for _number in range(RING_FILES):
    _named("B54", f"ring_{_number}", lambda number=_number: ring_file(number))


# -- B61, B62: what the capture lost

DROPPED = 17


@case("B61")
def interface_drops() -> bytes:
    """The statistics of an interface say that it dropped packets; one of them was a segment."""
    packets = records()
    lost = next(n for n, each in enumerate(packets) if len(each.data) > 1400)
    del packets[lost]
    body = b"".join(enhanced_packet(each.ts_ns, each.data) for each in packets)
    drops = statistics(dropped=DROPPED - 4, os_dropped=4)
    return section() + interface(resolution=9) + body + drops


FILTER = b"\0tcp port 6650"


@case("B62")
def filter_without_packets() -> bytes:
    """A port filter on a mirror port whose packets all carry a VLAN tag: nothing passes."""
    return section() + interface(options=option(11, FILTER)) + statistics(dropped=0)


@case("B62")
def filter_with_tags() -> bytes:
    """The same filter written for tagged packets."""

    def tagged(data: bytes, packet: Packet) -> bytes:
        return packets.ethernet(data, vlans=(7,))

    out = section() + interface(
        resolution=9, options=option(11, b"\0vlan and tcp port 6650 or tcp port 6650")
    )
    for each in conversation().records(tagged):
        out += enhanced_packet(each.ts_ns, each.data)
    return out
