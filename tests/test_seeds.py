"""What is drawn in tests is the same in every run; only a nightly run draws anew."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).resolve().parent
# Names of modules, and what of them draws differently in each process.
DRAWING = {
    "secrets": {"*"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "getrandom"},
    "random": {"*"},
    "np.random": {"*"},
}
SEEDED = {"random.Random", "np.random.default_rng", "np.random.Generator", "random.Random.random"}


def drawn_anew(tree: ast.Module) -> Iterator[str]:
    """Calls that draw what no seed decides."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    imported = {alias.name for node in imports for alias in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        module, _, name = called.rpartition(".")
        if called in SEEDED:
            if not node.args and not node.keywords:
                yield called
        elif module in imported | {"np.random"} and {"*", name} & DRAWING.get(module, set()):
            yield called


def test_what_draws_anew_is_recognised() -> None:
    text = (
        "import os, random\nrandom.random()\nrandom.Random()\nrandom.Random(1).random()\n"
        "np.random.default_rng()\nnp.random.default_rng(1)\nos.urandom(3)\nnp.random.rand(3)\n"
    )
    assert [*drawn_anew(ast.parse(text))] == [
        "random.random", "random.Random", "np.random.default_rng", "os.urandom", "np.random.rand",
    ]  # fmt: skip


def test_every_draw_has_a_seed() -> None:
    found = {
        str(path.relative_to(TESTS)): [*drawn_anew(ast.parse(path.read_text("utf-8")))]
        for path in sorted(TESTS.rglob("*.py"))
    }
    assert len(found) > 500
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_examples_are_the_same_in_every_run_and_none_is_kept(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("hypothesis_profile") is not None:
        pytest.skip("another profile was asked for")
    assert settings.default is not None
    assert settings.default.derandomize and settings.default.database is None


def test_a_nightly_run_draws_anew_and_keeps_what_fails() -> None:
    nightly = settings.get_profile("nightly")
    assert not nightly.derandomize and nightly.database is not None and nightly.print_blob
