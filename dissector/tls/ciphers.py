"""Derive keys from secrets and decrypt records; the only module that needs `cryptography`.

Ciphers, hashes and HKDF are that library's. The key expansion of TLS 1.2 (RFC 5246, section 5) is
built from its HMAC, as the library has none.
"""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import constant_time, hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dissector.tls import suites
from dissector.tls.suites import Suite

_HASHES: Final[dict[str, Any]] = {
    "sha1": hashes.SHA1, "sha256": hashes.SHA256, "sha384": hashes.SHA384
}  # fmt: skip
_UNOPENED: Final = (InvalidTag, ValueError, OverflowError)
_BLOCK_BYTES: Final = 16  # of AES
EXPLICIT_NONCE_BYTES: Final = 8
Bytes = bytes | memoryview


class RecordOpener(Protocol):
    """Decrypts the records of one direction with one key.

    overhead: the least number of a record body's bytes that are no plain bytes.
    lead: the overhead in front of the plain bytes.
    """

    overhead: int
    lead: int

    def open(self, sequence: int, header: bytes, body: Bytes) -> Bytes | None:
        """The content of a record, None if it is not authentic.

        Args:
            sequence: its number under this key, from 0.
            header: its five bytes.
        """

    def open_row(self, sequence: int, headers: list[bytes], bodies: list[bytes]) -> list[Any]:
        """The contents of consecutive records, up to the first one that is not authentic."""

    def hinted(self, body: Bytes, last: int) -> int | None:
        """The number of records between the last one and this one, by this one's explicit nonce;
        None without one. last: what `hint` returned for the last one."""

    def hint(self, body: Bytes) -> int:
        """The number that `hinted` compares."""


def _aead(suite: Suite, key: bytes) -> Any:
    if suite.mode == suites.GCM:
        return AESGCM(key)
    if suite.mode == suites.CCM:
        return AESCCM(key, suite.tag_bytes)
    return ChaCha20Poly1305(key)


class _OneByOne:
    """Decrypts records one by one."""

    open: Callable[[int, bytes, Bytes], Bytes | None]

    def open_row(self, sequence: int, headers: list[bytes], bodies: list[bytes]) -> list[Any]:
        opened = map(self.open, itertools.count(sequence), headers, bodies)
        return list(itertools.takewhile(lambda content: content is not None, opened))


class _NoHint(_OneByOne):
    """Records without a number in them."""

    def hinted(self, body: Bytes, last: int) -> int | None:
        return None

    def hint(self, body: Bytes) -> int:
        return 0


class _Tls13(_NoHint):
    """TLS 1.3: the last nonzero byte of the content is its type."""

    lead = 0

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._decrypt = _aead(suite, key).decrypt
        self._iv = int.from_bytes(iv, "big")
        self.overhead = suite.tag_bytes + 1

    def open_row(self, sequence: int, headers: list[bytes], bodies: list[bytes]) -> list[Any]:
        iv = self._iv
        numbers = range(sequence, sequence + len(bodies))
        nonces = [(iv ^ number).to_bytes(12, "big") for number in numbers]
        opened: list[Any] = []
        with contextlib.suppress(*_UNOPENED):
            opened.extend(map(self._decrypt, nonces, bodies, headers))
        return opened

    def open(self, sequence: int, header: bytes, body: Bytes) -> Bytes | None:
        try:
            opened: bytes = self._decrypt((self._iv ^ sequence).to_bytes(12, "big"), body, header)
        except _UNOPENED:
            return None
        return opened


class _Implicit12(_NoHint):
    """ChaCha20-Poly1305 of TLS 1.2: the nonce is derived from the number."""

    lead = 0

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._decrypt = _aead(suite, key).decrypt
        self._iv = int.from_bytes(iv, "big")
        self.overhead = suite.tag_bytes

    def open(self, sequence: int, header: bytes, body: Bytes) -> Bytes | None:
        size = len(body) - self.overhead
        if size < 0:
            return None
        data = sequence.to_bytes(8, "big") + header[:3] + size.to_bytes(2, "big")
        try:
            opened: bytes = self._decrypt((self._iv ^ sequence).to_bytes(12, "big"), body, data)
        except _UNOPENED:
            return None
        return opened


class _Explicit12(_OneByOne):
    """GCM and CCM of TLS 1.2: the record has part of the nonce, mostly a counter."""

    lead = EXPLICIT_NONCE_BYTES

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._decrypt = _aead(suite, key).decrypt
        self._iv = iv
        self.overhead = EXPLICIT_NONCE_BYTES + suite.tag_bytes

    def open(self, sequence: int, header: bytes, body: Bytes) -> Bytes | None:
        size = len(body) - self.overhead
        if size < 0:
            return None
        nonce = self._iv + body[:EXPLICIT_NONCE_BYTES]
        data = sequence.to_bytes(8, "big") + header[:3] + size.to_bytes(2, "big")
        try:
            opened: bytes = self._decrypt(nonce, body[EXPLICIT_NONCE_BYTES:], data)
        except _UNOPENED:
            return None
        return opened

    def hinted(self, body: Bytes, last: int) -> int | None:
        between = self.hint(body) - last - 1
        return between if between >= 0 else None

    def hint(self, body: Bytes) -> int:
        return int.from_bytes(body[:EXPLICIT_NONCE_BYTES], "big")


