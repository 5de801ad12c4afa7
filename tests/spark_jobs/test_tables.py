"""Which captures of a lake count: what is there twice counts once."""

from collections.abc import Sequence

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import UsageError
from dissector.lake.digest import Marks, SourceFile
from dissector.lake.manifest import Contained, Manifest
from spark_jobs.tables import chosen_captures, held_elsewhere, names_in


def capture(name: str, files: str, inside: Sequence[Manifest] = ()) -> Manifest:
    """A capture of files, each given by the letter that is its digest."""
    sources = tuple(SourceFile(f"{letter}.pcap", 1, letter, letter) for letter in files)
    held = tuple(Contained(*(getattr(each, f) for f in Contained._fields)) for each in inside)
    return Manifest(name, name, 1, 1, None, Marks(256, ()), sources, 0, 1, (), {}, {}, held)


@pytest.mark.parametrize(
    ("captures", "twice"),
    [
        ({"a": "x", "b": "y"}, {}),
        ({"b": "x", "a": "x"}, {"b": "a"}),
        ({"a": "xy", "b": "x", "c": "y"}, {"b": "a", "c": "a"}),
        ({"a": "x", "b": "xy", "c": "xyz"}, {"a": "c", "b": "c"}),
        ({"a": "xy", "b": "yz"}, {}),
        ({"a": "", "b": ""}, {}),
    ],
)
def test_all_files_of_a_capture_may_be_in_another(
    captures: dict[str, str], twice: dict[str, str]
) -> None:
    assert held_elsewhere([capture(*each) for each in captures.items()]) == twice


def test_compacted_captures_are_looked_into() -> None:
    packed = capture("compact-1", "", [capture("c", "x"), capture("d", "y")])
    assert held_elsewhere([capture("a", "x"), packed]) == {"c": "a"}
    assert names_in(packed) == {"c", "d"}
    assert names_in(capture("c-eth0-17-00003", "")) == {"c-eth0-17"}


def test_captures_are_chosen_by_id() -> None:
    both = [capture("a", "x"), capture("b", "x")]
    assert chosen_captures(both, ["b", "b"]) == [both[1]]
    with pytest.raises(UsageError, match="no capture c "):
        chosen_captures(both, ["c"])
    with pytest.raises(UsageError, match="has no captures"):
        chosen_captures([])
