"""Anonymize Pulsar frames at equal length: pseudonyms for names, noise for payloads.

Numbers, flags and enums stay, so a frame differs only in texts and bytes. A compressed batch is
decompressed, anonymized and compressed again.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Decompressor, UnpackResult
from dissector.codecs.repacking import repacked
from dissector.codecs.siphash import key_of
from dissector.limits import MAX_ENTRY_BYTES
from dissector.protocols.pseudonyms import Pseudonyms
from dissector.protocols.pulsar.wire import contents, frame_fields
from dissector.protocols.pulsar.wire.frame_fields import FrameFields, Kind
from dissector.protocols.sentences import Sentences

_NO_NAME: Final = 0x78
_KNOWN_PAYLOADS: Final = 256


class PulsarAnonymizer:
    """Anonymizes Pulsar frames in place.

    repacked, given_up: batches that were compressed again at their length, and batches that did not
        fit and became noise.
    nameless: repacked batches whose names were removed to make them fit.

    Args:
        names: pseudonyms. noise: its key. keeps_names: names stay, also in error texts.
    """

    def __init__(self, names: Pseudonyms, noise: bytes, keeps_names: bool = False) -> None:
        self._names = names
        self.repacked = self.given_up = self.nameless = 0
        self._fields = FrameFields(key_of(noise), has_names=keeps_names)
        self._known_payloads: dict[bytes, bytes | None] = {}
        self._decompressor = Decompressor()
        sentences = Sentences(names)
        self._treatments: dict[int, Callable[[bytes], bytes]] = {
            Kind.NAME: names.name,
            Kind.SENTENCE: sentences.anonymized,
            Kind.VERSION: sentences.version,
            Kind.STARS: lambda text: b"*" * len(text),
        }

    def frames(self, data: ByteArray, bounds: Int64Array, packed: Sequence[bool] = ()) -> None:
        """Anonymize frames in place; see protocols.interface.FrameAnonymizer."""
        for rows in self._fields.of_frames(data, bounds):
            self._replace(data, rows)

    def _replace(self, data: ByteArray, rows: Int64Array) -> None:
        """Replace the bytes of rows (`frame_fields`)."""
        kinds = rows[:, frame_fields.KIND]
        for row in np.flatnonzero(kinds == Kind.PACKED).tolist():
            replacement = self._repacked(data, rows[row])
            if replacement is not None:
                start, end = rows[row, [frame_fields.START, frame_fields.END]].tolist()
                data[start:end] = np.frombuffer(replacement, np.uint8)
                rows[row, frame_fields.END] = start
        view = data.data
        key, key_within = b"", 0
        texts = rows[(kinds > Kind.KEEP) & (kinds < Kind.BROKEN)]
        for kind, start, end, _, within, *_ in texts.tolist():
            text = bytes(view[start:end])
            if kind == Kind.KEY:
                key, key_within = text, within
                replacement = text if text in contents.PROPERTIES else self._names.words(text)
            elif kind == Kind.VALUE:
                is_own = key_within == within and contents.PROPERTIES.get(key) is False
                replacement = text if is_own else self._names.name(text)
            else:
                replacement = self._treatments[kind](text)
            view[start:end] = replacement
        frame_fields.finish(data, rows, self._fields.state)

    def _repacked(self, data: ByteArray, row: Int64Array) -> bytes | None:
        """An anonymized compressed batch of equal length; None if none can be made."""
        _, start, end, _, is_batch, *parameters = row.tolist()
        if not is_batch:
            return None
        packed = data[start:end].tobytes()
        key = packed + bytes(row[frame_fields.SEED :].tobytes())
        if key not in self._known_payloads:
            if len(self._known_payloads) > _KNOWN_PAYLOADS:
                self._known_payloads.clear()
            self._known_payloads[key] = self._repack(packed, *parameters)
        replacement = self._known_payloads[key]
        self.repacked += replacement is not None
        self.given_up += replacement is None
        return replacement

    def _repack(self, packed: bytes, seed: int, codec: int, size: int) -> bytes | None:
        if not 0 < size <= MAX_ENTRY_BYTES:
            return None
        opened = self._decompressor.open(codec, np.frombuffer(bytearray(packed), np.uint8), size)
        if opened.problem != UnpackResult.OPENED:
            return None
        before = opened.data[:size].copy()
        # Bytes that differ between two seeds are noise, which `repacked` may change.
        after, other = before.copy(), before.copy()
        self._replace(after, self._fields.of_batch(after, seed))
        self._replace(other, self._fields.of_batch(other, ~seed))
        replacement = repacked(codec, other, after, len(packed))
        if replacement is None:
            # With all names replaced by one repeated byte it compresses better and may fit.
            after[(other == after) & (before != after)] = _NO_NAME
            replacement = repacked(codec, other, after, len(packed))
            self.nameless += replacement is not None
        return replacement
