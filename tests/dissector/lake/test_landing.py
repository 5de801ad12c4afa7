"""Captures in a lake: replaced by themselves, by their longer versions, or refused."""

import errno
import multiprocessing
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from dissector.blocks import TableBlock
from dissector.errors import InputError, OutputError
from dissector.lake import manifests
from dissector.lake.install import STAGE_FOLDER, writing_to
from dissector.lake.landing import INSTALLED, SHORTER, UNCHANGED, Landing
from dissector.lake.manifest import MANIFEST_FOLDER, tap_capture_id
from dissector.lake.reader import open_lake, verify
from dissector.schemas import SCHEMA_VERSION, TABLES
from tests.dissector.lake.landed import blocks_of, content, feed, folder_of, land, tree
from tests.naive.rows import plain_rows


def captures(lake: Path) -> list[str]:
    with open_lake(lake) as opened:
        assert verify(opened) == []
        return [capture.capture_id for capture in opened.captures]


def test_a_landed_capture_can_be_read_row_by_row(tmp_path: Path) -> None:
    lake = tmp_path / "some" / "lake"
    data = content(700)
    landed = land(lake, "a.pcap", data)
    assert landed.outcome == INSTALLED and landed.replaced == () and landed.sentences == ()
    assert landed.capture_id.startswith("c-a-pcap-")
    assert landed.rows["capture_files"] == 1 and landed.rows["acks"] == 0
    with open_lake(lake) as opened:
        (capture,) = opened.captures
        assert capture.capture_id == landed.capture_id
        assert (capture.last_ts_ns or 0) - (capture.first_ts_ns or 0) == 700
        assert capture.sources[0].file_name == "file-0.pcap"
        for block in blocks_of(data):
            rows = opened.table(block.table).to_pylist()
            assert rows == [{**row, "capture": landed.capture_id} for row in plain_rows(block)]
        assert opened.table("acks").num_rows == 0
        assert len(opened.part_paths("acks")) == 1
    assert not (lake / STAGE_FOLDER).exists()


def test_landing_again_writes_the_same_lake(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700), content(20))
    before = tree(tmp_path)
    again = land(tmp_path, "a.pcap", content(700), content(20))
    assert again.outcome == UNCHANGED
    assert tree(tmp_path) == before
    elsewhere = tmp_path / "other"
    land(elsewhere, "a.pcap", content(700), content(20))
    assert {name: data for name, data in tree(elsewhere).items()} == before


def test_landing_again_mends_a_lost_file(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    before = tree(tmp_path)
    shutil.rmtree(folder_of(tmp_path, "frames", landed.capture_id))
    assert land(tmp_path, "a.pcap", content(700)).outcome == INSTALLED
    assert tree(tmp_path) == before


def test_other_options_replace_the_capture(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700))
    again = land(tmp_path, "a.pcap", content(700), options={"protocol": "pulsar"})
    assert again.outcome == INSTALLED and captures(tmp_path) == [again.capture_id]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ((content(700),), (content(1500),)),
        ((content(24),), (content(25),)),
        ((content(700),), (content(700), content(100))),
        ((content(700), content(90)), (content(700), content(100), content(3))),
    ],
    ids=["one file", "header only", "one more file", "last file grew, one more"],
)
def test_a_capture_that_has_grown_replaces_the_shorter(
    tmp_path: Path, short: tuple[bytes, ...], long: tuple[bytes, ...]
) -> None:
    first = land(tmp_path, "ring", *short)
    grown = land(tmp_path, "ring", *long)
    assert grown.outcome == INSTALLED and grown.replaced == (first.capture_id,)
    assert captures(tmp_path) == [grown.capture_id]
    before = tree(tmp_path)
    land(tmp_path / "fresh", "ring", *long)
    assert tree(tmp_path / "fresh") == before


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ((content(1500),), (content(700),)),
        ((content(700), content(100)), (content(700),)),
        ((content(700), content(100)), (content(700), content(90))),
    ],
    ids=["cut inside", "a file less", "last file cut"],
)
def test_a_shorter_version_is_not_landed(
    tmp_path: Path, long: tuple[bytes, ...], short: tuple[bytes, ...]
) -> None:
    land(tmp_path, "ring", *long)
    before = tree(tmp_path)
    refused = land(tmp_path, "ring", *short)
    assert refused.outcome == SHORTER
    (sentence,) = refused.sentences
    assert "is the beginning of" in sentence and sentence.endswith("bytes more: not landed")
    assert tree(tmp_path) == before


def test_same_bytes_under_other_names_are_captures_of_their_own(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700))
    assert land(tmp_path, "b.pcap", content(1500)).replaced == ()
    assert len(captures(tmp_path)) == 2


