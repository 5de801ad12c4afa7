"""TLS around plain conversations: by OpenSSL over memory, or record by record with secrets made up.

A conversation is a list of (side, bytes), side 0 the client's. What comes out has the same bytes in
both directions when it is opened: that is the independent truth. The key schedule here is written
with `hmac` of the standard library alone.
"""

import contextlib
import datetime
import functools
import hashlib
import hmac
import ssl
import struct
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dpkt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.x509.oid import NameOID

from tests.wire import captures, packets

Said = list[tuple[int, bytes]]
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
SUBJECT = "CN=broker.example,O=Example"
NOT_BEFORE = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
NOT_AFTER = datetime.datetime(2035, 1, 1, tzinfo=datetime.UTC)


class Spoken(NamedTuple):
    """A conversation in TLS: what went over the wire, in order; the key log; the plain twin.

    resumed: whether OpenSSL resumed a session. session: to be resumed.
    """

    wire: Said
    keys: str
    plain: Said
    resumed: bool = False
    session: Any = None
    client: Any = None
    server: Any = None


def conversation_of(path: Path) -> Said:
    """The payloads of the first connection of a pcap file without loss, in order."""
    said: Said = []
    client: Any = None
    following: dict[int, int] = {}
    with path.open("rb") as file:
        for _, packet in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(packet).data
            tcp = ip.data
            if client is None and tcp.flags == dpkt.tcp.TH_SYN:
                client = (ip.src, tcp.sport)
            if tcp.flags & dpkt.tcp.TH_SYN:
                following[tcp.sport] = (tcp.seq + 1) & 0xFFFF_FFFF
            elif tcp.data and following.get(tcp.sport) == tcp.seq:
                following[tcp.sport] = (tcp.seq + len(tcp.data)) & 0xFFFF_FFFF
                said.append((int((ip.src, tcp.sport) != client), bytes(tcp.data)))
    return said


# -- packets


def packets_of(
    said: Said,
    *,
    port: int = packets.CLIENT_PORT,
    segment: int = 1448,
    is_opened: bool = True,
    is_closed: bool = True,
    step_ns: int = STEP_NS,
) -> list[captures.Record]:
    """A TCP connection that carries these bytes, a millisecond between packets."""
    sequence, out = [1000, 5000], list[captures.Record]()

    def put(side: int, data: bytes, flags: int) -> None:
        packet = packets.segment(
            data, to_broker=side == 0, client=(packets.CLIENT, port),
            broker=(packets.BROKER, 6651), sequence=sequence[side],
            acknowledgement=sequence[1 - side] if flags != packets.SYN else 0, flags=flags,
        )  # fmt: skip
        out.append(captures.Record(START_NS + step_ns * len(out), packet))
        sequence[side] += len(data) + bool(flags & (packets.SYN | packets.FIN))

    if is_opened:
        put(0, b"", packets.SYN)
        put(1, b"", packets.SYN | packets.ACK)
        put(0, b"", packets.ACK)
    for side, data in said:
        for at in range(0, len(data), segment):
            put(side, data[at : at + segment], packets.ACK | packets.PSH)
    if is_closed:
        put(0, b"", packets.FIN | packets.ACK)
        put(1, b"", packets.FIN | packets.ACK)
        put(0, b"", packets.ACK)
    return out


def secrets_block(keys: str) -> bytes:
    """A Decryption Secrets Block of pcapng with a TLS key log."""
    body = keys.encode()
    return captures.block(10, struct.pack("<II", 0x544C534B, len(body)) + body)


def write(path: Path, records: Sequence[captures.Record]) -> Path:
    """A pcap file."""
    path.write_bytes(captures.pcap(records))
    return path


# -- OpenSSL


@functools.cache
def certificate() -> tuple[str, str]:
    """Paths of a certificate and its key, for the server and for clients that must have one."""
    folder = Path(tempfile.mkdtemp(prefix="tls"))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "broker.example"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
        ]
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return str(paths[0]), str(paths[1])


