"""lake list, verify, rm, compact."""

import json
import shutil
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_OK, EXIT_OUTPUT, EXIT_PARTIAL, EXIT_USAGE
from dissector.schemas import SCHEMA_VERSION
from tests.dissector.cli.conftest import SAMPLES, Command, truth
from tests.dissector.lake.landed import folder_of
from tests.dissector.lake.older_versions import as_version_1

NAMES = ("java-j12_nack.pcap", "java-j61_txn_abort.pcap")


@pytest.fixture
def landed(command: Command, tmp_path: Path) -> tuple[Path, list[str]]:
    """A lake with two captures, and their ids."""
    lake = tmp_path / "lake"
    result = command("land", *(SAMPLES / name for name in NAMES), "--lake", lake)
    assert result.code == EXIT_OK, result.err
    return lake, result.lines


def test_list_shows_every_capture(command: Command, landed: tuple[Path, list[str]]) -> None:
    lake, ids = landed
    result = command("lake", "list", lake)
    assert [line.split()[0] for line in result.lines] == sorted(ids)
    objects = {
        each["capture"]: each
        for each in map(json.loads, command("lake", "list", lake, "--json").lines)
    }
    for name, capture in zip(NAMES, ids, strict=True):
        assert objects[capture]["files"] == [name]
        assert objects[capture]["rows"]["frames"] == sum(truth(SAMPLES / name)["frames"].values())
        assert objects[capture]["capture_bytes"] == (SAMPLES / name).stat().st_size


def test_what_a_tap_landed_has_no_size_of_a_file(command: Command, tmp_path: Path) -> None:
    """0 B would say that nothing was captured."""
    lake = tmp_path / "lake"
    done = command("tap", "--replay", SAMPLES / NAMES[0], "--lake", lake, "--no-findings")
    assert done.code == EXIT_OK, done.err
    (line,) = command("lake", "list", lake).lines
    assert "  live -> " in line and "0 B" not in line.split("->")[0]


def test_verify_finds_a_changed_byte(command: Command, landed: tuple[Path, list[str]]) -> None:
    lake, ids = landed
    result = command("lake", "verify", lake)
    assert (result.code, result.out) == (EXIT_OK, "") and "ok" in result.err
    (part,) = (folder_of(lake, "frames", ids[0])).iterdir()
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)
    result = command("lake", "verify", lake)
    assert result.code == EXIT_PARTIAL
    assert len(result.lines) == 1 and ids[0] in result.out and str(part) in result.out


def test_rm_takes_ids_patterns_and_times(command: Command, landed: tuple[Path, list[str]]) -> None:
    lake, ids = landed
    assert command("lake", "rm", lake, "c-nothing-*").code == EXIT_USAGE
    assert command("lake", "rm", lake, "--before", "1999-01-01").code == EXIT_USAGE
    wrong = command("lake", "rm", lake, "--before", "yesterday")
    assert wrong.code == EXIT_USAGE and "is no time" in wrong.err
    assert command("lake", "rm", lake, "c-java-j12*").lines == [ids[0]]
    assert command("lake", "rm", lake, "--before", "2100-01-01T00:00").lines == [ids[1]]
    assert command("lake", "list", lake).lines == []
    assert not list(lake.rglob("*.parquet"))


def test_compact_keeps_every_row(command: Command, landed: tuple[Path, list[str]]) -> None:
    lake, _ = landed
    (made,) = command("lake", "compact", lake).lines
    assert made.startswith("compact-")
    (only,) = [json.loads(line) for line in command("lake", "list", lake, "--json").lines]
    assert only["rows"]["frames"] == sum(
        sum(truth(SAMPLES / name)["frames"].values()) for name in NAMES
    )
    assert command("lake", "verify", lake).code == EXIT_OK
    again = command("lake", "compact", lake)
    assert again.code == EXIT_OK


def test_a_folder_that_is_no_lake_is_named(command: Command, tmp_path: Path) -> None:
    for arguments in (["list"], ["verify"], ["compact"]):
        result = command("lake", *arguments, tmp_path)
        assert result.code == EXIT_INPUT and str(tmp_path) in result.err and result.out == ""


