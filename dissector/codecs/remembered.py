"""What was made of short byte strings, remembered: traffic says the same again and again.

Of many brief connections each begins with the same few commands. What is made of one costs twenty
times as much as to find it again.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from dissector.limits import MAX_REMEMBERED_BYTES, MAX_REMEMBERED_TEXTS

Made = TypeVar("Made")

_DIGEST_BYTES: Final = 16


class Remembered(Generic[Made]):
    """A function of bytes that remembers what it made of them.

    The bytes themselves may hold secrets and are not kept: they are known by a digest, which nobody
    can make equal for two of them. Several threads may call: at worst they make something twice,
    and each keeps one more than the bound.
    """

    def __init__(self, make: Callable[[bytes], Made], may_keep: Callable[[Made], bool]) -> None:
        """make: says the same for the same bytes, whoever asks. may_keep: whether what it made is
        small and holds no secret."""
        self._make = make
        self._may_keep = may_keep
        self._kept: dict[bytes, Made] = {}

    def __call__(self, data: bytes) -> Made:
        """What `make` makes of the bytes."""
        if len(data) > MAX_REMEMBERED_BYTES:
            return self._make(data)
        key = blake2b(data, digest_size=_DIGEST_BYTES).digest()
        try:
            return self._kept[key]
        except KeyError:
            made = self._make(data)
        if self._may_keep(made):
            if len(self._kept) >= MAX_REMEMBERED_TEXTS:
                self._kept.clear()
            self._kept[key] = made
        return made

    def kept(self) -> dict[bytes, Made]:
        """What is remembered now, by digest."""
        return dict(self._kept)
