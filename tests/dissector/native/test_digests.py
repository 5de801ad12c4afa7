"""The digest of a kernel: it changes with all that its code is made from, and with nothing else."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dissector.native import digests
from dissector.native.arguments import Kind, append
from dissector.native.digests import kernel_digest, program_digest
from tests.dissector.native import made

# A kernel, what it calls, and what those read.
TEXT = '''
from typing import NamedTuple
import numpy as np
from dissector import limits

LIMIT = 7
UNREAD = 1
TABLE = np.arange(4)
WIDTHS = (1, 2)

class Pair(NamedTuple):
    least: int
    most: int = 3

class Rows:
    _fields = ("one", "two")

@kernel
def inner(value):
    """Says something."""
    return value + LIMIT

@kernel
def outer(value, step=2):
    # A comment.
    if value == 0:
        return inner(value) + TABLE[1]
    return outer(value - 1, step) + WIDTHS[0] + limits.MAX_NESTING

@kernel
def top(value, rows):
    def half(number):
        return number // 2
    return Pair(outer(value), half(value))
'''
KINDS: tuple[Kind, ...] = (("i",), ("i",))


def loaded(text: str, name: str = "dissector.made_for_a_test") -> ModuleType:
    """A module of a text."""
    module = ModuleType(name)

    def kernel(function: Callable[..., Any]) -> Any:
        return SimpleNamespace(py_func=function, is_inlined=False)

    vars(module)["kernel"] = kernel
    exec(compile(text, "made.py", "exec"), vars(module))
    return module


def digest_of(text: str, key: Any = KINDS, name: str = "dissector.made_for_a_test") -> str:
    return kernel_digest(loaded(text, name).top, key)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("value + LIMIT", "value - LIMIT"),  # a callee's callee
        ("LIMIT = 7", "LIMIT = 8"),  # a constant
        ("LIMIT = 7", "LIMIT = 7.0"),
        ("LIMIT = 7", "LIMIT = True"),
        ("TABLE[1]", "TABLE[2]"),  # a callee
        ("np.arange(4)", "np.arange(5)"),  # a global array
        ("np.arange(4)", "np.arange(4) * (np.arange(4) != 3)"),
        ("np.arange(4)", "np.arange(4, dtype=np.int32)"),
        ("WIDTHS = (1, 2)", "WIDTHS = (2, 2)"),
        ("least: int\n    most: int = 3", "most: int\n    least: int = 3"),  # the order of fields
        ("most: int = 3", "most: int = 4"),
        ("step=2", "step=3"),  # a default
        ("number // 2", "number // 3"),  # a function inside
        ("limits.MAX_NESTING", "limits.MAX_NAMES"),  # another attribute of a module
        ("value - 1, step", "step, value - 1"),
        ("@kernel\ndef inner", "@inlined\ndef inner"),
    ],
)
def test_a_digest_changes_with_what_code_is_made_from(before: str, after: str) -> None:
    assert before in TEXT
    changed = TEXT.replace(before, after)
    if "@inlined" in after:
        changed = (
            "from types import SimpleNamespace\n"
            "def inlined(function):\n"
            "    return SimpleNamespace(py_func=function, is_inlined=True)\n" + changed
        )
    assert digest_of(changed) != digest_of(TEXT)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""Says something."""', '"""Says something else,\n    in more lines."""'),
        ("# A comment.", "# Another one.\n"),
        ("UNREAD = 1", "UNREAD = 2"),
        ("LIMIT = 7", "LIMIT = 3 + 4"),
    ],
)
def test_a_digest_does_not_change_with_what_no_code_is_made_from(before: str, after: str) -> None:
    assert before in TEXT
    assert digest_of(TEXT.replace(before, after)) == digest_of(TEXT)


def test_a_kernel_that_moves_within_its_file_keeps_its_digest() -> None:
    head, inner, rest = TEXT.partition('@kernel\ndef inner(value):\n    """Says something."""\n')
    body, behind = rest.split("\n\n", 1)
    assert digest_of(head + behind + "\n" + inner + body + "\n") == digest_of(TEXT)


def test_a_kernel_without_classes_keeps_its_digest_in_another_module() -> None:
    text = TEXT.replace("Pair(outer(value), half(value))", "outer(value)")
    assert digest_of(text, name="dissector.elsewhere") == digest_of(text)


def test_an_attribute_of_a_module_of_ours_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(TEXT)
    monkeypatch.setattr("dissector.limits.MAX_NESTING", 9)
    digests._described.cache_clear()
    assert digest_of(TEXT) != before


def test_the_values_of_a_closure_count() -> None:
    def adding(number: int) -> FunctionType:
        def top(value: int) -> int:
            return value + number

        return top  # type: ignore[return-value]

    found = [
        kernel_digest(SimpleNamespace(py_func=adding(each), is_inlined=False), KINDS)
        for each in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]


def test_the_kinds_of_arguments_count_with_the_fields_of_their_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays = made.Arrays(np.zeros(1, np.int64), made.Columns.new(1))
    memory = made.Memory(total=np.zeros(1, np.int64), rows=made.Rows.new(2), arrays=arrays)

    def digests_now() -> list[str]:
        return [
            digest_of(TEXT, (append(value, []),))
            for value in (arrays, memory, made.Rows.new(1), made.Columns.new(1), (memory,))
        ]

    before = digests_now()
    assert len({*before, digest_of(TEXT), digest_of(TEXT, "int64(int64)")}) == 7
    # The same kinds, but fields in another order: of a bundle that a state holds, in a tuple.
    monkeypatch.setattr(made.Rows, "_fields", ("second", "first"))
    after = digests_now()
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        True, False, False, True, False,
    ]  # fmt: skip


def test_a_global_that_is_not_known_is_an_error() -> None:
    for value in ("{1: 2}", "[1]", "object()"):
        with pytest.raises(TypeError, match="a kernel cannot name a global of type"):
            digest_of(TEXT.replace("LIMIT = 7", f"LIMIT = {value}"))


def test_a_digest_is_the_same_for_all_patch_versions_of_an_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers of a cluster have another 3.11 than the machine where their archive was made."""
    found = []
    for version in ((3, 11, 2), (3, 11, 15), (3, 12, 0)):
        monkeypatch.setattr(digests, "sys", SimpleNamespace(version_info=version))
        digests._compiler_digest.cache_clear()
        program_digest.cache_clear()
        found.append((digest_of(TEXT), program_digest()))
    monkeypatch.undo()
    digests._compiler_digest.cache_clear()
    program_digest.cache_clear()
    assert found[0] == found[1]
    assert found[0][0] != found[2][0] and found[0][1] != found[2][1]


def test_the_digest_of_the_program_is_that_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_PACKAGE_FOLDER", tmp_path)
    found = []
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", ""), ("readme", "")):
        (tmp_path / name).write_text(text)
        program_digest.cache_clear()
        found.append(program_digest())
    program_digest.cache_clear()
    assert len(set(found)) == 3 and found[2] == found[3]
