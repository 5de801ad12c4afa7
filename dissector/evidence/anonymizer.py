"""Anonymizes the bytes of streams: frames by their protocol, other bytes as a whole."""

import hashlib
import ipaddress
import re
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.siphash import fill_noise, key_of, siphash
from dissector.evidence.streams import Stream
from dissector.packet.rewriting import new_rewriting, other_address
from dissector.protocols import PROTOCOLS, spec_of
from dissector.protocols.framing import HeadVerdict, hello_layout, look
from dissector.protocols.interface import AnonymizerKeys, ProtocolSpec
from dissector.protocols.pseudonyms import Pseudonyms

KEY_BYTES: Final = 32
_RECORD: Final = 5  # head of a TLS record
_HANDSHAKE: Final = 22
_HTTP_START: Final = re.compile(rb"HTTP/[0-9.]*+ ?|[A-Z]++ ")
_HTTP_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# The words of a PROXY header that are neither protocol nor port.
_PROXY_WORD: Final = re.compile(rb"(?<= )(?!(?:TCP4|TCP6|UNKNOWN|\d{1,5})(?: |\Z))[^ ]++")
_LOOKED_AT: Final = 1 << 15


class Keeping(NamedTuple):
    """What is not replaced, besides numbers."""

    addresses: bool = False
    names: bool = False


_NOTHING: Final = Keeping()


def new_key() -> bytes:
    """Return a random key for one run."""
    return secrets.token_bytes(KEY_BYTES)


def _part(key: bytes, use: bytes, size: int) -> bytes:
    return hashlib.blake2b(key=key, person=use, digest_size=size).digest()


def _hide_secrets(
    spec: ProtocolSpec, data: ByteArray, bounds: Int64Array, packed: Sequence[bool]
) -> None:
    is_worth_it = spec.may_hold_secrets(data, bounds, packed).tolist()
    for (start, _, end), is_packed, may in zip(bounds.T.tolist(), packed, is_worth_it, strict=True):
        if not may:
            continue
        frame = data[start:end].tobytes()
        hidden = spec.hide_secrets(frame, is_packed)
        if hidden != frame:
            data[start:end] = np.frombuffer(hidden, np.uint8)


