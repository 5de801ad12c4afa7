"""Whatever a user reads in a table, a text or a broker's log can be explained."""

import functools
import re
import tomllib
from pathlib import Path

import pytest

from dissector.cli.words import document
from dissector.findings.explaining import explained
from dissector.findings.loading import load_rules
from dissector.findings.vocabulary import vocabulary
from dissector.packet.reasons import IGNORED_REASONS
from dissector.protobuf.descriptors import enum_names
from dissector.protocols.cursus.commands import NAMES
from dissector.schemas import OF_REPORTS, TABLES
from dissector.schemas.enums import EXPLAINED
from tests.dissector.observed import CAPTURES, tables_of

ROOT = Path(__file__).resolve().parents[3]
RULES, _ = load_rules(None)
# Captures whose brokers refuse something, each in words of its own.
REFUSING = (
    "pulsar-apache/cpp-s15_errors.pcap", "pulsar-apache/java-j23_errors.pcap",
    "pulsar-apache/java-j24_unload.pcap", "pulsar-apache/java-j26_backlog_quota.pcap",
    "pulsar-apache/java-j51_schema_avro.pcap", "pulsar-apache/java-j74_corrupt.pcap",
    "threads/t04-sticky-range-conflict.pcap", "threads/t07-txn-ack-conflict.pcap",
    "threads/t14-terminated-topic-retried.pcap",
)  # fmt: skip
# Of threads, as their reporters quote them.
QUOTED = (
    "TooLongFrameException: Adjusted frame length exceeds 5253120: 369295620 - discarded",
    "frame length exceeds", "Consumer that failed is already present on the connection",
    "Producer is already present on the connection", "Discarding corrupted message",
    "Topic is temporarily unavailable", "Topic is already fenced", "Unable to authenticate",
    "Too many concurrent lookup and partitionsMetadata requests",
    "Namespace bundle for topic (persistent://t/n/x) not served by this instance. Please redo the "
    "lookup. Request is denied: namespace=t/n",
    "Not enough non-faulty bookies available",
    "Exclusive consumer is already connected", "reached max producers limit",
)  # fmt: skip


@functools.cache
def said_of(word: str) -> tuple[str, ...]:
    return tuple(explained(word, RULES))


def test_commands_are_those_of_the_protocols():
    known = vocabulary()["commands"]
    assert set(known["Pulsar"]) == set(enum_names("BaseCommand.Type").values())
    both = set(known["Pulsar"]) & set(NAMES)
    assert set(known["Cursus"]) | both == set(NAMES)


def test_reasons_are_those_that_packets_have():
    assert set(vocabulary()["packets"]) == set(IGNORED_REASONS)


@pytest.mark.parametrize("name", sorted(TABLES | OF_REPORTS))
def test_every_column_and_each_of_its_words_is_known(name):
    table = (TABLES | OF_REPORTS)[name]
    for column in table.columns:
        lines = (line.split(" (")[0] for line in said_of(column.name) if column.meaning in line)
        assert any(name in line for line in lines), column
    for columns, words in EXPLAINED.items():
        if columns.startswith(f"{name}."):
            assert all(any(columns in line for line in said_of(word)) for word in words)


def test_words_of_the_texts_are_those_that_are_kept():
    """They change with the texts: python -m dissector.cli.words docs dissector/data/words.jsonl."""
    kept = (ROOT / "dissector" / "data" / "words.jsonl").read_text("utf-8")
    assert kept == document(ROOT / "docs")


@pytest.mark.parametrize("name", ["metrics.md", "compare.md", "sql.md", "lake.md"])
def test_every_word_of_a_table_of_the_texts_is_known(name):
    words = set()
    for line in (ROOT / "docs" / name).read_text("utf-8").splitlines():
        if line.startswith("| `"):
            words.update(re.findall(r"`([^`]+)`", line.split(" | ")[0]))
    assert len(words) > 5 and not [word for word in words if not said_of(word)]


def test_every_command_is_known():
    for word in (*enum_names("BaseCommand.Type").values(), *NAMES):
        assert any(line.startswith(f"{word}: a command of ") for line in said_of(word))


@pytest.mark.parametrize("name", ["sends_total", "dissector_application_seconds"])
def test_metrics_are_known_with_and_without_what_all_begin_with(name):
    (line,) = said_of(name)
    assert "a metric of a tap" in line


@pytest.mark.parametrize("path", REFUSING)
def test_what_brokers_say_in_captures_is_known(path):
    frames = tables_of(str(CAPTURES / path))["frames"]
    refused = {row["error_text"] for row in frames if row["error_text"]}
    assert refused and not [text for text in refused if not said_of(text)]


@pytest.mark.parametrize("text", QUOTED)
def test_what_threads_quote_is_known(text):
    assert said_of(text)


def test_texts_lead_to_codes_that_exist():
    for each in vocabulary()["texts"]:
        assert said_of(each["text"].replace("…", "x")), each
        if "see" in each:
            assert said_of(each["see"]), each


def test_what_is_no_word_is_not_explained():
    assert not said_of("no such thing") and not said_of("12") and not said_of("already")


def test_the_vocabulary_is_not_written_twice():
    text = (ROOT / "dissector" / "findings" / "vocabulary.toml").read_text("utf-8")
    sentences = [each["text"] for each in tomllib.loads(text)["texts"]]
    assert len(set(sentences)) == len(sentences)
