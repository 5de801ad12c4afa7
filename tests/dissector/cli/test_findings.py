"""findings and explain: shape of the JSON, text for people, empty and cut input."""

import json
import shutil
from pathlib import Path

import pytest

from tests.dissector.cli.conftest import SAMPLES

CAPTURE = SAMPLES / "java-j17_blocked_unacked.pcap"
KEYS = {
    "show",
    "id", "code", "title", "severity", "verdict", "section", "capture", "subject", "first_ts",
    "last_ts", "incidents", "measured", "thresholds", "ruled_out", "evidence", "text", "command",
}  # fmt: skip


def test_json_has_the_findings_worst_first(command):
    done = command("findings", CAPTURE, "--json")
    assert done.code == 0
    (one,) = json.loads(done.out)["findings"]
    assert set(one) == KEYS
    assert (one["id"], one["severity"]) == ("D06", "error")
    assert [set(each) for each in one["evidence"]] == [{"frame_no", "packet", "role"}] * 4
    assert one["command"].endswith("-Y 'frame_no in (76, 18, 156, 157)'")


def test_a_finding_says_how_to_see_its_frames(command):
    done = command("findings", CAPTURE, "--code", "D06")
    assert "D06  error" in done.out and "What else looks the same: " in done.out
    assert f"dissector frames {CAPTURE} -Y 'frame_no in (76, 18, 156, 157)'" in done.out
    shown = command("frames", CAPTURE, "-Y", "frame_no in (76, 18, 156, 157)")
    assert len(shown.lines) >= 3


def test_a_capture_that_is_well_has_none(command):
    done = command("findings", SAMPLES / "java-j01_plain.pcap")
    assert done.code == 0 and done.out.startswith("no findings; ")
    done = command("findings", SAMPLES / "java-j01_plain.pcap", "--json")
    assert json.loads(done.out) == {"findings": []}


