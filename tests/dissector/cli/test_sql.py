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

from dissector.cli.sql import columns_that_fit
from tests.dissector.lake.older_versions import as_version_1

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
    result = command("sql", nacks, COUNTS)
    assert result.code == 0
    assert result.lines[-1].split() == [TOPIC, "20", "20"]
    assert "read 97 packets" in result.err


@pytest.mark.usefixtures("few_rules")
def test_a_capture_that_is_in_the_lake_twice_is_named(command, nacks, tmp_path):
    """Numbers and findings count it once, and say so; sql has the rows of both."""
    shutil.copy(nacks, tmp_path / "same.pcap")
    (first,) = command("land", nacks, "--lake", tmp_path / "lake").lines
    (second,) = command("land", tmp_path / "same.pcap", "--lake", tmp_path / "lake").lines
    asked = ("sql", "--lake", tmp_path / "lake", COUNTS)
    result = command(*asked)
    assert result.lines[-1].split() == [TOPIC, "40", "40"]
    assert f"rows of {second} are there twice: all its files are in {first}, too" in result.err
    assert "twice" not in command(*asked, "--capture", first).err
    # Also where the report is kept; whichever findings are asked for.
    for counting in (("summary",), ("summary",), ("findings", "--code", "D01")):
        result = command(*counting, "--lake", tmp_path / "lake")
        assert f"{second} is not counted: all its files are in {first}" in result.err
        result = command(*counting, "--lake", tmp_path / "lake", "--capture", second)
        assert "all its files" not in result.err
        chosen = ("--capture", first, "--capture", second)
        result = command(*counting, "--lake", tmp_path / "lake", *chosen)
        assert f"rows of {second} are there twice: all its files are in {first}, too" in result.err
    compared = command("compare", tmp_path / "lake", tmp_path / "lake")
    assert compared.err.count(f"{second} is not counted: all its files are in {first}") == 2


def test_the_query_may_come_first(command, nacks):
    query = "select count(*) from frames"
    first, last = command("sql", query, nacks), command("sql", nacks, query)
    assert first.code == 0 and first.lines == last.lines


def test_a_query_may_be_longer_than_a_path(command, nacks):
    long = f"select 1 as one{' ' * 5000}"
    assert command("sql", nacks, long, "--format", "csv").lines == ["one", "1"]


def test_a_part_is_all_there_is_to_ask_and_how_it_is_made_nobody_sees(command, lake):
    """Ready views, and a ready view's own query, have the part's rows; no further table shows."""
    there = command("sql", "--lake", lake, "show tables", "--format", "csv").out
    part = ("--since", "2026-11-21T09:46:20", "--client", "10.78.0.1", "--topic", "j12")
    assert command("sql", "--lake", lake, "show tables", *part, "--format", "csv").out == there
    counts = "select (select count(*) from sends), (select count(*) from sends where ts >= {})"
    asked = counts.format("timestamptz '2026-11-21 09:46:20+00'")
    whole = command("sql", "--lake", lake, asked, "--format", "csv").lines[1]
    within = command("sql", "--lake", lake, asked, *part, "--format", "csv").lines[1]
    assert whole == "20,10" and within == "10,10"


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
    result = command("sql", "--lake", lake, "select frame_no from frames", "--rows", "5")
    assert len(result.lines) == 2 + 5
    assert "88 more rows" in result.err


def test_the_query_comes_from_a_file_or_from_standard_input(command, process, lake, tmp_path):
    (tmp_path / "q.sql").write_text("select 1 as one; select 2 as two")
    asked = command("sql", "--lake", lake, "-f", tmp_path / "q.sql", "--format", "jsonl")
    assert asked.lines == ['{"one":1}', '{"two":2}']
    asked = process("sql", "--lake", lake, "--format", "jsonl", stdin=b"select 3 as three")
    assert asked.lines == ['{"three":3}']


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("select 1",), "name captures, or a lake"),
        (("{nacks}", "select * from fraems"), 'Did you mean "frames"?'),
        (("--lake", "{lake}", "select", "1"), "put it in quotes"),
        (("--lake", "{lake}", "--capture", "c-x", "select 1"), "c-x is not in"),
        (("{nacks}", "--capture", "c-x", "select 1"), "name it with --lake"),
        (("--lake", "{lake}", ""), "the query is empty"),
    ],
    ids=["no input", "a wrong name", "no quotes", "no such capture", "no lake", "nothing"],
)
def test_what_cannot_be_asked_is_said(command, nacks, lake, arguments, words):
    result = command("sql", *(part.format(nacks=nacks, lake=lake) for part in arguments))
    assert result.code == 1
    assert words in result.err
    assert result.err.count("dissector: ") <= 1 + (str(nacks) in arguments)
    assert not result.out


def test_text_of_the_wire_does_not_reach_the_terminal_as_it_is(command, lake):
    result = command("sql", "--lake", lake, "select chr(27) || '[31mred' as text")
    assert "\x1b" not in result.out
    assert "\\x1b[31mred" in result.out


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


