"""Answers by order where some are missing: which request an answer belongs to then."""

from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.wire import cursus


def test_a_lost_answer_does_not_shift_the_others():
    dialogue = Dialogue()
    dialogue.open()
    for number in range(6):
        dialogue.ask(0, cursus.batch(cursus.records(1, first=number + 1)), cursus.ack(
            number, number + 1, number + 1
        ))  # fmt: skip
    tape = dialogue.tapes[0]
    answers = [at for at, each in enumerate(tape.packets) if each.payload and not each.to_broker]
    del tape.packets[answers[2]]
    dialogue.close(0)
    rows = dialogue.rows()["exchanges"]
    found = {row["sequence_id"]: row for row in rows}
    assert found[3]["outcome"] == "lost_in_gap" and found[3]["tainted"]
    for number in (1, 2, 4, 5, 6):
        assert (found[number]["outcome"], found[number]["entry_id"]) == ("ok", number - 1)


def test_the_answer_to_a_lost_request_is_no_other_one_s():
    """It names the batch that it stores; the next one was on its way before it came."""
    dialogue = Dialogue()
    dialogue.open()
    said = [cursus.batch(cursus.records(1, first=number + 1)) for number in range(6)]
    answers = [cursus.ack(number, number + 1, number + 1) for number in range(6)]
    dialogue.client(0, said[0])
    for number in range(5):
        dialogue.client(0, said[number + 1])
        dialogue.broker(0, answers[number])
    dialogue.broker(0, answers[5])
    tape = dialogue.tapes[0]
    batches = [at for at, each in enumerate(tape.packets) if each.payload and each.to_broker]
    del tape.packets[batches[2]]
    dialogue.close(0)
    rows = dialogue.rows()["exchanges"]
    asked = {row["sequence_id"]: row for row in rows if row["request_frame_no"]}
    assert [row["outcome"] for row in rows if not row["request_frame_no"]] == ["orphan_response"]
    for number in (1, 2, 4, 5, 6):
        assert (asked[number]["outcome"], asked[number]["entry_id"]) == ("ok", number - 1)


def test_a_gap_inside_of_an_answer_hides_no_other():
    """The frame that is cut is the answer of the oldest; those behind it lose nothing."""
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "LIST", "OK topics=t")
    dialogue.client(0, "LIST")
    dialogue.client(0, "DESCRIBE topic=t1")
    tape = dialogue.tapes[0]
    tape.now = dialogue._now
    answer = cursus.bare("OK topics=" + "t" * 3000)
    for part in (answer[:1000], answer[1000:2000], answer[2000:]):
        tape.say(False, part)
    del tape.packets[[at for at, each in enumerate(tape.packets) if each.payload][-2]]
    dialogue._now = tape.now
    dialogue.close(0)
    rows = dialogue.rows()["exchanges"]
    assert [row["outcome"] for row in rows] == ["ok", "response_cut", "conn_closed"]
    assert [row["tainted"] for row in rows] == [False, True, False]
