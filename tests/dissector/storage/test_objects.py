"""Captures in a store give what the same files give from a disk."""

import hashlib
import lzma
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from dissector.cli.main import run
from dissector.sources.file_times import last_ts_ns
from dissector.sources.inputs import expand
from dissector.sources.rings import chains
from dissector.storage import objects
from tests.dissector.storage.servers import BUCKET, SECRET, failing_server, forget, s3_server

SAMPLES = Path(__file__).parents[3] / "captures/pulsar-apache"
UNLOAD, NACK = SAMPLES / "java-j24_unload.pcap", SAMPLES / "java-j12_nack.pcap"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bucket with files; gives a folder with the same ones."""
    folder = tmp_path_factory.mktemp("bucket")
    inside = folder / "taps"
    (inside / "deep").mkdir(parents=True)
    shutil.copy(UNLOAD, inside)
    (inside / "deep/nack.pcap.xz").write_bytes(lzma.compress(NACK.read_bytes()))
    (inside / ".hidden.pcap").write_bytes(NACK.read_bytes())
    (inside / "notes.txt").write_text("no capture")
    _cut(UNLOAD, inside / "ring-2026010112.pcap", inside / "ring-2026010113.pcap")
    with s3_server() as endpoint:
        store = S3Store(BUCKET, endpoint=endpoint, client_options={"allow_http": True})
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                obstore.put(store, str(path.relative_to(folder)), path.read_bytes())
        yield folder


def _cut(whole: Path, first: Path, second: Path) -> None:
    """Write a capture as two files of a ring, but for its last packets."""
    data = whole.read_bytes()
    at, ends = 24, []
    while at < len(data):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        ends.append(at)
    middle, end = ends[len(ends) // 2], ends[-5]
    first.write_bytes(data[:middle])
    second.write_bytes(data[:24] + data[middle:end])


def digests(where: str, lake: Path) -> dict[str, str]:
    """The tables of a landed input, by file, as digests."""
    assert run(["land", where, "--lake", str(lake), "-q"]) == 0
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lake.rglob("*.parquet"))
    }


def test_a_folder_lands_as_the_same_captures(bucket: Path, tmp_path: Path) -> None:
    here = digests(str(bucket), tmp_path / "here")
    there = digests(f"s3://{BUCKET}", tmp_path / "there")
    assert here == there
    assert len(list((tmp_path / "there/_manifest").glob("*.json"))) == 3


@pytest.mark.parametrize(
    "pattern",
    ["taps/*.pcap", "taps/**/*.xz", "**/*.pcap", "taps/java-j2[34]*", "taps/java-j2[!34]*",
     "taps/ring-20260101??.pcap", "taps/", "taps", "taps/java-j24_unload.pcap", "none/*"],
)  # fmt: skip
def test_patterns_are_those_of_a_disk(bucket: Path, pattern: str) -> None:
    def names(base: str) -> tuple[list[str], int]:
        files, problems = expand([f"{base}/{pattern}"])
        return [path.removeprefix(f"{base}/") for path, _ in files], len(problems)

    there = names(f"s3://{BUCKET}")
    assert there == names(str(bucket))
    assert there[0] or pattern == "none/*" or "[!" in pattern


def test_files_of_a_ring_are_one_capture(bucket: Path) -> None:
    plan = chains([f"s3://{BUCKET}/taps/ring*"])
    assert [len(chain.files) for chain in plan.chains] == [2]


def test_the_last_time_of_a_large_capture_costs_two_requests(tmp_path: Path) -> None:
    data = UNLOAD.read_bytes()
    many = data[:24] + data[24:] * (1 + (3 << 20) // len(data))
    (tmp_path / "x.pcap").write_bytes(many)
    with failing_server(many) as server:
        assert last_ts_ns("s3://b/x.pcap") == last_ts_ns(str(tmp_path / "x.pcap"))
        assert len(server.requests) <= 7 and "GET bytes=0-65535" in server.requests


def test_packets_of_a_selection_are_written(bucket: Path, tmp_path: Path) -> None:
    outputs = []
    for number, where in enumerate((str(bucket / "taps"), f"s3://{BUCKET}/taps")):
        target = tmp_path / f"{number}.pcapng"
        name = f"{where}/java-j24_unload.pcap"
        assert run(["frames", name, "-Y", "command == 'SEND'", "-w", str(target), "-q"]) == 0
        outputs.append(target.read_bytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("failures", [[503], ["", 500, 429, ""], ["", "cut"], ["", "", "cut", 503]])
def test_what_fails_for_a_moment_is_asked_for_again(
    failures: list[int | str], tmp_path: Path
) -> None:
    with failing_server(UNLOAD.read_bytes()) as server:
        server.failures[:] = failures
        there = digests("s3://b/x.pcap", tmp_path / "there")
        assert server.failures == []
    (tmp_path / "x.pcap").write_bytes(UNLOAD.read_bytes())
    assert there == digests(str(tmp_path / "x.pcap"), tmp_path / "here")


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([404, 404], "there is no such file"),
        ([403], "the store refuses access"),
        ([401], "the store refuses access"),
        ([503] * 50, "the store does not answer: Odd|the store does not answer: 503"),
        (["", 416, 416], "it has another size"),
    ],
)
def test_what_fails_for_good_is_one_line_without_secrets(
    failures: list[int | str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(objects._RETRY, "max_retries", 1)
    with failing_server(UNLOAD.read_bytes()) as server:
        server.failures[:] = failures
        assert run(["summary", "s3://b/x.pcap"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert re.search(said, err) and SECRET not in err and "Debug" not in err


def test_an_object_that_is_replaced_meanwhile_is_never_mixed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of the first version stays; nothing of the second one is behind it."""
    data = UNLOAD.read_bytes()
    with failing_server(data + data[24:] * 3) as server:
        answer = server.do_GET

        def replaced(self: object) -> None:
            if len(server.requests) >= 4:
                server.tag = '"2"'
            answer(self)  # type: ignore[arg-type]

        monkeypatch.setattr(server, "do_GET", replaced)
        code = run(["frames", "s3://b/x.pcap", "--format", "jsonl"])
    err = capsys.readouterr().err
    assert "(it was changed while it was read); run it again" in err and code == 2
    forget()


def test_without_the_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forget()
    for address, module, extra in (
        ("s3://b/x.pcap", "objects", "objects"),
        ("hdfs://host/x.pcap", "hadoop", "hdfs"),
    ):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, f"dissector.storage.{module}", raising=False)
            patch.setitem(sys.modules, "obstore" if module == "objects" else "hdfs_native", None)
            assert run(["summary", address]) == 5
        assert f"pulsar-dissector[{extra}]" in capsys.readouterr().err