VALUES = [
    ("'nan'::double", "nan", "nan"),
    ("'-inf'::float", "-inf", "-inf"),
    ("{'x': 'inf'::double}", '{"x":"inf"}', {"x": "inf"}),
    ("0.12345678901234567890123::decimal(30,23)",) + ("0.12345678901234567890123",) * 2,
    ("1.50::decimal(10,2)", "1.5", 1.5),
    ("make_timestamp_ns(1577836800123456789)",) + ("2020-01-01T00:00:00.123456789Z",) * 2,
    (
        "[make_timestamp_ns(1577836800123456789)]",
        *("['2020-01-01 00:00:00.123456789']", "['2020-01-01 00:00:00.123456789']"),
    ),
    ("timestamp '2020-01-01 00:00:02' - timestamp '2020-01-01'",) + ("00:00:02",) * 2,
    ("'0101'::bit", "0101", "0101"),
    ("union_value(a := 1)", "1", "1"),
    ("map{'a': 1}", '{"a":1}', {"a": 1}),
    ("[1, null]", "[1,null]", [1, None]),
]


def test_values_of_every_type_are_readable_in_every_format(command, lake, tmp_path):
    columns = ", ".join(f"{expression} as v{n}" for n, (expression, _, _) in enumerate(VALUES))
    asked = ("sql", "--lake", lake, f"select {columns}", "--format")
    line = command(*asked, "jsonl").lines[-1]
    values = json.loads(line, parse_constant=pytest.fail)
    assert [*values.values()] == [value for _, _, value in VALUES]
    cells = list(csv.reader(command(*asked, "csv").lines))[-1]
    assert [cell.removeprefix("'") for cell in cells] == [text for _, text, _ in VALUES]
    assert command(*asked, "parquet", "-o", tmp_path / "v.parquet").code == 0
    assert pq.read_metadata(tmp_path / "v.parquet").num_rows == 1


@pytest.mark.parametrize(("expression", "text"), [each[:2] for each in VALUES])
def test_values_of_every_type_are_readable_in_a_table(command, lake, expression, text):
    assert command("sql", "--lake", lake, f"select {expression} as v").lines[-1].strip() == text


@pytest.mark.parametrize("far", ["'infinity'::timestamp", "date '90000-01-01'"])
def test_a_time_that_no_calendar_knows_is_no_internal_error(command, lake, far):
    result = command("sql", "--lake", lake, f"select {far} as v")
    assert result.code == 1
    assert "v::varchar" in result.err and "internal" not in result.err


def test_columns_of_one_name_are_all_there(command, lake, tmp_path):
    query = "select 1 as a, 2 as a, 3 as a_1, make_timestamp_ns(0) - make_timestamp_ns(0) as a"
    (line,) = command("sql", "--lake", lake, query, "--format", "jsonl").lines
    assert json.loads(line) == {"a": 1, "a_1": 2, "a_1_1": 3, "a_2": "00:00:00"}
    rows = tmp_path / "a.parquet"
    command("sql", "--lake", lake, query, "--format", "parquet", "-o", rows)
    assert pq.read_schema(rows).names == ["a", "a_1", "a_1_1", "a_2"]


def _cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:100])


def _link(part: Path) -> None:
    part.symlink_to(part.rename(part.parents[3] / "elsewhere.parquet"))


def _pipe(part: Path) -> None:
    part.unlink()
    os.mkfifo(part)


@pytest.mark.parametrize("change", [_cut, _link, _pipe])
def test_files_of_a_lake_that_are_none_are_named_and_not_waited_for(
    command, lake, tmp_path, change
):
    odd = shutil.copytree(lake, tmp_path / "lake")
    change(next((odd / "frames").glob("*/*/*.parquet")))
    result = command("sql", "--lake", odd, "select count(*) from frames")
    assert result.code == 2
    assert "dissector lake verify" in result.err and "internal" not in result.err
    verified = command("lake", "verify", odd)
    assert verified.code == 3
    assert "frames" in verified.out + verified.err


@pytest.mark.parametrize(
    ("widths", "room", "shown"),
    [
        ([5, 5, 5], 21, [0, 1, 2]),
        ([5] * 10, 33, [0, 1, None, 8, 9]),
        ([5] * 10, 30, [0, 1, None, 9]),
        ([500, 5, 500], 100, [0, 1, 2]),
        ([500, 5, 500], 60, [0, None]),
        ([90], 20, [0]),
        ([], 80, []),
    ],
)
def test_columns_in_the_middle_are_left_out_where_there_is_no_room(widths, room, shown):
    assert columns_that_fit(widths, room) == shown


@pytest.mark.parametrize(
    ("options", "environment", "has_color"),
    [
        ((), {}, False),  # no terminal
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),  # who asks for it gets it
        (("--color", "never"), {}, False),
    ],
)
def test_headings_are_coloured_as_all_output(
    command, lake, monkeypatch, options, environment, has_color
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = command("sql", "--lake", lake, "select 1 as one", *options)
    assert ("\x1b[" in result.out) == has_color and "one" in result.out