def _contexts(
    version: ssl.TLSVersion, ciphers: str | None, curve: str | None, wants_client: bool
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    client, server = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
    )
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    server.load_cert_chain(*certificate())
    for context in (client, server):
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["pulsar"])
        if ciphers is not None:
            context.set_ciphers(ciphers)
    if curve is not None:
        server.set_ecdh_curve(curve)
    if wants_client:
        client.load_cert_chain(*certificate())
        server.load_verify_locations(certificate()[0])
        server.verify_mode = ssl.CERT_REQUIRED
    return client, server


def spoken(
    plain: Said,
    *,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ciphers: str | None = None,
    curve: str | None = None,
    wants_client: bool = False,
    before: Spoken | None = None,
) -> Spoken:
    """A conversation through OpenSSL, one record for each of its parts.

    Args:
        before: whose session is resumed.
    """
    if before is not None:
        contexts = before.client, before.server
    else:
        contexts = _contexts(version, ciphers, curve, wants_client)
    with tempfile.NamedTemporaryFile("r", suffix=".keys") as log:
        contexts[0].keylog_filename = log.name
        bios = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
        session = None if before is None else before.session
        sides = [
            contexts[0].wrap_bio(*bios[0], server_hostname="broker.example", session=session),
            contexts[1].wrap_bio(*bios[1], server_side=True),
        ]
        wire: Said = []

        def move(side: int) -> None:
            data = bios[side][1].read()
            if data:
                wire.append((side, data))
                bios[1 - side][0].write(data)

        done = [False, False]
        while not all(done):
            for side in (0, 1):
                try:
                    sides[side].do_handshake()
                    done[side] = True
                except ssl.SSLWantReadError:
                    pass
                move(side)
        for side, data in plain:
            sides[side].write(data)
            move(side)
            got = b""
            while len(got) < len(data):
                got += sides[1 - side].read(1 << 16)
            assert got == data
        resumed, kept = bool(sides[0].session_reused), sides[0].session
        for side in (0, 1):
            with contextlib.suppress(ssl.SSLError):
                sides[side].unwrap()
            move(side)
        contexts[0].keylog_filename = None
        keys = log.read()
    return Spoken(wire, keys, plain, resumed, kept, *contexts)


# -- record by record


def expand_label(digest: str, secret: bytes, label: str, size: int, context: bytes = b"") -> bytes:
    """HKDF-Expand-Label of RFC 8446."""
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", size, len(name)) + name + bytes([len(context)]) + context
    out, block, number = b"", b"", 1
    while len(out) < size:
        block = hmac.new(secret, block + info + bytes([number]), digest).digest()
        out += block
        number += 1
    return out[:size]


def prf(digest: str, secret: bytes, label: bytes, seed: bytes, size: int) -> bytes:
    """The pseudorandom function of RFC 5246."""
    seed = label + seed
    out, a = b"", seed
    while len(out) < size:
        a = hmac.new(secret, a, digest).digest()
        out += hmac.new(secret, a + seed, digest).digest()
    return out[:size]


class Kind(NamedTuple):
    """A cipher suite: number, how to encrypt, bytes of the key, hash, of CBC that of the MAC."""

    number: int
    mode: str
    key_bytes: int
    digest: str
    mac: str = ""


KINDS = {
    "TLS_AES_128_GCM_SHA256": Kind(0x1301, "gcm", 16, "sha256"),
    "TLS_AES_256_GCM_SHA384": Kind(0x1302, "gcm", 32, "sha384"),
    "TLS_CHACHA20_POLY1305_SHA256": Kind(0x1303, "chacha", 32, "sha256"),
    "TLS_AES_128_CCM_SHA256": Kind(0x1304, "ccm", 16, "sha256"),
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": Kind(0xC02F, "gcm", 16, "sha256"),
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": Kind(0xC030, "gcm", 32, "sha384"),
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": Kind(0xCCA8, "chacha", 32, "sha256"),
    "TLS_RSA_WITH_AES_128_CBC_SHA": Kind(0x002F, "cbc", 16, "sha256", "sha1"),
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": Kind(0xC028, "cbc", 32, "sha384", "sha384"),
}


