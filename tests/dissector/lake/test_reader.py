"""What a lake holds, whether it is whole, taking captures out."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dissector.errors import InputError, UsageError
from dissector.lake.reader import open_lake, remove, verify
from tests.dissector.lake.landed import blocks_of, content, land, tree


def problems(lake: Path) -> list[str]:
    with open_lake(lake) as found:
        return [problem.text for problem in verify(found)]


@pytest.mark.parametrize("make", [False, True], ids=["missing", "empty folder"])
def test_no_lake_is_an_input_error(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "lake"
    if make:
        folder.mkdir()
    with pytest.raises(InputError, match="is not a lake"), open_lake(folder):
        pass
    with pytest.raises(InputError, match="is not a lake"):
        remove(folder, ["*"])
    assert folder.exists() == make and not list(tmp_path.glob("lake/*"))


def test_verify_finds_what_is_missing_changed_or_stray(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    folder = tmp_path / "frames" / f"capture={landed.capture_id}"
    part = folder / "part-00000.parquet"
    good = part.read_bytes()
    assert problems(tmp_path) == []
    part.write_bytes(good[:-1])
    assert problems(tmp_path) == [f"{len(good) - 1} bytes instead of {len(good)}"]
    part.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    assert problems(tmp_path) == ["its bytes changed: SHA-256 differs from the manifest's"]
    part.unlink()
    assert problems(tmp_path) == ["missing"]
    part.write_bytes(good)
    (folder / "part-00001.parquet").write_bytes(good)
    assert problems(tmp_path) == ["no manifest names this file"]


def test_verify_finds_files_that_are_not_what_the_manifest_says(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    manifest = tmp_path / "_manifest" / f"{landed.capture_id}.json"
    text = manifest.read_text()
    rows = landed.rows["frames"]
    assert rows not in (landed.rows["permits"] + 1, 1)
    frames = tmp_path / "frames" / f"capture={landed.capture_id}" / "part-00000.parquet"
    assert pq.read_metadata(frames).num_rows == rows
    manifest.write_text(text.replace(f'"rows": {rows},', f'"rows": {rows + 1},'))
    assert f"{rows} rows instead of {rows + 1}" in problems(tmp_path)


def test_reading_some_columns(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700))
    with open_lake(tmp_path) as lake:
        found = lake.table("frames", ["frame_no", "topic"])
        assert found.column_names == ["frame_no", "topic", "capture"]
        assert lake.table("acks", ["frame_no"]).num_rows == 0


def test_removing_by_id_by_glob_and_by_age(tmp_path: Path) -> None:
    ids = {}
    for name, size in (("a", 300), ("b", 400), ("night-1", 500), ("night-2", 600)):
        ids[name] = land(tmp_path, name, content(size)).capture_id
    assert remove(tmp_path, [ids["a"]]) == [ids["a"]]
    assert remove(tmp_path, ["c-night-*"]) == sorted([ids["night-1"], ids["night-2"]])
    (files,) = (b for b in blocks_of(content(400)) if b.table == "capture_files")
    last = int(files.columns["last_ts_ns"][0])  # type: ignore[index, arg-type]
    with pytest.raises(UsageError, match="no capture"):
        remove(tmp_path, before_ns=last)
    assert remove(tmp_path, before_ns=last + 1) == [ids["b"]]
    assert set(tree(tmp_path)) == {"_lock"}
    with open_lake(tmp_path) as lake:
        assert lake.captures == () and lake.table("frames").num_rows == 0


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    path = tmp_path / "_manifest" / f"{landed.capture_id}.json"
    path.write_text("{")
    with pytest.raises(InputError, match=landed.capture_id), open_lake(tmp_path):
        pass
