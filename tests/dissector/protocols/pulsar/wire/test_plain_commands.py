"""Commands that are said to be plain have nothing to say, whatever their bytes are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.pulsar.wire.details import details_of
from dissector.protocols.pulsar.wire.plain_commands import are_plain
from tests.wire import pulsar
from tests.wire.blocks import block_of

FRAMES = [pulsar.vector(name) for name in pulsar.VECTORS]
EACH = [frame[8 : 8 + int.from_bytes(frame[4:8], "big")] for frame in FRAMES]


def plain(commands: list[bytes]) -> list[bool]:
    frames = [pulsar.simple(command) for command in commands]
    columns, sources = block_of(frames)
    return are_plain(columns, np.arange(len(frames)), sources).astype(bool).tolist()


def test_only_fields_with_columns_are_plain() -> None:
    lookup = pulsar.command("LOOKUP", topic="t", request_id=5)
    asked = pulsar.command("LOOKUP", topic="t", request_id=5, authoritative=True)
    told = pulsar.command("LOOKUP_RESPONSE", brokerServiceUrl="pulsar://a", request_id=5)
    unknown = lookup + b"\x98\x06\x01"  # a number that no field has, outside of the lookup
    assert plain([lookup, asked, told, b"", unknown, lookup[:-1], lookup + b"\x0c"]) == [
        True, False, False, True, True, False, False,
    ]  # fmt: skip


def test_what_is_not_whole_is_plain() -> None:
    frames = [pulsar.simple(pulsar.command("LOOKUP", topic="t", request_id=5, authoritative=True))]
    columns, sources = block_of(frames)
    for size in range(len(frames[0])):
        columns.data_bytes[0] = size
        assert are_plain(columns, np.arange(1), sources).tolist() == [1]
    columns.data_bytes[0] = len(frames[0])
    assert are_plain(columns, np.arange(1), sources).tolist() == [0]


def test_nothing_is_left_to_say_of_plain_commands_and_much_of_the_others() -> None:
    found = list(zip(plain(EACH), details_of(EACH, redact=False), strict=True))
    assert all(text is None for is_plain, text in found if is_plain)
    assert {is_plain for is_plain, _ in found} == {False, True}


@given(st.sampled_from(EACH), st.integers(0, 200), st.integers(0, 3), st.binary(max_size=3))
def test_damage_makes_nothing_plain_that_has_something_to_say(
    command: bytes, at: int, taken: int, put: bytes
) -> None:
    damaged = command[:at] + put + command[at + taken :]
    assert not plain([damaged])[0] or details_of([damaged], redact=False) == [None]
