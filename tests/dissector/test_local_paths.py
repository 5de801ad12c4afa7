"""Addresses are refused but for captures, and leave no folder of such a name."""

import os
import subprocess
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.errors import UsageError
from dissector.local_paths import local, typed

ADDRESSES = (
    "s3a://bucket/lake", "s3://bucket", "S3A://b/l", "hdfs://host:8020/lake", "hdfs:///lake",
    "hdfs:/lake", "gs://bucket/x*", "abfss://c@a.dfs.core.windows.net/l", "wasbs://c@a/l",
    "file://host/lake", "http://host/x.pcap", "webhdfs://h/l", " s3a://b/l",
)  # fmt: skip


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is an address"):
        local(text)


@pytest.mark.parametrize(
    "text",
    ["a:b", "./a:b", "/lake/s3a:/x", "../hdfs:/x", "-", "", "x", "2026-01-31T12:00",
     "a b:/c", "4:/x", "select 's3a://b/l';", "C:\\x", "*.pcap", "n\u00e4chte:1"],
)  # fmt: skip
def test_names_with_a_colon_are_paths(text: str) -> None:
    assert local(text) == text


def test_a_folder_called_like_an_address_is_named_from_the_root() -> None:
    """Path drops the `./`, and pyarrow takes `hdfs:/lake` for an address."""
    assert local("./hdfs:/lake") == f"{Path.cwd()}/hdfs:/lake"


@pytest.mark.parametrize(
    "text", ["file:///a%20b/x.pcap", "file:/a%20b/x.pcap", "file://localhost/a b/x.pcap"]
)
def test_the_address_of_a_file_is_its_path(text: str) -> None:
    assert local(text) == "/a b/x.pcap"


FOUND = "s3a://bucket/there"  # where captures and lakes may be, and nothing else
NOWHERE = "ftp://host/x"  # no store that is known
COMMANDS = (
    ("land", "{sample}", "--lake", NOWHERE),
    ("land", NOWHERE, "--lake", "lake"),
    ("report", "--lake", NOWHERE, "-o", "report"),
    ("report", "--lake", "lake", "--output", FOUND),
    ("analyze", "{sample}", "-o", FOUND),
    ("analyze", NOWHERE, "-o", "out"),
    ("summary", NOWHERE),
    ("frames", "{sample}", "-w", FOUND),
    ("frames", NOWHERE),
    ("connections", NOWHERE),
    ("follow", NOWHERE, "--connection", "0"),
    ("sql", NOWHERE, "select 1;"),
    ("sql", "--lake", NOWHERE, "select 1;"),
    ("sql", "{sample}", "select 1 ", "--format", "csv", "-o", FOUND),
    ("sql", "{sample}", "-f", FOUND),
    ("tap", "--replay", NOWHERE),
    ("tap", "--replay", "{sample}", "--lake", NOWHERE),
    ("tap", "--replay", "{sample}", "--record", FOUND),
    *(("lake", name, NOWHERE) for name in ("list", "verify", "compact")),
    ("lake", "rm", NOWHERE, "*"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_ends_in_one_line_and_makes_nothing(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sample = Path(__file__).parents[2] / "captures/pulsar-apache/java-j12_nack.pcap"
    monkeypatch.chdir(tmp_path)
    assert run([word.format(sample=sample) for word in command]) == 1
    said = capsys.readouterr()
    refused = NOWHERE if NOWHERE in command else FOUND
    assert said.out == "" and said.err.count("\n") == 1 and f"{refused} is an address" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_lake_with_a_colon_in_its_name_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(__file__).parents[2] / "captures/pulsar-apache/java-j12_nack.pcap"
    monkeypatch.chdir(tmp_path)
    for name in ("a:b", "./hdfs:/lake"):
        assert run(["land", str(sample), "--lake", name, "-q"]) == 0
        assert run(["lake", "verify", name]) == 0
        assert run(["sql", "--lake", name, "select count(*) > 0 as any from frames;"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a:b", "hdfs:"}


def test_names_are_typed_as_a_shell_reads_them():
    assert [typed("a b.pcap"), typed("-a.pcap")] == ["'a b.pcap'", "./-a.pcap"]
    for name in ("a", "it's \\ \n\x1b", "l\udce9f", "\u200b'", "\x7f0"):
        told = subprocess.run(
            ["bash", "-c", f"printf %s {typed(name)}"], capture_output=True, check=True
        )
        assert told.stdout == os.fsencode(name) and typed(name).isprintable()
