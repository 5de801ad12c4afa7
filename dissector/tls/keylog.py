"""Secrets of TLS connections, as clients write them into a key log (NSS's format).

A line is a label, the client's random and a secret, in hexadecimal digits; `#` begins a comment.
"""

import re
from collections import OrderedDict
from typing import Final

from dissector import limits

MASTER_SECRET: Final = "CLIENT_RANDOM"
_LINE: Final = re.compile(rb"([A-Z][A-Z0-9_]*) ([0-9A-Fa-f]{64}) ([0-9A-Fa-f]{2,256})[ \t\r]*")
# Those that open application data; all others are passed over.
_USED: Final = {
    label.encode(): label
    for label in (
        MASTER_SECRET,
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    )
}
_OLD_RSA: Final = re.compile(rb"RSA [0-9A-Fa-f]{16} [0-9A-Fa-f]{96}[ \t\r]*")


class KeyLog:
    """Secrets by the client's random of their connection. They are in no text and no copy of it.

    broken: numbers of the first lines, from 1, that are none of a key log; broken_lines: how many.
    lines: how many there were, empty ones and comments, too.
    may_grow: further secrets may come while packets are read.
    """

    def __init__(
        self, text: bytes = b"", *, may_grow: bool = False, under: "KeyLog | None" = None
    ) -> None:
        self._under = under
        self._secrets: OrderedDict[bytes, list[tuple[str, bytes]]] = OrderedDict()
        self._rest = b""
        self.broken: list[int] = []
        self.broken_lines = 0
        self.lines = 0
        self.may_grow = may_grow
        self.add(text)

    def __len__(self) -> int:
        """Connections of which something is known."""
        return len(self._secrets) + (0 if self._under is None else len(self._under))

    def __repr__(self) -> str:
        return f"KeyLog({len(self)} connections)"

    def widened(self) -> "KeyLog":
        """One that has these secrets, those that come to them, and takes others for itself."""
        return KeyLog(may_grow=self.may_grow, under=self)

    @property
    def total_lines(self) -> int:
        """Lines so far, also of the log beneath: it tells whether there are new ones."""
        return self.lines + (0 if self._under is None else self._under.total_lines)

    def update(self, other: "KeyLog") -> None:
        """Take the secrets of another one."""
        for random, secrets in other._secrets.items():
            labels = {label for label, _ in secrets}
            known = [each for each in self._secrets.get(random, []) if each[0] not in labels]
            self._secrets[random] = known + secrets
        self.lines += other.lines
        self._bound()

    def add(self, text: bytes, *, is_whole: bool = True) -> None:
        """Take more of a key log.

        Args:
            is_whole: it ends with a line; else what stands behind the last line's end waits for
                the rest.
        """
        text = self._rest + text
        self._rest = b""
        if not is_whole:
            end = text.rfind(b"\n") + 1
            self._rest = text[end:][: limits.MAX_KEY_LINE_BYTES]
            text = text[:end]
        secrets, used = self._secrets, _USED
        for line in text.splitlines():
            self.lines += 1
            match = _LINE.fullmatch(line)
            if match is None:
                self._pass_over(line)
                continue
            label = used.get(match[1])
            if label is None:
                continue
            random = bytes.fromhex(match[2].decode())
            known = secrets.setdefault(random, [])
            if len(match[3]) % 2:
                self._note_broken()
            elif len(known) < len(used) or label in (name for name, _ in known):
                secret = bytes.fromhex(match[3].decode())
                known[:] = [each for each in known if each[0] != label]
                known.append((label, secret))
        self._bound()

    def _bound(self) -> None:
        """Forget the first connections, if there are too many."""
        while len(self._secrets) > limits.MAX_KEY_LOG_CONNECTIONS:
            self._secrets.popitem(last=False)

    def find(self, random: bytes) -> dict[str, bytes]:
        """Secrets of the connection with this client random, by label; none if nothing is known."""
        beneath = {} if self._under is None else self._under.find(random)
        return beneath | dict(self._secrets.get(random, ()))

    def lines_of(self, random: bytes, found: bytes) -> list[str]:
        """The lines of a connection, as a key log has them.

        Args:
            random: its client's. found: under which its secrets are here.
        """
        secrets = self.find(found)
        return [f"{label} {random.hex()} {secret.hex()}" for label, secret in secrets.items()]

    def _pass_over(self, line: bytes) -> None:
        text = line.strip()
        if text and not text.startswith(b"#") and not _OLD_RSA.fullmatch(line):
            self._note_broken()

    def _note_broken(self) -> None:
        self.broken_lines += 1
        if len(self.broken) < limits.MAX_BROKEN_KEY_LINES:
            self.broken.append(self.lines)