def record(kind: int, body: bytes, version: int = 0x0303) -> bytes:
    """A record as it stands on the wire."""
    return struct.pack(">BHH", kind, version, len(body)) + body


def message(kind: int, body: bytes) -> bytes:
    """A handshake message."""
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def _sized(data: bytes, size: int) -> bytes:
    return len(data).to_bytes(size, "big") + data


def _extension(kind: int, body: bytes) -> bytes:
    return struct.pack(">HH", kind, len(body)) + body


def client_hello(random: bytes, *, extensions: Iterable[bytes] = (), name: str = "b.test") -> bytes:
    """A ClientHello message that names a server."""
    server = _extension(0, _sized(b"\0" + _sized(name.encode(), 2), 2))
    body = b"\x03\x03" + random + _sized(b"s" * 32, 1) + _sized(b"\x13\x01", 2) + b"\x01\0"
    return message(1, body + _sized(server + b"".join(extensions), 2))


def server_hello(
    random: bytes, number: int, *, is_13: bool, extensions: Iterable[bytes] = ()
) -> bytes:
    """A ServerHello message."""
    own = [_extension(43, b"\x03\x04")] if is_13 else []
    body = b"\x03\x03" + random + _sized(b"s" * 32, 1) + struct.pack(">HB", number, 0)
    return message(2, body + _sized(b"".join([*own, *extensions]), 2))


EARLY_DATA = _extension(42, b"")
ENCRYPT_THEN_MAC = _extension(22, b"")


class Writer13:
    """Encrypts the records of one direction in TLS 1.3."""

    def __init__(self, kind: Kind, secret: bytes) -> None:
        self.kind, self.secret, self.sequence = kind, secret, 0
        self._renew()

    def _renew(self) -> None:
        key = expand_label(self.kind.digest, self.secret, "key", self.kind.key_bytes)
        self._iv = int.from_bytes(expand_label(self.kind.digest, self.secret, "iv", 12), "big")
        makers = {"gcm": AESGCM, "ccm": AESCCM, "chacha": ChaCha20Poly1305}
        self._aead = makers[self.kind.mode](key)

    def record(self, content: bytes, kind: int = 23, padding: int = 0) -> bytes:
        """The next record."""
        inner = content + bytes([kind]) + bytes(padding)
        header = struct.pack(">BHH", 23, 0x0303, len(inner) + 16)
        nonce = (self._iv ^ self.sequence).to_bytes(12, "big")
        self.sequence += 1
        return header + self._aead.encrypt(nonce, inner, header)

    def update(self) -> bytes:
        """A KeyUpdate, behind which the next secret is in use."""
        out = self.record(message(24, b"\0"), 22)
        size = len(self.secret)
        self.secret = expand_label(self.kind.digest, self.secret, "traffic upd", size)
        self.sequence = 0
        self._renew()
        return out


class Writer12:
    """Encrypts the records of one direction in TLS 1.2."""

    def __init__(self, kind: Kind, parts: tuple[bytes, bytes, bytes], is_outside: bool) -> None:
        self.kind, self.sequence, self._is_outside = kind, 0, is_outside
        self._mac_key, self._key, self._iv = parts

    def record(self, content: bytes, kind: int = 23) -> bytes:
        """The next record."""
        numbered = struct.pack(">QBH", self.sequence, kind, 0x0303)
        self.sequence += 1
        if self.kind.mode == "cbc":
            return record(kind, self._cbc(numbered, content))
        data = numbered + struct.pack(">H", len(content))
        if self.kind.mode == "chacha":
            number = int.from_bytes(self._iv, "big") ^ (self.sequence - 1)
            aead: Any = ChaCha20Poly1305(self._key)
            return record(kind, aead.encrypt(number.to_bytes(12, "big"), content, data))
        explicit = struct.pack(">Q", 77 + self.sequence)
        made = AESGCM(self._key).encrypt(self._iv + explicit, content, data)
        return record(kind, explicit + made)

    def _cbc(self, numbered: bytes, content: bytes) -> bytes:
        def mac(data: bytes) -> bytes:
            sized = numbered + struct.pack(">H", len(data)) + data
            return hmac.new(self._mac_key, sized, self.kind.mac).digest()

        inner = content if self._is_outside else content + mac(content)
        padding = 15 - len(inner) % 16
        inner += bytes([padding]) * (padding + 1)
        iv = hashlib.md5(numbered).digest()
        encryptor = Cipher(algorithms.AES(self._key), modes.CBC(iv)).encryptor()
        out = iv + encryptor.update(inner) + encryptor.finalize()
        return out + (mac(out) if self._is_outside else b"")


