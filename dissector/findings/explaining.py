"""What a finding, an error, a word of a table, a command or a strange frame length means."""

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

_NUMBER: Final = re.compile(r"\{value2?\}")  # of a single notice
# What stands in sentences of findings for what only a finding knows, and the words of several.
_PLACEHOLDER: Final = re.compile(r"\{\w+(?::\w+|\|[^{}|]*\|([^{}|]*))?\}|[\[\]]")
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9_#-]*")
_COMMON: Final = frozenset({
    "a", "all", "an", "and", "are", "be", "but", "by", "do", "does", "for", "from", "has", "have",
    "i", "in", "is", "it", "its", "my", "no", "not", "of", "on", "or", "so", "that", "the", "there",
    "this", "to", "was", "were", "what", "when", "which", "why", "with",
})  # fmt: skip
_LABELS: Final = {
    "rival": "What else looks the same", "decides": "What would decide", "do": "What to do",
}  # fmt: skip
# A frame begins with its length without these bytes; brokers add them when they say what they read.
LENGTH_BYTES: Final = 4
# What other protocols begin with.
_OPENINGS: Final = (
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
    """Lines of text; none if nothing has this name."""
    lines: list[str] = []
    if name.isascii() and name.isdecimal() and len(name) <= 20:
        lines += _length(int(name))
    asked = name.lower()
    for error, words in broker_errors().items():
        if error.lower() == asked:
            lines += [f"{error}: an error that a broker answers.", words["means"]]
            lines += [f"To ask: {words['ask']}"]
    for kind in NOTICES:
        if kind.code == asked:
            lines += [f"{kind.code}: a notice about the capture or the traffic ({kind.severity})."]
            lines += [f"It says: {_NUMBER.sub('…', kind.sentence)}"]
    for number, words in retired().items():
        if asked in (number.lower(), words["code"]):
            lines += [f"{number}, {words['code']}: no finding any more.", words["answer"]]
    for rule in rules:
        names = (rule.number, rule.code, *rule.errors, *filter(None, rule.words))
        if asked in (each.lower() for each in names):
            lines += ([""] if lines else []) + _rule(rule)
    lines += vocabulary.meanings(asked)
    if not lines:
        for line, code in vocabulary.texts(asked):
            lines += [line, *([f"To know more: dissector explain {code}"] if code else [])]
    return lines


def searched(text: str, rules: Sequence[Rule]) -> list[str]:
    """The findings, errors and notices that say most of these words, the best first, one a line.

    A word in a name or a title counts for more than one in the sentences; those that say half
    of the words or less are none.
    """
    stems = {_stem(word) for word in _WORD.findall(text.lower()) if word not in _COMMON}
    matches = []
    for line, body in _entries(rules):
        head = [stem for stem in stems if _contains(line, stem)]
        rest = [stem for stem in stems if stem not in head and _contains(body, stem)]
        if 2 * (len(head) + len(rest)) > len(stems):
            matches.append((-len(head) - len(rest), -len(head), line))
    return [line for *_, line in sorted(matches)[:MAX_EXPLANATIONS]]


def _stem(word: str) -> str:
    """What forms of a word begin with."""
    return word[:-2] if len(word) >= 7 and word.isalpha() else word.removesuffix("s") or word


def _contains(text: str, stem: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(stem)}", text.lower()) is not None


def _entries(rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """A line of each thing that can be explained, and what else is said of it."""
    for rule in rules:
        for variant, words in rule.words.items():
            texts = (_plain_text(words, part) for part in PARTS)
            searchable = (*texts, *(rule.references if not variant else ()), *rule.errors)
            name = f"{rule.number}, {variant or rule.code}"
            yield f"{name}: {words.title} ({words.severity})", " ".join((rule.code, *searchable))
    for number, gone in retired().items():
        yield f"{number}, {gone['code']}: no finding any more", gone["answer"]
    for error, means in broker_errors().items():
        apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", error)
        yield f"{error}: {means['means']}", f"{apart} {means['ask']}"
    for kind in NOTICES:
        sentence = _NUMBER.sub("…", kind.sentence)
        yield f"{kind.code}: {sentence} (notice, {kind.severity})", kind.code.replace("_", " ")


@cache
def broker_errors() -> dict[str, dict[str, str]]:
    """What errors that brokers answer mean, and what to ask, by their codes."""
    text = resources.files("dissector.findings").joinpath("errors.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def retired() -> dict[str, dict[str, str]]:
    """Rules that are none any more, by number: their codes, and where their answers are now."""
    text = resources.files("dissector.findings").joinpath("retired.toml").read_text("utf-8")
    return tomllib.loads(text)


def _length(number: int) -> list[str]:
    """What the first bytes of a peer are that were taken for the length of a frame."""
    for value in (number - LENGTH_BYTES, number):
        if not 0 <= value < 1 << 32:
            continue
        content = value.to_bytes(4, "big")
        for opening, meaning in _OPENINGS:
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


def _rule(rule: Rule) -> list[str]:
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
        where = f"real captures: {', '.join(rule.real)}" if rule.real else "made captures alone"
        lines += [f"  Seen in {where}"]
    if rule.references:
        lines += [f"  Reported in: {', '.join(rule.references)}"]
    return lines
