"""Docstrings and comments name only what is there: what a rename left behind is found."""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted([*ROOT.glob("dissector/**/*.py"), *ROOT.glob("spark_jobs/**/*.py")])
OTHERS = [
    ROOT / "proto/PulsarApi.proto",
    *(path for path in ROOT.glob("dissector/**/*") if path.suffix in (".sql", ".html", ".toml")),
]
NAMED = re.compile(r"(?<!`)`([A-Za-z_][\w./]*)`")
# Of files, of other programs and of the wire.
EXAMPLES = frozenset(
    ("cardPin", "Bearer", "Basic", "LINKTYPE_n", "tap.pcap1", "tap.pcap00", "pyspark_pulsar_pcap",
     "tap_00001_20260101120000.pcapng", "spark.speculation", "UNKNOWN_83")
)  # fmt: skip
# What stands before a docstring: a line's end, or nothing. Before other texts: operators, words.
BEFORE = (tokenize.NEWLINE, tokenize.INDENT, tokenize.ENCODING)


def pieces(path: Path) -> Iterator[tuple[bool, str]]:
    """The tokens of a module: whether each is a sentence (a docstring, a comment), and its text."""
    before = tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        is_docstring = token.type == tokenize.STRING and before in BEFORE
        yield is_docstring or token.type == tokenize.COMMENT, token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


@cache
def known() -> frozenset[str]:
    """The words of all code, of its texts, of queries and the protocol, and the names of files."""
    found = {word for path in [*MODULES, *OTHERS] for word in re.findall(r"\w+", str(path))}
    for path in OTHERS:
        found.update(re.findall(r"\w+", path.read_text("utf-8")))
    for path in MODULES:
        for is_sentence, text in pieces(path):
            if not is_sentence:
                found.update(re.findall(r"\w+", text))
    return frozenset(found)


def missing(text: str) -> list[str]:
    """What a text names in backquotes and nobody knows."""
    return [
        name
        for name in NAMED.findall(text)
        if name not in EXAMPLES and not set(re.findall(r"\w+", name)) <= known()
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_name_what_is_there(path: Path) -> None:
    sentences = [text for is_sentence, text in pieces(path) if is_sentence]
    assert [name for text in sentences for name in missing(text)] == []


def test_a_name_that_is_gone_is_found() -> None:
    assert missing("see `assembly`, `Framing.advance` and `no_such_name`") == ["no_such_name"]
    assert missing("`Framing.no_such_name`") == ["Framing.no_such_name"]
