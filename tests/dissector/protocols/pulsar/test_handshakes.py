"""Handshakes: what both sides say, and what holds for the connection."""

import numpy as np

from dissector.codecs.names import NameTable
from dissector.protocols.interface import ConnectionFacts
from dissector.protocols.pulsar.handshakes import Handshake, Handshakes, handshake, may_be_kept
from dissector.protocols.pulsar.wire.details import commands_of
from dissector.protocols.pulsar.wire.fields import FieldDecoder
from dissector.protocols.pulsar.wire.unknown import Unknown
from tests.wire import pulsar
from tests.wire.blocks import block_of

CONNECT = pulsar.simple(
    pulsar.command(
        "CONNECT", client_version="Pulsar-Java-v4.0.6", protocol_version=21,
        auth_method_name="token", auth_data=b"very secret", proxy_to_broker_url="broker:6650",
        feature_flags={"supports_auth_refresh": True, "supports_partial_producer": False},
    )
)  # fmt: skip
CONNECTED = pulsar.simple(
    pulsar.command(
        "CONNECTED", server_version="Pulsar Server4.0.6", protocol_version=19,
        max_message_size=5 << 20, feature_flags={"supports_topic_watchers": True},
    )
)  # fmt: skip


def facts_of(frames: list[bytes], connections: list[int]) -> Handshakes:
    columns, sources = block_of(frames)
    columns.connection_id[:] = connections
    FieldDecoder(NameTable(10, 100), 0).decode(columns, len(frames), sources)
    handshakes = Handshakes(0, Unknown(0))
    handshakes.advance(columns, len(frames), sources)
    return handshakes


def test_both_sides_are_joined_by_connection() -> None:
    found = facts_of([CONNECT, pulsar.vector("PING"), CONNECTED, CONNECTED], [3, 3, 3, 8])
    assert found.of([3, 4, 8]) == {
        3: ConnectionFacts(
            client_version="Pulsar-Java-v4.0.6", server_version="Pulsar Server4.0.6",
            protocol_version=19, feature_flags=("supports_auth_refresh",),
            max_message_bytes=5 << 20,
        ),
        8: ConnectionFacts(
            server_version="Pulsar Server4.0.6", protocol_version=19,
            max_message_bytes=5 << 20,
        ),
    }  # fmt: skip
    found.pop(8)
    assert list(found.of([3, 8])) == [3]


def test_a_proxy_and_the_length_of_a_secret_are_reported() -> None:
    columns, sources = block_of([CONNECT, pulsar.vector("PING"), CONNECT[:-1]])
    columns.frame_bytes[2] += 1
    FieldDecoder(NameTable(10, 100), 0).decode(columns, 3, sources)
    (seen,) = Handshakes(0, Unknown(0)).advance(columns, 3, sources)
    assert (seen.connection, seen.frame_no, seen.is_client) == (0, 1, True)
    assert (seen.handshake.proxy_to_broker_url, seen.handshake.auth_bytes) == ("broker:6650", 11)


def test_a_handshake_that_comes_again_is_read_again_or_remembered_alike() -> None:
    again, once = facts_of([CONNECT, CONNECTED] * 3, [1, 1, 2, 2, 3, 3]), {}
    columns, sources = block_of([CONNECT, CONNECTED])
    for row, command in commands_of(columns, np.arange(2), sources):
        once[row] = handshake(command)
    assert once[0] is not None and once[1] is not None
    for found in again.of([1, 2, 3]).values():
        assert found.client_version == once[0].client_version
        assert found.feature_flags == once[0].feature_flags
        assert found.server_version == once[1].server_version


def test_what_may_hold_a_secret_or_is_long_is_not_remembered() -> None:
    assert may_be_kept(None) and may_be_kept(Handshake(client_version="Pulsar-Java-v4.0.6"))
    assert not may_be_kept(Handshake(proxy_to_broker_url="pulsar://bob:hunter2@broker:6650"))
    assert not may_be_kept(Handshake(client_version="x" * 300, proxy_version="y" * 300))
