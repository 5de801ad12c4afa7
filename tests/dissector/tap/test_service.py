"""A tap's rotations are the recording: cut anywhere, joined they hold its rows in its order."""

from collections import Counter
from pathlib import Path

import pytest

from dissector.dissection import Options
from dissector.lake.compact import compact
from dissector.lake.reader import open_lake, verify
from dissector.sources.rings import chains
from dissector.tap.packet_batches import NEVER_NS
from dissector.tap.playback import FilePlayback
from dissector.tap.rotations import Rotations
from dissector.tap.service import Tap, TapSettings
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import CAPTURES, TABLES, Tables, tables_of
from tests.dissector.test_same_rows import SEVERAL
from tests.plain import plain_rows

# Each is cut by time or by size, in turns; at night by both.
BY_TIME, BY_SIZE = (SEVERAL, SEVERAL) if LOOKS_AT_ALL else (SEVERAL[::2], SEVERAL[1::2])


def rotated(
    lake: Path, *paths: str, rotate_ns: int = NEVER_NS >> 1, rotate_bytes: int = NEVER_NS
) -> Tap:
    """Replay files as one chain into a lake."""
    (chain,) = chains(list(paths), "all" if len(paths) > 1 else "auto").chains
    source = FilePlayback(chain)
    rotations = Rotations(lake, source.name, Options().as_json(), may_wait=True)
    tap = Tap(source, TapSettings(Options(), rotate_ns, rotate_bytes), rotations)
    tap.run()
    return tap


def joined(lake: Path) -> Tables:
    """The rows of all captures of a lake, one after the other, without what names the capture."""
    tables: Tables = {table: [] for table in TABLES}
    with open_lake(lake) as opened:
        assert not verify(opened)
        for table in TABLES:
            batches = opened.table(table).to_batches()
            rows = [row for batch in batches for row in plain_rows(batch)]
            rows.sort(key=lambda row: row["capture"])
            for row in rows:
                row["capture"] = row["origin_capture"] = None
            tables[table] = rows
    return tables


def in_any_order(rows: list[dict]) -> Counter:
    """Rows as texts; a time zone has several names, a time as a text has none."""
    return Counter(str(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def assert_is_recording(found: Tables, whole: Tables) -> None:
    """Equal row for row, in the order of the recording; notices of a rotation are in order there,
    but one that was found late stands in a later rotation than its packet."""
    for table in TABLES:
        if table == "notices":
            assert in_any_order(found[table]) == in_any_order(whole[table])
        elif table != "capture_files":
            assert found[table] == whole[table], table
    files = found["capture_files"]
    assert sum(row["packets"] for row in files) == sum(
        row["packets"] for row in whole["capture_files"]
    )
    assert {row["format"] for row in files} == {"live"} and not any(row["sha256"] for row in files)
    assert len({row["tap_run"] for row in files}) == 1
    ends = 1
    for row in files:
        assert row["first_packet"] == ends
        ends += row["packets"]


def span_ns(path: Path) -> int:
    (file,) = tables_of(str(path))["capture_files"]
    return file["last_ts_ns"] - file["first_ts_ns"]


@pytest.mark.parametrize("name", BY_TIME)
def test_rotations_by_time_are_the_recording(name, tmp_path):
    path = CAPTURES / name
    tap = rotated(tmp_path, str(path), rotate_ns=max(1, span_ns(path) // 7))
    assert tap.fates and all(fate.problem is None for fate in tap.fates)
    assert_is_recording(joined(tmp_path), tables_of(str(path)))


@pytest.mark.parametrize("name", BY_SIZE)
def test_rotations_by_size_are_the_recording(name, tmp_path):
    path = CAPTURES / name
    tap = rotated(tmp_path, str(path), rotate_bytes=max(1500, path.stat().st_size // 5))
    assert len(tap.fates) >= 3
    ids = [fate.capture_id for fate in tap.fates]
    assert ids == sorted(ids) and ids[0].endswith("-00000") and ids[1].endswith("-00001")
    first_ns = tables_of(str(path))["capture_files"][0]["first_ts_ns"]
    assert all(f"-{first_ns}-" in each for each in ids) or "jitter" in name
    assert_is_recording(joined(tmp_path), tables_of(str(path)))


def test_a_ring_of_files_goes_on_across_its_rotations(tmp_path):
    paths = [str(CAPTURES / "pulsar" / f"ring.pcap{number}") for number in range(4)]
    tap = rotated(tmp_path, *paths, rotate_bytes=300_000)
    assert len(tap.fates) > 3
    assert_is_recording(joined(tmp_path), tables_of(*paths))


def test_rotations_compacted_keep_their_rows(tmp_path):
    name = "pulsar-apache/java-j24_unload.pcap"
    tap = rotated(tmp_path, str(CAPTURES / name), rotate_bytes=20_000)
    before = joined(tmp_path)
    compact(tmp_path)
    with open_lake(tmp_path) as opened:
        assert len(opened.captures) == 1
        ids = set(opened.table("frames").column("origin_capture").to_pylist())
    assert ids <= {fate.capture_id for fate in tap.fates} and len(ids) > 3
    assert joined(tmp_path) == before
    # A replay that comes again, after they were put together, adds nothing.
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    again = rotated(tmp_path, str(CAPTURES / name), rotate_bytes=20_000)
    assert [fate.capture_id for fate in again.fates] == [fate.capture_id for fate in tap.fates]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == files


def test_a_replay_again_changes_nothing(tmp_path):
    name = "pulsar-apache/java-j74_corrupt.pcap"
    first = rotated(tmp_path, str(CAPTURES / name), rotate_bytes=20_000)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    second = rotated(tmp_path, str(CAPTURES / name), rotate_bytes=20_000)
    assert [fate.capture_id for fate in first.fates] == [fate.capture_id for fate in second.fates]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == files
