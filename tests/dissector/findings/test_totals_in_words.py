"""What rules say of the numbers of a report: a sentence for each section, with its word."""

from typing import Any

import pytest

from dissector.buckets import bucket_of
from dissector.report.descriptions import in_protocol_words
from dissector.report.formatting import many
from dissector.report.headlines import WRONG
from dissector.report.result import SECTIONS
from tests.dissector.findings.judged import decoded, empty, headlines, of
from tests.dissector.report import made
from tests.numbers import Numbers


def test_an_empty_report_has_nothing_good_to_say_of_what_was_not_seen() -> None:
    words = [headline.word for headline in headlines(empty())]
    assert words == ["note"], "that there is no packet, and so nothing to judge"
    report = decoded()
    assert "ok" not in {headline.word for headline in headlines(report)}, (
        "frames alone prove nothing"
    )


def test_words_and_next_steps_of_verdicts() -> None:
    report = decoded()
    report["errors"]["total"] |= {"answers": 1, "incidents": 1}
    report["checksum_failures"]["total"] |= {"evaluated": 9, "mismatch": 2, "confirmed_by_peer": 2}
    lines = headlines(report)
    # Of the capture a finding has the word.
    assert {headline.word for headline in lines} == {"look", "note", ""}
    for headline in lines:
        assert headline.next_step or headline.word not in WRONG, headline
        assert "None" not in headline.text + headline.next_step, headline


@pytest.mark.parametrize(
    ("path", "value", "section", "word", "words"),
    [
        ("checksum_failures.total", {"evaluated": 9}, "checksum_failures", "ok",
         "9 checksums could be evaluated, and all match."),
        ("checksum_failures.total", {"evaluated": 9, "mismatch": 2, "capture_artefact": 2},
         "checksum_failures", "note",
         "2 of 9 checksums do not match: in the capture only, the receiver took the frame."),
        ("checksum_failures.total", {"evaluated": 9, "mismatch": 1, "unconfirmed": 1},
         "checksum_failures", "note", "1 of 9 checksums does not match"),
        ("redelivery.total", {"deliveries": 8, "messages": 8}, "redelivery", "ok",
         "8 deliveries: nothing was delivered again."),
        ("redelivery.total", {"deliveries": 8, "messages": 99}, "redelivery", "ok",
         "8 deliveries (99 messages): nothing was delivered again."),
        ("redelivery.total", {"deliveries": 8, "messages": 8, "redelivered": 3,
                              "by_cause": {"consumer_gone": 3}},
         "redelivery", "note", "3 of 8 deliveries were repeats: after their consumer went away."),
        ("redelivery.total", {"deliveries": 4, "messages": 24, "redelivered": 2,
                              "redelivered_messages": 4, "by_cause": {"explicit": 2}},
         "redelivery", "note", "2 of 4 deliveries (4 of 24 messages) were repeats: asked for"),
        ("coverage.total", {"tls_opaque_connections": 1}, "coverage", "look", "TLS"),
        ("coverage.total", {"limits_hit": {"names_limit": 3}}, "coverage", "bad", "names_limit"),
        ("coverage.total", {"stream_bytes": 4096, "decoded_share": 0.5, "gaps": 2,
                            "gap_bytes": 1024}, "coverage", "look", "2 gaps of 1.00 KiB in all."),
        ("send_latency.total", {"sends": 5, "outcomes": {"conn_closed": 5}}, "send_latency", "note",
         "Not confirmed: 5 unanswered when the connection ended."),
        ("errors.total", {"answers": 1, "incidents": 1}, "errors", "note", "1 request was refused"),
        ("requests.total", {"outcomes": {"ok": 3}}, "errors", "ok",
         "3 answers were read: no refusal was seen."),
        ("requests.total", {"outcomes": {"ok": 1}}, "errors", "ok", "1 answer was read: no"),
        ("requests.total", {"outcomes": {"ok": 1, "response_cut": 3}}, "errors", "note",
         "1 answer was read, those of 3 further requests could not be: no refusal was seen."),
        ("checksum_failures.total", {"evaluated": 1}, "checksum_failures", "ok",
         "1 checksum could be evaluated, and it matches."),
        ("checksum_failures.total", {"evaluated": 1, "not_evaluated": 2}, "checksum_failures",
         "note", "1 checksum could be evaluated, and it matches; 2 could not be."),
        ("connecting.total", {"not_established": 4}, "connecting", "note", "4 attempts to connect"),
    ],
)  # fmt: skip
def test_what_is_said_of_numbers(
    path: str, value: dict[str, Any], section: str, word: str, words: str
) -> None:
    report = decoded()
    place: Any = report
    for step in path.split("."):
        place = place[step]
    place.update(value)
    assert [
        headline
        for headline in of(report, section)
        if headline.word == word and words in headline.text
    ], of(report, section)


