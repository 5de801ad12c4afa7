"""What every protocol provides: callbacks that agree with each other on any bytes."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.jit import callback
from dissector.limits import MAX_CURSUS_BODY_BYTES
from dissector.protocols import PROTOCOLS
from dissector.protocols.interface import (
    CHECK_SIGNATURE,
    SPAN_SIGNATURE,
    DecoderOptions,
    ProtocolDecoder,
    ProtocolSpec,
)
from tests.wire import toy

every_protocol = pytest.mark.parametrize("spec", [*PROTOCOLS, toy.SPEC], ids=lambda spec: spec.name)
LIMIT = 10_000


@cache
def compiled(name: str):
    """check, prove, one_way and announced_limit as the framing calls them."""
    (spec,) = (each for each in (*PROTOCOLS, toy.SPEC) if each.name == name)
    others = (spec.prove, spec.one_way, spec.announced_limit)
    return (
        callback(CHECK_SIGNATURE, spec.check),
        *(callback(SPAN_SIGNATURE, each) for each in others),
    )


def test_names_and_ports_belong_to_one_protocol() -> None:
    names = [spec.name for spec in PROTOCOLS]
    ports = [port for spec in PROTOCOLS for port in spec.ports]
    assert len(set(names)) == len(names) and len(set(ports)) == len(ports)
    assert all(0 < port < 1 << 16 for port in ports)


@pytest.mark.parametrize("spec", PROTOCOLS, ids=lambda spec: spec.name)
def test_facts_start_empty_and_finish_without_input(spec: ProtocolSpec) -> None:
    facts: ProtocolDecoder = spec.new_facts(DecoderOptions(protocol_number=0))
    assert facts.connection_facts([0]) == {}
    assert sum(block.rows for block in facts.finish()) == 0
    assert facts.notices.rows() == []


@every_protocol
@given(data=st.binary(max_size=80), direction=st.integers(0, 2), is_strict=st.integers(0, 5))
def test_a_header_is_a_length_more_to_come_or_no(
    spec: ProtocolSpec, data: bytes, direction: int, is_strict: int
) -> None:
    check = compiled(spec.name)[0]
    cells = np.frombuffer(bytearray(data + b"\0"), np.uint8)
    found = check(cells, 0, len(data), direction, LIMIT, is_strict)
    # Cursus has a limit of its own, which counts where it is larger.
    largest = MAX_CURSUS_BODY_BYTES + 4 if spec.name == "cursus" else LIMIT
    assert found == -1 or 0 <= found <= largest
    if found == 0:
        assert len(data) < 64, "a header is told from that many bytes"
    # What stands around it does not matter.
    moved = np.frombuffer(bytearray(b"??" + data + b"!!"), np.uint8)
    assert check(moved, 2, 2 + len(data), direction, LIMIT, is_strict) == found


@every_protocol
@given(data=st.binary(max_size=80), is_strict=st.integers(0, 5))
def test_more_bytes_never_take_a_verdict_back(
    spec: ProtocolSpec, data: bytes, is_strict: int
) -> None:
    check = compiled(spec.name)[0]
    cells = np.frombuffer(bytearray(data + b"\0"), np.uint8)
    verdicts = [check(cells, 0, end, 2, LIMIT, is_strict) for end in range(len(data) + 1)]
    decided = [verdict for verdict in verdicts if verdict != 0]
    # A length may still turn out wrong, but it never becomes another length.
    assert len({verdict for verdict in decided if verdict > 0}) <= 1
    if -1 in decided:
        assert set(decided[decided.index(-1) :]) == {-1}


@every_protocol
@given(data=st.binary(max_size=80))
def test_callbacks_answer_for_any_bytes(spec: ProtocolSpec, data: bytes) -> None:
    _, prove, one_way, announced_limit = compiled(spec.name)
    cells = np.frombuffer(bytearray(data + b"\0"), np.uint8)
    assert prove(cells, 0, len(data)) in (-1, 0, 1)
    assert one_way(cells, 0, len(data)) in (0, 1, 2)
    assert announced_limit(cells, 0, len(data)) >= 0
