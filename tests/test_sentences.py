"""Docstrings and comments name only what is there: what a rename left behind is found."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
def tokens_of(path: Path) -> tuple[tuple[bool, str], ...]:
    """`pieces`, made once: they are looked at twice."""
    return tuple(pieces(path))


@cache
def known() -> frozenset[str]:
    """The words of all code, of its texts, of queries and the protocol, and the names of files."""
    found = {
        word
        for path in [*MODULES, *OTHERS]
        for word in re.findall(r"\w+", str(path.relative_to(ROOT)))
    }
    for path in OTHERS:
        found.update(re.findall(r"\w+", path.read_text("utf-8")))
    for path in MODULES:
        for is_sentence, text in tokens_of(path):
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


def test_sentences_name_what_is_there() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for is_sentence, text in tokens_of(path)
        if is_sentence
        for name in missing(text)
    ]
    assert found == []


def strange_parameters(path: Path) -> Iterator[str]:
    """What `Args:` explains and no parameter is called; of a class, the parameters of its methods
    and its fields."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        explained = (ast.get_docstring(node) or "").partition("Args:\n")[2].partition("\n\n")[0]
        inside = [node.args] if isinstance(node, ast.FunctionDef) else node.body
        known = {
            part.arg for each in inside for part in ast.walk(each) if isinstance(part, ast.arg)
        }
        known |= {
            each.target.id
            for each in inside
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        for names in re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", explained, re.MULTILINE):
            yield from (
                f"{node.name}: {name}" for name in re.findall(r"\w+", names) if name not in known
            )


def test_docstrings_explain_parameters_that_are_there() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}" for path in MODULES for name in strange_parameters(path)
    ]
    assert found == []


def test_a_parameter_that_is_gone_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    lines = [
        "def add(one, two):",
        '    """Add.',
        "",
        "    Args:",
        "        one, three: numbers.",
        '    """',
    ]
    module.write_text("\n".join(lines))
    assert list(strange_parameters(module)) == ["add: three"]


def test_a_name_that_is_gone_is_found() -> None:
    assert missing("see `assembly`, `Framing.advance` and `no_such_name`") == ["no_such_name"]
    assert missing("`Framing.no_such_name`") == ["Framing.no_such_name"]