def test_empty_and_cut_captures_are_no_errors(command, tmp_path):
    content = CAPTURE.read_bytes()
    (tmp_path / "empty.pcap").write_bytes(content[:24])
    (tmp_path / "cut.pcap").write_bytes(content[: len(content) // 3])
    asked = tmp_path / "empty.pcap", "--fail-on", "finding.severity >= info"
    done = command("findings", *asked)
    assert done.code == 0 and done.out.startswith("no packet was captured: there is nothing to")
    done = command("summary", *asked)
    assert done.code == 0 and "note  V01  No packet was captured" in done.out
    assert command("findings", tmp_path / "cut.pcap").code in (0, 3)


def test_half_a_capture_is_a_fault_that_a_condition_can_leave_out(command):
    half = SAMPLES.parent / "pulsar" / "tap-oneway.pcap"
    condition = "finding.severity >= warning"
    for name, asked, code in (
        ("findings", condition, 6),
        ("summary", condition, 6),
        ("findings", f'{condition} and finding.section != "coverage"', 0),
    ):
        assert command(name, half, "--fail-on", asked).code == code


def test_wrong_names_are_one_line(command, tmp_path):
    assert command("findings", CAPTURE, "--code", "D99").code == 1
    assert command("findings").code == 1
    (tmp_path / "bad.sql").write_text("SELECT 1")
    done = command("findings", CAPTURE, "--rules", tmp_path)
    assert done.code == 0 and "bad.sql:1: " in done.err and "D06" in done.out


def test_conditions_are_about_any_finding(command):
    met = (
        "finding.severity >= error", "finding.measured.unacked == 20",
        'finding.severity == "error" and finding.id == "D06"',
    )  # fmt: skip
    unmet = ("finding.severity > error", "finding.subject.topic contains 'j18'")

    def fail_on(*conditions):
        return [word for each in conditions for word in ("--fail-on", each)]

    for name in ("findings", "summary"):  # which reads conditions as findings do
        done = command(name, CAPTURE, *fail_on(*met, *unmet))
        assert done.code == 6
        assert [each for each in (*met, *unmet) if f"--fail-on: {each}" in done.err] == [*met]
        assert command(name, CAPTURE, *fail_on(*unmet)).code == 0
    done = command("findings", CAPTURE, "--fail-on", "finding.sevrity > error")
    assert done.code == 1 and "did you mean finding.severity?" in done.err


def test_explain(command):
    assert "truncated_tail: a notice" in command("explain", "truncated_tail").out
    assert "TLS" in command("explain", "369295620").out
    assert command("explain", "D06").out.startswith("D06, unacked_limit_plateau: ")
    assert "CRC32C" in command("explain", "ChecksumError").out
    assert "To ask: " in command("explain", "topic_not_found").out
    for rule in ("D21", "V12"):
        assert "{" not in command("explain", rule).out
    done = command("explain", "nothing\x1b[2J")
    assert done.code == 1 and "\x1b" not in done.err


def test_words_are_looked_for_in_all_that_can_be_explained(command):
    lines = command("explain", "unacked messages limit").out.splitlines()
    named = [line for line in lines if not line.startswith(" ")]  # the others go on a line
    assert named[0].startswith("D06, ") and len(named) <= 10
    assert command("explain", "unacked", "messages", "limit").out.splitlines() == lines
    assert "D12, send_unanswered: " in command("explain", "apache/pulsar#8321").out
    assert "TopicNotFound: " in command("explain", "topic does not exist").out
    assert "interface_drops: " in command("explain", "dropped packets of the interface").out
    zebra = command("explain", "zebra", "crossing")
    assert zebra.code == 1 and "fewer words find more" in zebra.err


@pytest.mark.parametrize(
    ("logged", "code"),
    [
        ("Could not send message to broker within given timeout", "D12"),
        (
            "org.apache.pulsar.client.api.PulsarClientException$TimeoutException: The producer p "
            "can not send message to the topic t within given timeout",
            "D12",
        ),
        ("PulsarClientException$AlreadyClosedException: Producer already closed", "D15"),
        ("lost_receipt", "D12"),
    ],
)
def test_what_clients_log_is_looked_for_by_its_words(command, logged, code):
    lines = command("explain", logged).out.splitlines()
    assert any(line.startswith(f"{code}, ") for line in lines)


def test_a_rule_that_calls_nothing_wrong_finds_nothing_to_list(command):
    done = command("findings", CAPTURE, "--code", "V10")
    assert (done.code, done.out) == (0, "no findings; 1 rule asked\n")


def test_only_the_rules_that_are_named_are_asked(command):
    done = command("findings", CAPTURE, "--code", "D06", "--code", "d15")
    assert "1 finding; 2 rules asked" in done.out and "\nD06  " in f"\n{done.out}"
    assert "no findings; 1 rule asked" in command("findings", CAPTURE, "--code", "D15").out


def test_rules_of_users_count_files_of_two_captures_once(command, tmp_path):
    rule = (Path(__file__).parents[3] / "docs" / "writing-a-rule.md").read_text()
    rule = rule.partition("```text\n")[2].partition("```")[0].replace("value = 1.0", "value = 0.0")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "lookups.sql").write_text(rule)
    shutil.copy(CAPTURE, tmp_path / "same.pcap")
    lake = tmp_path / "lake"
    (first,) = command("land", CAPTURE, "--lake", lake).lines
    asked = ("findings", "--lake", lake, "--rules", tmp_path / "rules", "--code", "X01", "--json")
    alone = json.loads(command(*asked).out)["findings"]
    (second,) = command("land", tmp_path / "same.pcap", "--lake", lake).lines
    done = command(*asked)
    assert alone and json.loads(done.out)["findings"] == alone
    assert f"{second} is not counted: all its files are in {first}" in done.err


def test_captures_beside_a_lake_are_refused_and_not_left_unread(command, tmp_path):
    command("land", CAPTURE, "--lake", tmp_path / "lake")
    for name in ("findings", "summary"):
        done = command(name, "--lake", tmp_path / "lake", CAPTURE)
        assert (done.code, done.out) == (1, "")
        assert f"not both: {CAPTURE} and --lake" in done.err
