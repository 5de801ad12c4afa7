"""Sessions of TLS 1.2 that may be resumed: some clients write a secret into the key log but once.

A resumed connection has the master secret of the one whose ticket, or session id, it names. Both
stand in clear in the handshake, so the key log is asked for the random of that first connection.
"""

import hashlib
from collections import OrderedDict

from dissector import limits


class Sessions:
    """By ticket or session id the client's random under which the key log has the master secret."""

    def __init__(self) -> None:
        self._randoms: OrderedDict[bytes, bytes] = OrderedDict()

    def remember(self, name: bytes, random: bytes) -> None:
        """A server gave a session its name; the name that came first is forgotten first."""
        key = _key(name)
        self._randoms[key] = random
        self._randoms.move_to_end(key)
        if len(self._randoms) > limits.MAX_TLS_SESSIONS:
            self._randoms.popitem(last=False)

    def random_of(self, name: bytes) -> bytes | None:
        """The random of a name, None if it was not given in this capture."""
        return self._randoms.get(_key(name)) if name else None


def _key(name: bytes) -> bytes:
    return hashlib.sha256(name).digest()  # tickets hold all of a client's certificate