@pytest.mark.parametrize(
    ("section", "total", "words"),
    [
        ("redelivery", {"deliveries": 8, "messages": 0},
         "Redeliveries cannot be evaluated: no message was seen in any delivery."),
        ("redelivery", {
            "deliveries": 8, "messages": None, "not_evaluated_by_reason": {"no_identity": 8},
         },
         "Redeliveries cannot be evaluated: entries of non-persistent topics have no id."),
        ("requests", {"outcomes": {"lost_in_gap": 3}},
         "Refusals cannot be evaluated: no answer was decoded."),
        ("permit_utilization", {"consumers": 1, "observed_ms": 0.0},
         "Whether consumers ran out of permits cannot be evaluated: no balance is known."),
        ("permit_utilization", {"not_applicable": "for a reason"},
         "Permits: not applicable, for a reason."),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_not_ok(section: str, total: dict[str, Any], words: str) -> None:
    report = decoded()
    report[section]["total"] |= total
    assert not of(report, section)
    assert [one for one in headlines(report) if words in one.text and one.word in ("", "note")]


def test_stalls_say_whether_messages_were_waiting() -> None:
    report = decoded()
    total = report["permit_utilization"]["total"]
    total |= {"consumers": 2, "observed_ms": 9.0}
    total["stalls"] |= {"count": 3, "longest_ms": 2500.0}
    total["stalls"]["confirmed"]["count"] = 1
    total["stalls"]["open_at_end"]["count"] = 0
    (headline,) = of(report, "permit_utilization")
    assert headline.word == "note"
    assert "3 times, for at most 2.5 s; messages were seen waiting 1 time." in headline.text


def test_a_report_of_cursus_alone_speaks_its_language() -> None:
    said = "from the end of a SEND to its receipt, of a MESSAGE; receipts, ACK"
    report = empty()
    assert in_protocol_words(report, said) == said
    report["checksum_failures"]["total"]["not_applicable"] = "frames of Cursus carry no checksum"
    report["coverage"]["total"]["connections_by_protocol"] = {"cursus": 1}
    changed = "from the end of a publish to its answer, of a BATCH; answers, commit"
    assert in_protocol_words(report, said) == changed


def test_every_remark_leads_to_a_section() -> None:
    tables = made.RandomCapture(9).tables
    summary = Numbers()
    for name in sorted(tables, key=lambda name: name != "frames"):
        summary.add(name, made.batch(name, tables[name]))
    lines = headlines(summary.result())
    assert {headline.section for headline in lines} <= set(SECTIONS)
    assert all(headline.text.endswith(".") for headline in lines)
    assert many(0, "entry", "entries") == "0 entries"
    assert many(1, "entry", "entries") == "1 entry" and many(2000, "send") == "2,000 sends"


def test_numbers_of_pulsar_do_not_speak_of_cursus_beside_it() -> None:
    report = decoded()
    report["coverage"]["total"]["connections_by_protocol"] = {"pulsar": 1, "cursus": 3}
    report["checksum_failures"]["total"].update(evaluated=9)
    report["permit_utilization"]["total"].update(consumers=1, observed_ms=9.0)
    report["permit_utilization"]["total"]["stalls"] |= {"count": 0, "open_at_end": {"count": 0}}
    for section in ("checksum_failures", "permit_utilization"):
        (headline,) = of(report, section)
        assert headline.text.endswith(" Not applicable to 3 connections of Cursus.")


def refused(command: str, code: str, frame_no: int, **values: Any) -> dict[str, Any]:
    """A request of Cursus that was refused."""
    times = {"request_last_ns": made.START_NS, "response_last_ns": made.START_NS + 9}
    row = {"connection_id": 0, "request_frame_no": frame_no, "response_frame_no": frame_no + 1}
    names = {"request_command": command, "error_code": code, "outcome": "error"}
    made_up = {"kind": "request", "latency_ns": 9, "topic": "t", **row, **times, **names, **values}
    return made_up | {"latency_bucket": bucket_of(made_up["latency_ns"])}


def report_of(*rows: dict[str, Any]) -> dict[str, Any]:
    summary = Numbers()
    summary.add("exchanges", made.batch("exchanges", rows), "c-one")
    summary.add("frames", made.batch("frames", [{"connection_id": 0, "frame_no": 1}]), "c-one")
    return summary.result()


def test_refused_sends_are_not_among_the_slowest() -> None:
    report = report_of(
        refused("BATCH", "topic_not_found", 1, kind="publish", latency_ns=500_000_000),
        refused("BATCH", None, 3, kind="publish", latency_ns=7_000_000, outcome="ok"),
        refused("METADATA", "topic_not_found", 5, latency_ns=9_000_000),
    )
    assert [row["latency_ms"] for row in report["slowest"]["publish"]] == [7]
    assert [row["latency_ms"] for row in report["slowest"]["other"]] == [9]


def test_a_consumer_that_was_refused_and_nothing_delivered() -> None:
    summary = Numbers()
    row = {"connection_id": 0, "incarnation": 0, "topic": "t", "refused_code": "NOT_COORDINATOR"}
    summary.add("consumers", made.batch("consumers", [row]), "c-one")
    assert summary.result()["redelivery"]["total"]["deliveries"] == 0


def test_what_clients_always_ask_in_vain_is_no_reason_to_look() -> None:
    leave = refused("LEAVE_GROUP", "missing_generation", 1)
    listed = refused("LIST", "unknown_command", 3)
    (headline,) = of(report_of(leave, listed), "errors")
    assert (headline.word, "; this is usual with these clients." in headline.text) == ("ok", True)
    (headline,) = of(report_of(leave, refused("CREATE", "missing_topic", 5)), "errors")
    assert headline.word == "note" and "; 1 of them is usual with" in headline.text


def test_requests_whose_command_is_not_read_have_a_name() -> None:
    report = decoded()
    row = {"kind": "request", "requests": 2, "outcomes": {"conn_closed": 1}}
    report["requests"]["by_command"] = [
        row | {"request_command": name} for name in (None, "CREATE", "LIST")
    ]
    (found,) = [headline for headline in headlines(report) if headline.section == "requests"]
    assert found.text == (
        "3 requests were unanswered when the connection or the capture ended: "
        "1 CREATE, 1 LIST, 1 unknown."
    )
