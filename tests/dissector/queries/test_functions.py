"""The functions that queries have beside SQL: held against what they stand for."""

import pyarrow as pa

from dissector.buckets import bucket_of
from dissector.queries.duckdb_engine import DuckdbEngine
from tests.naive.key_hashes import java_hash

LARGEST = (1 << 63) - 1
# Published values of String.hashCode; the last three are texts of surrogates, marks and a zero.
JAVA_HASHES = {
    "": 0, "a": 97, "hello": 99162322, "AaAa": 2031744, "BBBB": 2031744,
    "polygenelubricants": -(1 << 31), "é": 233, "😀": 1772899,
    "x😀🇩🇪": None, "e\u0301z": None, "x\0y" * 40: None,
}  # fmt: skip


def durations() -> list[int]:
    """Every boundary of a bucket with its neighbours, powers of two, and negative ones."""
    boundaries = {(32 + part) << octave for octave in range(58) for part in range(33)}
    boundaries |= {1 << power for power in range(64)}
    near = {boundary + step for boundary in boundaries for step in (-2, -1, 0, 1, 2)}
    return [*sorted(each for each in near if 0 <= each <= LARGEST), -1, -5, -LARGEST - 1]


def test_buckets_are_those_of_the_rest_of_the_program(db: DuckdbEngine) -> None:
    given = durations()
    db.register("given", pa.table({"duration": pa.array([*given, None], pa.int64())}))
    found = db.table("SELECT duration, histogram_bucket(duration) AS bucket FROM given").to_pylist()
    assert len(found) == len(given) + 1
    expected = [bucket_of(each) for each in given]
    wanted = {
        each: None if each < 0 else bucket for each, bucket in zip(given, expected, strict=True)
    }
    assert {row["duration"]: row["bucket"] for row in found} == {**wanted, None: None}


def test_other_functions(db: DuckdbEngine) -> None:
    numbers = [-LARGEST - 1, -LARGEST, -(10**18), -7, -6, -1, 0, 1, 5, 6, 10**18, LARGEST]
    db.register("numbers", pa.table({"n": pa.array(numbers, pa.int64())}))
    found = db.table("SELECT n, floor_div(n, 6) AS by_6 FROM numbers ORDER BY n").to_pylist()
    assert [row["by_6"] for row in found] == [number // 6 for number in numbers]
    found = db.table(
        "SELECT try_subtract(n, 9) AS less, try_multiply(n, 10) AS more FROM numbers ORDER BY n"
    ).to_pylist()
    held = [None if abs(number * 10) > LARGEST else number * 10 for number in numbers]
    assert [row["more"] for row in found] == held
    assert [row["less"] for row in found] == [None, None, *(number - 9 for number in numbers[2:])]
    times = pa.array([-1, 0, 1_700_000_000_000_001], pa.timestamp("us", "UTC"))
    lists = pa.array([None, [], [1, 2]], pa.list_(pa.field("element", pa.int64())))
    db.register("several", pa.table({"place": [0, 1, 2], "ts": times, "list": lists}))
    found = db.table(
        "SELECT micros(ts) AS us, items(list) AS count FROM several ORDER BY place"
    ).to_pylist()
    assert [row["us"] for row in found] == [-1, 0, 1_700_000_000_000_001]
    assert [row["count"] for row in found] == [None, 0, 2]


def test_the_hash_of_java_s_strings(db: DuckdbEngine) -> None:
    for text, published in JAVA_HASHES.items():
        assert published is None or java_hash(text) == published & 0x7FFF_FFFF
    db.register("texts", pa.table({"text": pa.array([*JAVA_HASHES, None], pa.string())}))
    found = db.table("SELECT text, java_hash(text) AS hash FROM texts").to_pylist()
    assert {row["text"]: row["hash"] for row in found} == {
        **{text: java_hash(text) for text in JAVA_HASHES}, None: None
    }  # fmt: skip


def test_a_number_lies_in_ranges_up_to_their_ends(db: DuckdbEngine) -> None:
    ranges = pa.array([[1, 3, 8, 9, 5, 5]], pa.list_(pa.field("element", pa.int64())))
    db.register("ranges", pa.table({"bounds": ranges}))
    db.register("slots", pa.table({"slot": pa.array(range(11), pa.int64())}))
    found = db.table(
        "SELECT slot, lies_in(slot, bounds) AS is_in, lies_in(slot, NULL) AS nowhere "
        "FROM slots, ranges ORDER BY slot"
    ).to_pylist()
    assert [row["slot"] for row in found if row["is_in"]] == [1, 2, 3, 5, 8, 9]
    assert {row["nowhere"] for row in found} == {None}
