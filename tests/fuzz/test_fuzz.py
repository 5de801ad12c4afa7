"""A short run of every target: what is right, what once failed, and a few damaged copies."""

import itertools
from pathlib import Path

import pytest

from tests.fuzz.replay import mutated
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(path for path in CORPUS.glob("*/*") if path.is_file())
COPIES = 12
MOST_BYTES = 4096  # of a file of the corpus


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once_passes(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_and_damaged_copies_of_them_pass(name: str) -> None:
    inputs = list(seeds()[name].values())
    for data in (b"", *inputs, *itertools.islice(mutated(inputs), COPIES)):
        TARGETS[name](data)


def test_the_corpus_is_small_and_each_file_has_a_target() -> None:
    assert {path.parent.name for path in FILES} <= set(TARGETS)
    assert all(path.stat().st_size <= MOST_BYTES for path in FILES)
