"""Names of TLS: versions, ciphers and alerts, and which ciphers are read."""

from typing import Final, NamedTuple

TLS_1_2: Final = 0x0303
TLS_1_3: Final = 0x0304
VERSION_NAMES: Final = {
    0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", TLS_1_2: "TLS 1.2", TLS_1_3: "TLS 1.3"
}  # fmt: skip

GCM: Final = "gcm"
CHACHA: Final = "chacha20-poly1305"
CCM: Final = "ccm"
CBC: Final = "cbc"


class Suite(NamedTuple):
    """A cipher suite.

    name: as IANA has it.
    mode: how records are encrypted; empty: not read.
    key_bytes, iv_bytes: of a direction in TLS 1.2.
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


def _aead(name: str, tag_bytes: int = 16) -> Suite:
    """A suite with its numbers, which its name says."""
    digest = "sha384" if name.endswith("SHA384") else "sha256"
    if "CHACHA20" in name:
        return Suite(name, CHACHA, 32, 12, digest)
    mode = GCM if "GCM" in name else CCM
    return Suite(name, mode, 32 if "AES_256" in name else 16, 4, digest, tag_bytes)


def _cbc(name: str) -> Suite:
    mac = {"SHA": "sha1", "SHA256": "sha256", "SHA384": "sha384"}[name.rsplit("_", 1)[1]]
    digest = "sha384" if mac == "sha384" else "sha256"
    return Suite(name, CBC, 32 if "AES_256" in name else 16, 0, digest, 0, mac)


SUITES: Final = {
    0x1301: _aead("TLS_AES_128_GCM_SHA256"),
    0x1302: _aead("TLS_AES_256_GCM_SHA384"),
    0x1303: _aead("TLS_CHACHA20_POLY1305_SHA256"),
    0x1304: _aead("TLS_AES_128_CCM_SHA256"),
    0x1305: _aead("TLS_AES_128_CCM_8_SHA256", 8),
    0x009C: _aead("TLS_RSA_WITH_AES_128_GCM_SHA256"),
    0x009D: _aead("TLS_RSA_WITH_AES_256_GCM_SHA384"),
    0x009E: _aead("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    0x009F: _aead("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    0xC02B: _aead("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    0xC02C: _aead("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    0xC02F: _aead("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    0xC030: _aead("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    0xCCA8: _aead("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    0xCCA9: _aead("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    0xCCAA: _aead("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    0x002F: _cbc("TLS_RSA_WITH_AES_128_CBC_SHA"),
    0x0035: _cbc("TLS_RSA_WITH_AES_256_CBC_SHA"),
    0x003C: _cbc("TLS_RSA_WITH_AES_128_CBC_SHA256"),
    0x003D: _cbc("TLS_RSA_WITH_AES_256_CBC_SHA256"),
    0xC009: _cbc("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    0xC00A: _cbc("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    0xC013: _cbc("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    0xC014: _cbc("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    0xC023: _cbc("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    0xC024: _cbc("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    0xC027: _cbc("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    0xC028: _cbc("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
}

ALERT_NAMES: Final = {
    0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 21: "decryption_failed",
    22: "record_overflow", 30: "decompression_failure", 40: "handshake_failure",
    41: "no_certificate", 42: "bad_certificate", 43: "unsupported_certificate",
    44: "certificate_revoked", 45: "certificate_expired", 46: "certificate_unknown",
    47: "illegal_parameter", 48: "unknown_ca", 49: "access_denied", 50: "decode_error",
    51: "decrypt_error", 60: "export_restriction", 70: "protocol_version",
    71: "insufficient_security", 80: "internal_error", 86: "inappropriate_fallback",
    90: "user_canceled", 100: "no_renegotiation", 109: "missing_extension",
    110: "unsupported_extension", 111: "certificate_unobtainable", 112: "unrecognized_name",
    113: "bad_certificate_status_response", 114: "bad_certificate_hash_value",
    115: "unknown_psk_identity", 116: "certificate_required", 120: "no_application_protocol",
}  # fmt: skip
CLOSE_NOTIFY: Final = 0


def suite_of(number: int) -> Suite:
    """What is known of a cipher suite; its number in the place of a name that is not known."""
    known = SUITES.get(number)
    return Suite(f"0x{number:04x}") if known is None else known


def alert_name(number: int) -> str:
    """The name of an alert, or its number."""
    return ALERT_NAMES.get(number, f"alert {number}")


def version_name(number: int) -> str:
    """The name of a version, or its number."""
    return VERSION_NAMES.get(number, f"0x{number:04x}")