class _Cbc12(_NoHint):
    """AES-CBC of TLS 1.2 with its MAC, before encryption or encrypt-then-MAC."""

    lead = _BLOCK_BYTES

    def __init__(self, suite: Suite, key: bytes, mac_key: bytes, is_mac_outside: bool) -> None:
        self._aes = algorithms.AES(key)
        self._mac_key = mac_key
        self._hash = _HASHES[suite.mac]
        self._is_outside = is_mac_outside
        self.overhead = _BLOCK_BYTES + self._hash.digest_size + 1

    def open(self, sequence: int, header: bytes, body: Bytes) -> Bytes | None:
        end = len(body) - (self._hash.digest_size if self._is_outside else 0)
        if len(body) < self.overhead or end % _BLOCK_BYTES:
            return None
        numbered = sequence.to_bytes(8, "big") + header[:3]
        if self._is_outside and not self._is_authentic(numbered, body[:end], body[end:]):
            return None
        decryptor = Cipher(self._aes, modes.CBC(bytes(body[:_BLOCK_BYTES]))).decryptor()
        opened = decryptor.update(body[_BLOCK_BYTES:end]) + decryptor.finalize()
        padding = opened[-1] + 1
        size = len(opened) - padding - (0 if self._is_outside else self._hash.digest_size)
        if size < 0 or opened[-padding:] != bytes([padding - 1]) * padding:
            return None
        plain, mac = memoryview(opened)[:size], memoryview(opened)[size : len(opened) - padding]
        return plain if self._is_outside or self._is_authentic(numbered, plain, mac) else None

    def _is_authentic(self, numbered: bytes, data: Bytes, mac: Bytes) -> bool:
        code = hmac.HMAC(self._mac_key, self._hash())
        code.update(numbered + len(data).to_bytes(2, "big"))
        code.update(bytes(data))
        return constant_time.bytes_eq(code.finalize(), bytes(mac))


# -- TLS 1.3


class TrafficSecret(NamedTuple):
    """The secret of one direction, from which its keys are derived."""

    suite: Suite
    secret: bytes

    def opener(self) -> RecordOpener:
        """The opener of records under this secret."""
        return _Tls13(self.suite, self._part("key", self.suite.key_bytes), self._part("iv", 12))

    def updated(self) -> "TrafficSecret":
        """The secret that follows a KeyUpdate."""
        return self._replace(secret=self._part("traffic upd", len(self.secret)))

    def _part(self, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        expand = HKDFExpand(_HASHES[self.suite.digest](), size, info)
        return bytes(expand.derive(self.secret))


# -- TLS 1.2


def _expanded(digest: str, secret: bytes, label: bytes, seed: bytes, size: int) -> bytes:
    """The first `size` bytes of the pseudorandom function."""

    def code(data: bytes) -> bytes:
        mac = hmac.HMAC(secret, _HASHES[digest]())
        mac.update(data)
        return bytes(mac.finalize())

    seed, out = label + seed, b""
    at = code(seed)
    while len(out) < size:
        out += code(at + seed)
        at = code(at)
    return out[:size]


def openers12(
    suite: Suite, master: bytes, client_random: bytes, server_random: bytes, is_mac_outside: bool
) -> tuple[RecordOpener, RecordOpener]:
    """The openers of the client's and the server's records in TLS 1.2.

    Args:
        is_mac_outside: of CBC, the MAC is that of what is encrypted (RFC 7366).
    """
    mac_bytes = _HASHES[suite.mac].digest_size if suite.mac else 0
    sizes = [mac_bytes, suite.key_bytes, suite.iv_bytes]
    seed = server_random + client_random
    block = _expanded(suite.digest, master, b"key expansion", seed, 2 * sum(sizes))
    parts: list[bytes] = []
    for size in sizes:
        for _ in range(2):
            parts.append(block[:size])
            block = block[size:]

    def opener(side: int) -> RecordOpener:
        mac_key, key, iv = parts[side::2]
        if suite.mode == suites.CBC:
            return _Cbc12(suite, key, mac_key, is_mac_outside)
        if suite.mode == suites.CHACHA:
            return _Implicit12(suite, key, iv)
        return _Explicit12(suite, key, iv)

    return opener(0), opener(1)
