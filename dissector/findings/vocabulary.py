"""Explanations of commands, columns and their values, metrics, and texts of brokers and clients.

The words of tables in docs/*.md and the metrics are in `data/words.jsonl` (`dissector.cli.words`).
"""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

_METRIC: Final = "dissector_"
_LEAST_PART: Final = 8  # least characters of a searched part of a text


@cache
def vocabulary() -> dict[str, Any]:
    """The vocabulary file: `commands` by protocol, `packets` and `texts`."""
    text = resources.files("dissector.findings").joinpath("vocabulary.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def _words() -> Sequence[dict[str, str]]:
    text = resources.files("dissector").joinpath("data", "words.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def descriptions(term: str) -> Iterator[str]:
    """A word's descriptions, a line each: commands, reasons, columns and their values, metrics.

    Args:
        term: the word in lower case.
    """
    known = vocabulary()
    for protocol, commands in known["commands"].items():
        for command, meaning in commands.items():
            if command.lower() == term:
                yield f"{command}: a command of {protocol}. {meaning}"
    if (reason := known["packets"].get(term)) is not None:
        yield f"{term}: why a packet is not used (packets_ignored_by_reason). {reason}"
    yield from _columns(term)
    for each in _words():
        if each["word"].lower() in (term, f"{_METRIC}{term}"):
            yield f"{each['word']}: {each['of']}. {each['means']}"


def texts(term: str) -> Iterator[tuple[str, str]]:
    """The explanations of broker and client texts that contain the term or are part of it,
    each with the code to explain next, "" if none. term: in lower case."""
    for each in vocabulary()["texts"]:
        parts = [re.escape(part) for part in each["text"].lower().split("…")]
        is_in = re.search(".*".join(parts), term) is not None
        is_part = len(term) >= _LEAST_PART and term in each["text"].lower()
        if is_in or is_part:
            yield f"“{each['text']}”: {each['means']}", each.get("see", "")


def _columns(term: str) -> Iterator[str]:
    """Lines for tables and columns of this name, equal columns once, and for values of columns."""
    from dissector.schemas import OF_REPORTS, TABLES
    from dissector.schemas.enums import EXPLAINED, OTHER_PROTOCOLS

    tables: dict[str, list[str]] = {}
    for table in (TABLES | OF_REPORTS).values():
        if table.name == term:
            yield f"{table.name}: a table. {table.row}"
        for column in table.columns:
            if column.name.lower() == term:
                unit = f", {column.unit}" if column.unit else ""
                null = "" if column.null == "never" else f" Null: {column.null}."
                line = f"({column.type}{unit}). {column.meaning}{null}"
                tables.setdefault(line, []).append(table.name)
    for line, names in tables.items():
        yield f"{term}: a column of {', '.join(names)} {line}"
    for columns, words in EXPLAINED.items():
        for word, means in words.items():
            if word.lower() == term:
                yield f"{word}: in {columns}. {means[0].upper()}{means[1:]}."
    if term in OTHER_PROTOCOLS:
        yield f"{term}: in connections.protocol. {OTHER_PROTOCOLS[term]}, which is not read."
