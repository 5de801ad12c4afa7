"""Parses rules: a file has a front matter in TOML and a query in SQL.

    /*
    code = "stored_twice"
    …
    */
    SELECT …

A rule that cannot be parsed becomes a RuleProblem with its file and line; the others are loaded.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.errors import UsageError
from dissector.limits import MAX_RULE_BYTES, MAX_RULE_INCIDENTS

# Worst first. Only rules over totals use `ok`: the subject has no fault.
OK: Final = "ok"
SEVERITIES: Final = ("error", "warning", "info", OK)
WRONG: Final = SEVERITIES[:2]
VERDICTS: Final = ("proven", "pattern", "ruled_out")
# The parts of a text in order: what happened, the proof, alternative causes, the fact that would
# decide between them, and what to do.
PARTS: Final = ("what", "known", "rival", "decides", "do")
RANK: Final = "rank_of_capture"
_TEXTS: Final = ("code", "number", "title", "severity")
_TEXTS_OF_ROWS: Final = ("verdict", "protocol", "worst")  # not needed by rules over totals
_MORE_TEXTS: Final = ("section", "whole")
_NUMBERS: Final = ("apart_s",)
APART_S: Final = 60.0  # default: closer incidents of one subject are merged
_TABLES: Final = ("thresholds", "ruled_out", "needs", "names", "text", "variant")
_LISTS: Final = ("references", "fires", "real", "silent", "errors")
_PARAMETER: Final = re.compile(r"\$([a-z]\w*)")
_COMMENT: Final = re.compile(r"--[^\n]*")
_OVER_TOTALS: Final = re.compile(r"\bFROM totals\b", re.IGNORECASE)
_AT_LINE: Final = re.compile(r"\(?at line (\d+), column \d+\)?")


class RuleProblem(NamedTuple):
    """Why a rule cannot be used: its file, the line if known, and the error."""

    file: str
    line: int | None
    text: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.text}"


class Threshold(NamedTuple):
    """A constant of a rule: its value, its unit, and the reason for the value."""

    value: float
    unit: str
    why: str


class RuleTexts(NamedTuple):
    """Title, severity, verdict and text (`PARTS`) of one variant of a rule's incidents.

    whole: why only a whole capture decides it, "" if a window of a tap suffices.
    show: how to show it: a table and a condition of -Y, or `$` and a shell command; "" if the
        frames of evidence show it.
    """

    title: str
    severity: str
    verdict: str
    parts: Mapping[str, str]
    whole: str
    show: str


class Rule(NamedTuple):
    """A rule.

    words: texts by the value of the query's column `variant`, "" without one.
    ruled_out: the cause that a true value in the column ruled_out_<name> excludes, by name.
    names: display names of the keys in counts (`{name:counts}`).
    fires, silent: sample captures on which it must, or must not, fire.
    real: the captures of `fires` that were recorded from a real broker; the others are synthetic.
    errors: errors of brokers and clients that it explains.
    worst: the column of the query that sorts incidents, in descending order.
    section: the report section that it judges, "" for none.
    needs: conditions by table; without a row that meets one there is no incident. Empty: unknown.
    apart_s: incidents of one subject with a shorter pause are merged.
    query_line: the line of the file where the query begins.
    is_over_totals: it reads the numbers of a report (`dissector.findings.totals`), not rows.
    """

    file: str
    code: str
    number: str
    protocol: str
    worst: str
    section: str
    words: Mapping[str, RuleTexts]
    thresholds: Mapping[str, Threshold]
    ruled_out: Mapping[str, str]
    names: Mapping[str, str]
    needs: Mapping[str, str]
    references: tuple[str, ...]
    fires: tuple[str, ...]
    real: tuple[str, ...]
    silent: tuple[str, ...]
    errors: tuple[str, ...]
    apart_s: float
    query: str
    query_line: int
    is_over_totals: bool


class _RuleError(Exception):
    """An error in a rule, with its line."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def load_rules(folder: Path | None = None) -> tuple[list[Rule], list[RuleProblem]]:
    """The rules of the program and of a folder, sorted by number, and the problems of broken ones.

    A rule of the folder replaces the program's rule with the same code.
    """
    own, problems = _own_rules()
    more, broken = ([], []) if folder is None else _load_all(_files(folder))
    rules = {rule.code: rule for rule in (*own, *more)}
    return sorted(rules.values(), key=lambda rule: (rule.number, rule.code)), [*problems, *broken]


