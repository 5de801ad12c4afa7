"""Memoizes functions of short byte strings, as traffic repeats them.

Many brief connections begin with the same few commands. Computing a result costs twenty times as
much as looking it up.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from dissector.limits import MAX_REMEMBERED_BYTES, MAX_REMEMBERED_TEXTS

Made = TypeVar("Made")

_DIGEST_BYTES: Final = 16


class Remembered(Generic[Made]):
    """A memoized function of bytes.

    The bytes may contain secrets and are not stored: the key is a collision-resistant digest.
    Thread-safe: at worst threads compute a result twice, and each exceeds the bound by one.
    """

    def __init__(
        self, make: Callable[[list[bytes]], list[Made]], may_keep: Callable[[Made], bool]
    ) -> None:
        """make: a pure function of a list of byte strings, with one result for each. may_keep:
        whether a result is small and contains no secret."""
        self._make = make
        self._may_keep = may_keep
        self._kept: dict[bytes, Made] = {}

    def __call__(self, data: bytes) -> Made:
        """Return the result of `make` for the bytes."""
        return self.all_of([data])[0]

    def all_of(self, data: Sequence[bytes]) -> list[Made]:
        """Return the results of `make` for byte strings; calls it once, for all unknown ones."""
        kept = self._kept
        keys = [_key(each) for each in data]
        new = {key: each for key, each in zip(keys, data, strict=True) if key not in kept}
        made = dict(zip(new, self._make([*new.values()]), strict=True)) if new else {}
        out = [made[key] if key in made else kept[key] for key in keys]
        for key, each in made.items():
            if len(key) == _DIGEST_BYTES and self._may_keep(each):
                if len(self._kept) >= MAX_REMEMBERED_TEXTS:
                    self._kept = {}  # another thread may read the old one
                self._kept[key] = each
        return out

    def kept(self) -> dict[bytes, Made]:
        """Return the stored results by digest."""
        return dict(self._kept)


def _key(data: bytes) -> bytes:
    """Return the key of bytes: a digest, or the bytes if they are too long to be memoized."""
    if len(data) > MAX_REMEMBERED_BYTES:
        return data
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
