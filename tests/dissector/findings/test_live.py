"""A broker's own traffic, with what was done to it: exactly what is told of each capture."""

import gzip
import json
from pathlib import Path

import pytest

from tests.dissector.findings.asking import findings_by_capture
from tests.dissector.findings.samples import RULES

FOLDER = Path(__file__).resolve().parents[3] / "captures" / "pulsar-live"
TOLD = json.loads((FOLDER / "manifest.json").read_text("utf-8"))
MANIFEST = {each["file"]: each for each in TOLD}


@pytest.fixture(scope="module")
def findings_by_file():
    """The findings by file."""
    numbers = [rule.number for rule in RULES]
    return findings_by_capture(numbers, {name: FOLDER / name for name in MANIFEST})


def test_every_capture_is_in_the_manifest():
    assert {path.name for path in FOLDER.glob("*.pcap*")} == {*MANIFEST}
    for name in MANIFEST:
        content = (FOLDER / name).read_bytes()
        assert len(content) <= 100_000
        content = gzip.decompress(content) if name.endswith(".gz") else content
        assert content[:4] == b"\xd4\xc3\xb2\xa1"


@pytest.mark.parametrize("name", MANIFEST)
def test_what_was_done_is_found_and_nothing_else(name, findings_by_file):
    told = sorted((one.number, one.severity) for one in findings_by_file[name])
    assert told == sorted((number, severity) for number, severity in MANIFEST[name]["findings"])


def test_a_stopped_client_is_named_by_its_late_answer(findings_by_file):
    (one,) = findings_by_file["live-stopped_client.pcap"]
    assert one.subject["giver_up"] == "broker" and one.verdict == "pattern"
    assert one.measured["unanswered_s"] == pytest.approx(63.5, abs=0.1)


def test_an_ack_timeout_is_told_without_claims_about_the_application(findings_by_file):
    (one,) = [one for one in findings_by_file["live-ack_timeout.pcap"] if one.number == "D32"]
    assert one.measured["requests"] == 4 and one.measured["period_s"] == pytest.approx(11, abs=0.1)
    assert "holds them and does not acknowledge" in one.text


def test_sends_of_a_restart_that_were_answered_in_the_end_are_told_so(findings_by_file):
    late = [one for one in findings_by_file["live-broker_restart.pcap.gz"] if one.number == "D12"]
    assert all(one.title.endswith("sent again and answered late") for one in late)
    assert [one.measured["answered"] for one in late] == [1, 1]
