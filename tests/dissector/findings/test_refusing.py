"""Refusals, alerts and moves: rules say what the capture shows."""

import json
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.findings.loading import load_rules
from tests.dissector.findings.asking import findings_of_tape, variant
from tests.dissector.findings.links_captures import ALERT, HELLO
from tests.dissector.findings.tape import TOPIC, Link, Tape

CAPTURES = Path(__file__).resolve().parents[3] / "captures"


# -- R01


def refuse(link: Link, kind: str, turn: int, at: float) -> None:
    """One request of a kind, and the broker's refusal."""
    if kind in ("sends", "final"):
        error = "TopicTerminatedError" if kind == "final" else "NotAllowedError"
        link.publish(at, 1, turn, None)
        link.hear(
            at + 0.01, "SEND_ERROR", producer_id=1, sequence_id=turn, error=error, message="no"
        )
    elif kind == "asked":
        link.tell(at, "LOOKUP", topic=TOPIC, request_id=50 + turn)
        link.hear(
            at + 0.01, "LOOKUP_RESPONSE", request_id=50 + turn, response="Failed",
            error="TopicNotFound", message="no",
        )  # fmt: skip
    else:
        link.produce(at, 50 + turn, TOPIC + "2", answer_s=None)
        link.hear(
            at + 0.01, "ERROR", request_id=50 + turn, error="AuthorizationError", message="no"
        )


@pytest.mark.parametrize(("turns", "every_s", "lasting"), [(2, 1.0, False), (4, 6.0, True)])
@pytest.mark.parametrize("kind", ["sends", "final", "asked", ""])
def test_what_was_refused_decides_what_is_said(tmp_path, kind, turns, every_s, lasting):
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    link.subscribe(0.2, 2)
    for turn in range(turns):
        refuse(link, kind, turn, 1.0 + every_s * turn)
    (one,) = findings_of_tape(tmp_path, "R01", tape)
    expected = (f"{kind}_lasting" if kind else "never_open") if lasting else kind
    severity = "warning" if kind == "asked" else "error"  # nothing is lost by questions
    assert variant(one) == expected and one.severity == (severity if lasting else "info")
    assert one.measured["refusals"] == turns and one.measured["granted"] == 0
    assert ("to see whether something exists" in one.text) == (expected == "asked")


def test_what_was_granted_behind_a_refusal_is_counted(tmp_path):
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    refuse(link, "sends", 0, 1.0)
    for turn in range(3):
        link.publish(2.0 + turn, 1, turn, turn)
    (one,) = findings_of_tape(tmp_path, "R01", tape)
    assert one.measured["granted"] == 3
    assert "it stored 3 sends of this client there" in one.text


# -- D18


@pytest.mark.parametrize(
    ("port", "is_named", "is_told"),
    [(443, False, False), (443, True, True), (6651, False, True), (8443, False, False)],
)
def test_an_alert_of_a_server_that_is_no_broker_is_none_of_pulsar(
    tmp_path, port, is_named, is_told
):
    tape = Tape()
    plain = tape.pulsar(0.0, 40000)
    if is_named:
        plain.tell(0.1, "LOOKUP", topic=TOPIC, request_id=1)
        plain.hear(
            0.2, "LOOKUP_RESPONSE", request_id=1, response="Connect",
            brokerServiceUrl="pulsar://10.0.0.2:6650",
            brokerServiceUrlTls=f"pulsar+ssl://10.0.0.2:{port}",
        )  # fmt: skip
    secret = tape.link(1.0, 40001, broker_port=port)
    secret.send(1.01, 0, HELLO)
    secret.send(1.02, 1, ALERT)
    secret.fin(1.03, 1)
    assert [variant(one) for one in findings_of_tape(tmp_path, "D18", tape)] == ["alert"] * is_told


# -- D24


def test_each_unload_of_a_topic_is_an_incident_in_a_file_and_at_a_tap(tmp_path, capsys):
    """The sample's broker unloaded the topic twice, 0.27 s apart."""
    file = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")
    assert run(["findings", "-q", "--json", "--code", "D24", file]) == 0
    (one,) = json.loads(capsys.readouterr().out)["findings"]
    assert one["incidents"] == one["measured"]["moves_seen"] == 2
    assert run(["tap", "--replay", file, "--severity", "info"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if " D24 info" in line]
    assert "the longest of 2 such closes" in line and one["text"].split("\n")[0] in line


def test_a_reset_of_the_cursor_is_no_rival_where_producers_were_closed():
    (rule,) = [rule for rule in load_rules()[0] if rule.number == "D24"]
    rivals = {name: words.parts["rival"] for name, words in rule.words.items()}
    assert {name for name, text in rivals.items() if "cursor" in text} == {
        "consumers", "unload_churn",
    }  # fmt: skip
    assert "[, or that reset the cursor, since no producer was closed" in rivals["unload_churn"]
