"""Secrets in Cursus' texts: which they are, and what is shown in their place.

Tokens go in clear: as arguments of commands, by their place in a line of the discovery port, and,
by a mistake of two clients, behind a message's text, so that they are stored with it.
"""

import re
from typing import Final

_ASSIGNED: Final = re.compile(
    rb"(?i)((?:\b|_)token=)(\\?\"(?:[^\"\\]|\\.)*\"?|[^\s\"]+)", re.DOTALL
)
_DISCOVERY: Final = re.compile(
    rb"(?is)(\bAUTH\s+)([^\s=\"]+)(\s+(?:JOIN|LEAVE|HEARTBEAT|LIST)_CLUSTER\b)"
)
_IN_JSON: Final = re.compile(rb"(?is)(\"[a-z_]*token\\*\"\s*:\s*\\*\")((?:[^\"\\]|\\.)*)")
_APPENDED: Final = re.compile(rb"(?i)(?:\A|\s)(?:auth_|internal_)?token=\S")


def hidden(size: int) -> bytes:
    """What stands for a secret of so many bytes."""
    return b"<redacted: %d bytes>" % size


def _hide(found: "re.Match[bytes]") -> bytes:
    return found[1] + hidden(len(found[2]))


def is_secret(name: str) -> bool:
    """Whether a field of this name holds a secret: token, auth_token, internal_token."""
    return name.lower().endswith("token")


def without_secrets(text: bytes) -> bytes:
    """A text of the protocol with all secrets hidden."""
    lowered = text.lower()
    if b"token" not in lowered and b"auth" not in lowered:
        return text
    text = _DISCOVERY.sub(lambda found: _hide(found) + found[3], text)
    return _IN_JSON.sub(_hide, _ASSIGNED.sub(_hide, text))


def holds_token(payload: bytes) -> bool:
    """Whether a message's payload carries credentials that a client appended to it."""
    return b"token=" in payload and _APPENDED.search(payload) is not None
