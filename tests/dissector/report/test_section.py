"""The texts of the sections: of how many a number speaks, what is not known and why."""

from collections.abc import Mapping
from typing import Any

import pytest

from dissector.queries.catalogue import catalogue
from dissector.report.descriptions import meaning_of, notice_sentence
from dissector.report.merged_tables import empty_tables
from dissector.report.result import SECTIONS, build
from dissector.report.section import REASONS, Section, not_evaluated
from dissector.schemas.enums import DELIVERY_OUTCOMES, OUTCOMES
from tests.dissector.report import made
from tests.dissector.report.sections.test_sections import numbers_of, reports
from tests.numbers import Numbers

NAMES = ("5", "6", "java-j74_corrupt.pcap", "mut-snap200-java-j03_batch_lz4.pcap",
         "mut-loss1-java-j24_unload.pcap")  # fmt: skip
REASONED = ("ok", "error", "dup_or_dropped", "dropped_after_close", "changes_of_unknown_balance")


def reasons(value: Any) -> set[str]:
    """All names that stand in some `not_evaluated_by_reason`."""
    found: set[str] = set()
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "not_evaluated_by_reason":
                found |= set(inner)
            else:
                found |= reasons(inner)
    elif isinstance(value, list):
        for inner in value:
            found |= reasons(inner)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_section_says_what_it_means_and_every_reason_has_words(name: str) -> None:
    report = reports(*NAMES)[name]
    for section in SECTIONS:
        about = report[section]["about"]
        assert (
            about[0].isupper()
            and about.endswith(".")
            and "_" not in about.replace("decoded_share", "")
        ), about
    assert reasons(report) <= {*REASONS, *REASONED}


class Told(dict[str, Any]):
    """Tables, and which of them were asked for."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        super().__init__(tables)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_section_is_made_from_the_queries_that_it_names(section: Section) -> None:
    """A report of one section asks these alone."""
    asked = set()
    for name in ("1", "java-j74_corrupt.pcap"):
        whole = numbers_of(name).parts()
        left_out = catalogue().keys() - {*section.reads}
        tables = Told({name: rows for name, rows in whole.tables.items() if name not in left_out})
        assert section.build(whole._replace(tables=tables)) == section.build(whole)
        asked |= tables.asked
    assert asked & catalogue().keys() == {*section.reads}


def test_every_query_is_of_a_section() -> None:
    named = {name for section in SECTIONS.values() for name in section.reads}
    assert named == catalogue().keys()


def test_numbers_stand_with_their_denominator() -> None:
    report = reports(*NAMES)["java-j74_corrupt.pcap"]
    assert "42 receipts for 65 sends" in report["send_latency"]["about"]
    assert "91 deliveries" in report["redelivery"]["about"]
    assert "156 frames" in report["checksum_failures"]["about"]


def test_what_was_not_captured_is_not_nothing() -> None:
    numbers = Numbers()
    leg = {"connection_id": 0, "protocol": "pulsar", "started": "syn", "packets_to_broker": 5,
           "packets_to_client": 0, "first_ts_ns": 1, "last_ts_ns": 2}  # fmt: skip
    numbers.add("connections", made.batch("connections", [leg]))
    report = numbers.result()
    assert report["redelivery"]["total"]["deliveries"] is None
    assert report["errors"]["total"]["answers"] is None
    assert report["publish_to_delivery"]["total"]["entries_stored"] is None
    assert report["send_latency"]["total"]["sends"] == 0
    assert "nothing is known" in report["errors"]["about"]
    assert report["coverage"]["total"]["one_way_connections"] == {"to_client": 1}
    numbers = Numbers()
    numbers.add("connections", made.batch("connections", [
        leg | {"packets_to_broker": None, "packets_to_client": 5}
    ]))  # fmt: skip
    report = numbers.result()
    assert report["send_latency"]["total"]["sends"] is None
    assert report["permit_utilization"]["total"]["granted"] is None
    assert report["redelivery"]["total"]["deliveries"] == 0


def test_reasons_are_listed_by_how_many_they_concern() -> None:
    whole = {"coverage": {"total": {"gaps": 0, "gap_bytes": 0, "frames": 1}}}
    text = not_evaluated(whole, {"lost_in_gap": 1, "evicted": 3, "orphan_response": 0})
    assert text.index(f"3 ({OUTCOMES['evicted']})") < text.index(f"1 ({OUTCOMES['lost_in_gap']})")
    assert not_evaluated(whole, {}) == " Everything was evaluated."
    assert "about" not in build(empty_tables(), ["coverage"])["coverage"], (
        "it speaks of others, too"
    )


def test_where_no_frame_was_decoded_nothing_was_judged() -> None:
    report = Numbers().result()
    abouts = [report[section]["about"] for section in SECTIONS]
    assert not any("Everything was evaluated" in about for about in abouts)


def test_outcomes_are_explained_in_the_words_of_the_lake() -> None:
    for words in (OUTCOMES, DELIVERY_OUTCOMES):
        for outcome in set(words) & set(REASONS):
            assert REASONS[outcome] in (OUTCOMES.get(outcome), DELIVERY_OUTCOMES.get(outcome))


def test_everything_was_evaluated_only_where_nothing_is_missing() -> None:
    """One MESSAGE of 557 lies in bytes that were never captured."""
    report = reports(*NAMES)["mut-loss1-java-j24_unload.pcap"]
    assert report["redelivery"]["total"]["deliveries"] == 556
    for section in ("redelivery", "checksum_failures", "errors", "requests"):
        assert "More may lie in 2 gaps of 429 bytes." in report[section]["about"]
        assert "Nothing was left" not in report[section]["about"]


def test_notice_codes_of_older_lakes_have_a_sentence() -> None:
    code = "untimed_packets"  # now packets_without_timestamp
    total = {"notice_texts": {}, "notices_by_code": {code: 2}}
    assert notice_sentence(total, code) == "a notice of another version"
    assert meaning_of("notices", [code]) == {code: ""}
    texts = {"notice_texts": {code: ["2 packets carry no time"]}, "notices_by_code": {code: 1}}
    assert notice_sentence(texts, code) == "2 packets carry no time"
