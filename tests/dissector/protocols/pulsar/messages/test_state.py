"""What the kernel of messages works with: room that grows, and a plan for what it reads."""

import numpy as np

from dissector.codecs.names import NameTable
from dissector.limits import NULL
from dissector.protocols.pulsar.messages.state import (
    CURSOR_PROTOCOL,
    MessageColumns,
    double_room,
    item_plan,
    new_parser_state,
)


def test_room_doubles_and_the_walk_writes_into_the_new_rows() -> None:
    parser = new_parser_state(NameTable(10, 100).columns, 3, 5, protocol=7)
    assert parser.cursor[CURSOR_PROTOCOL] == 7
    assert parser.messages.matrix.shape[1] == 3 and len(parser.text) == 5
    double_room(parser)
    assert parser.messages.matrix.shape[1] == 6 and len(parser.text) == 10
    assert np.shares_memory(parser.out.cells, parser.messages.matrix)
    assert (parser.messages.matrix == NULL).all()


def test_a_message_of_a_batch_is_read_into_columns_of_messages() -> None:
    assert item_plan() is item_plan()
    kept = {"partition_key_at", "payload_bytes", "sequence_id", "ordering_key_at"}
    assert kept <= set(MessageColumns._fields)
