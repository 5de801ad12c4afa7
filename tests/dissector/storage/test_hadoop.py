"""Captures in a real HDFS give what the same files give from a disk; `make test-hdfs` runs it."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dissector import limits
from dissector.cli.main import run
from dissector.lake.install import ready_stages
from dissector.lake.mirror import folder_of
from dissector.lake.reader import open_lake, verify
from dissector.storage import stores
from dissector.storage.addresses import parsed
from dissector.storage.stores import store_of
from dissector.tap import delivery
from dissector.tap.rotations import Rotations
from tests.dissector.storage.servers import forget
from tests.dissector.storage.test_objects import NACK, UNLOAD, digests
from tests.dissector.tap.test_delivery import killed_taps, opened, rotate, until

CLASSES = os.environ.get("HDFS_CLASSPATH", "")
pytestmark = pytest.mark.skipif(
    not CLASSES or shutil.which("java") is None,
    reason="HDFS_CLASSPATH is not set or there is no Java: make test-hdfs fetches a small cluster",
)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The address of a cluster that holds two captures, and its process."""
    from hdfs_native import Client

    source = Path(__file__).parent / "hdfs/SmallCluster.java"
    folder = tmp_path_factory.mktemp("hdfs")
    command = ["java", "-cp", CLASSES, str(source), str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("at "))
            root = line.split()[1]
            client = Client(root)
            client.mkdirs("/taps/deep", create_parent=True)
            for path, name in ((UNLOAD, "java-j24_unload.pcap"), (NACK, "deep/nack.pcap")):
                with client.create(f"/taps/{name}") as file:
                    file.write(path.read_bytes())
            forget()
            yield root, process.pid
        finally:
            process.kill()
            forget()


@pytest.fixture
def cluster(started: tuple[str, int]) -> str:
    """Its address."""
    return started[0]


@pytest.fixture
def process(started: tuple[str, int]) -> int:
    """Its process."""
    return started[1]


@pytest.mark.parametrize("where", ["taps", "taps/", "", "taps/**/*.pcap", "taps/deep/nack.pcap"])
def test_tables_are_the_same(cluster: str, where: str, tmp_path: Path) -> None:
    here = tmp_path / "files/taps/deep"
    here.mkdir(parents=True)
    shutil.copy(NACK, here / "nack.pcap")
    if not where.endswith("nack.pcap"):
        shutil.copy(UNLOAD, here.parent)
    there = digests(f"{cluster}/{where}", tmp_path / "there")
    assert there == digests(str(tmp_path / "files"), tmp_path / "here")


