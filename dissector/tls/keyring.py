"""The keys of one connection: its secrets in the key log, and the openers made from them."""

from typing import Final

from dissector.tls import facts as reasons
from dissector.tls.direction import Direction
from dissector.tls.greeting import Greeting
from dissector.tls.keylog import MASTER_SECRET, KeyLog
from dissector.tls.sessions import Sessions

_SIDE_NAMES: Final = ("CLIENT", "SERVER")


class KeyRing:
    """Secrets of one connection.

    keys: the key log, None if there is none.
    random: the random under which the key log has them: the client's, or the resumed session's.
    """

    def __init__(self, keys: KeyLog | None, sessions: Sessions) -> None:
        self.keys = keys
        self.random = b""
        self._sessions = sessions
        self._secrets: dict[str, bytes] = {}
        self._searched_lines = -1  # the key log's number of lines at the last search

    @property
    def has_grown(self) -> bool:
        """Whether the key log has grown since the last search."""
        return self.keys is not None and self.keys.total_lines != self._searched_lines

    def missing(self, greeting: Greeting) -> str:
        """The reason why nothing can be decrypted, empty if records can be."""
        hello = greeting.hello
        if hello is None or greeting.server is None:
            return reasons.NO_HELLO
        if not greeting.is_read:
            return reasons.UNSUPPORTED
        if self.keys is not None and not self._secrets:
            self._searched_lines = self.keys.total_lines
            self._find(self.keys, hello.random, greeting.is_13)
        if not greeting.is_13:
            self._follow_session(greeting)
        if self.keys is None:
            return reasons.NO_KEY_LOG
        if self._secrets:
            return ""
        return reasons.NO_KEY if len(self.keys) else reasons.NO_KEY_LOG

    def _find(self, keys: KeyLog, random: bytes, is_13: bool) -> None:
        secrets = keys.find(random)
        if any((label == MASTER_SECRET) != is_13 for label in secrets):
            self._secrets, self.random = secrets, random

    def _follow_session(self, greeting: Greeting) -> None:
        """TLS 1.2: look up the secret of a resumed session; store this connection's session."""
        hello, server, sessions = greeting.hello, greeting.server, self._sessions
        assert hello is not None and server is not None, "the hellos are there"
        random: bytes | None = self.random
        if not random and greeting.facts.is_resumed:
            random = sessions.random_of(hello.ticket)
            if random is None and hello.session_id == server.session_id:
                random = sessions.random_of(hello.session_id)
            if random is not None and self.keys is not None:
                self._find(self.keys, random, False)
        for name in (greeting.ticket, server.session_id):
            if name:
                sessions.remember(name, random or hello.random)

    def unlock(self, side: Direction, greeting: Greeting) -> str:
        """Set a direction's first key; returns why it has none (PARTLY: only the other has one)."""
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
