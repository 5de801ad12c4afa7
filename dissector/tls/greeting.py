"""The handshake of a TLS connection: its facts, and the time at which it ends."""

from typing import Any

from dissector import limits
from dissector.tls import handshake, suites
from dissector.tls.facts import TlsFacts
from dissector.tls.handshake import ClientHello, Message, ServerHello


class Greeting:
    """The handshake of one connection.

    client: endpoint index of the ClientHello's sender, None before it.
    hello, server: the hellos, None before they arrive. suite: the cipher suite.
    ticket: the server's session ticket of TLS 1.2; empty if none.
    is_13: it is TLS 1.3. takes_early_data: the server accepts early data.
    """

    def __init__(self) -> None:
        self.facts = TlsFacts()
        self.client: int | None = None
        self.hello: ClientHello | None = None
        self.server: ServerHello | None = None
        self.suite = suites.suite_of(0)
        self.ticket = b""
        self.is_13 = False
        self.takes_early_data = True
        self._has_certificate = False
        self._encrypted_ns: dict[int, int] = {}

    @property
    def is_read(self) -> bool:
        """Whether the server's hello chose a supported version and cipher."""
        server = self.server
        if server is None or server.compression or not self.suite.mode:
            return False
        return self.is_13 or server.version == suites.TLS_1_2

    @property
    def has_both_encrypted(self) -> bool:
        """Whether both sides have sent an encrypted record."""
        return len(self._encrypted_ns) == 2

    def take(self, endpoint_index: int, kind: int, body: bytes, ts_ns: int) -> None:
        """Handle a message whose last byte arrived at ts_ns."""
        facts = self.facts
        if kind == Message.CLIENT_HELLO:
            hello = handshake.client_hello(body)
            if hello is not None:
                self.client, self.hello = endpoint_index, hello
                facts.client = endpoint_index
                facts.server_name = hello.server_name or facts.server_name
                facts.hello_ns = ts_ns if facts.hello_ns is None else facts.hello_ns
        elif kind == Message.SERVER_HELLO:
            self._take_answer(handshake.server_hello(body))
        elif kind == Message.CERTIFICATE and endpoint_index != self.client and not self.is_13:
            self._has_certificate = True
            facts.certificate = handshake.certificate(body)
        elif kind == Message.NEW_SESSION_TICKET and not self.is_13:
            self.ticket = handshake.session_ticket(body)
        elif kind == Message.ENCRYPTED_EXTENSIONS:
            protocol, self.takes_early_data = handshake.encrypted_extensions(body)
            facts.protocol = protocol or facts.protocol
        elif kind == Message.FINISHED and self.is_13 and endpoint_index == self.client:
            self._end(ts_ns)

    def _take_answer(self, answer: ServerHello | None) -> None:
        if answer is None:
            return
        facts = self.facts
        facts.version = suites.version_name(answer.version)
        self.suite = suites.suite_of(answer.suite)
        facts.cipher = self.suite.name
        self.is_13 = answer.version == suites.TLS_1_3
        if answer.is_retry:
            return
        self.server = answer
        facts.protocol = answer.protocol or facts.protocol
        if self.is_13:
            facts.is_resumed = answer.is_resumed

    def change_keys(self, endpoint_index: int) -> None:
        """TLS 1.2: encryption begins with the direction's next record."""
        if endpoint_index != self.client and self.facts.is_resumed is None:
            self.facts.is_resumed = not self._has_certificate

    def note_encrypted(self, endpoint_index: int, ts_ns: int) -> None:
        """Note an encrypted record: without keys, a direction's first one ends its handshake."""
        if endpoint_index in self._encrypted_ns:
            return
        self._encrypted_ns[endpoint_index] = ts_ns
        if self.is_13 and endpoint_index == self.client and self.facts.handshake_ns is None:
            self._end(ts_ns)
        elif not self.is_13 and self.has_both_encrypted:
            self._end(max(self._encrypted_ns.values()))

    def take_alert(self, endpoint_index: int, body: Any) -> None:
        """Store the name of an alert (level and number), unless it is close_notify."""
        if len(body) == 2 and body[0] in (1, 2) and body[1] != suites.CLOSE_NOTIFY:
            self.facts.alerts[endpoint_index] = suites.alert_name(body[1])

    def _end(self, ts_ns: int) -> None:
        if self.facts.hello_ns is not None and ts_ns != limits.NULL:
            self.facts.handshake_ns = max(0, ts_ns - self.facts.hello_ns)
