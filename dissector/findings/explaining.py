"""What a finding, an error of a broker or a strange frame length means."""

import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Final

from dissector.findings.loading import Rule
from dissector.notices import NOTICES

_NUMBER: Final = re.compile(r"\{value2?\}")  # of a single notice
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
    (b"SSH-", "an SSH server: the service URL leads to another service"),
)


def explained(name: str, rules: Sequence[Rule]) -> list[str]:
    """Lines of text; none if nothing has this name."""
    lines: list[str] = []
    if name.isascii() and name.isdecimal() and len(name) <= 20:
        lines += _length(int(name))
    asked = name.lower()
    errors = tomllib.loads(
        resources.files("dissector.findings").joinpath("errors.toml").read_text("utf-8")
    )
    for error, words in errors.items():
        if error.lower() == asked:
            lines += [f"{error}: an error that a broker answers.", words["means"]]
            lines += [f"To ask: {words['ask']}"]
    for kind in NOTICES:
        if kind.code == asked:
            lines += [f"{kind.code}: a notice about the capture or the traffic ({kind.severity})."]
            lines += [f"It says: {_NUMBER.sub('…', kind.sentence)}"]
    for rule in rules:
        names = (rule.number, rule.code, *rule.errors, *filter(None, rule.words))
        if asked in (each.lower() for each in names):
            lines += ([""] if lines else []) + _rule(rule)
    return lines


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


def _rule(rule: Rule) -> list[str]:
    lines = []
    for variant, words in rule.words.items():
        name = f", {variant}" if variant else f", {rule.code}"
        lines += [f"{rule.number}{name}: {words.title} ({words.severity}, {words.verdict})"]
        if variant and words.parts["rival"] == rule.words[""].parts["rival"]:
            continue
        lines += [f"  What else looks the same: {words.parts['rival']}"]
        lines += [f"  What would decide: {words.parts['decides']}"]
        lines += [f"  What to do: {words.parts['do']}"]
    for name, each in rule.thresholds.items():
        lines += [f"  Threshold {name}: {each.value:g} {each.unit}; {each.why}."]
    if rule.references:
        lines += [f"  Reported in: {', '.join(rule.references)}"]
    return lines