def test_a_ring_that_lost_its_first_file_names_the_shared_ones(tmp_path: Path) -> None:
    one, two, three = content(500, 1), content(600, 2), content(700, 3)
    first = land(tmp_path, "ring", one, two)
    rolled = land(tmp_path, "ring", two, three)
    assert rolled.outcome == INSTALLED and rolled.replaced == ()
    (sentence,) = rolled.sentences
    assert sentence.endswith(f"is part of {first.capture_id} too") and "file-0.pcap" in sentence
    assert len(captures(tmp_path)) == 2


def test_leaving_without_commit_leaves_nothing(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700))
    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt), Landing(tmp_path, "b.pcap") as landing:
        feed(landing, content(100))
        raise KeyboardInterrupt
    assert tree(tmp_path) == before and not (tmp_path / STAGE_FOLDER).exists()


def test_several_captures_can_be_sealed_and_committed_at_the_end(tmp_path: Path) -> None:
    with Landing(tmp_path, "a") as one, Landing(tmp_path, "b") as two:
        for landing, size in ((one, 300), (two, 400)):
            feed(landing, content(size))
            landing.seal()
        assert not (tmp_path / MANIFEST_FOLDER).exists()
        for landing in (one, two):
            assert landing.commit({}).outcome == INSTALLED
    assert len(captures(tmp_path)) == 2


def test_two_at_once_that_are_prefixes_end_as_the_longer_one(tmp_path: Path) -> None:
    with Landing(tmp_path, "ring") as short, Landing(tmp_path, "ring") as long:
        feed(short, content(700))
        feed(long, content(1500))
        kept = long.commit({})
        assert short.commit({}).outcome == SHORTER
    assert captures(tmp_path) == [kept.capture_id]


def test_a_taps_rotation_has_the_taps_id_and_no_digest(tmp_path: Path) -> None:
    name = tap_capture_id("lo", 5, 0)
    with Landing(tmp_path, "lo", name) as landing:
        landing.write(TableBlock("capture_files", 1, {"first_ts_ns": np.array([5])}))
        assert landing.commit({}).capture_id == name
    with open_lake(tmp_path) as lake:
        assert lake.captures[0].sha256 is None and lake.captures[0].sources == ()


def test_a_lake_of_a_newer_schema_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    path = tmp_path / MANIFEST_FOLDER / f"{landed.capture_id}.json"
    path.write_text(
        path.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99')
    )
    with pytest.raises(InputError, match="schema version 99"):
        Landing(tmp_path, "a.pcap")
    # Captures of other names are not read: that a newer program landed any, the lake itself says.
    with Landing(tmp_path, "b.pcap") as early:
        feed(early, content(300))
        with monkeypatch.context() as newer:
            newer.setattr(manifests, "SCHEMA_VERSION", 99)
            manifests.mark_version(tmp_path)
        for refused in (lambda: Landing(tmp_path, "b.pcap"), lambda: early.commit({})):
            with pytest.raises(InputError, match="schema version 99"):
                refused()
    assert len(list((tmp_path / MANIFEST_FOLDER).iterdir())) == 1
    with pytest.raises(InputError, match="newer"), open_lake(tmp_path):
        pass


def test_a_file_in_the_way_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"cannot write to the lake .*file"):
        Landing(tmp_path / "file", "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights_is_an_output_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        Landing(tmp_path / "lake", "a")


def test_what_to_do_is_said_by_the_reason(tmp_path: Path) -> None:
    for number, words in ((errno.EROFS, "let this user write there"), (errno.ENOSPC, "make room")):
        with pytest.raises(OutputError, match=words), writing_to(tmp_path):
            raise OSError(number, os.strerror(number))


def _land_with_little_room(lake: Path, answers: "multiprocessing.Queue[str]") -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        land(lake, "b.pcap", content(5000))
    except OutputError as error:
        answers.put(str(error))
    else:
        answers.put("landed")


def test_a_full_disk_is_an_output_error_and_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700))
    before = tree(tmp_path)
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[str] = context.Queue()
    process = context.Process(target=_land_with_little_room, args=(tmp_path, answers))
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    assert "cannot write to the lake" in answer and "File too large" in answer
    assert tree(tmp_path) == before and not (tmp_path / STAGE_FOLDER).exists()


def test_every_table_is_there_for_spark_even_without_rows(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(300))
    for table in TABLES:
        folder = folder_of(tmp_path, table, landed.capture_id)
        assert [path.name for path in folder.iterdir()] == ["part-00000.parquet"]
