"""Parse the secrets of TLS connections in a key log (NSS's format).

A line is a label, the client's random and a secret, in hexadecimal digits; `#` begins a comment.
"""

import re
from collections import OrderedDict
from typing import Final

from dissector import limits

MASTER_SECRET: Final = "CLIENT_RANDOM"
_LINE: Final = re.compile(rb"([A-Z][A-Z0-9_]*) ([0-9A-Fa-f]{64}) ([0-9A-Fa-f]{2,256})[ \t\r]*")
# Labels of the secrets that decrypt application data; all others are skipped.
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
    """Secrets by the client's random of their connection. `repr` shows none of them.

    broken: numbers of the first malformed lines, from 1; broken_lines: the number of all.
    lines: the number of lines, including empty ones and comments.
    may_grow: further secrets may be added while packets are read.
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
        """The number of connections with secrets."""
        return len(self._secrets) + (0 if self._under is None else len(self._under))

    def __repr__(self) -> str:
        return f"KeyLog({len(self)} connections)"

    def widened(self) -> "KeyLog":
        """A key log on top of this one: it has this one's secrets, also later ones; secrets added
        to it are not added here."""
        return KeyLog(may_grow=self.may_grow, under=self)

    @property
    def total_lines(self) -> int:
        """Lines so far, including the key log beneath."""
        return self.lines + (0 if self._under is None else self._under.total_lines)

    def update(self, other: "KeyLog") -> None:
        """Add the secrets of another key log."""
        for random, secrets in other._secrets.items():
            labels = {label for label, _ in secrets}
            known = [each for each in self._secrets.get(random, []) if each[0] not in labels]
            self._secrets[random] = known + secrets
        self.lines += other.lines
        self._bound()

    def add(self, text: bytes, *, is_whole: bool = True) -> None:
        """Add more text of a key log.

        Args:
            is_whole: the text ends with a whole line; if not, the part behind the last line end is
                buffered for the next call.
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
        """Drop the oldest connections over the limit."""
        while len(self._secrets) > limits.MAX_KEY_LOG_CONNECTIONS:
            self._secrets.popitem(last=False)

    def find(self, random: bytes) -> dict[str, bytes]:
        """Secrets of the connection with this client random, by label; empty if there are none."""
        beneath = {} if self._under is None else self._under.find(random)
        return beneath | dict(self._secrets.get(random, ()))

    def lines_of(self, random: bytes, logged_random: bytes) -> list[str]:
        """The key log lines of a connection.

        Args:
            random: its client's. logged_random: the random of its secrets in this key log.
        """
        secrets = self.find(logged_random)
        return [f"{label} {random.hex()} {secret.hex()}" for label, secret in secrets.items()]

    def _pass_over(self, line: bytes) -> None:
        text = line.strip()
        if text and not text.startswith(b"#") and not _OLD_RSA.fullmatch(line):
            self._note_broken()

    def _note_broken(self) -> None:
        self.broken_lines += 1
        if len(self.broken) < limits.MAX_BROKEN_KEY_LINES:
            self.broken.append(self.lines)
