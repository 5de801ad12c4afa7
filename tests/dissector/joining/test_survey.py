"""What is known of captures, and which of them belong together by it."""

import shutil
from pathlib import Path

from dissector.joining import survey
from dissector.joining.files import JoinSettings, digests, files_of
from dissector.joining.planning import cache_partitions
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import land, land_cut, planned, read


def test_what_is_known_can_be_kept_for_each_capture(tmp_path: Path) -> None:
    cut = land_cut("java-j24_unload.pcap", (203, 300), tmp_path, tmp_path)
    with open_lake(tmp_path) as lake:
        names = frozenset(digests(lake.captures))
        whole = survey.known(files_of(lake, names), JoinSettings())
        for table, schema in survey.SCHEMAS.items():
            parts = []
            for name in sorted(names):
                own = survey.known(files_of(lake, frozenset([name])), JoinSettings())
                parts += getattr(own, table).to_pylist()
            assert getattr(whole, table).schema.equals(schema)
            assert sorted(map(str, getattr(whole, table).to_pylist())) == sorted(map(str, parts))
        found = planned(lake)
        assert [set(group.captures) for group in found.groups] == [set(cut.captures)]
        assert len(cache_partitions(found, digests(lake.captures))) == 1


def test_rows_are_read_only_where_presences_overlap(tmp_path: Path) -> None:
    """Of two captures of other topics nothing but what is known of them is read."""
    for name in ("java-j24_unload.pcap", "java-j12_nack.pcap"):
        land(read(name), name, tmp_path, tmp_path)
    with open_lake(tmp_path) as lake:
        known = survey.known(files_of(lake, frozenset(digests(lake.captures))), JoinSettings())
        for table in ("exchanges", "deliveries", "connections"):
            shutil.rmtree(tmp_path / table)
        plan = survey.plan(known, lambda names: files_of(lake, names), JoinSettings())
    assert plan.groups == () and plan.copies == ()
