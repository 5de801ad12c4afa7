"""Commands over a lake in a bucket give what they give over one on a disk."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from dissector import limits
from dissector.cli.main import run
from dissector.lake import manifests, retention
from dissector.lake.mirror import folder_of
from dissector.lake.reader import open_lake
from tests.choosing import examples
from tests.dissector.storage.servers import BUCKET, SECRET, failing_bucket

SAMPLES = Path(__file__).parents[3] / "captures/pulsar-apache"
CAPTURES = [str(SAMPLES / f"{name}.pcap") for name in ("java-j24_unload", "java-j12_nack")]
LAKE = f"s3://{BUCKET}/some/lake"


@pytest.fixture
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """An empty bucket, and a machine that knows nothing of it."""
    store = S3Store(BUCKET, endpoint=server, client_options={"allow_http": True})
    for page in obstore.list(store):
        obstore.delete(store, [each["path"] for each in page])
    use(tmp_path / "first", monkeypatch)
    return store


@pytest.fixture
def quick_reports(no_plots: None, few_rules: None) -> None:
    """Pages without plots, numbers with some of the verdicts: `findings` asks all rules."""


def use(machine: Path, patch: pytest.MonkeyPatch) -> None:
    """Work on a machine of its own: lakes are copied there."""
    patch.setattr("dissector.lake.mirror._base", lambda: machine / "lakes")


def names_in(store: S3Store) -> list[str]:
    return sorted(each["path"] for page in obstore.list(store) for each in page)


@pytest.mark.usefixtures("quick_reports")
def test_commands_say_the_same(
    bucket: S3Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = str(tmp_path / "here")

    def said(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments])
        out, err = capsys.readouterr()
        lines = [line for line in err.splitlines() if " fetched from " not in line]
        return code, out, "\n".join(lines)

    def both(*arguments: str) -> str:
        """What a command says of the lake in the bucket; of that on the disk it says the same."""
        stored = said(*(LAKE if each == "LAKE" else each for each in arguments))
        plain = said(*(here if each == "LAKE" else each for each in arguments))
        assert stored == (0, plain[1].replace(here, LAKE), plain[2].replace(here, LAKE))
        return stored[1]

    assert both("land", *CAPTURES, "--lake", "LAKE", "-v").count("\n") == 2
    both("land", *CAPTURES, "--lake", "LAKE", "-v")
    use(tmp_path / "second", monkeypatch)
    both("land", CAPTURES[1], "--lake", "LAKE", "-v")
    both("lake", "list", "LAKE")
    both("lake", "list", "LAKE", "--json")
    both("sql", "--lake", "LAKE", "select capture, count(*) from frames group by 1 order by 1")
    both("summary", "--lake", "LAKE", "--json")
    both("findings", "--lake", "LAKE")
    use(tmp_path / "third", monkeypatch)
    for lake, output in ((LAKE, "there"), (here, "here-too")):
        assert run(["report", "--lake", lake, "-o", str(tmp_path / output), "-q"]) == 0
    capsys.readouterr()
    report = (tmp_path / "there/report.json").read_bytes()
    assert report == (tmp_path / "here-too/report.json").read_bytes()
    page = (tmp_path / "there/report.html").read_text()
    assert str(tmp_path / "third") not in page
    capsys.readouterr()
    both("lake", "verify", "LAKE")
    both("lake", "compact", "LAKE")
    use(tmp_path / "fourth", monkeypatch)
    both("lake", "list", "LAKE")
    both("lake", "verify", "LAKE")
    both("land", *CAPTURES, "--lake", "LAKE", "-v")
    both("lake", "keep", "LAKE", "1d")
    both("lake", "list", "LAKE")
    both("land", *CAPTURES, "--lake", "LAKE", "-v")
    both("lake", "rm", "LAKE", "c-java-j12*")
    both("lake", "rm", "LAKE", "--before", "2027-01-01")
    code, _, words = said("lake", "tidy", LAKE)
    assert code == 0 and "0 files removed" in words and "of the last day stay" in words
    for name in names_in(bucket):
        assert SECRET.encode() not in bytes(obstore.get(bucket, name).bytes())
    copies = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in copies)


@pytest.mark.usefixtures("quick_reports")
@pytest.mark.parametrize("by", ["land", "report"])
def test_crowded_days_are_put_together_as_on_a_disk(
    bucket: S3Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by: str,
) -> None:
    said = []
    for lake in (str(tmp_path / "here"), LAKE):
        with monkeypatch.context() as patch:
            if by == "report":
                assert run(["land", *CAPTURES, "--lake", lake, "-q"]) == 0
            patch.setattr(manifests, "MAX_DAY_LANDINGS", 1)
            patch.setattr(retention, "MAX_DAY_LANDINGS", 4)
            use(tmp_path / f"second {len(said)}", monkeypatch)
            capsys.readouterr()
            output = str(tmp_path / f"report-{len(said)}")
            run([by, *([*CAPTURES] if by == "land" else ["-o", output]), "--lake", lake])
        said.append([x for x in capsys.readouterr()[1].splitlines() if "compacted" in x])
        assert run(["lake", "list", lake, "--json"]) == 0
        (listed,) = [json.loads(line) for line in capsys.readouterr()[0].splitlines()]
        assert len(listed["captures"]) == 2
        assert run(["lake", "verify", lake]) == 0
    assert said[0] == said[1] and len(said[0]) == 1


def test_what_cannot_be_is_one_line(
    bucket: S3Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, said in (
        (["lake", "list", LAKE], "is not a lake: it has no captures"),
        (["report", "--lake", LAKE, "-o", str(tmp_path / "r")], "is not a lake"),
        (["sql", "--lake", "s3://none/lake", "select 1"], "there is no such bucket"),
        (["report", "--lake", LAKE, "-o", f"s3://{BUCKET}/r"], "lies on this machine"),
        (["tap", "--replay", CAPTURES[1], "--lake", "s3://none/lake"], "no such bucket; make it"),
        (["lake", "list", "ftp://x/lake"], "is an address"),
        (["land", CAPTURES[1], "--lake", "s3://none/lake"], "no such bucket; make it"),
    ):
        assert run(arguments) != 0
        out, err = capsys.readouterr()
        assert out == "" and said in err and SECRET not in err, err
        assert "Traceback" not in err and len(err.splitlines()) <= 3


LANDER = """
import sys
from contextlib import suppress
from pathlib import Path
from dissector.errors import UsageError
from dissector.lake import mirror
from dissector.lake.compact import compact
from dissector.lake.reader import remove
from tests.dissector.lake.landed import content, land
base, address, seed = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
mirror._base = lambda: base / "lakes"
lake = mirror.folder_of(address)
mirror.refresh(lake)
print("began", flush=True)
for number in range(1000):
    land(lake, f"new-{seed}-{number}", content(300 + number))
    land(lake, "same", content(400), options={"x": number})
    with suppress(UsageError):  # the other one did it
        if number % 2 == 1:
            compact(lake, ["c-new-*"])
        if number % 3 == 2:
            remove(lake, ["compact-*"])
    print("again", flush=True)
