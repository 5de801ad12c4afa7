"""A conversation between a Pulsar client and its broker, as packets that a test may damage.

`Tape` keeps the packets of one connection in a list: a case reorders, drops, copies, cuts or wraps
them and writes a capture. `dissected` gives the rows that come of a capture.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.plain import rows_of_block
from tests.wire import packets, pulsar
from tests.wire.captures import ETHERNET, Record, pcap
from tests.wire.packets import ACK, FIN, PSH, SYN

Row = dict[str, Any]
Tables = dict[str, list[Row]]

START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
MSS = 1448
TOPIC = "persistent://public/default/hard"


class Packet(NamedTuple):
    """One packet of a connection, not yet wrapped into IP.

    options: of TCP; is_damaged: its last byte is not what its checksum says.
    """

    ts_ns: int
    to_broker: bool
    sequence: int
    acknowledgement: int
    flags: int
    payload: bytes = b""
    window: int = 65535
    options: bytes = b""
    identification: int = 1
    hop_limit: int = 64
    is_damaged: bool = False


class Tape:
    """Packets of one connection in the order of their capture.

    packets: to be changed freely; sent: by direction (0 to the broker) all bytes of the stream;
    frames: by direction the frames that were said, whole.
    """

    def __init__(
        self,
        *,
        isn: tuple[int, int] = (1000, 500_000),
        client: tuple[str, int] = (packets.CLIENT, packets.CLIENT_PORT),
        broker: tuple[str, int] = (packets.BROKER, packets.BROKER_PORT),
        mss: int = MSS,
        start_ns: int = START_NS,
    ) -> None:
        self.client, self.broker, self.mss = client, broker, mss
        self.now = start_ns
        self.packets: list[Packet] = []
        self.next = list(isn)
        self.sent = [bytearray(), bytearray()]
        self.frames: list[list[bytes]] = [[], []]
        self._identification = [0, 30_000]

    def add(self, to_broker: bool, flags: int, payload: bytes = b"", **fields: Any) -> Packet:
        """A packet at the place where its stream is; SYN and FIN take a sequence number."""
        side = 0 if to_broker else 1
        self._identification[side] += 1
        packet = Packet(
            self.now,
            to_broker,
            self.next[side] & 0xFFFF_FFFF,
            self.next[1 - side] & 0xFFFF_FFFF if flags & ACK else 0,
            flags,
            payload,
            identification=self._identification[side] & 0xFFFF,
            **fields,
        )
        self.packets.append(packet)
        self.next[side] += len(payload) + bool(flags & SYN) + bool(flags & FIN)
        self.now += STEP_NS
        return packet

    def open(self) -> None:
        """The handshake of TCP."""
        self.add(True, SYN)
        self.add(False, SYN | ACK)
        self.add(True, ACK)

    def close(self, by_broker: bool = False) -> None:
        """FIN of both sides."""
        self.add(not by_broker, FIN | ACK)
        self.add(by_broker, FIN | ACK)
        self.add(not by_broker, ACK)

    def say(self, to_broker: bool, data: bytes, is_acked: bool = True) -> None:
        """Bytes in segments of at most `mss`, acknowledged by the other side after the last."""
        self.sent[not to_broker] += data
        for start in range(0, len(data), self.mss):
            piece = data[start : start + self.mss]
            is_last = start + self.mss >= len(data)
            self.add(to_broker, ACK | (PSH if is_last else 0), piece)
        if is_acked:
            self.add(not to_broker, ACK)

    def frame(self, to_broker: bool, frame: bytes, is_acked: bool = True) -> None:
        """One frame in segments of its own."""
        self.frames[not to_broker].append(frame)
        self.say(to_broker, frame, is_acked)

    def connect(self, max_message_bytes: int | None = None) -> None:
        """CONNECT, CONNECTED and a producer with id 1 on TOPIC."""
        limit = {} if max_message_bytes is None else {"max_message_size": max_message_bytes}
        self.frame(True, simple("CONNECT", client_version="hard-1", protocol_version=21))
        self.frame(
            False, simple("CONNECTED", server_version="broker-1", protocol_version=21, **limit)
        )
        self.frame(True, simple("PRODUCER", topic=TOPIC, producer_id=1, request_id=1))
        self.frame(False, simple("PRODUCER_SUCCESS", request_id=1, producer_name="p"))

    def publish(self, sequence_id: int, payload: bytes) -> None:
        """SEND and its receipt."""
        self.frame(True, send(sequence_id, payload))
        self.frame(False, receipt(sequence_id))

    def records(self, wrap: Callable[[bytes, Packet], bytes] | None = None) -> list[Record]:
        """The packets as Ethernet frames. wrap: from an IP packet to a captured packet."""
        return [Record(each.ts_ns, self.whole(each, wrap)) for each in self.packets]

    def whole(self, packet: Packet, wrap: Callable[[bytes, Packet], bytes] | None = None) -> bytes:
        """One packet with all its headers."""
        whole = packets.segment(
            packet.payload,
            to_broker=packet.to_broker,
            client=self.client,
            broker=self.broker,
            sequence=packet.sequence,
            acknowledgement=packet.acknowledgement,
            flags=packet.flags,
            window=packet.window,
            options=packet.options,
            identification=packet.identification,
            hop_limit=packet.hop_limit,
        )
        if packet.is_damaged:
            whole = whole[:-1] + bytes([whole[-1] ^ 0x40])
        return whole if wrap is None else wrap(whole[14:], packet)


def simple(name: str, **fields: Any) -> bytes:
    """A frame without payload."""
    return pulsar.simple(pulsar.command(name, **fields))


def send(sequence_id: int, payload: bytes, producer_id: int = 1) -> bytes:
    """A SEND with a right checksum."""
    return pulsar.send(
        payload,
        metadata_fields={"sequence_id": sequence_id, "publish_time": 1_700_000_000_000},
        producer_id=producer_id,
        sequence_id=sequence_id,
    )


def receipt(sequence_id: int, producer_id: int = 1) -> bytes:
    """The receipt of a SEND, stored as entry `sequence_id` of ledger 7."""
    place = {"ledgerId": 7, "entryId": sequence_id}
    return simple(
        "SEND_RECEIPT", producer_id=producer_id, sequence_id=sequence_id, message_id=place
    )


def talk(
    sends: int = 20, seed: int = 1, sizes: Sequence[int] = (5, 400, 3000), **fields: Any
) -> Tape:
    """A whole conversation: handshake, CONNECT, PRODUCER, sends with receipts, close."""
    chance = random.Random(seed)
    tape = Tape(**fields)
    tape.open()
    tape.connect()
    for number in range(sends):
        tape.publish(number, chance.randbytes(chance.choice(sizes)))
    tape.close()
    return tape


def capture(records: Iterable[Record], link_type: int = ETHERNET, snaplen: int = 262_144) -> bytes:
    """A pcap file of captured packets."""
    return pcap(records, link_type=link_type, snaplen=snaplen)


def dissected(data: bytes | Sequence[bytes], **options: Any) -> Tables:
    """All rows of a capture, or of a chain of capture files, by table, as dictionaries."""
    files = [data] if isinstance(data, bytes) else data
    tables: Tables = {}
    with TemporaryDirectory() as folder:
        names = []
        for number, each in enumerate(files):
            path = Path(folder) / f"tape_{number:05}_20231114.pcap"
            path.write_bytes(each)
            names.append(str(path))
        (chain,) = chains(names, "all").chains
        for block in dissect(chain, Options(**options)):
            tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


def commands(tables: Tables, direction: str | None = None) -> list[str]:
    """The commands of the frames, in order, of one direction or both."""
    return [
        row["command"]
        for row in tables["frames"]
        if direction is None or row["direction"] == direction
    ]


def codes(tables: Tables) -> list[str]:
    """The codes of the notices, in order."""
    return [row["code"] for row in tables["notices"]]