class Written(NamedTuple):
    """A handshake as it stands on the wire, the key log, and who writes what follows."""

    wire: Said
    keys: str
    writers: tuple[Any, Any]


def begun_13(name: str, seed: int = 1, *, has_early: bool = False, early: bytes = b"") -> Written:
    """A handshake of TLS 1.3 whose secrets are made up. early: records of 0-RTT."""
    kind = KINDS[name]
    size = hashlib.new(kind.digest).digest_size
    random, *secrets = (
        hashlib.sha512(b"%d %d" % (seed, number)).digest()[: 32 if number == 0 else size]
        for number in range(5)
    )
    client_first, server_first, client_next, server_next = secrets
    labels = (
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0",
    )  # fmt: skip
    keys = "".join(
        f"{label} {random.hex()} {secret.hex()}\n"
        for label, secret in zip(labels, secrets, strict=True)
    )
    extensions = [EARLY_DATA] if has_early else []
    hello = record(22, client_hello(random, extensions=extensions), 0x0301)
    server = Writer13(kind, server_first)
    client = Writer13(kind, client_first)
    encrypted = message(8, _sized(b"".join(extensions), 2))
    answer = record(22, server_hello(bytes(32), kind.number, is_13=True))
    answer += record(20, b"\x01")
    answer += server.record(encrypted + message(20, bytes(size)), 22)
    last = record(20, b"\x01") + client.record(message(20, bytes(size)), 22)
    wire = [(0, hello + early), (1, answer), (0, last)]
    return Written(wire, keys, (Writer13(kind, client_next), Writer13(kind, server_next)))


def begun_12(
    name: str, seed: int = 1, *, is_outside: bool = False, is_resumed: bool = True
) -> Written:
    """A handshake of TLS 1.2 whose master secret is made up."""
    kind = KINDS[name]
    random, server_random = (hashlib.sha256(b"%d %d" % (seed, n)).digest() for n in range(2))
    master = hashlib.sha384(b"%d" % seed).digest()
    mac_bytes = hashlib.new(kind.mac).digest_size if kind.mac else 0
    iv_bytes = {"gcm": 4, "chacha": 12, "cbc": 0}[kind.mode]
    sizes = [size for size in (mac_bytes, kind.key_bytes, iv_bytes) for _ in range(2)]
    block = prf(kind.digest, master, b"key expansion", server_random + random, sum(sizes))
    parts = [block[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(6)]
    writers = [
        Writer12(kind, (parts[side], parts[2 + side], parts[4 + side]), is_outside)
        for side in (0, 1)
    ]
    extensions = [ENCRYPT_THEN_MAC] if is_outside else []
    finished = message(20, bytes(12))
    hello = server_hello(server_random, kind.number, is_13=False, extensions=extensions)
    wire = [
        (0, record(22, client_hello(random), 0x0301)),
        (1, record(22, hello) + record(20, b"\x01") + writers[1].record(finished, 22)),
        (0, record(20, b"\x01") + writers[0].record(finished, 22)),
    ]
    keys = f"CLIENT_RANDOM {random.hex()} {master.hex()}\n"
    return Written(wire, keys, (writers[0], writers[1]))


def carried(written: Written, plain: Said) -> Said:
    """A handshake and the records of a conversation behind it."""
    return [*written.wire, *((side, written.writers[side].record(data)) for side, data in plain)]
