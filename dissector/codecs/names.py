"""Interns names from the wire: a bounded table from bytes to small numbers (codes).

Topics, subscriptions, producers and consumers repeat in almost every frame. Kernels intern them
here and write the code; tables later turn codes into dictionary columns. Codes count from 0 in
order of first occurrence, so they depend on the input only. At the bound, new names are refused and
their columns stay null; known names are still found. A name beyond the length limit is cut and gets
its length and a digest appended, so that distinct names stay distinct.
"""

from itertools import pairwise
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte, le64
from dissector.codecs.keyed_hash import following_secret, hash_of_bytes, new_secret
from dissector.codecs.wrapping import product
from dissector.jit import inlined, kernel
from dissector.limits import MAX_NAME_BYTES, MAX_NAME_LENGTH, MAX_NAMES, MAX_PROBES, NULL

# An odd constant with well mixed bits (2^64 divided by the golden ratio), as a signed number.
_MIX: Final = -0x61C8_8646_80B5_83EB
_LOW_31: Final = 0x7FFF_FFFF

# Places in NameColumns.counts.
_NAMES: Final = 0
_BYTES: Final = 1
_REFUSED: Final = 2
_CUT: Final = 3
_PROBES: Final = 4
_CROWDED: Final = 5
_COUNTS: Final = 6

_MARK_BYTES: Final = 64  # room for what stands behind the beginning of a long name
_KEPT_BYTES: Final = MAX_NAME_LENGTH - _MARK_BYTES
# Behind the names: whole words are compared, and long names are cut.
_SPARE_BYTES: Final = 8 + MAX_NAME_LENGTH


class NameColumns(NamedTuple):
    """The table as kernels see it.

    slots: int64[power of two], open addressing; 0 is empty, else the hash's upper half and below it
        the code plus one.
    starts: int64[names + 1], start of each name in `text`; the last element is the end.
    text: uint8[], the concatenated names, and spare bytes at the end.
    counts: int64[6], names, bytes of text, refused names, cut names, slots probed after the first
        one of each search, and searches of more than MAX_PROBES.
    secret: of the hash.
    """

    slots: Int64Array
    starts: Int64Array
    text: ByteArray
    counts: Int64Array
    secret: Int64Array


@inlined
def _hash(names: NameColumns, data: ByteArray, offset: int, length: int) -> int:
    """A keyed hash of all bytes, 31 bits, never 0."""
    return ((hash_of_bytes(names.secret, data, offset, offset + length) >> 33) & _LOW_31) | 1


@inlined
def _equal(data: ByteArray, offset: int, names: NameColumns, start: int, length: int) -> bool:
    position = 0
    while length - position >= 8:
        if le64(data, offset + position) != le64(names.text, start + position):
            return False
        position += 8
    while position < length:
        if byte(data, offset + position) != byte(names.text, start + position):
            return False
        position += 1
    return True


@inlined
def find_slot(names: NameColumns, data: ByteArray, offset: int, length: int) -> int:
    """Return the slot of a name; if absent, -1 minus the empty slot for it."""
    mask = len(names.slots) - 1
    mixed = _hash(names, data, offset, length)
    slot = mixed & mask
    for steps in range(mask + 1):
        if steps > 0:
            names.counts[_PROBES] += 1
        if steps == MAX_PROBES:
            names.counts[_CROWDED] += 1
        held = names.slots[slot]
        if held == 0:
            return -1 - slot
        if held >> 32 == mixed:
            code = (held & _LOW_31) - 1
            start = names.starts[code]
            if names.starts[code + 1] - start == length and _equal(
                data, offset, names, start, length
            ):
                return slot
        slot = (slot + 1) & mask
    return -1 - slot


@kernel
def _place_all(names: NameColumns) -> None:
    """Insert all names into empty slots."""
    mask = len(names.slots) - 1
    for code in range(names.counts[_NAMES]):
        start = names.starts[code]
        mixed = _hash(names, names.text, start, names.starts[code + 1] - start)
        slot = mixed & mask
        for _ in range(mask + 1):
            if names.slots[slot] == 0:
                break
            slot = (slot + 1) & mask
        names.slots[slot] = (mixed << 32) | (code + 1)


@inlined
def _digest(data: ByteArray, offset: int, length: int) -> int:
    """A mix of all bytes, 64 bits."""
    mixed = product(length, _MIX)
    position = offset
    end = offset + length
    while end - position >= 8:
        mixed = product(mixed ^ le64(data, position), _MIX)
        mixed ^= (mixed >> 29) & _LOW_31
        position += 8
    while position < end:
        mixed = product(mixed ^ byte(data, position), _MIX)
        mixed ^= (mixed >> 29) & _LOW_31
        position += 1
    return mixed


@kernel
def shorten(names: NameColumns, data: ByteArray, offset: int, length: int) -> int:
    """Write a long name, cut, after all others: "beginning…(12345 bytes, 0123456789abcdef)".

    Returns:
        The length of the text written at `cut_at`.
    """
    text = names.text
    start = cut_at(names)
    kept = _KEPT_BYTES
    # Not in the middle of a character.
    while kept > _KEPT_BYTES - 4 and byte(data, offset + kept) & 0xC0 == 0x80:
        kept -= 1
    for k in range(kept):
        text[start + k] = byte(data, offset + k)
    at = start + kept
    for value in (0xE2, 0x80, 0xA6, 0x28):  # an ellipsis and a bracket
        text[at] = value
        at += 1
    size = 1
    power = 10
    while length >= power:
        size += 1
        power *= 10
    rest = length
    for k in range(size):
        text[at + size - 1 - k] = 48 + rest % 10
        rest //= 10
    at += size
    for value in (0x20, 0x62, 0x79, 0x74, 0x65, 0x73, 0x2C, 0x20):  # " bytes, "
        text[at] = value
        at += 1
    digest = _digest(data, offset, length)
    for shift in range(60, -4, -4):
        digit = (digest >> shift) & 15
        text[at] = 48 + digit if digit < 10 else 87 + digit
        at += 1
    text[at] = 0x29
    return int(at + 1 - start)


