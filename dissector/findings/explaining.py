"""Explanations of findings, broker errors, table words, commands and implausible frame lengths."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Final

from dissector.findings import vocabulary
from dissector.findings.loading import PARTS, Rule, RuleTexts
from dissector.limits import MAX_EXPLANATIONS
from dissector.notices import NOTICES

_NUMBER: Final = re.compile(r"\{value2?\}")  # numbers of a single notice
# Placeholders of values in sentences of findings, with the plural of a choice, and brackets.
_PLACEHOLDER: Final = re.compile(r"\{\w+(?::\w+|\|[^{}|]*\|([^{}|]*))?\}|[\[\]]")
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9#-]*")
_PACKAGE: Final = re.compile(r"\b(?:[a-z]\w*\.)+(?=[A-Z])")  # java.util.concurrent.
_INNER_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMON: Final = frozenset({
    "a", "all", "an", "and", "are", "be", "but", "by", "do", "does", "exception", "for", "from",
    "has", "have", "i", "in", "is", "it", "its", "my", "no", "not", "of", "on", "or", "so", "that",
    "the", "there", "this", "to", "was", "were", "what", "when", "which", "why", "with",
})  # fmt: skip
_LABELS: Final = {
    "rival": "What else looks the same", "decides": "What would decide", "do": "What to do",
}  # fmt: skip
# The size of a frame's length field, which its value excludes; brokers' messages include it.
LENGTH_BYTES: Final = 4
# The first bytes of other protocols.
_FIRST_BYTES: Final = (
    (b"\x16\x03", "a TLS hello: the client speaks TLS to a port that does not"),
    (b"\x15\x03", "a TLS alert: TLS was refused, or its peer does not speak it"),
    (b"GET ", "an HTTP request: something asks a web page of Pulsar's binary port"),
    (b"POST", "an HTTP request: something posts to Pulsar's binary port"),
    (b"PUT ", "an HTTP request: something puts to Pulsar's binary port"),
    (b"HEAD", "an HTTP request: something asks Pulsar's binary port for a page"),
    (b"HTTP", "an HTTP answer: the service URL leads to a web server"),
    (b"PRI ", "an HTTP/2 connection: something speaks gRPC or HTTP/2 to Pulsar's binary port"),
    (b"PROX", "a PROXY header: the balancer sends one, and the broker does not expect it"),
    (b"\r\n\r\n", "a PROXY header of version 2: the broker does not expect the balancer's"),
    (b"AMQP", "an AMQP client: it needs a protocol handler's port"),
    (b"SSH-", "an SSH server: the service URL leads to another service"),
)


def explained(name: str, rules: Sequence[Rule]) -> list[str]:
    """The lines that explain a name; none if nothing has this name."""
    lines: list[str] = []
    if name.isascii() and name.isdecimal() and len(name) <= 20:
        lines += _length_lines(int(name))
    key = name.lower()
    for error, words in broker_errors().items():
        if error.lower() == key:
            lines += [f"{error}: an error that a broker answers.", words["means"]]
            lines += [f"To ask: {words['ask']}"]
    for kind in NOTICES:
        if kind.code == key:
            lines += [f"{kind.code}: a notice about the capture or the traffic ({kind.severity})."]
            lines += [f"It says: {_NUMBER.sub('…', kind.sentence)}"]
    for number, words in retired().items():
        if key in (number.lower(), words["code"]):
            lines += [f"{number}, {words['code']}: no finding any more.", words["answer"]]
    for rule in rules:
        names = (rule.number, rule.code, *rule.errors, *filter(None, rule.words))
        if key in (each.lower() for each in names):
            lines += ([""] if lines else []) + _rule_lines(rule)
    lines += vocabulary.descriptions(key)
    if not lines:
        for line, code in vocabulary.texts(key):
            lines += [line, *([f"To know more: dissector explain {code}"] if code else [])]
    return lines


def searched(text: str, rules: Sequence[Rule]) -> list[str]:
    """The findings, errors and notices that contain most words of a text, best match first.

    A word in a name or title counts more than one in the sentences. Entries with half of the words
    or less do not match. Names of classes, as clients log them, are their words.
    """
    spaced = _INNER_CAPITAL.sub(" ", _PACKAGE.sub("", text)).lower()
    stems = {_stem(word) for word in _WORD.findall(spaced) if word not in _COMMON}
    matches = []
    for line, body in _entries(rules):
        in_title = [stem for stem in stems if _contains(line, stem)]
        in_body = [stem for stem in stems if stem not in in_title and _contains(body, stem)]
        if 2 * (len(in_title) + len(in_body)) > len(stems):
            matches.append((-len(in_title) - len(in_body), -len(in_title), line))
    return [line for *_, line in sorted(matches)[:MAX_EXPLANATIONS]]


def _stem(word: str) -> str:
    """The common prefix of a word's inflected forms."""
    return word[:-2] if len(word) >= 7 and word.isalpha() else word.removesuffix("s") or word


