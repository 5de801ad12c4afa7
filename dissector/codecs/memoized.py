"""What was made of short byte strings, remembered: traffic says the same again and again.

Of many brief connections each begins with the same few commands. What is made of one costs twenty
times as much as to find it again.
"""

from collections.abc import Callable, Sequence
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

    def __init__(
        self, make: Callable[[list[bytes]], list[Made]], may_keep: Callable[[Made], bool]
    ) -> None:
        """make: says the same of the same bytes, whoever asks, one for each. may_keep: whether what
        it made is small and holds no secret."""
        self._make = make
        self._may_keep = may_keep
        self._kept: dict[bytes, Made] = {}

    def __call__(self, data: bytes) -> Made:
        """What `make` makes of the bytes."""
        return self.all_of([data])[0]

    def all_of(self, data: Sequence[bytes]) -> list[Made]:
        """What `make` makes of each of some; it is asked once, of all that are not known."""
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
        """What is remembered now, by digest."""
        return dict(self._kept)


def _key(data: bytes) -> bytes:
    """What bytes are known by: themselves, if they are too long to be kept."""
    if len(data) > MAX_REMEMBERED_BYTES:
        return data
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
