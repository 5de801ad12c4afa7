"""The facts of a TLS connection: its columns of the table connections."""

from collections.abc import Sequence
from typing import Any, Final

from dissector.tls.certificates import CertificateFacts

# Whether a connection's records were decrypted, or why not (`connections.tls_decryption`).
DECRYPTED: Final = "decrypted"
PARTLY: Final = "partly"
NO_KEY_LOG: Final = "no_key_log"
NO_KEY: Final = "no_key"
WRONG_KEY: Final = "wrong_key"
NO_HELLO: Final = "no_hello"
UNSUPPORTED: Final = "unsupported"
NO_LIBRARY: Final = "no_library"
LIMIT: Final = "limit"
_COLUMNS: Final = (
    "tls_version", "tls_cipher", "tls_alpn", "tls_resumed", "tls_handshake_ns",
    "tls_alert_to_broker", "tls_alert_to_client", "tls_certificate_subject",
    "tls_certificate_not_before_ns", "tls_certificate_not_after_ns", "tls_decryption",
)  # fmt: skip


class TlsFacts:
    """Columns of `connections`. client: endpoint index of the ClientHello's sender.

    alerts: by endpoint, the last one other than close_notify.
    overhead: by endpoint, stream bytes minus plain bytes; None if nothing was decrypted.
    """

    def __init__(self, decryption: str = NO_KEY_LOG) -> None:
        self.client = 0
        self.decryption = decryption
        self.version: str | None = None
        self.cipher: str | None = None
        self.server_name: str | None = None
        self.protocol: str | None = None
        self.is_resumed: bool | None = None
        self.certificate: CertificateFacts | None = None
        self.hello_ns: int | None = None
        self.handshake_ns: int | None = None
        self.alerts: list[str | None] = [None, None]
        self.overhead: list[int] | None = None


LIMITED: Final = TlsFacts(LIMIT)  # of connections beyond MAX_TLS_CONNECTIONS


def tls_columns(
    facts: Sequence[TlsFacts | None], names: Sequence[str | None], is_tls: Sequence[bool]
) -> dict[str, list[Any]]:
    """The TLS columns of connections, by name. names: server names known without TLS facts; is_tls:
    also true for TLS that was recognised without a hello."""
    columns: dict[str, list[Any]] = {name: [None] * len(facts) for name in _COLUMNS}
    columns["tls_sni"] = list(names)
    for row, known in enumerate(facts):
        if known is None:
            columns["tls_decryption"][row] = NO_HELLO if is_tls[row] else None
            continue
        own = known.certificate
        values = (
            known.version, known.cipher, known.protocol, known.is_resumed, known.handshake_ns,
            # The client's alerts go to the broker.
            known.alerts[known.client], known.alerts[1 - known.client],
            own and own.subject, own and own.not_before_ns, own and own.not_after_ns,
            known.decryption,
        )  # fmt: skip
        for name, value in zip(_COLUMNS, values, strict=True):
            columns[name][row] = value
        columns["tls_sni"][row] = known.server_name or names[row]
    return columns
