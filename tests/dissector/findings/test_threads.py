"""Captures of public threads (`captures/threads`): what is found, what is said, and quiet twins."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.findings.finding import Finding, findings_of
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import sandbox_over
from tests.dissector.findings.asking import variant
from tests.dissector.findings.samples import RULES, inside, land_together

FOLDER = Path(__file__).resolve().parents[3] / "captures" / "threads"
THREADS = json.loads((FOLDER / "manifest.json").read_text("utf-8"))["threads"]
# The rule and its variant for all that is a warning or an error.
WANTED: Mapping[str, Sequence[tuple[str, str]]] = {
    "t01-delayed-strict-stall": [("D29", "released")],
    "t04-sticky-range-conflict": [
        ("D20", "peer_gone"),
        ("D21", "range_half_open"),
        ("D46", ""),
    ],
    "t06-go-chunk-discarded": [("D43", "")],
    "t07-txn-ack-conflict": [("D37", "refused_lasting")],
    "t09-migration-stuck-30s": [("D23", "migrated_not_followed")],
    "t11-delayed-again-after-unload": [("D37", "not_kept")],
    "t14-terminated-topic-retried": [("R01", "final_lasting")],
    "t17-chunked-never-dead-lettered": [("D32", "dlq_unused")],
}
# What a finding of a capture says, and what none of them may say.
SAID = {
    "t01-delayed-strict-stall": [
        "4 messages of persistent://public/default/delayed", "within 50 ms behind a SEND",
        "the worst 60.009 s late",
    ],
    "t06-go-chunk-discarded": [
        "4 entries were delivered to c-1", "chunk 1 has two ids: 71:4 and 71:5", "dropped",
    ],
    "t04-sticky-range-conflict": [
        "10.20.0.12, port 56016", "nothing of it had come for 59.733 s", "frame 45",
    ],
    "t07-txn-ack-conflict": [
        "refused 36 ACKs", "already acked before", "these acknowledge nothing",
        "The first was of 81:4, in transaction (7,465735)",
        "0 of the 36 message ids in them are in another ACK",
    ],
    "t09-migration-stuck-30s": [
        "15 ms later the broker answered TOPIC_MIGRATED: the topic is at pulsar://10.30.0.2:6650",
        "30.079 s behind that answer", "Pulsar-CPP-v3.4.2",
    ],
    "t11-delayed-again-after-unload": [
        "9 entries of persistent://public/default/remind", "20.25 s or more before it",
        "Entry 121:0 before them was not acknowledged then, since it was not due yet",
    ],
    "t14-terminated-topic-retried": [
        "refused PRODUCER of 10.20.0.11 on persistent://public/default/ended 9 times",
        "a retry cannot succeed", "A topic was terminated while it was in use",
    ],
    "t17-chunked-never-dead-lettered": [
        "3 of them are chunks of 1 message",
        "A producer on persistent://public/default/dlqchunk-sub-1-DLQ is open", "sent nothing",
    ],
}  # fmt: skip
UNSAID = {
    "t06-go-chunk-discarded": ["ask the application", "Ask the application"],
    "t09-migration-stuck-30s": ["thread dump"],
    "t11-delayed-again-after-unload": ["acks were lost at a close"],
    "t14-terminated-topic-retried": ["asks on purpose", "unload", "Nothing, if"],
    "t17-chunked-never-dead-lettered": ["set one", "Set a dead-letter policy"],
}


@pytest.fixture(scope="module")
def findings_by_thread(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """The findings by name of the capture; all are in one lake."""
    lake = tmp_path_factory.mktemp("threads") / "lake"
    land_together(lake, sorted(FOLDER.glob("*.pcap")))
    with open_lake(lake) as opened:
        names = {
            one.capture_id: Path(one.sources[0].file_name).stem for one in inside(opened.captures)
        }
        with sandbox_over(opened) as engine:
            findings, problems = findings_of(engine, RULES)
    assert problems == []
    sorted_out: dict[str, list[Finding]] = {name: [] for name in names.values()}
    for one in findings:
        sorted_out[names[one.capture]].append(one)
    return sorted_out


def test_each_thread_has_its_capture_and_its_twin(findings_by_thread):
    assert {Path(each["file"]).stem for each in THREADS} == {*WANTED}
    assert {*findings_by_thread} == {*WANTED} | {Path(each["twin"]).stem for each in THREADS}


@pytest.mark.parametrize("name", WANTED)
def test_what_is_wrong_is_found_and_nothing_else(name, findings_by_thread):
    told = [
        (one.number, variant(one)) for one in findings_by_thread[name] if one.severity != "info"
    ]
    assert sorted(told) == sorted(WANTED[name])


@pytest.mark.parametrize("name", [Path(each["twin"]).stem for each in THREADS])
def test_a_twin_is_quiet(name, findings_by_thread):
    assert [one.title for one in findings_by_thread[name] if one.severity != "info"] == []


@pytest.mark.parametrize("name", SAID)
def test_what_happened_is_said(name, findings_by_thread):
    text = "\n".join(f"{one.title}\n{one.text}" for one in findings_by_thread[name])
    assert [words for words in SAID[name] if words not in text] == []


@pytest.mark.parametrize("name", UNSAID)
def test_what_did_not_happen_is_not_said(name, findings_by_thread):
    text = "\n".join(f"{one.title}\n{one.text}" for one in findings_by_thread[name])
    assert [words for words in UNSAID[name] if words in text] == []


def summary_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["summary", "-q", str(FOLDER / f"{name}.pcap")]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_chunks_that_the_client_library_dropped_are_no_matter_of_the_application(capsys):
    text = summary_of("t06-go-chunk-discarded", capsys)
    assert "4 were left open though later ones were acknowledged" in text
    assert "the client library dropped their message" in text
    assert "these are chunks of 1 message, not each of them once" in text
    assert "Ask the application" not in text
    assert "left open" not in summary_of("t06-go-chunk-twin", capsys)


def test_acks_that_the_broker_refused_acknowledge_nothing(capsys):
    """Of 40 acks, each in a transaction, the broker took 4."""
    assert run(["summary", "-q", "--json", str(FOLDER / "t07-txn-ack-conflict.pcap")]) == 0
    acks = json.loads(capsys.readouterr().out)["ack_latency"]
    for row in (acks["total"], *acks["by_subscription"]):
        assert (row["deliveries"], row["acked"], row["refused"]) == (40, 4, 36)
        assert row["rolled_back"] == 0