class Anonymizer:
    """All replacements that derive from one key.

    rewriting: of packets. pseudonyms: of names.
    """

    def __init__(self, key: bytes, keeping: Keeping = _NOTHING) -> None:
        self.keeping = keeping
        noise = _part(key, b"noise", 16)
        self._noise = key_of(noise)
        addresses = key_of(_part(key, b"addresses", 16))
        self.rewriting = new_rewriting(addresses, self._noise, keeps_addresses=keeping.addresses)
        self.pseudonyms = Pseudonyms(_part(key, b"names", 32))
        keys = AnonymizerKeys(noise, self.pseudonyms, keeping.names, self.hidden)
        self.by_protocol = {
            spec.name: spec.new_anonymizer(keys) for spec in PROTOCOLS if spec.new_anonymizer
        }

    def treat(self, stream: Stream) -> None:
        """Anonymize a stream in place: frames by protocol, other bytes by their form."""
        for number, (offset, data) in enumerate(stream.runs):
            frames = stream.frames.within(offset, offset + len(data))
            starts = frames.starts - offset
            ends = np.minimum(starts + frames.sizes, len(data))
            ends[:-1] = np.minimum(ends[:-1], starts[1:])
            is_whole = frames.whole & (ends == starts + frames.sizes)
            sizes = np.where(is_whole, ends - starts, np.maximum(frames.sizes, ends - starts + 1))
            behind = np.append(0, np.maximum.accumulate(ends)).tolist()
            for low, high in zip(behind, [*starts.tolist(), len(data)], strict=True):
                is_first = number == offset == low == 0
                if low < high:
                    self._outside(data, low, high, is_first, stream.protocol)
            if len(starts):
                bounds = np.ascontiguousarray(np.stack([starts, sizes, ends]))
                self._frames(data, bounds, stream.protocol, frames.packed.tolist())

    def _frames(
        self, data: ByteArray, bounds: Int64Array, protocol: str, packed: Sequence[bool]
    ) -> None:
        """Anonymize frames in place; bounds, packed: as in `FrameAnonymizer`."""
        spec, treated = spec_of(protocol), self.by_protocol.get(protocol)
        if spec is None or treated is None:
            for start, _, end in zip(*bounds.tolist(), strict=True):
                self.hide(data, start, end)
            return
        if self.keeping.names:
            _hide_secrets(spec, data, bounds, packed)
        treated.frames(data, bounds, packed)

    def hidden(self, text: bytes) -> bytes:
        """Return noise that is derived from the bytes."""
        data = np.frombuffer(bytearray(text), np.uint8)
        self.hide(data, 0, len(data))
        return data.tobytes()

    def hide(self, data: ByteArray, start: int, end: int) -> None:
        """Replace bytes by noise that is derived from them, in place."""
        if start < end:
            seed = siphash(self._noise.low, self._noise.high, data, start, end)
            fill_noise(data, start, end, seed)

    # -- bytes of no frame

    def _outside(
        self, data: ByteArray, start: int, end: int, is_first: bool, protocol: str
    ) -> None:
        """Anonymize bytes outside of frames.

        Args:
            is_first: the connection begins with them. protocol: of the connection, if known.
        """
        before = data[start:end].tobytes()
        self.hide(data, start, end)
        head = look(before[:_LOOKED_AT], True) if is_first else look(b"", False)
        prefix = b""
        if head.verdict == HeadVerdict.IS_PROXY_HEADER:
            prefix = self._proxy_header(before[: head.header_bytes])
        elif head.verdict == HeadVerdict.IS_HTTP:
            prefix = _http_start(before)
        elif head.verdict == HeadVerdict.IS_TLS or protocol == "tls":
            prefix = self._tls(before, data[start:end].tobytes())
        data[start : start + len(prefix)] = np.frombuffer(prefix, np.uint8)

    def _proxy_header(self, header: bytes) -> bytes:
        """Return a PROXY header, version 1 or 2, with other addresses."""
        if self.keeping.addresses:
            return header
        if header.startswith(b"PROXY "):
            line = header.removesuffix(b"\r\n")
            line_written = _PROXY_WORD.sub(lambda match: self._address_text(match[0]), line)
            return line_written + header[len(line) :]
        size = {1: 4, 2: 16}.get(header[13] >> 4 if len(header) > 13 else 0, 0)
        ends = [header[at : at + size] for at in (16, 16 + size)]
        if not size or len(ends[1]) < size:
            return header[:16] + self.hidden(header[16:])
        rest = 16 + 2 * size
        return (
            header[:16]
            + b"".join(other_address(self.rewriting, end) for end in ends)
            + header[rest : rest + 4]
            + (self.hidden(header[rest + 4 :]))
        )

    def _address_text(self, text: bytes) -> bytes:
        """Return another address of equal length; an IPv6 text remains valid."""
        try:
            packed = ipaddress.ip_address(text.decode("ascii", "replace")).packed
        except ValueError:
            return self.hidden(text)
        other = other_address(self.rewriting, packed)
        if len(packed) == 4:
            parts = []
            for index, part in enumerate(text.split(b".")):
                low, high = {1: (0, 10), 2: (10, 100)}.get(len(part), (100, 256))
                parts.append(b"%d" % (low + other[index] % (high - low)))
            return b".".join(parts)
        digits = iter(other.hex().encode())
        return bytes(
            sign if sign in b":." else b"123456789abcdef1"[int(chr(next(digits)), 16)]
            for sign in text
        )

    def _tls(self, before: bytes, noise: bytes) -> bytes:
        """Keep record headers; keep the structure of a ClientHello and replace its names."""
        out = bytearray(noise)
        at = _first_record(before)
        while at >= 0 and at + _RECORD <= len(before):
            first = at + _RECORD
            if not 20 <= before[at] <= 23 or before[at + 1] != 3:
                break
            out[at:first] = before[at:first]
            stop = first + int.from_bytes(before[at + 3 : first], "big")
            if before[at] == _HANDSHAKE and before[first : first + 1] == b"\1":
                out[first:stop] = self._greeting(before[first:stop], bytes(out[first:stop]))
            at = stop
        return bytes(out)

    def _greeting(self, hello: bytes, noise: bytes) -> bytes:
        """Return a ClientHello with its structure and other names; the rest is noise."""
        out = bytearray(noise)
        layout = hello_layout(hello)
        for first, last in layout.form:
            out[first:last] = hello[first:last]
        for first, last in layout.names:
            name = hello[first:last]
            out[first:last] = name if self.keeping.names else self.pseudonyms.name(name)
        return bytes(out)


def _http_start(data: bytes) -> bytes:
    """Return the method or version at the start of HTTP, or the present part of its preface."""
    preface = _HTTP_PREFACE
    while not data.startswith(preface):
        preface = preface[:-1]
    match = _HTTP_START.match(data)
    return preface if len(preface) > 4 or match is None else match[0]


def _first_record(data: bytes) -> int:
    """Return the offset of the first TLS record: 0, or where two records are adjacent; else -1."""
    for at in range(min(len(data), _LOOKED_AT)):
        if data[at] not in (20, 21, 22, 23) or data[at + 1 : at + 2] != b"\3":
            continue
        stop = at + _RECORD + int.from_bytes(data[at + 3 : at + 5], "big")
        if at == 0 or data[stop : stop + 1] in (b"\x14", b"\x15", b"\x16", b"\x17"):
            return at
    return -1
