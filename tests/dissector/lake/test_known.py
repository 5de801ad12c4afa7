"""A capture that is in the lake already is told by its bytes, and nothing is dissected again."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dissector.blocks import TableBlock
from dissector.cli.main import run
from dissector.dissection import Options
from dissector.lake import land
from dissector.lake.install import Stage
from dissector.lake.known import known_capture
from dissector.lake.partitions import partition_of
from dissector.lake.reader import open_lake, verify
from dissector.sources.account import Account
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain, chains

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "captures/pulsar-apache"
UNLOAD, NACK = SAMPLES / "java-j24_unload.pcap", SAMPLES / "java-j12_nack.pcap"
TLS = ROOT / "tests/dissector/tls/captures/go-tls12-resumed"


@pytest.fixture
def dissected(monkeypatch: pytest.MonkeyPatch) -> list[Chain]:
    """The chains that landing dissects."""
    chains: list[Chain] = []

    def note(chain: Chain, *rest: Any, **named: Any) -> Iterator[TableBlock]:
        chains.append(chain)
        return dissect(chain, *rest, **named)

    monkeypatch.setattr(land, "dissect", note)
    return chains


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Captures of many kinds: whole, compressed, of a ring, cut, encrypted, without packets."""
    folder = tmp_path / "taps"
    folder.mkdir()
    data = UNLOAD.read_bytes()
    shutil.copy(UNLOAD, folder)
    (folder / "nack.pcap.gz").write_bytes(gzip.compress(NACK.read_bytes(), mtime=0))
    shutil.copy(SAMPLES / "java-j21_seek.pcap", folder / "ring.pcap1")
    (folder / "cut.pcap").write_bytes((SAMPLES / "java-j22_reader.pcap").read_bytes()[:-7])
    (folder / "empty.pcap").write_bytes(data[:24])
    shutil.copy(TLS.with_suffix(".pcap"), folder)
    shutil.copy(ROOT / "captures/cursus/tls-mixed.pcap", folder)
    return folder


def _landed(*words: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run([*map(str, words), "--no-progress"])
    out, err = capsys.readouterr()
    return code, out, err


def _state(lake: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in lake.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def test_landing_again_says_the_same_and_reads_no_packet(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    dissected: list[Chain],
) -> None:  # fmt: skip
    lake = tmp_path / "lake"
    first = _landed("land", captures, "--lake", lake, capsys=capsys)
    before = _state(lake)
    assert first[0] == 3 and first[1].count("\n") == 7
    dissected.clear()
    code, ids, err = _landed("land", captures, "--lake", lake, capsys=capsys)
    told = "dissector: 7 captures were in the lake already, unchanged\n"
    assert told in err and (code, ids, err.replace(told, "")) == first
    assert dissected == []
    assert _state(lake) == before


@pytest.mark.parametrize("is_compacted", [False, True])
def test_captures_of_a_group_are_known_too(
    is_compacted: bool, captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    lake = tmp_path / "lake"
    _landed("land", captures, "--lake", lake, capsys=capsys)
    if is_compacted:
        assert run(["lake", "compact", str(lake), "-q"]) == 0
        capsys.readouterr()
    known = _landed("land", captures, "--lake", lake, capsys=capsys)
    with monkeypatch.context() as patch:
        patch.setattr(land, "known_capture", lambda *_: None)
        assert _landed("land", captures, "--lake", lake, capsys=capsys) == known


@pytest.mark.parametrize("change", ["options", "cluster", "name", "grown", "file", "byte", "keys"])
def test_whatever_changes_rows_is_dissected(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], dissected: list[Chain]
) -> None:  # fmt: skip
    path, lake = tmp_path / "x.pcap", tmp_path / "lake"
    source = TLS.with_suffix(".pcap") if change == "keys" else NACK
    path.write_bytes(source.read_bytes())
    words: list[object] = ["land", path, "--lake", lake]
    assert _landed(*words, capsys=capsys)[0] == 0
    if change == "options":
        words += ["--no-redact"]
    elif change == "cluster":
        words += ["--cluster", "east"]
    elif change == "name":
        (tmp_path / "x.pcap.gz").write_bytes(gzip.compress(path.read_bytes()))
        words[1] = tmp_path / "x.pcap.gz"
    elif change == "grown":
        path.write_bytes(path.read_bytes() + path.read_bytes()[24:])
    elif change == "file":
        next((lake / "frames").rglob("*.parquet")).unlink()
    elif change == "byte":
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(bytes(data))
    elif change == "keys":
        words += ["--keylog", TLS.with_suffix(".keys")]
    dissected.clear()
    assert _landed(*words, capsys=capsys)[0] == 0 and len(dissected) == 1


def test_a_removal_that_was_killed_is_done_before_a_capture_is_landed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its manifest is still there, and says that all is well."""
    lake = tmp_path / "lake"
    _landed("land", NACK, "--lake", lake, capsys=capsys)
    with open_lake(lake) as opened:
        (capture,) = opened.captures
    stage = Stage(lake, "removal")
    stage.prepare(None)
    stage.make_ready([partition_of(capture)])
    assert _landed("land", NACK, "--lake", lake, capsys=capsys)[0] == 0
    for _ in range(2):
        with open_lake(lake) as opened:
            assert [each.capture_id for each in opened.captures] == [capture.capture_id]
            assert verify(opened) == []


def test_what_comes_once_is_not_read_to_be_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, lake = tmp_path / "x.pcap", tmp_path / "lake"
    assert known_capture(Chain(("-",), "stdin"), lake, Options()) is None
    said = []
    for _ in range(2):
        os.mkfifo(pipe)
        Thread(target=pipe.write_bytes, args=(UNLOAD.read_bytes(),), daemon=True).start()
        said.append(_landed("land", pipe, "--lake", lake, capsys=capsys))
        pipe.unlink()
    told = f"dissector: {said[0][1].strip()} was in the lake already, unchanged\n"
    assert said[1] == (0, said[0][1], told + said[0][2])


def test_an_account_goes_through_a_manifest(tmp_path: Path) -> None:
    for source in (UNLOAD, TLS.with_suffix(".pcap"), ROOT / "captures/cursus/tls-mixed.pcap"):
        chain = chains([str(source)]).chains[0]
        account = Account(chain.base_name, chain.shown_names)
        for block in dissect(chain, Options()):
            account.add(block)
        account.miss("a part")
        again = Account.from_json(
            json.loads(json.dumps(account.as_json())), chain.base_name, chain.shown_names
        )
        assert again is not None and vars(again) == vars(account)
    for odd in (
        {"files": -1},
        {"files": "x"},
        {"rows": []},
        {"notices": {"a": "b"}},
        {"missing": 1},
    ):
        assert Account.from_json({"missing": [], **odd}, "", ()) is None
    assert Account.from_json({}, "", ()) is None
