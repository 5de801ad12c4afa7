"""How one column is gathered where its values change their form between blocks."""

import numpy as np
import pyarrow as pa

from dissector.blocks import Coded, Spans
from dissector.limits import NULL
from dissector.schemas import TABLES
from dissector.schemas.builders import ListBuilder, NumberBuilder, TextBuilder, builder_for

TOPIC = next(c for c in TABLES["frames"].columns if c.name == "topic")
KEY = next(c for c in TABLES["messages"].columns if c.name == "partition_key")


def test_names_from_two_lists_and_plain_text_meet_in_one_column() -> None:
    for column in (TOPIC, KEY):
        builder = TextBuilder(column, 9)
        builder.skip(0, 1)
        builder.append(Coded(np.array([1, NULL]), ("a", "b")), 0, 2, 1)
        builder.append(Coded(np.array([0]), [b"c"]), 0, 1, 3)
        builder.skip(4, 1)
        spans = Spans(np.frombuffer(b"b\xff", np.uint8), np.array([0, 1]), np.array([1, 1]))
        builder.append(spans, 0, 2, 5)
        builder.append(["e", None], 0, 2, 7)
        array = builder.finish(9)
        array.validate(full=True)
        assert array.to_pylist() == [None, "b", None, "c", None, "b", "\\xff", "e", None]
        assert pa.types.is_dictionary(array.type) == column.repeats


def test_a_column_live_in_one_batch_may_be_empty_in_the_next() -> None:
    for column in TABLES["frames"].columns:
        builder = builder_for(column, 4)
        kinds = {"string": ["x", None], "array<bigint>": [[7], None]}
        values = kinds.get(column.type, np.array([1_000, NULL]))
        builder.append(values, 0, 2, 0)
        assert builder.finish(2).null_count == 1
        builder.skip(0, 3)
        assert builder.finish(3).null_count == 3
        builder.append(values, 0, 2, 0)
        assert builder.finish(2).is_valid().to_pylist() == [True, False]


def test_builders_fit_their_columns() -> None:
    kinds = {c.name: type(builder_for(c, 1)) for c in TABLES["acks"].columns}
    assert kinds["frame_no"] is kinds["ts"] is NumberBuilder
    assert kinds["ack_set"] is ListBuilder
