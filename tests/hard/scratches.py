"""Damage to the bytes of any file, from a seed: what disks, copies and hostile senders do."""

import random
from collections.abc import Callable

Scratch = Callable[[bytearray, random.Random], None]


def _place(data: bytearray, chance: random.Random) -> int:
    return chance.randrange(len(data)) if data else 0


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8) if data else 0):
        data[_place(data, chance)] = chance.randrange(256)


def _set_number(data: bytearray, chance: random.Random) -> None:
    """A number that programs trip over, in either byte order."""
    value = chance.choice((0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x500000))
    at = _place(data, chance)
    size = chance.choice((1, 2, 4))
    data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(
        size, chance.choice(("big", "little"))
    )


def _cut_out(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    del data[at : at + chance.randint(1, 200)]


def _repeat(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    data[at:at] = data[at : at + chance.randint(1, 200)]


def _blank(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    size = min(chance.randint(1, 300), len(data) - at)
    data[at : at + size] = bytes(size)


def _cut_off(data: bytearray, chance: random.Random) -> None:
    del data[_place(data, chance) :]


def _insert(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    data[at:at] = chance.randbytes(chance.randint(1, 40))


_SCRATCHES: tuple[Scratch, ...] = (
    _flip, _set_number, _set_number, _cut_out, _repeat, _blank, _cut_off, _insert,
)  # fmt: skip


def scratched(data: bytes, seed: int, most: int = 3) -> bytes:
    """The bytes with one to `most` scratches."""
    chance = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(chance.randint(1, most)):
        chance.choice(_SCRATCHES)(damaged, chance)
    return bytes(damaged)
