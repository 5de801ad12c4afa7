"""Every bound of the program is in `dissector/limits.py`."""

import ast
import re
from collections.abc import Iterator

from tests.test_tidy import CODE, ROOT, tree_of

# Numbers that are no bounds of ours, though they are called a most.
NOT_BOUNDS = {
    "dissector/cli/evidence.py": "_MOST_FRAMES",  # none at all
    "dissector/codecs/integers.py": "_MAX_DIGITS MAX_VARINT_BYTES",  # what 64 bits hold
    "dissector/lake/install.py": "_MOST_RIGHTS",  # a mode of files
    "dissector/native/trust.py": "_MAX_LINKS",  # the kernel's
    "dissector/protobuf/scan.py": "_MAX_FIELD_NUMBER",  # the wire format's
    "dissector/protocols/cursus/batches.py": "_MAX_PARTITION_DIGITS",  # of 32 bits
    "dissector/protocols/cursus/commands.py": "MAX_WORD_BYTES",  # the longest command
    "dissector/protocols/cursus/compact_acks.py": "_MAX_DIGITS",  # what 64 bits hold
    "dissector/protocols/cursus/body_starts.py": "MAX_TOPIC_BYTES",  # the broker's
    "dissector/protocols/cursus/lines.py": "MAX_ENVELOPE_BYTES",  # the broker's
    "dissector/protocols/pulsar/consumption/state.py": "MOST_CLAIMS",  # a place among counters
    "dissector/protocols/pairing/attempts.py": "_MAX_SOURCES _MAX_ROWS",  # likewise
    "dissector/report/crc_errors.py": "MAX_PAIR_BYTES",  # the polynomial's
    "dissector/stream/numbering.py": "_MAX_SCALE",  # RFC 7323
    "dissector/tls/records.py": "MAX_BODY_BYTES",  # RFC 5246
    "dissector/tap/filters.py": "MAX_BYTES",  # what the socket filter takes for all
}


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The names that a module gives to values, and the values."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
                yield target.id, node.value


def is_number(value: ast.expr) -> bool:
    """Whether an expression has a number in it, and nothing but numbers and operators."""
    parts = [part for part in ast.walk(value) if isinstance(part, ast.expr)]
    numbers = [part for part in parts if isinstance(part, ast.Constant)]
    return all(isinstance(part, ast.Constant | ast.BinOp | ast.UnaryOp) for part in parts) and all(
        type(part.value) is int for part in numbers
    )


def bounds_of(tree: ast.Module) -> list[str]:
    """Numbers of a module whose names say that they bound something."""
    return [
        name
        for name, value in constants(tree)
        if re.match(r"_?(MAX|MOST)(_|$)", name) and is_number(value)
    ]


def test_every_bound_is_in_limits() -> None:
    """A number has one place where it can be found, with what happens when it is reached."""
    found = [
        f"{name}: {each}"
        for name, path in ((str(path.relative_to(ROOT)), path) for path in CODE)
        if name != "dissector/limits.py"
        for each in bounds_of(tree_of(path))
        if each not in NOT_BOUNDS.get(name, "").split()
    ]
    assert not found, "bounds of their own: put them into dissector/limits.py"


def test_a_bound_elsewhere_is_found() -> None:
    text = "MAX_ROWS: Final = 1 << 4\n_MOST = 3 * 8\nMAX_MORE = 2 * MAX_ROWS\nMAX_SHARE = 0.5\n"
    assert bounds_of(ast.parse(text)) == ["MAX_ROWS", "_MOST"]


def test_the_oldest_of_what_is_bounded_is_found_at_once() -> None:
    """A plain dict looks for its first key among all that were taken away: at a bound each new one
    would cost as much as there are."""
    asked, found = 0, {}
    for path in CODE:
        text = path.read_text("utf-8")
        names = set(re.findall(r"next\(iter\(self\.(\w+)\)\)", text))
        asked += len(names)
        found[path] = names - set(re.findall(r"self\.(\w+): OrderedDict\[", text))
    assert asked > 0 and [path for path, names in found.items() if names] == []
