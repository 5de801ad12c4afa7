"""Parse handshake messages of TLS. A malformed message or field counts as absent."""

import enum
from typing import Final, NamedTuple

from dissector.tls.certificates import CertificateFacts, certificate_facts

HELLO_RETRY_RANDOM: Final = bytes.fromhex(
    "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
)


class Message(enum.IntEnum):
    """Types of messages."""

    HELLO_REQUEST = 0
    CLIENT_HELLO = 1
    SERVER_HELLO = 2
    NEW_SESSION_TICKET = 4
    END_OF_EARLY_DATA = 5
    ENCRYPTED_EXTENSIONS = 8
    CERTIFICATE = 11
    SERVER_HELLO_DONE = 14
    FINISHED = 20
    KEY_UPDATE = 24


class _Extension(enum.IntEnum):
    SERVER_NAME = 0
    ALPN = 16
    ENCRYPT_THEN_MAC = 22
    SESSION_TICKET = 35
    PRE_SHARED_KEY = 41
    EARLY_DATA = 42
    SUPPORTED_VERSIONS = 43


class ClientHello(NamedTuple):
    """The ClientHello's fields.

    server_name: None if it names none.
    session_id, ticket: of the session that it wants to resume; empty if none.
    has_early_data: it sends application data before the server answers.
    """

    random: bytes
    session_id: bytes
    ticket: bytes
    server_name: str | None
    has_early_data: bool


class ServerHello(NamedTuple):
    """The ServerHello's fields.

    suite: number of the cipher suite.
    protocol: chosen by ALPN, None if it is not in this message.
    is_resumed: TLS 1.3 resumes a session; for TLS 1.2 the next messages decide.
    is_retry: it requests another ClientHello.
    """

    random: bytes
    version: int
    session_id: bytes
    suite: int
    compression: int
    protocol: str | None
    is_resumed: bool
    is_retry: bool
    encrypts_then_macs: bool


class _Bytes:
    """Reads a message from its front; behind its end it returns empty bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size).rjust(size, b"\0"), "big")

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def list(self, size_bytes: int) -> bytes:
        """The bytes of a length-prefixed list."""
        return self.take(self.number(size_bytes))

    @property
    def is_left(self) -> bool:
        return self._at < len(self._data)


def _extensions(data: _Bytes) -> dict[int, bytes]:
    extensions: dict[int, bytes] = {}
    rest = _Bytes(data.list(2))
    while rest.is_left:
        kind = rest.number(2)
        extensions.setdefault(kind, rest.list(2))
    return extensions


def _name(data: bytes) -> str:
    return data.decode("ascii", "backslashreplace")


def _protocol(extensions: dict[int, bytes]) -> str | None:
    """The one protocol that an answer names by ALPN."""
    names = _Bytes(_Bytes(extensions.get(_Extension.ALPN, b"")).list(2))
    return _name(names.list(1)) or None


def client_hello(body: bytes) -> ClientHello | None:
    """A ClientHello; None if it is none."""
    data = _Bytes(body)
    data.take(2)
    random = data.take(32)
    session_id = data.list(1)
    data.list(2)
    data.list(1)
    extensions = _extensions(data)
    if len(random) < 32:
        return None
    names = _Bytes(_Bytes(extensions.get(_Extension.SERVER_NAME, b"")).list(2))
    kind = names.number(1)
    server_name = _name(names.list(2)) if kind == 0 else ""
    return ClientHello(
        random,
        session_id,
        extensions.get(_Extension.SESSION_TICKET, b""),
        server_name or None,
        _Extension.EARLY_DATA in extensions,
    )


def server_hello(body: bytes) -> ServerHello | None:
    """A ServerHello, or a HelloRetryRequest; None if it is none."""
    data = _Bytes(body)
    version = data.number(2)
    random = data.take(32)
    session_id = data.list(1)
    suite, compression = data.number(2), data.number(1)
    extensions = _extensions(data)
    if len(body) < 38:
        return None
    chosen = extensions.get(_Extension.SUPPORTED_VERSIONS, b"")
    if len(chosen) == 2:
        version = int.from_bytes(chosen, "big")
    return ServerHello(
        random,
        version,
        session_id,
        suite,
        compression,
        _protocol(extensions),
        _Extension.PRE_SHARED_KEY in extensions,
        random == HELLO_RETRY_RANDOM,
        _Extension.ENCRYPT_THEN_MAC in extensions,
    )


def session_ticket(body: bytes) -> bytes:
    """The ticket of a NewSessionTicket of TLS 1.2, empty if there is none."""
    data = _Bytes(body)
    data.take(4)
    return data.list(2)


def encrypted_extensions(body: bytes) -> tuple[str | None, bool]:
    """The protocol (ALPN) that EncryptedExtensions names, and whether it takes early data."""
    extensions = _extensions(_Bytes(body))
    return _protocol(extensions), _Extension.EARLY_DATA in extensions


def certificate(body: bytes) -> CertificateFacts | None:
    """The first certificate of a Certificate message of TLS 1.2, the server's own."""
    return certificate_facts(_Bytes(_Bytes(body).list(3)).list(3))
