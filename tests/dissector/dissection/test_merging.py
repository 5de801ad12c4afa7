"""Several protocols in one capture: one order of rows, however the capture is cut; a third one."""

import functools
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from dissector.blocks import Coded, Lists, Spans, TableBlock
from dissector.dissection import Dissection, Options
from dissector.dissection.merging import interleaved, merged
from dissector.lake.land import land_chain
from dissector.limits import NULL
from dissector.protocols import PROTOCOLS
from dissector.sources import dissect as dissect_module
from dissector.sources.rings import chains
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.hard.tape import TOPIC, Tables, Tape, capture, receipt, send, simple
from tests.naive.rows import plain_rows
from tests.plain import rows_of_block
from tests.toy_protocol import TOY
from tests.wire import cursus, packets, toy


def column(values):
    return np.array([NULL if value is None else value for value in values], np.int64)


def test_columns_of_every_form_are_put_together_in_order():
    one = TableBlock(
        "deliveries",
        3,
        {
            "closing_row": column([1, 4, 4]),
            "frame_no": column([1, 2, 4]),
            "topic": Coded(column([0, None, 1]), [b"a", b"b"]),
            "ack_set": Lists(column([7, 8]), column([0, 0, 1]), column([1, -1, 1])),
            "ts": column([10, 40, 40]),
        },
    )
    two = TableBlock(
        "deliveries",
        2,
        {
            "closing_row": column([2, 3]),
            "frame_no": column([3, 5]),
            "topic": Coded(column([1, 0]), ["b", "c"]),
            "detail": ["x", None],
        },
    )
    found = interleaved([[one], [two]])
    assert found.rows == 5 and "closing_row" not in found.columns
    rows = plain_rows(found)
    assert [row["frame_no"] for row in rows] == [1, 3, 5, 2, 4]
    assert [row["topic"] for row in rows] == ["a", "c", "b", None, "b"]
    assert [row["ack_set"] for row in rows] == [[7], None, None, None, [8]]
    assert [row["ts"] is None for row in rows] == [False, True, True, False, False]


def test_spans_are_joined_where_both_have_them_and_where_one_has_plain_texts():
    data = np.frombuffer(bytearray(b"abcdef"), np.uint8)
    spans = Spans(data, column([0, 2]), column([2, -1]))
    first = TableBlock("frames", 2, {"frame_no": column([1, 4]), "error_text": spans})
    second = TableBlock("frames", 1, {"frame_no": column([2]), "error_text": spans._replace(
        starts=column([4]), lengths=column([2])
    )})  # fmt: skip
    third = TableBlock("frames", 1, {"frame_no": column([3]), "error_text": ["said"]})
    whole = interleaved([[first], [second]])
    assert [row["error_text"] for row in plain_rows(whole)] == ["ab", "ef", None]
    mixed = interleaved([[first], [third]])
    assert mixed.columns["error_text"] == [b"ab", "said", None]


def test_blocks_of_one_protocol_pass_as_they_are():
    block = TableBlock("acks", 1, {"frame_no": column([1]), "closing_row": column([9])})
    (found,) = merged([[block], []])
    assert found is block and "closing_row" not in found.columns


# -- a capture with both protocols, and with a third


def pulsar_tape(start_ns: int) -> Tape:
    tape = Tape(client=(packets.CLIENT, 50_000), start_ns=start_ns)
    tape.open()
    tape.connect()
    for number in range(40):
        tape.frame(True, send(number, b"x" * 30))
        tape.frame(False, receipt(number))
    tape.frame(True, simple("SUBSCRIBE", topic=TOPIC, subscription="s", consumer_id=1, request_id=2,
                            subType=0))  # fmt: skip
    tape.frame(False, simple("SUCCESS", request_id=2))
    tape.close()
    return tape


def cursus_talk() -> Dialogue:
    talk = Dialogue(broker_port=6650)  # the port says nothing
    talk.open()
    talk.open()
    talk.client(1, "STREAM topic=t1 partition=0 group=g member=m-1")
    for number in range(30):
        talk.ask(0, cursus.batch(cursus.records(2, first=2 * number + 1)), cursus.ack(
            2 * number + 1, 2 * number + 1, 2 * number + 2
        ))  # fmt: skip
        talk.broker(1, cursus.batch(cursus.records(2, first=2 * number + 1, offset=2 * number)))
        if number % 10 == 9:
            line = f"BATCH_COMMIT topic=t1 group=g member=m-1 generation=1 P0:{2 * number + 2}"
            talk.ask(0, line, "OK batched=1")
    talk.close(0)
    return talk


