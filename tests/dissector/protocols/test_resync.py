"""A search finds the first chain that its evidence supports."""

import numpy as np
import pytest

from dissector.jit import callback
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE
from dissector.protocols.resync import find_chain
from tests.wire.toy import PROVEN, SPEC, TO_BROKER, frame

CHECKS = (callback(CHECK_SIGNATURE, SPEC.check),)
PROOFS = (callback(SPAN_SIGNATURE, SPEC.prove),)


def search(data: bytes, edges=(), is_final=0, start=0):
    array = np.frombuffer(data, np.uint8).copy()
    return find_chain(
        array, start, len(data), np.array(edges, np.int64), 2, 10_000, CHECKS, PROOFS, 0, is_final
    )


def test_a_right_sum_proves_one_frame():
    assert search(b"\xff" * 9 + frame(PROVEN)).offset == 9


def test_one_frame_without_a_sum_proves_nothing_yet():
    found = search(b"\xff" * 9 + frame(TO_BROKER))
    assert (found.offset, found.resume) == (-1, 9)


def test_three_headers_in_a_row_are_a_chain():
    assert search(b"\xff" * 9 + frame(TO_BROKER) * 3).offset == 9


def test_a_frame_that_fills_a_packet_is_enough():
    data = b"\xff" * 9 + frame(TO_BROKER)
    assert search(data, edges=(0, 9, len(data))).offset == 9


def test_at_the_end_of_the_run_one_chain_that_reaches_it_is_enough():
    assert search(b"\xff" * 9 + frame(TO_BROKER), is_final=1).offset == 9
    assert search(b"\xff" * 9 + frame(TO_BROKER) + b"\xff" * 9, is_final=1).offset == -1


@pytest.mark.parametrize("tail", range(1, 6))
def test_a_header_that_is_not_whole_is_kept_for_more_bytes(tail):
    found = search(b"\xff" * 20 + frame(TO_BROKER)[:tail])
    assert found.offset == -1
    assert found.resume <= 20
