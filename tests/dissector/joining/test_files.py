"""Files of a lake as tables: of either schema version, compacted, rotations, odd names."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from dissector.joining.files import JoinSettings, database, digests, files_of, make_views, names_in
from dissector.lake.reader import open_lake
from dissector.schemas.arrow import arrow_schema
from tests.dissector.lake.landed import folder_of
from tests.dissector.lake.older_versions import NEW_IN_FRAMES, as_version_1
from tests.dissector.lake.samples import compacted, landed

SAMPLES = ("pulsar-apache/java-j12_nack.pcap", "pulsar-apache/java-j24_unload.pcap")
NEW = {"previous_connection_id"}  # which version 1 did not have in any table


def read(lake: Path, table: str, only: int | None = None) -> Counter[str]:
    """The rows of a table, without what differs between versions or in a group."""
    with open_lake(lake) as opened, database(JoinSettings()) as db:
        names = sorted(digests(opened.captures))
        source = files_of(opened, frozenset(names[:only]))
        make_views(db, source, [table])
        rows = db.sql(f"SELECT * EXCLUDE place FROM {table}").to_arrow_table()
        assert rows.schema.names == arrow_schema(table).names
    listed = rows.to_pylist()
    for row in listed:
        row["origin_capture"] = None
        for name in (NEW_IN_FRAMES if table == "frames" else NEW) & row.keys():
            row[name] = None
    return Counter(str(sorted(row.items(), key=lambda item: item[0])) for row in listed)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same captures as they land, in a group, and in both of version 1, one or all of them."""
    root = tmp_path_factory.mktemp("lakes")
    new = landed(root / "new [of] *?'s", SAMPLES)
    group = compacted(new, root / "group")
    with open_lake(new) as opened:
        first = opened.captures[0].capture_id
    lakes = [new, group]
    for name, source, old in (("old", new, ()), ("both", new, (first,)), ("old-group", group, ())):
        shutil.copytree(source, root / name)
        lakes.append(as_version_1(root / name, *old))
    return lakes


@pytest.mark.parametrize("table", ["frames", "deliveries", "capture_files"])
def test_rows_are_the_same_in_either_version_in_both_and_in_a_group(
    table: str, lakes: list[Path]
) -> None:
    new, *others = lakes
    wanted, one = read(new, table), read(new, table, 1)
    assert wanted.total() > one.total() > 0
    for lake in others:
        found, part = read(lake, table), read(lake, table, 1)
        if table == "capture_files":  # says the version of each
            assert (found.total(), part.total()) == (wanted.total(), one.total())
        else:
            assert (found, part) == (wanted, one), (lake.name, table)


def test_files_of_other_captures_are_not_opened(tmp_path: Path) -> None:
    lake = landed(tmp_path, SAMPLES)
    with open_lake(lake) as opened:
        second = opened.captures[1].capture_id
        assert names_in(opened.captures[1]) == {second}
        shutil.rmtree(folder_of(lake, "frames", second))
    assert read(lake, "frames", 1).total() > 0
