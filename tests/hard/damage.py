"""Damage to the packets of a capture, from a seed: loss, order, copies, cuts."""

import random
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.naive.packets import NaiveSegment, segments

_RECORD = struct.Struct("<IIII")
_FILE_HEADER_BYTES = 24


class Captured(NamedTuple):
    """One record of a pcap file: seconds and fraction, length on the wire, captured bytes."""

    seconds: int
    fraction: int
    wire_bytes: int
    data: bytes


class Tap(NamedTuple):
    """A pcap file of a little-endian machine in memory. header: its first 24 bytes."""

    header: bytes
    records: list[Captured]

    @classmethod
    def read(cls, data: bytes) -> "Tap":
        """A file's bytes."""
        records = []
        at = _FILE_HEADER_BYTES
        while at < len(data):
            seconds, fraction, size, wire = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            records.append(Captured(seconds, fraction, wire, data[at : at + size]))
            at += size
        return cls(data[:_FILE_HEADER_BYTES], records)

    def bytes(self) -> bytes:
        """The file."""
        return self.header + b"".join(
            _RECORD.pack(each.seconds, each.fraction, len(each.data), each.wire_bytes) + each.data
            for each in self.records
        )

    def segments(self) -> list[NaiveSegment]:
        """Its TCP packets."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tap.pcap"
            path.write_bytes(self.bytes())
            return segments(str(path))

    def without(self, share: float, seed: int) -> "Tap":
        """A share of the packets was never captured."""
        chance = random.Random(seed)
        return Tap(self.header, [each for each in self.records if chance.random() >= share])

    def shuffled(self, reach_ms: float, seed: int) -> "Tap":
        """Each packet is captured up to so many milliseconds too late."""
        chance = random.Random(seed)
        scale = 1_000 if self.header[:4] == b"\x4d\x3c\xb2\xa1" else 1
        late = [
            (each.seconds * 1_000_000 + each.fraction / scale) + chance.random() * reach_ms * 1000
            for each in self.records
        ]
        order = sorted(range(len(self.records)), key=lambda place: (late[place], place))
        captured = []
        for place in order:
            seconds, micros = divmod(int(late[place]), 1_000_000)
            each = self.records[place]
            captured.append(Captured(seconds, micros * scale, each.wire_bytes, each.data))
        return Tap(self.header, captured)

    def doubled(self, share: float, seed: int) -> "Tap":
        """A share of the packets is there twice, the copy right behind."""
        chance = random.Random(seed)
        found = []
        for each in self.records:
            found += [each, each] if chance.random() < share else [each]
        return Tap(self.header, found)

    def snapped(self, snaplen: int) -> "Tap":
        """No record has more than so many bytes."""
        return Tap(self.header, [each._replace(data=each.data[:snaplen]) for each in self.records])
