"""The rows behind `follow`: one connection's pieces, in order, bytes copied."""

import numpy as np

from dissector.blocks import Coded, Spans
from dissector.dissection.conversation import TABLE, Conversation
from tests.wire.ranges import Ranges

EMPTY = np.zeros(1, np.uint8)


def rows_of(script: Ranges, connection: int) -> list[tuple[int, str, int, int, bytes | None]]:
    """Side, kind, offset, length and bytes of the rows of a connection."""
    columns = script.columns()
    data = np.frombuffer(bytes(script.data) or b"\0", np.uint8).copy()
    blocks = Conversation(connection).rows(columns, len(script.rows), (data, EMPTY, EMPTY))
    data[:] = 0  # the buffer is used again
    columns.matrix[:] = -1
    rows = []
    for block in blocks:
        assert block.table == TABLE
        kinds, spans = block.columns["kind"], block.columns["data"]
        assert isinstance(kinds, Coded) and isinstance(spans, Spans)
        for row in range(block.rows):
            start, length = int(spans.starts[row]), int(spans.lengths[row])
            said = None if length < 0 else spans.data[start : start + length].tobytes()
            rows.append(
                (
                    int(block.columns["endpoint_index"][row]),
                    str(kinds.names[int(kinds.codes[row])]),
                    int(block.columns["stream_offset"][row]),
                    int(block.columns["bytes"][row]),
                    said,
                )
            )
    return rows


def test_both_directions_in_order_with_gaps_beside_the_data() -> None:
    script = (
        Ranges().open().send(b"question").lose(5).send(b"more").send(b"answer", endpoint_index=1)
    )
    script.cut(7, endpoint_index=1).fin().fin(endpoint_index=1).close()
    assert rows_of(script, 0) == [
        (0, "data", 0, 8, b"question"),
        (0, "lost", 8, 5, None),
        (0, "data", 13, 4, b"more"),
        (1, "data", 0, 6, b"answer"),
        (1, "cut", 6, 7, None),
    ]


def test_other_connections_are_left_out() -> None:
    script = Ranges().open().open(1).send(b"mine").send(b"theirs", connection=1).lose(3)
    assert rows_of(script, 0) == [(0, "data", 0, 4, b"mine"), (0, "lost", 4, 3, None)]
    assert rows_of(script, 1) == [(0, "data", 0, 6, b"theirs")]
    assert rows_of(script, 2) == []


def test_a_block_of_gaps_only_has_no_bytes() -> None:
    assert rows_of(Ranges().open().lose(3).cut(4), 0) == [
        (0, "lost", 0, 3, None), (0, "cut", 3, 4, None)
    ]  # fmt: skip


def test_bytes_come_from_the_buffer_that_holds_them() -> None:
    script = Ranges().send(b"aa").send(b"bb").send(b"cc")
    columns = script.columns()
    columns.source[:] = [0, 1, 2]
    columns.offset[:] = [1, 2, 0]
    sources = tuple(np.frombuffer(data, np.uint8) for data in (b".AA.", b"..BB", b"CC.."))
    (block,) = Conversation(0).rows(columns, 3, sources)  # type: ignore[arg-type]
    spans = block.columns["data"]
    assert isinstance(spans, Spans) and spans.data.tobytes() == b"AABBCC"
    assert block.columns["packet"].tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert block.columns["ts"].tolist() == [1000, 2000, 3000]  # type: ignore[union-attr]
