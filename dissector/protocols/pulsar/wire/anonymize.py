"""What is done to each field of Pulsar's messages, and what the kernels of `anonymizer` leave."""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Decompressor, UnpackResult
from dissector.codecs.repacking import repacked
from dissector.codecs.siphash import fill_noise, key_of, siphash
from dissector.limits import MAX_ENTRY_BYTES
from dissector.protobuf.descriptors import Field, descriptors
from dissector.protocols.pseudonyms import Pseudonyms
from dissector.protocols.pulsar.wire import anonymize_kernels as kernels
from dissector.protocols.pulsar.wire import contents
from dissector.protocols.pulsar.wire.anonymize_kernels import Treatment
from dissector.protocols.sentences import Sentences

# What is done to a text by what it holds.
_TEXTS: Final = {contents.VERSION: Treatment.VERSION, contents.SENTENCE: Treatment.SENTENCE}
_ROOTS: Final = ("BaseCommand", "MessageMetadata", "SingleMessageMetadata")
_LEFT_ROWS: Final = 4096
_NO_NAME: Final = 0x78


def _action(message: str, field: Field, numbers: dict[str, int], has_names: bool) -> int:
    """What is done to a field of bytes. has_names: names stay."""
    content = contents.content_of(message, field.name)
    if content == contents.SECRET:
        return Treatment.STARS
    if field.type_name == "message":
        if field.of == "KeyValue":
            return Treatment.KEEP if has_names else Treatment.PAIR
        return Treatment.DESCEND | numbers[field.of] << kernels.SHIFT
    if field.type_name == "string":
        return Treatment.KEEP if has_names else _TEXTS.get(content, Treatment.NAME)
    if content == contents.NUMBER:
        return Treatment.SHORT
    if field.type_name == "bytes":
        return Treatment.KEEP if has_names and field.name == "ordering_key" else Treatment.HIDE
    return Treatment.KEEP  # packed numbers


@cache
def _plan(has_names: bool) -> tuple[Int64Array, dict[str, int]]:
    """The plan, and the number of each message in it."""
    messages = descriptors().messages
    numbers = {name: number for number, name in enumerate(sorted(messages))}
    plan = np.zeros((len(numbers), kernels.FIELDS), np.int64)
    for name, fields in messages.items():
        for number, field in fields.items():
            plan[numbers[name], number] = _action(name, field, numbers, has_names)
    return plan, numbers


class PulsarAnonymizer:
    """Treats frames of Pulsar in place.

    repacked, given_up: batches that were compressed anew at their length, and those that could not
        be and are noise.
    nameless: of the first those in which no name is left, where it had no room.

    Args:
        names: pseudonyms. noise: a key. keeps_names: names stay, those in error texts too.
    """

    def __init__(self, names: Pseudonyms, noise: bytes, keeps_names: bool = False) -> None:
        plan, numbers = _plan(keeps_names)
        self._names = names
        self._sentences = None if keeps_names else Sentences(names)
        self.repacked = self.given_up = self.nameless = 0
        self._known_payloads: dict[bytes, bytes | None] = {}
        self._decompressor = Decompressor()
        low, high = names.state.key.tolist()
        known_keys = {
            key: Treatment.NAME if is_name else Treatment.KEEP
            for key, is_name in contents.PROPERTIES.items()
        }
        known = [
            (siphash(low, high, np.frombuffer(bytearray(name), np.uint8), 0, len(name)), action)
            for name, action in known_keys.items()
        ]
        self._state = kernels.AnonymizerState(
            plan=plan,
            known=np.array(known, np.int64),
            noise_key=np.array(key_of(noise), np.int64),
            scratch=np.zeros(24, np.uint8),
            stack=np.zeros(64, np.int64),
            at=np.zeros(2, np.int64),
            left=np.zeros((_LEFT_ROWS, kernels.LEFT_CELLS), np.int64),
            roots=np.array([numbers[name] for name in _ROOTS], np.int64),
        )

    def frames(self, data: ByteArray, bounds: Int64Array, packed: Sequence[bool] = ()) -> None:
        """Treat frames in place; see protocols.interface.FrameAnonymizer."""
        starts, sizes, ends = bounds
        state = self._state
        state.at[kernels.NEXT] = 0
        while True:
            state.at[kernels.LEFT] = 0
            is_done = kernels.anonymize_frames(data, starts, sizes, ends, state, self._names.state)
            for row in state.left[: state.at[kernels.LEFT]].copy():
                self._finish(data, row)
            if is_done:
                return
            row = int(state.at[kernels.NEXT])
            self._names.reserve(int(ends[row] - starts[row]))

    def _finish(self, data: ByteArray, row: Int64Array) -> None:
        start, end = int(row[kernels.LEFT_START]), int(row[kernels.LEFT_END])
        kind = row[kernels.LEFT_KIND]
        if kind != kernels.PACKED:
            if self._sentences is not None:
                treat = self._sentences.anonymized
                if kind == Treatment.VERSION:
                    treat = self._sentences.version
                text = treat(data[start:end].tobytes())
                data[start:end] = np.frombuffer(text, np.uint8)
            return
        packed = data[start:end].tobytes()
        key = packed + bytes(row[kernels.LEFT_CODEC : kernels.LEFT_SEED + 1].tobytes())
        if key not in self._known_payloads:
            if len(self._known_payloads) > 256:
                self._known_payloads.clear()
            self._known_payloads[key] = self._packed_anew(packed, row)
        made = self._known_payloads[key]
        if made is None:
            self.given_up += 1
            seed = int(row[kernels.LEFT_SEED])
            fill_noise(data, start, end, seed)
        else:
            self.repacked += 1
            data[start:end] = np.frombuffer(made, np.uint8)
        if row[kernels.LEFT_STORED] >= 0:
            stored, covered, is_wrong = (
                int(row[cell])
                for cell in (kernels.LEFT_STORED, kernels.LEFT_COVERED, kernels.LEFT_WRONG)
            )
            kernels.seal(data, stored, covered, end, is_wrong)

    def _packed_anew(self, packed: bytes, row: Int64Array) -> bytes | None:
        """A compressed batch with other names and payloads, as long as before; None if that cannot
        be had."""
        codec, size = int(row[kernels.LEFT_CODEC]), int(row[kernels.LEFT_SIZE])
        if not 0 < size <= MAX_ENTRY_BYTES:
            return None
        opened = self._decompressor.open(codec, np.frombuffer(bytearray(packed), np.uint8), size)
        if opened.problem != UnpackResult.OPENED:
            return None
        before = opened.data[:size].copy()
        after = before.copy()
        # What differs between two seeds is noise, and free.
        seed, other = int(row[kernels.LEFT_SEED]), before.copy()
        self._names.reserve(size)
        kernels.anonymize_batch(after, 0, size, seed, self._state, self._names.state)
        kernels.anonymize_batch(other, 0, size, ~seed, self._state, self._names.state)
        made = repacked(codec, other, after, len(packed))
        if made is None:
            # Names that count up compress better than any others: without them it may fit.
            after[(other == after) & (before != after)] = _NO_NAME
            made = repacked(codec, other, after, len(packed))
            self.nameless += made is not None
        return made