"""


def test_two_landers_that_are_killed_leave_a_whole_lake(
    bucket: S3Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(1)
    for round_no in range(2):
        landers = []
        for name in ("a", "b"):
            where = str(tmp_path / name)
            command = [sys.executable, "-c", LANDER, where, LAKE, f"{name}{round_no}"]
            landers.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)))
        for lander in landers:
            assert lander.stdout is not None and lander.stdout.readline() == b"began\n"
        for lander in landers:
            for _ in range(chance.randrange(1, 4)):
                assert lander.stdout is not None and lander.stdout.readline() == b"again\n"
            time.sleep(chance.uniform(0, 0.2))
            lander.kill()
        for lander in landers:
            lander.communicate()
    for machine in ("a", "b", "fresh"):
        use(tmp_path / machine, monkeypatch)
        assert run(["lake", "verify", LAKE]) == 0
        capsys.readouterr()
        assert run(["lake", "list", LAKE, "--json"]) == 0
        listed = [json.loads(line) for line in capsys.readouterr()[0].splitlines()]
        inside = [name for each in listed for name in each["captures"]]
        assert len(inside) == len(set(inside)) > 0
    assert run(["land", *CAPTURES, "--lake", LAKE, "-q"]) == 0
    shutil.rmtree(tmp_path / "fresh")
    assert run(["lake", "verify", LAKE]) == 0


@pytest.mark.parametrize("seed", range(examples(3, 1)))
def test_a_server_that_fails_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each request fails once, in one of many ways, before or after what it asked was done."""
    kinds = (503, 500, 429, "cut", "lost", "half", "late")
    monkeypatch.setattr(limits, "STORE_TIMEOUT_SECONDS", 1)
    seen: set[tuple[str, str]] = set()
    failed: set[int | str] = set()

    def fails(method: str, name: str) -> int | str:
        if (method, name) in seen:
            return ""
        seen.add((method, name))
        plain = re.sub(r"[.][0-9a-f]{12}[.]", ".", name)
        kind = kinds[zlib.crc32(f"{method} {plain} {seed}".encode()) % len(kinds)]
        failed.add(kind)
        return kind

    use(tmp_path / "one", monkeypatch)
    with failing_bucket(fails) as files:
        for capture in (*CAPTURES, CAPTURES[0]):
            assert run(["land", capture, "--lake", LAKE, "-q"]) == 0
        use(tmp_path / "two", monkeypatch)
        assert run(["lake", "verify", LAKE]) == 0
        with open_lake(folder_of(LAKE)) as opened:
            names = {each.base_name for each in opened.captures}
            count = sum(len(each.files) for each in opened.captures)
        assert names == {Path(each).name.replace(".", "-") for each in CAPTURES}
        assert len([name for name in files if "/_log/" not in name]) == count
        assert len(files) == count + 2, "what was there already is not landed again"
        assert run(["lake", "rm", LAKE, "*"]) == 0
        assert run(["lake", "list", LAKE]) == 0
    assert failed == {*kinds}