def toy_tape(start_ns: int) -> Tape:
    tape = Tape(client=(packets.CLIENT, 51_000), broker=(packets.BROKER, 7777), start_ns=start_ns)
    tape.open()
    for number in range(20):
        tape.frame(True, toy.frame(toy.TO_BROKER, bytes([number])))
        tape.frame(False, toy.frame(toy.TO_CLIENT, bytes([number])))
    return tape


@functools.cache
def mixed_capture() -> bytes:
    talk = cursus_talk()
    start = talk.tapes[0].packets[0].ts_ns + 500_000
    records = [*talk.records(), *pulsar_tape(start).records(), *toy_tape(start + 250_000).records()]
    return capture(sorted(records, key=lambda record: record.ts_ns))


def rows_of(data: bytes, step: int) -> Tables:
    """The rows of a capture that comes in pieces."""
    dissection = Dissection(Options(), (*PROTOCOLS, TOY))
    tables: Tables = {}

    def take(blocks: list[TableBlock]) -> None:
        for block in blocks:
            tables.setdefault(block.table, []).extend(rows_of_block(block))

    dissection.start_file()
    held = b""
    for at in range(0, len(data), step):
        held += data[at : at + step]
        array = np.frombuffer(bytearray(held), np.uint8)
        is_last = at + step >= len(data)
        position, blocks = dissection.feed(array, 0, len(held), is_last)
        take(blocks)
        held = held[position:]
    dissection.end_file()
    take(dissection.finish())
    return tables


@pytest.mark.parametrize("step", [97, 1500, 40_000])
def test_rows_do_not_depend_on_how_the_capture_is_cut(step):
    data = mixed_capture()
    whole = rows_of(data, len(data))
    assert rows_of(data, step) == whole


def test_rows_of_all_protocols_stand_in_one_order():
    data = mixed_capture()
    tables = rows_of(data, len(data))
    frames = tables["frames"]
    assert [row["frame_no"] for row in frames] == list(range(1, len(frames) + 1))
    protocols = [row["protocol"] for row in frames]
    assert set(protocols) == {"pulsar", "cursus", "toy"}
    assert sum(one != other for one, other in pairwise(protocols)) > 50, "they are interleaved"
    for table in ("messages", "acks"):
        numbers = [row["frame_no"] for row in tables[table]]
        assert numbers == sorted(numbers)
    closing = [row["response_frame_no"] for row in tables["exchanges"] if row["response_frame_no"]]
    assert closing == sorted(closing)
    assert {row["protocol"] for row in tables["connections"]} == {"pulsar", "cursus", "toy"}
    numbers = {row["frame_no"]: row["connection_id"] for row in frames}
    for row in tables["exchanges"]:
        assert numbers[row["request_frame_no"]] == row["connection_id"]


def test_a_third_protocol_is_a_folder_and_a_line_in_the_list(tmp_path, monkeypatch):
    """What docs/adding-a-protocol.md says: nothing else is needed to land it beside the two."""
    path = tmp_path / "mixed.pcap"
    path.write_bytes(mixed_capture())
    specs = (*PROTOCOLS, TOY)
    monkeypatch.setattr(dissect_module, "Dissection", functools.partial(Dissection, specs=specs))
    (chain,) = chains([str(path)]).chains
    account, _ = land_chain(chain, tmp_path / "lake", Options())
    assert account is not None
    frames = [
        row
        for part in sorted((tmp_path / "lake" / "frames").rglob("*.parquet"))
        for row in pq.ParquetFile(part).read().to_pylist()
    ]
    counts = Counter((row["protocol"], row["command"]) for row in frames)
    assert counts["toy", "ASK"] == counts["toy", "ANSWER"] == 20
    assert counts["pulsar", "SEND"] == 40 and counts["cursus", "BATCH_COMMIT"] == 3
    exchanges = [
        row
        for part in sorted((tmp_path / "lake" / "exchanges").rglob("*.parquet"))
        for row in pq.ParquetFile(part).read().to_pylist()
    ]
    asked = {row["frame_no"] for row in frames if row["command"] == "ASK"}
    mine = [row for row in exchanges if row["request_frame_no"] in asked]
    assert len(mine) == 20 and {row["outcome"] for row in mine} == {"ok"}
    assert all(row["client_ip"] for row in mine), "addresses are added for every protocol"
