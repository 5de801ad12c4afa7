"""Units: which captures are read together, and what tells that one is still the same."""

import random

import pyarrow as pa

from dissector.joining import links, planning
from dissector.joining.links import Row
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.enums import BOTH_DIRECTIONS
from tests.dissector.joining.test_links import S, row


def chain_of(count: int, key: str = "k") -> list[Row]:
    """One connection over so many captures, each from where the one before stopped."""
    return [
        row(
            f"{key}{number}",
            connection_key=key,
            started="midstream" if number else "syn",
            ended="capture_end" if number < count - 1 else "fin",
            first_ts_ns=10 * number * S,
            last_ts_ns=(10 * number + 9) * S,
            **{f"first_seq_{direction}": 100 * number for direction in BOTH_DIRECTIONS},
            **{f"last_seq_{direction}": 100 * number + 100 for direction in BOTH_DIRECTIONS},
        )
        for number in range(count)
    ]


def planned(rows: list[Row]) -> links.JoinPlan:
    spans = {each["capture"]: (each["first_ts_ns"], each["last_ts_ns"]) for each in rows}
    return links.plan(rows, spans)


def test_a_unit_is_the_same_whatever_else_the_lake_holds_and_in_whatever_order() -> None:
    rows = [*chain_of(3, "a"), *chain_of(2, "b"), *chain_of(1, "c")]
    names = {each["capture"]: f"digest of {each['capture']}" for each in rows}
    all_units = set(planning.cache_partitions(planned(rows), names))
    assert sorted(len(cache_partition.captures) for cache_partition in all_units) == [1, 2, 3]
    for seed in range(5):
        some = random.Random(seed).sample(rows, len(rows))
        assert set(planning.cache_partitions(planned(some), names)) == all_units
        keys = random.Random(seed).sample("abc", 2)
        part = [each for each in some if each["capture"][0] in keys]
        known = {name: digest for name, digest in names.items() if name[0] in keys}
        expected = {
            cache_partition
            for cache_partition in all_units
            if cache_partition.captures[0][0] in keys
        }
        assert set(planning.cache_partitions(planned(part), known)) == expected


def test_a_unit_changes_with_what_another_capture_holds_of_it() -> None:
    rows = [row("a"), row("b", 2)]
    (alone,) = planning.cache_partitions(planned(rows[1:]), {"b": "x"})
    whole = planned(rows)
    _, copy = planning.cache_partitions(whole, {"a": "x", "b": "x"})
    assert alone.captures == copy.captures == ("b",) and alone.digest != copy.digest
    assert whole.proxy_peers == {("b", 2)}


def test_a_unit_changes_with_each_of_its_captures() -> None:
    rows = chain_of(3)
    names = {each["capture"]: "x" for each in rows}
    (whole,) = planning.cache_partitions(planned(rows), names)
    (other,) = planning.cache_partitions(planned(rows), names | {"k1": "y"})
    assert whole.captures == other.captures and whole.digest != other.digest
    (less,) = planning.cache_partitions(planned(rows[:2]), {"k0": "x", "k1": "x"})
    assert less.captures == ("k0", "k1")


def test_each_group_has_its_part_of_the_plan() -> None:
    rows = [*chain_of(2, "a"), *chain_of(3, "b"), *chain_of(1, "c")]
    whole = planned(rows)
    first, second = planning.parts_of(whole)
    assert first.captures == {"a0", "a1"} and second.captures == {"b0", "b1", "b2"}
    assert second.moved == {(f"b{number}", 0): ("b0", 0) for number in (1, 2)}
    assert (len(first.handovers), len(second.handovers)) == (2, 4)
    assert planning.parts_of(planned(rows[:1])) == []


def test_captures_that_were_joined_have_one_span() -> None:
    schema = arrow_schema("capture_files")
    given = [
        dict.fromkeys(schema.names) | {"capture": name, "first_ts_ns": first, "last_ts_ns": last}
        for name, first, last in (("k0", 5, S), ("k1", S, 9 * S), ("z", 0, 1), ("y", None, None))
    ]  # fmt: skip
    files = pa.Table.from_pylist(given, schema=schema)
    spans = planning.whole_spans(files, planned(chain_of(2)))
    assert spans == {"k0": (5, 9 * S), "k1": (5, 9 * S), "z": (0, 1), "y": (0, 0)}
