"""lake list, verify, rm, compact."""

import json
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE
from tests.dissector.cli.conftest import SAMPLES, Command, truth

NAMES = ("java-j12_nack.pcap", "java-j61_txn_abort.pcap")


@pytest.fixture
def landed(command: Command, tmp_path: Path) -> tuple[Path, list[str]]:
    """A lake with two captures, and their ids."""
    lake = tmp_path / "lake"
    found = command("land", *(SAMPLES / name for name in NAMES), "--lake", lake)
    assert found.code == EXIT_OK, found.err
    return lake, found.lines


def test_list_shows_every_capture(command: Command, landed: tuple[Path, list[str]]) -> None:
    lake, ids = landed
    found = command("lake", "list", lake)
    assert [line.split()[0] for line in found.lines] == sorted(ids)
    objects = {
        each["capture"]: each
        for each in map(json.loads, command("lake", "list", lake, "--json").lines)
    }
    for name, capture in zip(NAMES, ids, strict=True):
        assert objects[capture]["files"] == [name]
        assert objects[capture]["rows"]["frames"] == sum(truth(SAMPLES / name)["frames"].values())
        assert objects[capture]["capture_bytes"] == (SAMPLES / name).stat().st_size


def test_verify_finds_a_changed_byte(command: Command, landed: tuple[Path, list[str]]) -> None:
    lake, ids = landed
    found = command("lake", "verify", lake)
    assert (found.code, found.out) == (EXIT_OK, "") and "ok" in found.err
    (part,) = (lake / "frames" / f"landing={ids[0]}").iterdir()
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)
    found = command("lake", "verify", lake)
    assert found.code == EXIT_PARTIAL
    assert len(found.lines) == 1 and ids[0] in found.out and str(part) in found.out


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
    assert again.code == EXIT_USAGE


def test_a_folder_that_is_no_lake_is_named(command: Command, tmp_path: Path) -> None:
    for arguments in (["list"], ["verify"], ["compact"]):
        found = command("lake", *arguments, tmp_path)
        assert found.code == EXIT_INPUT and str(tmp_path) in found.err and found.out == ""


def test_a_lake_of_a_newer_program_is_not_touched(
    command: Command, landed: tuple[Path, list[str]]
) -> None:
    lake, ids = landed
    path = lake / "_manifest" / f"{ids[0]}.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(content | {"schema_version": 999}), "utf-8")
    for arguments in (["lake", "list", lake], ["report", "--lake", lake, "-o", lake / "report"],
                      ["land", SAMPLES / NAMES[0], "--lake", lake]):  # fmt: skip
        found = command(*arguments)
        assert found.code == EXIT_INPUT and "999" in found.err
