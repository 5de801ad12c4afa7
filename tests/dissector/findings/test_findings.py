"""Rules fire where they must and are silent on their twins; a broken rule is named."""

import json
import re
import struct
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.errors import UsageError
from dissector.findings.explaining import explained
from dissector.findings.finding import findings_of, findings_of_rows, text_of
from dissector.findings.loading import PARTS, load_rules, named
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import sandbox_over
from tests.dissector.findings.asking import findings_by_capture
from tests.dissector.findings.samples import (
    ALL,
    BROKEN,
    NAMES,
    ROOT,
    RULES,
    land_samples,
    sample,
)

BY_CODE = {rule.code: rule for rule in RULES}
BY_NUMBER = {rule.number: rule for rule in RULES}
# Rules that captures alone fire which tests make, and these tests.
MADE = {
    number
    for file in Path(__file__).parent.glob("test_*.py")
    for found in re.findall(r"^MADE = \{(.*?)\}", file.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for number in re.findall(r'"(\w+)"', found)
}


def findings_in(lake, rules=RULES):
    with open_lake(lake) as opened, sandbox_over(opened) as engine:
        return findings_of(engine, rules)


@pytest.fixture(scope="module")
def stored_twice(tmp_path_factory):
    """A lake of one capture, in which that rule fires."""
    folder = tmp_path_factory.mktemp("stored") / "lake"
    name = str(sample(BY_CODE["stored_twice"].fires[0]))
    assert run(["land", "-q", "--lake", str(folder), name]) == 0
    return folder


@pytest.fixture(scope="module")
def fired():
    """(rule, name of the capture) of every finding in the samples that rules name."""
    found = findings_by_capture(BY_NUMBER, {base(name): sample(name) for name in NAMES})
    return {(one.code, name): one for name, findings in found.items() for one in findings}


def base(name):
    return name.removesuffix(".gz").removesuffix(".pcap")


def real_captures():
    """Names of samples of real brokers, as the manifests say; damage is made."""
    names = set()
    for folder in ("pulsar", "pulsar-apache", "pulsar-live", "pulsar-random", "cursus"):
        for each in json.loads((ROOT / "captures" / folder / "manifest.json").read_text("utf-8")):
            if each.get("broker_is_real", folder == "cursus"):
                names.add(base(each["file"]))
    return {name for name in names if not name.startswith("mut-")}


def test_a_rule_says_in_which_real_captures_it_was_seen(fired):
    for rule in RULES:
        named = {base(name) for name in rule.real}
        assert named <= real_captures(), rule.number
        others = {name for code, name in fired if code == rule.code} & real_captures()
        assert named or not others, rule.number
        said = "\n".join(explained(rule.code, ALL))
        assert ("Seen in real captures: " if named else "Seen in synthetic captures only") in said


def test_all_rules_of_the_program_can_be_used():
    assert not BROKEN and len(RULES) >= 8
    assert len({rule.number for rule in ALL}) == len(ALL)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_a_rule_fires_where_it_must_and_is_silent_on_its_twins(rule, fired):
    assert rule.silent and (rule.fires or rule.number in MADE)
    codes = {(code, base(name)) for code, name in fired}
    assert [name for name in rule.fires if (rule.code, base(name)) not in codes] == []
    assert [name for name in rule.silent if (rule.code, base(name)) in codes] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_a_text_names_the_rival_and_what_would_decide(rule):
    assert all(set(words.parts) == set(PARTS) for words in rule.words.values())
    assert rule.references


def test_evidence_names_frames_and_their_packets(fired):
    for one in fired.values():
        assert 1 <= len(one.evidence) <= 8
        assert all(each.packet for each in one.evidence)
        assert one.first_ns <= one.last_ns and one.incidents >= 1


def test_the_plateau_of_unacknowledged_messages_is_measured(fired):
    one = fired["unacked_limit_plateau", "java-j17_blocked_unacked"]
    assert one.measured["unacked"] == 20 and one.measured["available"] == 980
    assert 1.7 < one.measured["silence_measured_s"] < 1.9
    assert "20 messages were delivered and not acknowledged" in one.text


def test_a_consumer_that_never_asks_again_is_an_error(tmp_path):
    """The stand-in's stall, twenty times as slow and cut before the client asks again."""
    content = sample("fake-f20_stuck_consumer.pcap").read_bytes()
    kept, place, first = [content[:24]], 24, None
    for _ in range(88):
        seconds, micros, length, original = struct.unpack_from("<4I", content, place)
        at = seconds * 10**6 + micros
        first = at if first is None else first
        at = first + (at - first) * 20
        head = struct.pack("<4I", at // 10**6, at % 10**6, length, original)
        kept.append(head + content[place + 16 : place + 16 + length])
        place += 16 + length
    slow = tmp_path / "slow.pcap"
    slow.write_bytes(b"".join(kept))
    assert run(["land", "-q", "--lake", str(tmp_path / "lake"), str(slow)]) == 0
    findings, _ = findings_in(tmp_path / "lake", [BY_CODE["consumer_out_of_permits"]])
    assert [one.severity for one in findings] == ["error"]


FRONT = """/*
code = "mine"
number = "X01"
title = "mine"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
worst = "measured_frames"
[thresholds.least]
value = 1
unit = "frames"
why = "one is enough"
[text]
what = "{frames} frames of {topic}."
known = "k"
rival = "r"
decides = "d"
do = "do"
*/
"""
NEEDY = FRONT.replace("[thresholds.least]", "[needs]\nframes = CONDITION\n[thresholds.least]")
BEGIN = FRONT.count("\n") + 1  # the line where the query begins
QUERY = """SELECT capture, capture AS subject_file, min(last_ts_ns) AS first_ns, max(last_ts_ns)
  AS last_ns, max(topic) AS subject_topic, count(*) AS measured_frames, min(frame_no) AS frame_a
FROM frames
GROUP BY capture
HAVING count(*) >= $least
"""


@pytest.mark.parametrize(
    ("apart_s", "incidents"), [("", 1), ("apart_s = 2", 2), ("apart_s = 3.5", 1)]
)
def test_a_rule_says_how_far_apart_incidents_are(tmp_path, apart_s, incidents):
    (tmp_path / "mine.sql").write_text(FRONT.replace("worst =", f"{apart_s}\nworst =") + QUERY)
    (rule,) = [rule for rule in load_rules(tmp_path)[0] if rule.code == "mine"]
    rows = [
        {"capture": "c", "first_ns": at, "last_ns": at, "measured_frames": 1, "rank_of_capture": 1}
        for at in (5_000_000_000, 8_000_000_000)
    ]
    (one,), _ = findings_of_rows(rule, rows)
    assert one.incidents == incidents


def test_a_rule_of_a_user_is_asked_too(tmp_path):
    names = NAMES[:3]
    land_samples(tmp_path / "lake", names)
    (tmp_path / "mine.sql").write_text(FRONT + QUERY)
    rules, broken = load_rules(tmp_path)
    assert not broken
    findings, problems = findings_in(
        tmp_path / "lake", [rule for rule in rules if rule.code == "mine"]
    )
    assert not problems and len(findings) == len(names)
    assert {one.number for one in findings} == {"X01"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("SELECT 1", 1, "begins with a line /*"),
        (FRONT.replace('"mine"', '"mine', 1) + QUERY, 2, ""),
        (FRONT.replace("rival", "other") + QUERY, 1, "no `rival`"),
        (FRONT.replace('"warning"', '"bad"') + QUERY, 1, "severity"),
        (FRONT.replace("worst =", 'apart_s = "1"\nworst =') + QUERY, 1, "`apart_s` is no number"),
        (FRONT + QUERY.replace("$least", "$most"), BEGIN + 4, "$most is no threshold"),
        (NEEDY.replace("CONDITION", '"frame_no > $most"') + QUERY, 1, "$most is no threshold"),
        (NEEDY.replace("CONDITION", "7") + QUERY, 1, "`needs` is no table of texts"),
        (FRONT + QUERY.replace("FROM frames", "FROM no_such"), BEGIN + 2, "no_such"),
        (FRONT + QUERY.replace("max(topic)", "max(topics)"), BEGIN + 1, "topics"),
        ((FRONT + QUERY).replace("measured_frames", "measured_other"), BEGIN, "{frames}"),
        (FRONT + QUERY.replace("frame_a", "frame_topic"), BEGIN, "{topic}, which several"),
    ],
)
def test_a_broken_rule_is_named_with_its_line_and_others_go_on(
    tmp_path, stored_twice, text, line, words
):
    (tmp_path / "broken.sql").write_text(text)
    rules, problems = load_rules(tmp_path)
    mine = [rule for rule in rules if rule.code in ("mine", "stored_twice")]
    findings, failed = findings_in(stored_twice, mine)
    (problem,) = [*problems, *failed]
    assert problem.file.endswith("broken.sql") and words in problem.text
    assert problem.line == line
    assert any(one.code == "stored_twice" for one in findings)


def test_a_name_that_no_rule_has_is_told_with_names_that_are_near():
    with pytest.raises(UsageError, match=r"limit_plateau: .*unacked_limit_plateau"):
        named(RULES, ["limit_plateau"])
    with pytest.raises(UsageError, match=r"number or code$"):
        named(RULES, ["zzzzzz"])


def test_numbers_errors_and_codes_are_explained():
    assert "TLS" in explained("369295620", RULES)[0]
    assert "HTTP" in explained("1195725860", RULES)[0]
    assert explained("12", RULES) == [] and explained("99999999999999999999", RULES) == []
    assert "PROXY" in explained("218762510", RULES)[0]
    assert "AMQP" in explained("1095586132", RULES)[0]
    assert explained("ChecksumError", RULES)
    for name in ("D36", "redelivery_delay_measured", "d04", "permits_negative_explained"):
        assert "no finding any more" in explained(name, RULES)[0]
    assert explained("d06", RULES) == explained("unacked_limit_plateau", RULES) != []


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{n} batches {n|was|were} lost", {"n": 1}, "1 batch was lost"),
        ("{n} batches {n|was|were} lost", {"n": 2}, "2 batches were lost"),
        ("{n} such silences, {n} entries", {"n": 1}, "1 such silence, 1 entry"),
        ("of {subscription}", {}, "of (a subscription whose name was not captured)"),
        ("{a}[ (topic {topic})].", {"a": 1, "topic": None}, "1."),
        ("{a}[ (topic {topic})].", {"a": 1, "topic": "[{a}]"}, "1 (topic [{a}])."),
        ("{n} s", {"n": 1}, "1 s"),
    ],
)
def test_sentences_agree_with_their_numbers_and_leave_out_what_nobody_knows(template, values, text):
    lines = text_of(dict.fromkeys(PARTS, template), values, {}).split("\n")
    assert lines[0] == text and len(lines) == len(PARTS)


def test_counts_are_told_by_the_names_that_a_rule_gives():
    parts = dict.fromkeys(PARTS, "") | {"what": "{n:counts}, {n:shares}"}
    names = {"seek": "after a seek"}
    assert text_of(parts, {"n": {"seek": 2, "a_b": 3}}, names) == (
        "3 a_b, 2 after a seek, 3 a_b, 2 after a seek"
    )
    assert text_of(parts, {"n": {"seek": 2}}, names) == "2 after a seek, after a seek"
