"""Questions over a lake in a store read ranges: the rows of a lake on a disk, or one line."""

import errno
import random
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dissector import limits
from dissector.cli.main import run
from dissector.errors import InputError, UsageError
from dissector.lake import mirror, ranges
from dissector.lake.copies import copies_of
from dissector.lake.fetching import fetched
from dissector.lake.manifest import to_json
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import Sandbox, sandbox_over
from dissector.queries.selection import Selection
from dissector.schemas import TABLES
from dissector.storage import objects, progress
from tests.choosing import examples
from tests.dissector.lake.stored import ADDRESS, ROOT, Machines, copy_to_store, machines
from tests.dissector.storage.servers import BUCKET, failing_bucket

__all__ = ["machines"]

SAMPLES = Path(__file__).parents[3] / "captures/pulsar-apache"
SAMPLE = str(SAMPLES / "java-j12_nack.pcap")
FRAMES = 300_000
DAY_NS = 86_400_000_000_000
END = 3000  # bytes of a first look: files of samples are larger


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOOTER_BYTES", END)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two captures on a disk, one of them of several row groups."""
    folder = tmp_path_factory.mktemp("ranges")
    busy = str(folder / "busy.pcap")
    subprocess.run([sys.executable, "-m", "tests.busy", str(FRAMES), busy], check=True)
    assert run(["land", busy, SAMPLE, "--lake", str(folder / "lake"), "-q"]) == 0
    return folder / "lake"


