"""sql: rows in every format, a prompt, and one clear line for what cannot be asked."""

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.dissector.lake.version_1 import as_version_1

COUNTS = "select topic, count(*) as sends, sum(message_count) as messages from sends group by topic"
TOPIC = "persistent://public/default/j12"


@pytest.fixture(scope="module")
def lake(tmp_path_factory, nacks_path):
    from dissector.cli.main import run

    folder = tmp_path_factory.mktemp("asked") / "lake"
    assert run(["land", str(nacks_path), "--lake", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def nacks_path():
    return Path(__file__).resolve().parents[3] / "captures/pulsar-apache/java-j12_nack.pcap"


def test_a_capture_is_asked_without_a_lake(command, nacks):
    found = command("sql", nacks, COUNTS)
    assert found.code == 0
    assert found.lines[-1].split() == [TOPIC, "20", "20"]
    assert "read 97 packets" in found.err


def test_formats_give_the_same_rows(command, lake):
    lines = command("sql", "--lake", lake, COUNTS, "--format", "jsonl").lines
    assert [json.loads(line) for line in lines] == [{"topic": TOPIC, "sends": 20, "messages": 20}]
    text = command("sql", "--lake", lake, COUNTS, "--format", "csv").out
    assert list(csv.DictReader(io.StringIO(text))) == [
        {"topic": TOPIC, "sends": "20", "messages": "20"}
    ]


def test_parquet_goes_to_a_redirection(process, lake):
    done = subprocess.run(
        [sys.executable, "-m", "dissector", "sql", "--lake", lake, COUNTS, "--format", "parquet"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert pq.read_table(pa.BufferReader(done.stdout)).column("sends").to_pylist() == [20]


def test_rows_go_to_a_file_that_is_new(command, lake, tmp_path):
    target = tmp_path / "rows.parquet"
    asked = ("sql", "--lake", lake, COUNTS, "--format", "parquet", "-o", target)
    assert command(*asked).code == 0
    assert pq.read_table(target).column("sends").to_pylist() == [20]
    assert "--force" in command(*asked).err
    assert command(*asked, "--force").code == 0
    failed = command(
        "sql", "--lake", lake, "select x", "--format", "csv", "-o", tmp_path / "no.csv"
    )
    assert failed.code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_lake_of_schema_version_1_gives_the_same_rows(command, lake, tmp_path):
    old = shutil.copytree(lake, tmp_path / "lake")
    as_version_1(old)
    query = "select capture, connection_id, frame_no, outcome from delivered order by frame_no"
    assert command("sql", "--lake", old, query).out == command("sql", "--lake", lake, query).out


def test_a_table_says_how_many_rows_it_leaves_out(command, lake):
    found = command("sql", "--lake", lake, "select frame_no from frames", "--rows", "5")
    assert len(found.lines) == 2 + 5
    assert "88 more rows" in found.err


def test_the_query_comes_from_a_file_or_from_standard_input(process, lake, tmp_path):
    (tmp_path / "q.sql").write_text("select 1 as one; select 2 as two")
    asked = process("sql", "--lake", lake, "-f", tmp_path / "q.sql", "--format", "jsonl")
    assert asked.lines == ['{"one":1}', '{"two":2}']
    asked = process("sql", "--lake", lake, "--format", "jsonl", stdin=b"select 3 as three")
    assert asked.lines == ['{"three":3}']


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("select 1",), "name captures to ask"),
        (("{nacks}", "select * from fraems"), 'Did you mean "frames"?'),
        (("--lake", "{lake}", "select", "1"), "put it in quotes"),
        (("--lake", "{lake}", "--capture", "c-x", "select 1"), "c-x is not in"),
        (("{nacks}", "--capture", "c-x", "select 1"), "name it with --lake"),
        (("--lake", "{lake}", ""), "the query is empty"),
    ],
    ids=["no input", "a wrong name", "no quotes", "no such capture", "no lake", "nothing"],
)
def test_what_cannot_be_asked_is_said(command, nacks, lake, arguments, words):
    found = command("sql", *(part.format(nacks=nacks, lake=lake) for part in arguments))
    assert found.code == 1
    assert words in found.err
    assert found.err.count("dissector: ") <= 1 + (str(nacks) in arguments)
    assert not found.out


def test_text_of_the_wire_does_not_reach_the_terminal_as_it_is(command, lake):
    found = command("sql", "--lake", lake, "select chr(27) || '[31mred' as text")
    assert "\x1b" not in found.out
    assert "\\x1b[31mred" in found.out


def test_on_a_terminal_there_is_a_prompt(lake, tmp_path):
    lines = b".tables\nselect count(*) as n\nfrom sends;\nselect nothing;\n.quit\n"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dissector", "sql", "--lake", lake],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"},
    )  # fmt: skip
    os.write(ours, lines)
    out, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0
    assert "wrong_checksums" in out.decode()
    assert "20" in out.decode()
    assert "nothing" in err.decode()
    kept = tmp_path / "pulsar-dissector" / "sql_history"
    assert kept.stat().st_mode & 0o777 == 0o600
