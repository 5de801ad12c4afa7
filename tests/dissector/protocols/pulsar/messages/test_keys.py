"""Which of a message's keys is hashed, in a batch and alone."""

import base64
from typing import Any

import pytest

from tests.naive import key_hashes as naive
from tests.wire import pulsar
from tests.wire.messages import Opened

BINARY = b"\x00\x01\xff"
CASES: list[tuple[dict[str, Any], int | None]] = [
    ({}, None),
    ({"partition_key": "k"}, naive.key_hash(b"k")),
    ({"partition_key": ""}, 0),
    ({"partition_key": "k", "ordering_key": b"o"}, naive.key_hash(b"o")),
    ({"ordering_key": b""}, 0),
    (
        {"partition_key": base64.b64encode(BINARY).decode(), "partition_key_b64_encoded": True},
        naive.key_hash(BINARY),
    ),
    ({"partition_key": "k", "partition_key_b64_encoded": True}, None),
]


@pytest.mark.parametrize("in_batch", [True, False])
def test_the_ordering_key_counts_then_the_key_as_bytes(in_batch: bool) -> None:
    if in_batch:
        batch = pulsar.batch([(fields, b"x") for fields, _ in CASES])
        frames = [pulsar.send(batch, metadata_fields={"num_messages_in_batch": len(CASES)})]
    else:
        frames = [pulsar.send(b"x", metadata_fields=fields) for fields, _ in CASES]
    rows = Opened().add(frames).rows
    assert [row.get("key_hash") for row in rows] == [key_hash for _, key_hash in CASES]
