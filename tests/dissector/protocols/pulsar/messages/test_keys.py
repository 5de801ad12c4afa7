"""Which of a message's keys is hashed, in a batch and alone."""

import base64
from typing import Any

import pytest

from tests.naive import key_hashes as naive
from tests.wire import pulsar
from tests.wire.messages import Opened

BINARY = b"\x00\x01\xff"
CASES: list[tuple[dict[str, Any], int | None, int | None]] = [
    ({}, None, None),
    ({"partition_key": "k"}, naive.key_hash(b"k"), 107),
    ({"partition_key": ""}, 0, 0),
    ({"partition_key": "k", "ordering_key": b"o"}, naive.key_hash(b"o"), 107),
    ({"ordering_key": b""}, 0, None),
    (
        {"partition_key": base64.b64encode(BINARY).decode(), "partition_key_b64_encoded": True},
        naive.key_hash(BINARY),
        naive.java_hash(base64.b64encode(BINARY)),
    ),
    ({"partition_key": "k", "partition_key_b64_encoded": True}, None, 107),
]


@pytest.mark.parametrize("in_batch", [True, False])
def test_the_ordering_key_counts_then_the_key_as_bytes(in_batch: bool) -> None:
    if in_batch:
        batch = pulsar.batch([(fields, b"x") for fields, _, _ in CASES])
        frames = [pulsar.send(batch, metadata_fields={"num_messages_in_batch": len(CASES)})]
    else:
        frames = [pulsar.send(b"x", metadata_fields=fields) for fields, _, _ in CASES]
    rows = Opened().add(frames).rows
    found = [(row.get("key_hash"), row.get("java_hash")) for row in rows]
    assert found == [(key_hash, java_hash) for _, key_hash, java_hash in CASES]
