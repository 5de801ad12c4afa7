"""Verdicts on the capture: what was decoded, and what is missing."""

from typing import Any

import pytest

from dissector.report.descriptions import NOTICE_SENTENCES
from tests.dissector.findings.judged import decoded, of

ENOUGH = 0.99


def test_bounds_say_what_they_left_out() -> None:
    report = decoded()
    report["coverage"]["total"]["limits_hit"] = {"nesting_limit": 3}
    headlines = [headline for headline in of(report, "coverage") if headline.word == "bad"]
    assert f"{NOTICE_SENTENCES['nesting_limit']} (nesting_limit, 3 times)" in headlines[0].text
    assert "dissector summary" in headlines[0].next_step


def test_long_names_leave_the_numbers_whole() -> None:
    report = decoded()
    report["coverage"]["total"]["limits_hit"] = {"long_names_limit": 1}
    headlines = of(report, "coverage")
    assert "bad" not in [headline.word for headline in headlines]
    (one,) = [headline for headline in headlines if headline.number == "V05"]
    assert "4,096 bytes" in one.text and "fewer files" not in one.next_step


@pytest.mark.parametrize(
    ("change", "word", "words"),
    [
        ({}, "ok", "100 % of the TCP stream (1,000 bytes) is decoded; no gaps."),
        ({"decoded_share": ENOUGH}, "ok", "99 %"),
        ({"decoded_share": 0.5, "connections_by_protocol": {"http": 1}}, "ok",
         "1 connection speaks HTTP, which explains the rest."),
        ({"decoded_share": 0.01, "tls_opaque_connections": 1}, "look", "1 connection is encrypted"),
        ({"decoded_share": 0.5, "connections_by_protocol": {"unknown": 2}}, "look", "an unknown"),
        ({"other_protocols_bytes": 400, "connections_by_protocol": {"kafka": 2, "amqp": 1}}, "ok",
         "(600 bytes) is decoded; no gaps. Left out: connections of other protocols (2 kafka, "
         "1 amqp), 400 bytes."),
        ({"decoded_share": None, "decoded_share_of_recognised": None, "packets": 3,
          "other_protocols_bytes": 1000, "connections_by_protocol": {"kafka": 1}}, "look",
         "of TCP among them. Left out: connections of other protocols (1 kafka), 1,000 bytes."),
        ({"stream_bytes": 0, "packets": 3, "dropped_bytes": 9}, "look",
         "of TCP among them, with 9 bytes of payload that fit no stream."),
        ({"decoded_share": 0.5, "decoded_share_of_recognised": 0.5, "gaps": 1}, "look", "1 gap"),
        ({"decoded_share": 0.5, "decoded_share_of_recognised": 0.5}, "look", "no gaps"),
        ({"decoded_share": 0.5, "snaplen_cut_bytes": 9, "decoded_share_of_recognised": 0.5}, "look",
         "cut by the snap length"),
    ],
)  # fmt: skip
def test_how_much_was_decoded(change: dict[str, Any], word: str, words: str) -> None:
    report = decoded()
    whole = {"stream_bytes": 1000, "decoded_share": 1.0, "decoded_share_of_recognised": 1.0}
    report["coverage"]["total"] |= whole | change
    (headline,) = of(report, "coverage")
    assert headline.word == word and words in headline.text
    assert bool(headline.next_step) == (word == "look")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"truncated_files": 1}, "1 file is cut: what came behind is missing."),
        ({"truncated_files": 2}, "2 files are cut"),
        ({"dropped_by_interface": 3}, "The interface dropped 3 packets while capturing."),
        ({"serious_notices": ["it was stored, though AUTH is asked for (a_code, 2 times)"]},
         "It was stored, though AUTH is asked for (a_code, 2 times)."),
    ],
)  # fmt: skip
def test_what_was_lost_or_is_serious_is_a_reason_to_look(
    change: dict[str, Any], words: str
) -> None:
    report = decoded()
    whole = {"stream_bytes": 1000, "decoded_share": 1.0, "decoded_share_of_recognised": 1.0}
    report["coverage"]["total"] |= whole | change
    headline, decoded_part = of(report, "coverage")
    # The file is cut: that all of what is there was decoded is a number beside it.
    assert (headline.word, decoded_part.word) == ("look", "")
    assert words in headline.text and headline.next_step
