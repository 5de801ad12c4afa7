"""What is known of a TLS connection as a whole, without its bytes."""

from typing import Final

from dissector.tls.certificates import CertificateFacts

# What became of a connection's records (`connections.tls_decryption`).
DECRYPTED: Final = "decrypted"
PARTLY: Final = "partly"
NO_KEY_LOG: Final = "no_key_log"
NO_KEY: Final = "no_key"
WRONG_KEY: Final = "wrong_key"
NO_HELLO: Final = "no_hello"
UNSUPPORTED: Final = "unsupported"
NO_LIBRARY: Final = "no_library"
LIMIT: Final = "limit"


class TlsFacts:
    """Columns of `connections`. client: endpoint index of who sent the ClientHello.

    alerts: by endpoint, the last one other than close_notify.
    overhead: by endpoint, bytes of the stream around the plain ones; None where nothing was opened.
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


LIMITED: Final = TlsFacts(LIMIT)  # of all connections that are not followed
