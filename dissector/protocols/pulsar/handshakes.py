"""The content of handshakes: versions, features and limits of a connection. No secrets."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dissector.codecs.memoized import Remembered
from dissector.codecs.redaction import secrets
from dissector.limits import MAX_HANDSHAKE_TEXT
from dissector.protocols.columns import FrameColumns
from dissector.protocols.interface import ConnectionFacts, Sources
from dissector.protocols.pulsar.wire.commands import CONNECT, CONNECTED
from dissector.protocols.pulsar.wire.details import commands_of, parse, text_of
from dissector.protocols.pulsar.wire.unknown import Unknown


class Handshake(NamedTuple):
    """The fields of CONNECT or CONNECTED; None where a field is missing. No secrets.

    feature_flags: names of the flags that are set.
    proxy_to_broker_url: the broker to which a proxy is asked to connect.
    auth_bytes: length of the credentials.
    unknown_flags: numbers of flags without a name.
    """

    client_version: str | None = None
    server_version: str | None = None
    protocol_version: int | None = None
    feature_flags: tuple[str, ...] | None = None
    max_message_bytes: int | None = None
    proxy_to_broker_url: str | None = None
    proxy_version: str | None = None
    auth_bytes: int | None = None
    unknown_flags: tuple[int, ...] = ()


_NOTHING_SAID: Final = Handshake(), Handshake()


class HandshakeFrame(NamedTuple):
    """A frame of a handshake. is_client: CONNECT, else CONNECTED."""

    connection: int
    frame_no: int
    is_client: bool
    handshake: Handshake


def _text_field(message: Message, name: str) -> str | None:
    return text_of(getattr(message, name)) if message.HasField(name) else None


def handshake(command: bytes) -> Handshake | None:
    """Parse a CONNECT or CONNECTED; None for other commands and damaged ones."""
    message: Any = parse("BaseCommand", command)
    if message is None:
        return None
    if message.HasField("connect"):
        body = message.connect
        content = Handshake(
            client_version=_text_field(body, "client_version"),
            proxy_to_broker_url=_text_field(body, "proxy_to_broker_url"),
            proxy_version=_text_field(body, "proxy_version"),
            auth_bytes=len(body.auth_data) if body.HasField("auth_data") else None,
        )
    elif message.HasField("connected"):
        body = message.connected
        content = Handshake(
            server_version=_text_field(body, "server_version"),
            max_message_bytes=body.max_message_size if body.HasField("max_message_size") else None,
        )
    else:
        return None
    flags = tuple(field.name for field, value in body.feature_flags.ListFields() if value)
    return content._replace(
        protocol_version=body.protocol_version if body.HasField("protocol_version") else None,
        feature_flags=flags if body.HasField("feature_flags") else None,
        unknown_flags=tuple(
            sorted({each.field_number for each in UnknownFieldSet(body.feature_flags)})
        ),
    )


def may_be_kept(content: Handshake | None) -> bool:
    """Whether a handshake may be cached: its texts are short and nothing looks like a secret."""
    if content is None:
        return True
    texts = [value.encode() for value in content if isinstance(value, str)]
    return sum(map(len, texts)) <= MAX_HANDSHAKE_TEXT and not any(map(secrets, texts))


class Handshakes:
    """Collects the handshakes of all connections."""

    def __init__(self, protocol: int, unknown: Unknown) -> None:
        """protocol: Pulsar's number in frames.protocol; unknown: counts flags without a name."""
        self._protocol = protocol
        self._unknown = unknown
        self._open: dict[int, tuple[Handshake, Handshake]] = {}
        self._read = Remembered(lambda commands: [*map(handshake, commands)], may_be_kept)

    def advance(self, frames: FrameColumns, rows: int, sources: Sources) -> list[HandshakeFrame]:
        """Parse the CONNECT and CONNECTED frames of a block; return them in order."""
        commands = frames.command[:rows]
        is_handshake = (commands == CONNECT) | (commands == CONNECTED)
        is_handshake &= frames.protocol[:rows] == self._protocol
        chosen = np.flatnonzero(is_handshake)
        columns = frames.connection_id, frames.frame_no, commands == CONNECT
        connections, numbers, of_clients = (column[chosen].tolist() for column in columns)
        seen = []
        for index, command in commands_of(frames, chosen, sources):
            content = self._read(command)
            if content is None:
                continue
            if content.unknown_flags:
                self._unknown.add_flags(frames, int(chosen[index]), content.unknown_flags)
            connection, is_client = connections[index], of_clients[index]
            client, broker = self._open.get(connection, _NOTHING_SAID)
            self._open[connection] = (content, broker) if is_client else (client, content)
            seen.append(HandshakeFrame(connection, numbers[index], is_client, content))
        return seen

    def pop(self, connection: int) -> None:
        """Drop the handshakes of a closed connection."""
        self._open.pop(connection, None)

    def of(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]:
        """The facts of those connections that have a handshake: few have one in a flood."""
        chosen = filter(self._open.__contains__, connections)
        return {connection: self._facts_of(connection) for connection in chosen}

    def _facts_of(self, connection: int) -> ConnectionFacts:
        """The facts of a connection: the broker's protocol version, the client's if its own was not
        captured; and the client's features."""
        client, broker = self._open[connection]
        version = broker.protocol_version
        return ConnectionFacts(
            client_version=client.client_version,
            server_version=broker.server_version,
            protocol_version=version if version is not None else client.protocol_version,
            feature_flags=client.feature_flags,
            max_message_bytes=broker.max_message_bytes,
        )