def _contains(text: str, stem: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(stem)}", text.lower()) is not None


def _entries(rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """The headline and the searchable text of everything that can be explained."""
    for rule in rules:
        for variant, words in rule.words.items():
            texts = (_plain_text(words, part) for part in PARTS)
            searchable = (*texts, *(rule.references if not variant else ()), *rule.errors)
            name = f"{rule.number}, {variant or rule.code}"
            yield f"{name}: {words.title} ({words.severity})", " ".join((rule.code, *searchable))
    for number, gone in retired().items():
        yield f"{number}, {gone['code']}: no finding any more", gone["answer"]
    for error, means in broker_errors().items():
        split_words = _INNER_CAPITAL.sub(" ", error)
        yield f"{error}: {means['means']}", f"{split_words} {means['ask']}"
    for kind in NOTICES:
        sentence = _NUMBER.sub("…", kind.sentence)
        yield f"{kind.code}: {sentence} (notice, {kind.severity})", kind.code.replace("_", " ")


@cache
def broker_errors() -> dict[str, dict[str, str]]:
    """The meaning of each broker error, and what to ask about it, by code."""
    text = resources.files("dissector.findings").joinpath("errors.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def retired() -> dict[str, dict[str, str]]:
    """Retired rules by number: their code, and the text that names the replacement."""
    text = resources.files("dissector.findings").joinpath("retired.toml").read_text("utf-8")
    return tomllib.loads(text)


def _length_lines(number: int) -> list[str]:
    """The protocol whose first bytes were read as this frame length; empty if unknown."""
    for value in (number - LENGTH_BYTES, number):
        if not 0 <= value < 1 << 32:
            continue
        content = value.to_bytes(4, "big")
        for opening, meaning in _FIRST_BYTES:
            if content.startswith(opening):
                return [
                    f"{number} as the length of a frame: the peer's first bytes were "
                    f"{content.hex(' ')}, {meaning}.",
                    "To ask: do scheme and port of the service URL belong together "
                    "(pulsar:// 6650, pulsar+ssl:// 6651, http:// 8080)?",
                ]
    return []


def _plain_text(words: RuleTexts, part: str) -> str:
    return _PLACEHOLDER.sub(
        lambda match: match[1] or ("…" if match[0].startswith("{") else ""), words.parts[part]
    )


def _rule_lines(rule: Rule) -> list[str]:
    lines = []
    for variant, words in rule.words.items():
        name = f", {variant}" if variant else f", {rule.code}"
        lines += [f"{rule.number}{name}: {words.title} ({words.severity}, {words.verdict})"]
        if variant and words.parts["rival"] == rule.words[""].parts["rival"] != "":
            continue
        for part, label in _LABELS.items():
            if words.parts[part]:
                lines += [f"  {label}: {_plain_text(words, part)}"]
    for name, each in rule.thresholds.items():
        lines += [f"  Threshold {name}: {each.value:g} {each.unit}; {each.why}."]
    if not rule.is_over_totals:
        where = f"real captures: {', '.join(rule.real)}" if rule.real else "synthetic captures only"
        lines += [f"  Seen in {where}"]
    if rule.references:
        lines += [f"  Reported in: {', '.join(rule.references)}"]
    return lines