@inlined
def cut_at(names: NameColumns) -> int:
    """Return the offset at which `shorten` writes."""
    return len(names.text) - _SPARE_BYTES


@kernel
def intern(names: NameColumns, data: ByteArray, offset: int, length: int) -> int:
    """Return the code of the name at offset; a new name is added.

    Returns:
        The code, or NULL if the table is full; then counts[2] goes up by one.
    """
    if length > MAX_NAME_LENGTH:
        names.counts[_CUT] += 1
        cut = shorten(names, data, offset, length)
        return _intern(names, names.text, cut_at(names), cut)
    return _intern(names, data, offset, length)


@kernel
def _intern(names: NameColumns, data: ByteArray, offset: int, length: int) -> int:
    slot = find_slot(names, data, offset, length)
    if slot >= 0:
        return int((names.slots[slot] & _LOW_31) - 1)
    code = names.counts[_NAMES]
    start = names.counts[_BYTES]
    # The last of the two halves of the slots stays empty, so that every search ends.
    if code + 1 >= len(names.starts) or length > len(names.text) - _SPARE_BYTES - start:
        names.counts[_REFUSED] += 1
        return NULL
    for k in range(length):
        names.text[start + k] = data[offset + k]
    names.starts[code + 1] = start + length
    names.slots[-1 - slot] = (_hash(names, data, offset, length) << 32) | (code + 1)
    names.counts[_NAMES] = code + 1
    names.counts[_BYTES] = start + length
    return int(code)


def _reserved(count: int, kind: type[np.generic]) -> Any:
    """Return an array of zeros that uses memory only where it is written.

    The allocator would return used memory, which must be cleared: for a small capture after another
    one that took as long as the rest of its dissection.
    """
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS), kind)


class NameTable:
    """All names of one capture. key: of hash tables, this one and others of the same capture.

    Memory is reserved for the whole bound and used only as names arrive.
    """

    def __init__(
        self, max_names: int = MAX_NAMES, max_bytes: int = MAX_NAME_BYTES, key: int = 0
    ) -> None:
        slots = 1 << max(4, (2 * max_names - 1).bit_length())
        self.columns = NameColumns(
            slots=_reserved(slots, np.int64),
            starts=_reserved(max_names + 1, np.int64),
            text=_reserved(max_bytes + _SPARE_BYTES, np.uint8),
            counts=np.zeros(_COUNTS, np.int64),
            secret=new_secret(key),
        )
        self.key = key
        self._crowded_before = 0
        self._names: list[bytes] = []
        self._refused_before = 0
        self._cut_before = 0

    @property
    def names(self) -> list[bytes]:
        """All names by code: always the same list, which grows, so blocks may keep it."""
        return self.update()

    def update(self) -> list[bytes]:
        """Append the names that kernels added since the last call; return all names by code."""
        if int(self.columns.counts[_CROWDED]) > self._crowded_before:
            self._crowded_before = int(self.columns.counts[_CROWDED])
            self.columns.secret[:] = following_secret(self.columns.secret)
            self.columns.slots[:] = 0
            _place_all(self.columns)
        count = int(self.columns.counts[_NAMES])
        known = len(self._names)
        if count > known:
            bounds = self.columns.starts[known : count + 1].tolist()
            text = self.columns.text
            self._names.extend(text[start:stop].tobytes() for start, stop in pairwise(bounds))
        return self._names

    def name_of(self, code: int) -> bytes | None:
        """The name of a code; None for null."""
        return self.update()[code] if code >= 0 else None

    def code_of(self, name: bytes) -> int:
        """Return the code of a name; a new name is added; NULL if the table is full."""
        return int(intern(self.columns, np.frombuffer(bytearray(name), np.uint8), 0, len(name)))

    def find(self, name: bytes) -> int:
        """Return the code of a name, NULL if it is unknown."""
        data, at, length = np.frombuffer(bytearray(name), np.uint8), 0, len(name)
        if length > MAX_NAME_LENGTH:
            length = int(shorten(self.columns, data, 0, length))
            data, at = self.columns.text, len(self.columns.text) - _SPARE_BYTES
        slot = int(find_slot(self.columns, data, at, length))
        return int(self.columns.slots[slot] & _LOW_31) - 1 if slot >= 0 else NULL

    @property
    def probes(self) -> int:
        """Number of slots probed after the first one of each search so far: a measure of cost."""
        return int(self.columns.counts[_PROBES])

    @property
    def crowded(self) -> int:
        """Number of searches of more than MAX_PROBES slots; each caused a rehash."""
        return int(self.columns.counts[_CROWDED])

    def drain_refused(self) -> int:
        """Return the number of names refused since the last call."""
        refused = int(self.columns.counts[_REFUSED]) - self._refused_before
        self._refused_before += refused
        return refused

    def drain_cut(self) -> int:
        """Return the number of long names cut since the last call."""
        cut = int(self.columns.counts[_CUT]) - self._cut_before
        self._cut_before += cut
        return cut
