"""The undamaged conversation: what every hard case starts from comes out whole."""

from tests.hard.cases import all_cases
from tests.hard.tape import capture, commands, dissected, talk

SENDS = 20


def test_an_undamaged_conversation_comes_out_whole() -> None:
    tape = talk(SENDS)
    tables = dissected(capture(tape.records()))
    assert commands(tables, "to_broker") == ["CONNECT", "PRODUCER"] + ["SEND"] * SENDS
    answers = ["CONNECTED", "PRODUCER_SUCCESS"] + ["SEND_RECEIPT"] * SENDS
    assert commands(tables, "to_client") == answers
    assert {row["checksum"] for row in tables["frames"]} == {"ok", None}
    (connection,) = tables["connections"]
    assert connection["stream_bytes_to_broker"] == len(tape.sent[0])
    assert connection["decoded_bytes_to_client"] == len(tape.sent[1])
    assert (connection["started"], connection["ended"]) == ("syn", "fin")
    assert tables["notices"] == []


def test_every_case_is_the_same_each_time() -> None:
    for case in all_cases():
        assert case.make() == case.make(), case.file_name
