"""Whether a chain tells the protocol of its connection: by what its frames say, not by lengths."""

import numpy as np
import pytest

from dissector.jit import callback
from dissector.protocols.cursus.spec import SPEC
from dissector.protocols.framing.replays import Piece
from dissector.protocols.framing.resync import LIVE, NOTHING, Rule, find_chain, tells_protocol
from dissector.protocols.framing.unsynchronised import Run
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE
from tests.wire import cursus
from tests.wire.ranges import WHOLE

JUDGES = (
    (callback(CHECK_SIGNATURE, SPEC.check),),
    (callback(SPAN_SIGNATURE, SPEC.prove),),
)
LINE = cursus.bare("FETCH_OFFSET topic=a partition=0")
SQL = cursus.bare("delete from orders where id = 7")
PACKED = cursus.frame(b"\x1f\x8b\x08" + bytes(60))


@pytest.mark.parametrize(
    ("data", "skipped", "is_end", "is_told"),
    [
        (LINE, 0, 0, False),
        (LINE, 0, 1, True),
        (LINE, 9, 1, False),
        (LINE + LINE, 9, 0, True),
        (LINE[:-1], 0, 1, False),
        (PACKED + LINE, 9, 0, True),
        (PACKED + PACKED, 0, 1, False),
        (SQL + SQL, 0, 1, False),
        (cursus.batch(cursus.records(9))[:-9], 9, 0, True),
    ],
)
def test_what_tells_the_protocol(data: bytes, skipped: int, is_end: int, is_told: bool) -> None:
    run = Run()
    run.add(Piece(0, len(data), 1, 1, WHOLE), np.frombuffer(data, np.uint8))
    rule = Rule(*JUDGES, 0, 2, 1 << 20, 0, 1, skipped)
    assert find_chain(run.searched(0), rule) == LIVE
    assert tells_protocol(run.searched(0), rule, is_end) == is_told
    assert tells_protocol(run.searched(0), rule._replace(is_open=0), is_end)
    if is_end and not is_told:  # no byte will tell more
        assert find_chain(run.searched(0), rule._replace(is_final=1)) == NOTHING
