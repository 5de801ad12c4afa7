"""Names of TLS versions, ciphers and alerts, and the supported ciphers."""

from typing import Final, NamedTuple

from dissector.schemas import tls_names

TLS_1_2: Final = 0x0303
TLS_1_3: Final = 0x0304

GCM: Final = "gcm"
CHACHA: Final = "chacha20-poly1305"
CCM: Final = "ccm"
CBC: Final = "cbc"


class Suite(NamedTuple):
    """A cipher suite.

    name: IANA's.
    mode: how records are encrypted; empty: not supported.
    key_bytes, iv_bytes: of one direction in TLS 1.2.
    digest: of the key schedule.
    tag_bytes: behind each record.
    mac: hash of the MAC of CBC.
    """

    name: str
    mode: str = ""
    key_bytes: int = 0
    iv_bytes: int = 0
    digest: str = "sha256"
    tag_bytes: int = 16
    mac: str = ""


def _aead(name: str, tag_bytes: int) -> Suite:
    """A suite with the numbers that its name implies."""
    digest = "sha384" if name.endswith("SHA384") else "sha256"
    if "CHACHA20" in name:
        return Suite(name, CHACHA, 32, 12, digest)
    mode = GCM if "GCM" in name else CCM
    return Suite(name, mode, 32 if "AES_256" in name else 16, 4, digest, tag_bytes)


def _cbc(name: str) -> Suite:
    mac = {"SHA": "sha1", "SHA256": "sha256", "SHA384": "sha384"}[name.rsplit("_", 1)[1]]
    digest = "sha384" if mac == "sha384" else "sha256"
    return Suite(name, CBC, 32 if "AES_256" in name else 16, 0, digest, 0, mac)


def _suite(name: str) -> Suite:
    return _cbc(name) if "_CBC_" in name else _aead(name, 8 if "_CCM_8_" in name else 16)


SUITES: Final = {number: _suite(name) for number, name in tls_names.SUITE_NAMES.items()}

CLOSE_NOTIFY: Final = 0


def suite_of(number: int) -> Suite:
    """A cipher suite by number; the name of an unknown one is its number."""
    known = SUITES.get(number)
    return Suite(f"0x{number:04x}") if known is None else known


def alert_name(number: int) -> str:
    """The name of an alert, or its number."""
    return tls_names.ALERT_NAMES.get(number, f"alert {number}")


def version_name(number: int) -> str:
    """The name of a version, or its number."""
    return tls_names.VERSION_NAMES.get(number, f"0x{number:04x}")