def test_what_is_not_there_is_said(
    cluster: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for address, said in (
        (f"{cluster}/taps/none.pcap", "there is no such file"),
        (f"{cluster}/none/", "there is no file in it"),
        ("hdfs://127.0.0.1:1/x", "the cluster does not answer"),
    ):
        assert run(["summary", address]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and said in err


def test_a_file_that_is_replaced_meanwhile_is_not_read(cluster: str) -> None:
    from hdfs_native import Client, WriteOptions

    path = f"{cluster}/taps/late.pcap"
    client = Client(cluster)
    with client.create("/taps/late.pcap") as file:
        file.write(b"first")
    entry = stores.entry_of(path)
    store = stores.store_of(stores.parsed(path))
    assert store.read(entry, 0, 5) == b"first"
    with client.create("/taps/late.pcap", WriteOptions(overwrite=True)) as file:
        file.write(b"other")
    with pytest.raises(OSError, match="changed while it was read"):
        store.read(entry, 0, 5)
    client.delete("/taps/late.pcap")


def test_a_lake_holds_what_one_on_a_disk_holds(
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = f"{cluster}/lakes/one"
    reports = []
    for where in (lake, str(tmp_path / "here")):
        for machine in ("first", "second"):
            monkeypatch.setattr(
                "dissector.lake.mirror._base", lambda m=machine: tmp_path / m / "lakes"
            )
            assert run(["land", str(UNLOAD), str(NACK), "--lake", where, "-q"]) == 0
        assert run(["lake", "verify", where]) == 0
        assert run(["report", "--lake", where, "-o", str(tmp_path / "r"), "-q", "--force"]) == 0
        reports.append((tmp_path / "r/report.json").read_bytes())
    assert reports[0] == reports[1]
    capsys.readouterr()
    assert run(["lake", "compact", lake]) == 0
    assert run(["lake", "rm", lake, "compact-*"]) == 0
    assert run(["lake", "list", lake]) == 0
    assert capsys.readouterr()[0].count("\n") == 2  # the group, and that it went
    assert run(["lake", "tidy", lake]) == 0


def test_questions_read_ranges(
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dissector.lake.mirror._base", lambda: tmp_path / "first/lakes")
    lake, here = f"{cluster}/lakes/asked", str(tmp_path / "here")
    assert run(["land", str(UNLOAD), str(NACK), "--lake", lake, "-q"]) == 0
    assert run(["land", str(UNLOAD), str(NACK), "--lake", here, "-q"]) == 0
    monkeypatch.setattr("dissector.lake.mirror._base", lambda: tmp_path / "second/lakes")
    monkeypatch.setattr(limits, "FOOTER_BYTES", 5000)
    query = "select day, command, sum(frame_bytes) from frames group by all order by all"
    capsys.readouterr()
    assert run(["sql", "--lake", here, query]) == 0
    plain = capsys.readouterr()[0]
    assert run(["sql", "--lake", lake, query]) == 0
    out, err = capsys.readouterr()
    assert out == plain and re.fullmatch(rf".* fetched from {lake} in \d+ requests\n", err), err
    store = store_of(parsed(cluster))
    (frames, *_) = [e for e in store.entries("lakes/asked/frames") if "unload" in e.path]
    name = parsed(frames.path).name
    data = store.load(name)
    for changed, said in ((data + b"x", "it has another size"), (None, "is missing")):
        store.delete([name])
        assert changed is None or store.put_new(name, changed)
        assert run(["sql", "--lake", lake, query]) == 2
        out, err = capsys.readouterr()
        line = err.splitlines()[0]
        assert out == "" and said in line and frames.path in line


def test_a_tap_delivers_its_rotations(
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same captures as on a disk, once, also where it is run again or the upkeep goes on."""
    lake, here = f"{cluster}/lakes/tapped", str(tmp_path / "here")
    query = "select * exclude (day) from frames order by all"
    answers, counts = [], []
    for machine, where in (("first", lake), ("second", lake), ("third", here)):
        monkeypatch.setenv("DISSECTOR_LAKES", str(tmp_path / machine))
        assert run(["tap", "--replay", str(UNLOAD), "--lake", where, "--rotate", "20kB"]) == 0
        said = capsys.readouterr()[1]
        assert "rotations in the lake" in said and "waits" not in said
        assert run(["lake", "verify", where]) == 0
        capsys.readouterr()
        assert run(["lake", "list", where, "--json"]) == 0
        counts.append(len(capsys.readouterr()[0].splitlines()))
        assert run(["sql", "--lake", where, query, "--format", "csv"]) == 0
        answers.append(capsys.readouterr()[0])
    assert counts[0] > 2 and len({*counts}) == 1
    assert answers[0].count("\n") > 1000 and len({*answers}) == 1
    monkeypatch.setenv("DISSECTOR_LAKES", str(tmp_path / "first"))
    newer = Rotations(folder_of(lake), "eth0", {}, True, keep_days=2)
    newer.begin_run(77)
    rotate(newer)
    newer.close()
    assert newer.upkeep_problem is None
    assert run(["lake", "list", lake, "--json"]) == 0
    (left,) = capsys.readouterr()[0].splitlines()
    assert json.loads(left)["captures"][0].startswith("c-eth0-77-")


def test_rotations_wait_while_the_cluster_is_silent(
    cluster: str, process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissector.lake.mirror._base", lambda: tmp_path / "lakes")
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.5)
    lake = folder_of(f"{cluster}/lakes/silent")
    rotations = opened(lake)

    def delivered(count: int) -> bool:
        assert [fate.problem for fate in rotations.fates() if fate.problem] == []
        return rotations.landed == count and not ready_stages(lake)

    rotate(rotations)
    until(lambda: delivered(1))
    os.kill(process, signal.SIGSTOP)
    try:
        rotate(rotations)
        rotate(rotations)
        until(lambda: delivered(3) or len(ready_stages(lake)) == 2)
        assert len(ready_stages(lake)) == 2
    finally:
        os.kill(process, signal.SIGCONT)
    until(lambda: delivered(3))
    assert rotations.close() == [] and rotations.lost == 0
    with open_lake(lake) as found:
        assert len(found.captures) == 3 and verify(found) == []


def test_a_tap_that_is_killed_has_landed_all_that_was_on_disk(
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed_taps(f"{cluster}/lakes/killed", tmp_path, monkeypatch, capsys)


def test_a_lake_is_published_where_it_lies(
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As tables of Delta Lake; of Iceberg there are none, which one line says."""
    delta = pytest.importorskip("deltalake", reason="the extra publish is not installed")
    monkeypatch.setattr("dissector.lake.mirror._base", lambda: tmp_path / "lakes")
    lake = f"{cluster}/lakes/listed"
    counts = []
    for captures in ((UNLOAD,), (NACK,)):
        assert run(["land", *map(str, captures), "--lake", lake, "-q"]) == 0
        assert run(["lake", "publish", lake, "--delta"]) == 0
        counts.append(delta.DeltaTable(f"{lake}/frames").to_pyarrow_table().num_rows)
    assert counts == [1230, 1323]
    assert run(["lake", "rm", lake, "c-java-j12*"]) == 0
    assert run(["lake", "publish", lake, "--delta"]) == 0
    table = delta.DeltaTable(f"{lake}/frames")
    assert (table.version(), table.to_pyarrow_table().num_rows) == (2, 1230)
    capsys.readouterr()
    assert run(["lake", "publish", lake, "--iceberg", f"sqlite:///{tmp_path}/c.db"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "--delta" in err


def test_a_file_that_is_there_is_not_written_again(cluster: str) -> None:
    store = store_of(parsed(cluster))
    assert store.put_new("a/b/c", b"1") and not store.put_new("a/b/c", b"2")
    assert store.load("a/b/c") == b"1"
    assert [entry.path for entry in store.entries("a")] == [f"{cluster}/a/b/c"]
    store.delete(["a/b/c", "a/none"])
    with pytest.raises(FileNotFoundError):
        store.load("a/b/c")
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda n: store.put_new("a/race", bytes([n])), range(16)))
    assert sum(won) == 1 and store.load("a/race") == bytes([won.index(True)])
