"""The list of hard cases: each is a function that returns the bytes of a capture file.

A case is named by its id and a few words; its test has both in its name
(`test_b27_exact_duplicates`), and `docs/hard-captures.md` has a row for each id.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from tests.choosing import covering

Generator = Callable[[], bytes]


class Case(NamedTuple):
    """One capture. id: B01 to B62; words: snake_case, tell variants of a case apart."""

    id: str
    words: str
    make: Generator

    @property
    def file_name(self) -> str:
        """Where `python -m tests.hard` writes it."""
        return f"{self.id.lower()}_{self.words}.pcap"


CASES: dict[str, Case] = {}


def case(id: str) -> Callable[[Generator], Generator]:
    """Put a generator, named like `exact_duplicates`, into the list."""

    def put(make: Generator) -> Generator:
        case = Case(id, make.__name__, make)
        assert case.file_name not in CASES, f"two cases are called {case.file_name}"
        CASES[case.file_name] = case
        return make

    return put


def few_cases() -> list[Case]:
    """One capture of each id, but all about links and tunnels, which have headers of their own
    each; at night all."""
    cases = {case.file_name: case for case in all_cases()}
    shown = {
        name: [name if case.make.__module__.endswith(".link_cases") else case.id]
        for name, case in cases.items()
    }
    return [cases[name] for name in covering(shown)]


def all_cases() -> list[Case]:
    """Every case of every module of this folder, by id and words."""
    package = importlib.import_module("tests.hard")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith("_cases"):
            importlib.import_module(f"tests.hard.{module.name}")
    return [CASES[name] for name in sorted(CASES)]