@cache
def _own_rules() -> tuple[list[Rule], list[RuleProblem]]:
    """The rules of the program, cached because one command loads them several times."""
    return _load_all(_files(resources.files("dissector.findings") / "rules"))


def _load_all(files: Iterable[Traversable]) -> tuple[list[Rule], list[RuleProblem]]:
    rules, problems = [], []
    for file in files:
        try:
            rules.append(read_rule(str(file), _text_of(file)))
        except _RuleError as error:
            problems.append(RuleProblem(str(file), error.line, str(error)))
    return rules, problems


def named(rules: Sequence[Rule], names: Iterable[str]) -> list[Rule]:
    """The rules with these numbers or codes, all rules if no name is given.

    Raises:
        UsageError: no rule has such a name.
    """
    wanted = {name.lower() for name in names}
    known = {name for rule in rules for name in (rule.number.lower(), rule.code)}
    for name in sorted(wanted - known):
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f" (near: {', '.join(sorted(near))})" if near else ""
        raise UsageError(f"{name}: no rule has this number or code{hint}")
    return [rule for rule in rules if not wanted or wanted & {rule.number.lower(), rule.code}]


def _files(folder: Traversable) -> Iterator[Traversable]:
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".sql"):
            yield file


def _text_of(file: Traversable) -> str:
    try:
        if not file.is_file():  # opening a pipe would wait for its writer
            raise _RuleError("is no file")
        with file.open("rb") as opened:
            content = opened.read(MAX_RULE_BYTES + 1)
    except OSError as error:
        raise _RuleError(f"cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_RULE_BYTES:
        raise _RuleError("is larger than 1 MiB: not a rule")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _RuleError("a rule is UTF-8", line) from None


def read_rule(file: str, text: str) -> Rule:
    """Parse the text of a rule file.

    Raises:
        _RuleError: the text is no valid rule.
    """
    head, end, query = text.partition("\n*/\n")
    if not head.startswith("/*\n") or not end:
        raise _RuleError("a rule begins with a line /*, its front matter in TOML, and a line */", 1)
    front = head.removeprefix("/*\n")
    query_line = head.count("\n") + 3
    try:
        values = tomllib.loads(front)
    except tomllib.TOMLDecodeError as error:
        match = _AT_LINE.search(str(error))
        line = int(match[1]) + 1 if match else query_line - 2
        raise _RuleError(_AT_LINE.sub("", str(error)).strip() or "is no TOML", line) from None
    rule = _rule(file, values, query.strip("\n").rstrip().rstrip(";"), query_line)
    leading = len(query) - len(query.lstrip("\n"))
    return rule._replace(query_line=query_line + leading)


def _rule(file: str, values: dict[str, Any], query: str, query_line: int) -> Rule:
    is_over_totals = _OVER_TOTALS.search(query) is not None
    for key in _TEXTS if is_over_totals else (*_TEXTS, *_TEXTS_OF_ROWS):
        if not isinstance(values.get(key), str) or not values[key]:
            raise _RuleError(f"the front matter has no text `{key}`", 1)
    known = {*_TEXTS, *_TEXTS_OF_ROWS, *_LISTS, *_MORE_TEXTS, *_NUMBERS, *_TABLES}
    for key in values:
        if key in _NUMBERS and type(values[key]) not in (int, float):
            raise _RuleError(f"`{key}` is no number", 1)
        if key in _MORE_TEXTS and not isinstance(values[key], str):
            raise _RuleError(f"`{key}` is no text", 1)
        if key not in known:
            raise _RuleError(f"the front matter has a key that means nothing: {key}", 1)
    lists = {}
    for key in _LISTS:
        texts = values.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise _RuleError(f"`{key}` is no list of texts", 1)
        lists[key] = tuple(texts)
    if not {*lists["real"]} <= {*lists["fires"]}:
        raise _RuleError("`real` names a capture that `fires` does not", 1)
    if not query:
        raise _RuleError("there is no query behind the front matter", query_line)
    thresholds = {
        name: _threshold(name, value) for name, value in _table(values, "thresholds").items()
    }
    needs, ruled_out = _texts(values, "needs"), _texts(values, "ruled_out")
    names = _texts(values, "names")
    lines = [(1, condition) for condition in needs.values()]
    lines += enumerate(_COMMENT.sub("", query).split("\n"), start=query_line)
    for number, line in lines:
        for name in _PARAMETER.findall(line):
            if name not in thresholds:
                raise _RuleError(f"${name} is no threshold of the rule", number)
    nothing = RuleTexts("", "", VERDICTS[0], dict.fromkeys(PARTS[1:], ""), "", "")
    base = nothing if is_over_totals else None
    plain = _rule_texts(values, {**_table(values, "text")}, base)
    variants = _table(values, "variant")
    words = {"": plain}
    for name, value in variants.items():
        if not isinstance(value, dict):
            raise _RuleError(f"`variant.{name}` is no table", 1)
        like = value.get("like", "")
        if not isinstance(like, str) or like not in words:
            raise _RuleError(f"`variant.{name}` is like {like!r}, which is no variant above it", 1)
        words[name] = _rule_texts(value, value, words[like])
    if not is_over_totals and any(each.severity == OK for each in words.values()):
        raise _RuleError("only rules over totals say that something is ok", 1)
    return Rule(
        file, values["code"], values["number"], values.get("protocol", ""), values.get("worst", ""),
        values.get("section", ""), words, thresholds, ruled_out, names, needs,
        lists["references"], lists["fires"], lists["real"], lists["silent"], lists["errors"],
        float(values.get("apart_s", APART_S)), query, query_line, is_over_totals,
    )  # fmt: skip


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise _RuleError(f"`{key}` is no table", 1)
    return table


def _texts(values: Mapping[str, Any], key: str) -> dict[str, str]:
    texts = _table(values, key)
    if not all(isinstance(each, str) for each in texts.values()):
        raise _RuleError(f"`{key}` is no table of texts", 1)
    return texts


def _threshold(name: str, value: object) -> Threshold:
    if isinstance(value, dict):
        number, unit, why = (value.get(key) for key in ("value", "unit", "why"))
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if is_number and isinstance(unit, str) and isinstance(why, str) and unit and why:
            return Threshold(number, unit, why)  # type: ignore[arg-type]
    raise _RuleError(f"`thresholds.{name}` needs value (a number), unit and why (texts)", 1)


def _rule_texts(
    values: Mapping[str, Any], text: Mapping[str, Any], base: RuleTexts | None
) -> RuleTexts:
    """The texts of a rule or of a variant, which inherits missing values from `base`."""
    severity = values.get("severity", base.severity if base else "")
    verdict = values.get("verdict", base.verdict if base else "")
    if severity not in SEVERITIES:
        raise _RuleError(f"severity {severity!r} is none of {', '.join(SEVERITIES)}", 1)
    if verdict not in VERDICTS:
        raise _RuleError(f"verdict {verdict!r} is none of {', '.join(VERDICTS)}", 1)
    parts = {}
    for part in PARTS:
        sentence = text.get(part, base.parts.get(part) if base else None)
        is_needed = base is None or part not in base.parts or bool(base.parts[part])
        if not isinstance(sentence, str) or (is_needed and not sentence.strip()):
            raise _RuleError(
                f"the text has no `{part}`: a cause is never named without its rival", 1
            )
        parts[part] = " ".join(sentence.split())
    title = values.get("title", base.title if base else "")
    if not isinstance(title, str) or not title:
        raise _RuleError("title is no text", 1)
    whole = values.get("whole", base.whole if base else "")
    if not isinstance(whole, str):
        raise _RuleError("whole is no text", 1)
    show = text.get("show", base.show if base else "")
    if not isinstance(show, str):
        raise _RuleError("show is no text", 1)
    return RuleTexts(title, severity, verdict, parts, whole, show)


def incidents_query(rule: Rule) -> str:
    """The SQL for the worst incidents of each capture, ranked (`rank_of_capture`, from 1).

    It returns up to MAX_RULE_INCIDENTS + 1 rows, so that an excess is visible. Thresholds are
    replaced by their values. The query keeps its own lines, because errors name lines.
    """
    return (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY capture ORDER BY "
        f"{rule.worst} DESC NULLS LAST, first_ns, last_ns) AS {RANK} FROM (\n"
        f"{with_thresholds(rule, rule.query)}\n) AS incidents) AS ranked "
        f"WHERE {RANK} <= {MAX_RULE_INCIDENTS + 1}"
    )


def with_thresholds(rule: Rule, text: str) -> str:
    """A rule's query or condition with its thresholds replaced by their values."""
    return _PARAMETER.sub(
        lambda match: (
            repr(rule.thresholds[match[1]].value) if match[1] in rule.thresholds else match[0]
        ),
        text,
    )
