"""The keys of one connection: what the key log has of it, and what opens its records."""

from typing import Final

from dissector.tls import facts as reasons
from dissector.tls.direction import Direction
from dissector.tls.greeting import Greeting
from dissector.tls.keylog import MASTER_SECRET, KeyLog

_SIDE_NAMES: Final = ("CLIENT", "SERVER")


class KeyRing:
    """Secrets of one connection.

    keys: the key log, None if there is none.
    """

    def __init__(self, keys: KeyLog | None) -> None:
        self.keys = keys
        self._secrets: dict[str, bytes] = {}
        self._asked_lines = -1  # those of the key log when it was asked

    @property
    def has_grown(self) -> bool:
        """Whether the key log has lines that were not there when it was asked last."""
        return self.keys is not None and self.keys.total_lines != self._asked_lines

    def missing(self, greeting: Greeting) -> str:
        """Why nothing can be opened, empty if it can."""
        hello = greeting.hello
        if hello is None or greeting.server is None:
            return reasons.NO_HELLO
        if not greeting.is_read:
            return reasons.UNSUPPORTED
        if self.keys is None:
            return reasons.NO_KEY_LOG
        if not self._secrets:
            self._asked_lines = self.keys.total_lines
            found = self.keys.find(hello.random)
            is_usable = any((label == MASTER_SECRET) != greeting.is_13 for label in found)
            self._secrets = found if is_usable else {}
        if self._secrets:
            return ""
        return reasons.NO_KEY if len(self.keys) else reasons.NO_KEY_LOG

    def unlock(self, side: Direction, greeting: Greeting) -> str:
        """Give a direction its first key; says why it has none, PARTLY if only the other has."""
        missing = self.missing(greeting)
        if missing:
            return missing
        try:  # only here: most runs have no key log
            from dissector.tls import ciphers
        except ImportError:
            return reasons.NO_LIBRARY
        assert greeting.hello is not None and greeting.server is not None
        is_server = side.index != greeting.client
        if not greeting.is_13:
            both = ciphers.openers12(
                greeting.suite, self._secrets[MASTER_SECRET], greeting.hello.random,
                greeting.server.random, greeting.server.encrypts_then_macs,
            )  # fmt: skip
            side.opener = both[is_server]
            return ""
        name = _SIDE_NAMES[is_server]
        first = self._secrets.get(f"{name}_HANDSHAKE_TRAFFIC_SECRET")
        second = self._secrets.get(f"{name}_TRAFFIC_SECRET_0")
        secrets = [
            ciphers.TrafficSecret(greeting.suite, secret)
            for secret in (first, second)
            if secret is not None
        ]
        if not secrets:
            self._secrets = {}
            return reasons.PARTLY
        side.has_handshake_secret = first is not None
        side.use(secrets)
        return ""