def make_newer(lake: Path, capture: str) -> None:
    path = lake / "_manifest" / f"{capture}.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(content | {"schema_version": 999}), "utf-8")


def test_a_lake_of_a_newer_program_is_not_touched(
    command: Command, landed: tuple[Path, list[str]]
) -> None:
    lake, ids = landed
    for each in ids:
        make_newer(lake, each)
    for arguments in (["lake", "list", lake], ["report", "--lake", lake, "-o", lake / "report"],
                      ["land", SAMPLES / NAMES[0], "--lake", lake]):  # fmt: skip
        result = command(*arguments)
        assert result.code == EXIT_INPUT and "999" in result.err


@pytest.mark.parametrize("is_newer", [False, True], ids=["damaged", "newer"])
def test_one_capture_that_cannot_be_read_is_named_and_the_others_are_shown(
    command: Command, landed: tuple[Path, list[str]], is_newer: bool
) -> None:
    lake, ids = landed
    path = lake / "_manifest" / f"{ids[0]}.json"
    if is_newer:
        make_newer(lake, ids[0])
    else:
        path.write_text(path.read_text("utf-8")[:-9], "utf-8")
    mend = "the version of dissector that wrote" if is_newer else "land the capture again"
    listed = command("lake", "list", lake)
    assert listed.code == EXIT_PARTIAL and [x.split()[0] for x in listed.lines] == ids[1:]
    assert ids[0] in listed.err and mend in listed.err
    checked = command("lake", "verify", lake)
    assert checked.code == EXIT_PARTIAL and len(checked.lines) == 1
    assert str(path) in checked.out and mend in checked.out and "1 problem " in checked.err
    if is_newer:
        for change in (["rm", lake, ids[1]], ["compact", lake]):
            assert command("lake", *change).code == EXIT_INPUT
        return
    # Either way of mending that the text names.
    assert command("land", SAMPLES / NAMES[0], "--lake", lake).code == EXIT_OK
    assert command("lake", "verify", lake).code == EXIT_OK
    path.write_text("", "utf-8")
    assert command("lake", "rm", lake, ids[0]).lines == ids[:1]
    assert command("lake", "verify", lake).code == EXIT_OK


def test_compact_says_what_it_did(
    command: Command, landed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    lake, ids = landed
    as_version_1(lake)
    alone = tmp_path / "alone"
    shutil.copytree(lake, alone)
    result = command("lake", "compact", alone, "--below", "1")
    assert result.code == EXIT_OK and result.lines == []
    for each in ids:
        assert f"{each} written anew as schema version {SCHEMA_VERSION}" in result.err
    assert "nothing compacted" in result.err
    again = command("lake", "compact", alone, "--below", "1")
    assert again.code == EXIT_OK and "nothing compacted" in again.err, "jobs ask every night"
    named = command("lake", "compact", alone, ids[0])
    assert named.code == EXIT_USAGE and "nothing to compact" in named.err
    result = command("lake", "compact", lake)
    assert result.code == EXIT_OK and "2 captures compacted" in result.err
    assert "written anew" not in result.err
    (group,) = result.lines
    removed = command("lake", "rm", lake, ids[0])
    assert removed.code == EXIT_USAGE and f"in {group} stay" in removed.err


def test_a_link_for_the_stages_is_refused_in_one_line(
    command: Command, landed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    lake, ids = landed
    precious = tmp_path / "precious" / "c-x.0123.ready"
    precious.mkdir(parents=True)
    (lake / "_tmp").symlink_to(precious.parent)
    for arguments, code in (
        (["lake", "list", lake], EXIT_INPUT),
        (["lake", "rm", lake, ids[0]], EXIT_OUTPUT),
        (["lake", "compact", lake], EXIT_OUTPUT),
        (["land", SAMPLES / NAMES[0], "--lake", lake], EXIT_OUTPUT),
    ):
        result = command(*arguments)
        assert result.code == code and "_tmp is a symbolic link" in result.err
        assert len(result.err.splitlines()) == 1
    assert precious.is_dir()