@pytest.fixture
def stored(disk: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """The same lake in a store."""
    monkeypatch.setattr("tests.dissector.lake.stored.store_of", lambda _: machines.store)
    with machines.on("first"):
        copy_to_store(disk, ADDRESS)
    machines.store.asked.clear()
    return machines


def rows(engine: Sandbox, text: str) -> list[dict[str, Any]]:
    (answer,) = engine.answers(text)
    return [row for batch in answer.batches() for row in batch.to_pylist()]


def read_of(machines: Machines) -> Counter[str]:
    """How often each data file was asked for ranges, by its table and capture."""
    names = (each.split() for each in machines.store.asked)
    parts = (name.split("/") for what, name in names if what == "read")
    return Counter("/".join([each[2], each[4]]) for each in parts if each[2] in TABLES)


def ask(lake: Path, query: str, **options: Any) -> list[dict[str, Any]]:
    with (
        open_lake(lake) as opened,
        sandbox_over(opened, query=query, in_ranges=True, **options) as engine,
    ):
        return rows(engine, query)


def test_rows_are_those_of_a_lake_on_a_disk(stored: Machines, disk: Path) -> None:
    sums = "count(*) as n, sum(hash(t)), min(hash(t)), max(hash(t))"
    each = [f"select '{table}' as name, {sums} from {table} as t" for table in TABLES]
    query = f"{' union all '.join(each)} order by name"
    with stored.on("reader") as lake:
        found = ask(lake, query)
    assert found == ask(disk, query) and {row["name"] for row in found} == {*TABLES}
    assert sum(row["n"] for row in found) > FRAMES


def test_what_is_read_is_little_and_counted(stored: Machines, disk: Path) -> None:
    with stored.on("reader") as lake:
        sizes = [p.stat().st_size for p in (disk / "frames").rglob("*.parquet")]
        query = "select count(*) as n from frames"
        assert ask(lake, query) == ask(disk, query)
        size, of, requests = fetched(lake)
        assert of == sum(sizes) > 50 * size and requests == sum(read_of(stored).values())
        assert not [*lake.glob("*/*/*/*.parquet")]
        query = "select command, count(*) from frames group by all order by all"
        assert ask(lake, query) == ask(disk, query)
        assert fetched(lake).bytes < sum(sizes) / 10


def test_a_question_that_is_asked_again_asks_the_store_for_nothing(stored: Machines) -> None:
    query = "select command, sum(frame_bytes) from frames group by all order by all"
    with (
        stored.on("reader") as lake,
        open_lake(lake) as opened,
        sandbox_over(opened, query=query, in_ranges=True) as engine,
    ):
        found = rows(engine, query)
        stored.store.asked.clear()
        assert rows(engine, query) == found and stored.store.asked == []


def test_what_is_here_is_read_here(
    stored: Machines, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select count(*), sum(hash(e)) from exchanges as e"
    with stored.on("reader") as lake:
        with open_lake(lake) as opened:
            first = [copy for copy in copies_of(opened.captures[0])]
        mirror.fetch(lake, first)
        stored.store.asked.clear()
        assert ask(lake, query) == ask(disk, query)
        assert {name.partition("/")[0] for name in read_of(stored)} == {"exchanges"}
        assert len(read_of(stored)) == 1
    # A file that ends with its first look is fetched whole, once.
    monkeypatch.setattr(limits, "FOOTER_BYTES", 1 << 24)
    with stored.on("other") as lake:
        stored.store.asked.clear()
        assert ask(lake, query) == ask(disk, query)
        assert [*read_of(stored).values()] == [1, 1]
        assert len([*lake.glob("exchanges/*/*/*.parquet")]) == 2
        stored.store.asked.clear()
        assert ask(lake, query) == ask(disk, query) and not read_of(stored)


def test_captures_that_ended_before_the_time_are_not_read(stored: Machines) -> None:
    with stored.on("reader") as lake:
        with open_lake(lake) as opened:
            early, late = sorted(opened.captures, key=lambda each: each.last_ts_ns or 0)
        selection = Selection(since_ns=(early.last_ts_ns or 0) + 1)
        assert ask(lake, "select count(*) as n from frames", selection=selection)[0]["n"] > 0
        assert {name.partition("/")[2] for name in read_of(stored)} == {
            f"landing={late.capture_id}"
        }


def test_a_day_is_a_column_that_spares_files_of_other_days(
    disk: Path, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk and in a store; what no day says has none."""
    monkeypatch.setattr("tests.dissector.lake.stored.store_of", lambda _: machines.store)
    plain = tmp_path / "plain"
    (plain / "_manifest").mkdir(parents=True)
    with open_lake(disk) as opened:
        capture = next(each for each in opened.captures if "nack" in each.capture_id)
    first_ns = capture.first_ts_ns or 0
    for number in range(5):
        times = (None, None) if number == 4 else (first_ns + number * DAY_NS, first_ns + DAY_NS * 5)
        copied = capture._replace(
            capture_id=f"c-{number}", base_name=f"{number}",
            first_ts_ns=times[0], last_ts_ns=times[1],
        )  # fmt: skip
        for old, new in zip(copies_of(capture), copies_of(copied), strict=True):
            (plain / new[0]).parent.mkdir(parents=True)
            shutil.copy(disk / old[0], plain / new[0])
        (plain / f"_manifest/c-{number}.json").write_text(to_json(copied))
    with machines.on("first"):
        copy_to_store(plain, ADDRESS)
    each = sum(part.rows for part in capture.files if part.table == "frames")
    first = datetime.fromtimestamp(first_ns // 10**9, UTC).date()
    days = [first + timedelta(days=number) for number in range(4)]
    with open_lake(plain) as opened, sandbox_over(opened) as engine:
        for condition, found in (
            (f"day = '{days[1]}'", [1]),
            (f"day >= '{days[2]}'", [2, 3]),
            (f"day between '{days[0]}' and '{days[1]}'", [0, 1]),
            (f"day in ('{days[0]}', '{days[3]}')", [0, 3]),
            (f"day = date '{days[3]}' and command = 'SEND'", [3]),
            ("day is null", [4]),
            ("day = '2001-01-01'", []),
        ):
            query = f"select day, count(*) as n from frames where {condition} group by 1 order by 1"
            with machines.on(f"for {condition}") as lake:
                machines.store.asked.clear()
                answer = ask(lake, query)
            assert answer == rows(engine, query)
            assert [row["day"] for row in answer] == [None if n == 4 else days[n] for n in found]
            assert "SEND" in condition or all(row["n"] == each for row in answer)
            assert {name.partition("=")[2] for name in read_of(machines)} == {"c-0"} | {
                f"c-{number}" for number in found
            }, "the first tells which columns there are"
            (plan,) = rows(engine, f"explain analyze {query}")
            files = re.search(r"Total Files Read: (\d+)", str(plan))
            assert files is None or int(files[1]) <= len(found) + 1
            view = query.replace("frames", "sends").replace("command", "'SEND'")
            assert rows(engine, view) is not None


# -- what fails


class Failing:
    """Fails requests for data from one on: `before` of a store."""

    def __init__(self, first: int, error: OSError, last: int = 1 << 30) -> None:
        self.first, self.error, self.last, self.seen = first, error, last, 0

    def __call__(self, what: str, name: str) -> None:
        if what == "read" and "/_log/" not in name:
            self.seen += 1
            if self.first <= self.seen <= self.last:
                raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EIO, "503"), f"cannot read {ADDRESS}: 503"),
        (FileNotFoundError(errno.ENOENT, "none"), "is missing: it was removed meanwhile"),
        (OSError(errno.ESTALE, "it was changed while it was read"), "is not what its manifest say"),
    ],
)
def test_a_store_that_fails_at_any_request_is_one_line(
    stored: Machines, disk: Path, error: OSError, said: str
) -> None:
    query = "select topic, command, sum(frame_bytes) from frames group by all order by all"
    whole = Failing(1 << 30, error)
    stored.store.before = whole
    with stored.on("reader") as lake:
        truth = ask(lake, query)
    assert truth == ask(disk, query) and whole.seen > 6
    for first in {1, 2, 3, whole.seen // 2, whole.seen}:
        stored.store.before = Failing(first, error)
        with stored.on("reader") as lake, pytest.raises(InputError, match=re.escape(said)) as found:
            ask(lake, query)
        assert "\n" not in str(found.value)


def test_an_engine_goes_on_when_the_store_does(stored: Machines, disk: Path) -> None:
    query = "select topic, command, sum(frame_bytes) from frames group by all order by all"
    with (
        stored.on("reader") as lake,
        open_lake(lake) as opened,
        sandbox_over(opened, query=query, in_ranges=True) as engine,
    ):
        stored.store.before = Failing(1, OSError(errno.EIO, "503"))
        with pytest.raises(InputError, match="503"):
            rows(engine, query)
        with pytest.raises(UsageError, match="nosuch"):
            rows(engine, "select nosuch from frames")
        stored.store.before = lambda what, name: None
        assert rows(engine, query) == ask(disk, query)


def test_files_that_others_changed_are_never_mixed_with_what_was_read(
    stored: Machines, disk: Path
) -> None:
    """Other bytes of the same size, before or between two looks, more of them, or fewer."""
    query = "select topic, command, sum(frame_bytes) from frames group by all order by all"
    truth = ask(disk, query)
    names = [name for name in stored.store.data_files() if "/frames/" in name]
    begin = dict(stored.store.files)
    for change in (lambda d: d + b"x", lambda d: d[:-1], lambda d: b"", lambda d: d[:900]):
        stored.store.files = dict(begin)
        for name in names:
            data, changed_s = begin[name]
            stored.store.files[name] = change(data), changed_s
        with stored.on("reader") as lake, pytest.raises(InputError, match="not what its manifest"):
            ask(lake, query)
    stored.store.files = dict(begin)
    with (
        stored.on("reader") as lake,
        open_lake(lake) as opened,
        sandbox_over(opened, query=query, in_ranges=True) as engine,
    ):
        assert rows(engine, "select count(*) from frames")
        for name in names:
            stored.store.files[name] = begin[name][0], 1.0
        with pytest.raises(InputError, match="it was changed while it was read"):
            rows(engine, query)
    assert ask(disk, query) == truth


@pytest.mark.parametrize("is_small", [True, False])
def test_damaged_files_are_one_line(
    stored: Machines, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    """Of the same size: a short file by its digest, a long one by its structure."""
    if is_small:
        monkeypatch.setattr(limits, "FOOTER_BYTES", 1 << 24)
    for name, (data, changed_s) in [*stored.store.files.items()]:
        if "/frames/" in name:
            stored.store.files[name] = data[:-8] + b"\xff" * 8, changed_s
    said = "is not what its manifest says" if is_small else "a file of the lake cannot be read"
    with stored.on("reader") as lake, pytest.raises(InputError, match=said) as found:
        ask(lake, "select count(*) from frames")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("where", ["store", "disk"])
def test_no_bit_of_a_page_changes_a_number(
    stored: Machines, disk: Path, tmp_path: Path, where: str
) -> None:
    """Pages have checksums: what is read in ranges has no other digest."""
    query = "select sum(hash(e)) as h from exchanges as e"
    truth = ask(disk, query)
    shutil.copytree(disk, tmp_path / "copy")
    names = [name for name in stored.store.data_files() if "/exchanges/" in name]
    (path,) = (tmp_path / "copy").glob("exchanges/*/landing=c-busy*/*.parquet")
    (name,) = (each for each in names if "landing=c-busy" in each)
    data, changed_s = stored.store.files[name]
    footer = int.from_bytes(data[-8:-4], "little")
    chance, found = random.Random(1), 0
    count = examples(20, 8)
    for number in range(count):
        at = chance.randrange(4, len(data) - footer - 8)
        damaged = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        with stored.on(f"reader {number}") as lake:
            if where == "disk":
                path.write_bytes(damaged)
                lake = tmp_path / "copy"
            stored.store.files[name] = damaged, changed_s
            try:
                assert ask(lake, query) == truth  # of what is no page: indexes, filters
            except InputError as error:
                assert "a file of the lake cannot be read" in str(error)
                found += 1
    assert found >= count * 3 // 4


def test_users_reach_nothing_else_of_the_store(stored: Machines) -> None:
    with (
        stored.on("reader") as lake,
        open_lake(lake) as opened,
        sandbox_over(opened, in_ranges=True) as engine,
    ):
        stored.store.asked.clear()
        for query in (
            f"select * from read_text('{ADDRESS}/_log/0/000000000000.zst')",
            f"select * from read_parquet('{ADDRESS}/frames/*/*/*.parquet')",
            f"select * from read_csv('{ROOT}/other')",
            f"copy (select 1) to '{ADDRESS}/frames/x.parquet'",
            "select * from read_parquet('hdfs://host/x.parquet')",
        ):
            with pytest.raises(UsageError):
                rows(engine, query)
        assert stored.store.asked == []


def test_threads_read_one_file_each_at_a_place_of_its_own() -> None:
    data = bytes(range(256)) * 40

    class Whole:
        def read(self, path: str, start: int, end: int) -> bytes:
            return data[start:end]

    file = ranges._OpenFile(Whole(), "x", len(data))  # type: ignore[arg-type]
    wrong = []

    def read(start: int) -> None:
        for _ in range(2000):
            file.seek(start)
            if file.tell() != start or file.read(50) != data[start : start + 50]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(1000 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and file.seek(len(data) - 3) and file.read(50) == data[-3:]


def test_how_far_it_is_is_told_and_no_line_stays(stored: Machines) -> None:
    heard: list[tuple[int, int, str]] = []
    progress.listen(lambda *each: heard.append(each))
    try:
        with stored.on("reader") as lake:
            ask(lake, "select sum(hash(f)) from frames as f")
    finally:
        progress.listen(None)
    assert all(done <= total and where == ADDRESS for done, total, where in heard)
    assert any(0 < done < total for done, total, _ in heard) and heard[-1][0] == heard[-1][1]


# -- over a server


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [("", 0, ""), (503, 2, "503"), (404, 2, "is missing"), (403, 2, "refuses access")],
)
def test_the_command_says_it_in_one_line(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: int | str,
    code: int,
    said: str,
) -> None:
    """Names of folders may be patterns to others."""
    address = f"s3://{BUCKET}/la[k]e, *the second*"
    query = "select command, count(*) from frames group by all order by all"
    assert run(["sql", "--lake", str(disk), query]) == 0
    plain = capsys.readouterr()[0]
    asked: list[str] = []

    def fails(method: str, name: str) -> int | str:
        is_data = method == "GET" and name.endswith(".parquet")
        asked.extend([name] if is_data else [])
        return kind if is_data and len(asked) > 3 else ""

    monkeypatch.setitem(objects._RETRY, "max_retries", 1)
    monkeypatch.setattr(mirror, "_base", lambda: tmp_path / "lakes")
    with failing_bucket(fails):
        copy_to_store(disk, address)
        assert run(["sql", "--lake", address, query]) == code
    out, err = capsys.readouterr()
    assert out == ("" if code else plain)
    assert err.count("\n") == 1 and said in err, err
    if not code:
        assert re.search(rf"of [\d.]+ MB fetched from .* in {len(asked)} requests", err), err
