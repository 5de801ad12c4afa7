"""Bodies that do not lie in the capture as they are: several of them in one block."""

import gzip

import cramjam
import pytest

from dissector.protocols.cursus import unpacked_bodies
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.dissector.protocols.cursus.test_compressed import xerial
from tests.dissector.protocols.cursus.test_forwarded import passed_on
from tests.wire import cursus


@pytest.mark.parametrize("room", [1, 1 << 20])
def test_all_ways_in_one_block_however_little_is_opened_at_once(room, monkeypatch):
    monkeypatch.setattr(unpacked_bodies, "OPENED_BYTES", room)
    bodies = [cursus.batch_body(cursus.records(40, first=1 + 40 * at)) for at in range(6)]
    wrapped = (
        cursus.frame(gzip.compress(bodies[0])),
        cursus.frame(bytes(cramjam.snappy.compress_raw(bodies[1]))),
        cursus.bare(passed_on(bodies[2])),
        cursus.frame(xerial(bodies[3])),
        cursus.frame(bytes(cramjam.snappy.compress_raw(bodies[4]))),
        cursus.frame(bodies[5]),
    )
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "METADATA topic=t1", "OK topic=t1 partitions=1")
    for at, frame in enumerate(wrapped):
        dialogue.ask(0, frame, cursus.ack(40 * at + 39, 40 * at + 1, 40 * at + 40))
    tables = dialogue.rows()
    sent = [row for row in tables["frames"] if row["direction"] == "to_broker"][1:]
    assert [row["compression"] for row in sent] == [
        *("GZIP", "SNAPPY", None, "SNAPPY", "SNAPPY", "NONE")
    ]
    assert [row["command"] for row in sent] == ["BATCH", "BATCH", "INTERNAL_BATCH", *["BATCH"] * 3]
    assert {row["status"] for row in sent} == {"complete"}
    assert [row["sequence_id"] for row in tables["messages"]] == list(range(1, 241))
    assert {row["outcome"] for row in tables["exchanges"]} == {"ok"}
