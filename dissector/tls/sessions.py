"""Sessions of TLS 1.2 that may be resumed: some clients log a session's secret only once.

A resumed connection has the master secret of the connection whose ticket, or session id, it names.
Both are unencrypted in the handshake, so the secret is looked up by that connection's random.
"""

import hashlib
from collections import OrderedDict

from dissector import limits


class Sessions:
    """The client random under which the key log has the master secret, by ticket or session id."""

    def __init__(self) -> None:
        self._randoms: OrderedDict[bytes, bytes] = OrderedDict()

    def remember(self, name: bytes, random: bytes) -> None:
        """Store the random of a ticket or session id; over the limit the oldest name is dropped."""
        key = _key(name)
        self._randoms[key] = random
        self._randoms.move_to_end(key)
        if len(self._randoms) > limits.MAX_TLS_SESSIONS:
            self._randoms.popitem(last=False)

    def random_of(self, name: bytes) -> bytes | None:
        """The random of a ticket or session id, None if this capture does not have it."""
        return self._randoms.get(_key(name)) if name else None


def _key(name: bytes) -> bytes:
    return hashlib.sha256(name).digest()  # a ticket may contain the client's whole certificate
