"""A part of what is read: the options of all commands, and what they leave of real captures.

What is left is counted here in plain Python over the rows of the whole, and over the packets of a
part where a client is one connection.
"""

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from dissector.cli.document import all_commands
from dissector.cli.exits import EXIT_OK, EXIT_USAGE
from dissector.cli.selecting import SELECTING
from tests.dissector.cli.conftest import SAMPLES, Command
from tests.dissector.joining.cutting import parts
from tests.dissector.observed import tables_of

pytestmark = pytest.mark.usefixtures("few_rules")

# Of two consumers of one subscription on two connections one dies.
KILLED = SAMPLES / "cpp-c40_killed_Shared.pcap"
RESTART = SAMPLES / "java-j73_broker_restart-bem.pcap"
BORDERS = ("2026-11-21T09:52:39", "2026-11-21T09:52:45.25", "2026-11-21T10:52:50.1+01:00")
READING = (
    "land", "report", "analyze", "summary", "findings", "compare", "sql", "frames", "connections",
    "follow", "evidence", "anonymize", "tap",
)  # fmt: skip


def rows(command: Command, name: str, *arguments: object) -> list[dict[str, Any]]:
    result = command(name, "-T", "jsonl", "-q", *arguments)
    assert result.code == EXIT_OK, result.err
    return [json.loads(line) for line in result.lines]


def test_all_commands_that_read_take_these_options_or_refuse_them_with_a_sentence() -> None:
    commands = {name.removeprefix("dissector "): each for name, each in all_commands()}
    for name in READING:
        there = {option: each for each in commands[name].params for option in each.opts}
        for option in ("--since", "--until", "--topic", "--subscription", "--client"):
            assert option in there, f"{name} {option}"
        assert "--local-time" in there
    others = {
        name for name, each in commands.items()
        if name not in READING
        and {"--since", "--client"} & {option for each in each.params for option in each.opts}
    }  # fmt: skip
    assert not others, "a command that reads nothing takes them"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("land", "summary or report --lake"), ("tap", "--bpf"), ("anonymize", "evidence"),
        ("follow", "dissector connections"), ("compare", "report --since"),
    ],
)  # fmt: skip
def test_what_a_command_does_not_take_it_refuses_and_says_what_does(
    command: Command, name: str, instead: str
) -> None:
    of_command = next(each for full, each in all_commands() if full == f"dissector {name}")
    refused = [each for each in of_command.params if isinstance(each, click.Option) and each.hidden]
    assert refused
    values = {"--since": "-30m", "--until": "2026-01-31", "--client": "10.0.0.1"}
    for option in refused:
        result = command(name, "x.pcap", option.opts[0], values.get(option.opts[0], "t"))
        assert result.code == EXIT_USAGE and instead in result.err, result.err
        assert len(result.err.splitlines()) == 1


def test_frames_of_windows_are_those_that_end_in_them_and_together_all(command: Command) -> None:
    whole = rows(command, "frames", RESTART, "-e", "frame_no,last_ts_ns")
    limits = [None, *BORDERS, None]
    found = []
    for since, until in pairwise(limits):
        asked = [*(["--since", since] if since else []), *(["--until", until] if until else [])]
        part = rows(command, "frames", RESTART, "-e", "frame_no,last_ts_ns", *asked)
        found += part
        query = "select count(*) as frames, count(distinct frame_no) as numbers from frames"
        counted = command("sql", "-q", "--format", "jsonl", RESTART, query, *asked)
        assert json.loads(counted.out) == {"frames": len(part), "numbers": len(part)}
    assert found == whole
    second = 1_795_254_759_000_000_000  # 2026-11-21T09:52:39Z
    before = [row for row in whole if row["last_ts_ns"] < second]
    assert before and len(before) == len(rows(command, "frames", RESTART, "--until", BORDERS[0]))


def test_relative_times_count_back_from_the_last_packet(command: Command) -> None:
    end = max(row["last_ts_ns"] for row in tables_of(str(RESTART))["connections"])
    expected = [
        row["frame_no"]
        for row in tables_of(str(RESTART))["frames"]
        if end - 17_000_000_000 <= row["last_ts_ns"] < end - 16_500_000_000
    ]
    assert expected
    asked = ("--since", "-17s", "--until", "-16.5s")
    assert [row["frame_no"] for row in rows(command, "frames", RESTART, *asked)] == expected
    query = "select frame_no from frames order by frame_no"
    result = command("sql", "-q", "--format", "jsonl", RESTART, query, *asked)
    assert [json.loads(line)["frame_no"] for line in result.lines] == expected


def test_a_pipe_has_no_end_to_count_back_from(process: Command) -> None:
    result = process("frames", "-", "--since", "-30m", stdin=KILLED.read_bytes())
    assert result.code == EXIT_USAGE and "which a pipe does not tell" in result.err


def packets_of(port: int, capture: bytes) -> bytes:
    """The packets of a pcap of Ethernet and IPv4 that come from a port or go to it."""
    assert capture[:4] == b"\xd4\xc3\xb2\xa1" and capture[20] == 1
    kept, at = capture[:24], 24
    while at < len(capture):
        (size,) = struct.unpack_from("<I", capture, at + 8)
        packet = capture[at + 16 : at + 16 + size]
        transport = 14 + 4 * (packet[14] & 15)
        if port in struct.unpack_from(">HH", packet, transport):
            kept += capture[at : at + 16 + size]
        at += 16 + size
    return kept


def totals(report: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a report that name no packets, frames and connections of their capture."""
    coverage, redelivery = report["coverage"]["total"], report["redelivery"]["total"]
    return {
        **{name: report["send_latency"]["total"][name] for name in ("outcomes", "latency_ms")},
        "permits": report["permit_utilization"]["by_subscription"],
        **{name: coverage[name] for name in ("connections", "frames", "frames_by_status")},
        # What was handed to another connection before is known where both are read.
        **{name: redelivery[name] for name in ("deliveries", "messages")},
    }


@pytest.mark.parametrize("sent", [48, 83], ids=["the first", "the last"])
def test_a_client_of_one_connection_is_the_capture_cut_to_it(
    command: Command, tmp_path: Path, sent: int
) -> None:
    (own,) = (
        row for row in tables_of(str(RESTART))["connections"] if row["frames_to_broker"] == sent
    )
    client, part = f"{own['client_ip']}:{own['client_port']}", tmp_path / "part.pcap"
    part.write_bytes(packets_of(own["client_port"], RESTART.read_bytes()))
    columns = ("-e", "command,topic,last_ts_ns,frame_bytes")
    left = rows(command, "frames", RESTART, *columns, "--client", client)
    assert left == rows(command, "frames", part, *columns) and len(left) > sent
    assert len(rows(command, "connections", RESTART, "--client", client)) == 1
    assert len(rows(command, "connections", RESTART, "--client", "10.79.0.0/16")) == 11
    one = json.loads(command("summary", "--json", "-q", RESTART, "--client", client).out)
    other = json.loads(command("summary", "--json", "-q", part).out)
    assert one["selection"]["clients"] == [client]
    assert totals(one) == totals(other)


def test_subscriptions_and_topics_leave_what_is_about_them(command: Command) -> None:
    frames = tables_of(str(KILLED))["frames"]
    expected = [row["frame_no"] for row in frames if row["subscription"] == "sub"]
    assert expected and len(expected) < len(frames)
    found = rows(command, "frames", KILLED, "--subscription", "sub")
    assert [row["frame_no"] for row in found] == expected
    report = json.loads(command("summary", "--json", "-q", KILLED, "--subscription", "sub").out)
    assert report["send_latency"]["total"]["sends"] == 0, "a send has no subscription"
    deliveries = tables_of(str(KILLED))["deliveries"]
    assert report["redelivery"]["total"]["deliveries"] == len(deliveries)
    of_topic = rows(command, "connections", KILLED, "--topic", "cpp-kill-Shared")
    spoken = {row["connection_id"] for row in frames if row["topic"]}
    assert {row["connection_id"] for row in of_topic} == spoken


@pytest.mark.parametrize(
    ("asked", "published"),
    [
        ((), (3, 2)),
        (("--topic", "j16"), (3, 2)),
        (("--topic", "j16-DLQ"), (3, 0)),
        (("--subscription", "sub"), (3, 2)),
        (("--subscription", "dlqsub"), (0, 0)),
        (("--topic", "j16", "--subscription", "sub"), (3, 2)),
        (("--topic", "j16", "--until", "-2s"), (0, 0)),
    ],
    ids=lambda given: " ".join(map(str, given)) or "everything",
)
def test_letters_belong_to_the_topic_and_subscription_they_came_from(
    command: Command, asked: tuple[str, ...], published: tuple[int, int]
) -> None:
    letters = SAMPLES / "java-j16_dlq_retry.pcap"
    report = json.loads(command("summary", "--json", "-q", letters, *asked).out)
    total = report["redelivery"]["total"]
    assert (total["dead_letter_publishes"], total["retry_publishes"]) == published


def test_frames_before_their_names_are_counted(command: Command, tmp_path: Path) -> None:
    """Of a capture that begins within, ledgers tell topics late: what was passed is said."""
    whole = SAMPLES.parent / "pulsar" / "cpp-s22_multi_one_conn.pcap"
    path = tmp_path / "behind.pcap"
    path.write_bytes(parts(whole.read_bytes(), [54])[1])
    asked = path, "--topic", "m0"
    listed = command("frames", "-q", "-T", "fields", "-e", "frame_no", *asked)
    all_of_them = "select frame_no from frames order by frame_no"
    expected = command("sql", "-q", "--format", "csv", *asked, all_of_them).lines[1:]
    assert listed.code == EXIT_OK and {*listed.lines} < {*expected}
    missing = len(expected) - len(listed.lines)
    assert f"without {missing} frames whose topic or subscription was told only" in listed.err
    undamaged = command("frames", "-q", "-T", "fields", "-e", "frame_no", whole, "--topic", "m0")
    assert undamaged.err == ""


def test_what_is_selected_stands_before_the_numbers(command: Command) -> None:
    asked = ("--topic", "j73", "--client", "10.79.0.1", "--until", "2026-11-21T09:52:45")
    said = "selected: up to 2026-11-21T09:52:45.000000Z, topic j73, client 10.79.0.1"
    assert command("summary", "-q", RESTART, *asked).lines[1] == said
    assert command("findings", "-q", RESTART, *asked).lines[0] == said


def test_bytes_of_a_time_are_those_captured_in_it(command: Command) -> None:
    asked = ("follow", "-q", RESTART, "--connection", "0", "-T", "jsonl")
    whole = [json.loads(line) for line in command(*asked).lines]
    part = [json.loads(line) for line in command(*asked, "--until", BORDERS[0]).lines]
    rest = [json.loads(line) for line in command(*asked, "--since", BORDERS[0]).lines]
    assert part + rest == whole and part and rest
    assert max(row["ts_ns"] for row in part) < min(row["ts_ns"] for row in rest)


def test_times_are_shown_and_read_where_the_clock_of_tz_is(
    command: Command, process: Command
) -> None:
    asked = ("--since", "2026-11-21T10:52:50", "--local-time", "-q", "-c", "1")
    result = process("frames", RESTART, *asked, TZ="Europe/Berlin")
    assert " 10:52:50.0" in result.lines[1] and "11-21 +01:00 " in result.lines[0]
    utc = command("frames", RESTART, *asked[2:], "--since", "2026-11-21T09:52:50")
    assert utc.lines[1].split()[2:] == result.lines[1].split()[2:]
    rows = process("frames", RESTART, *asked, "-T", "jsonl", "-e", "ts", TZ="Europe/Berlin")
    assert json.loads(rows.out)["ts"].startswith("2026-11-21T09:52:50.") and "Z" in rows.out


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (("--client", "kafka"), "is no address"), (("--client", "10.0.0.1:70000"), "is no address"),
        (("--since", "2026-02-30"), "is no time"), (("--since", "-3m", "--until", "-5m"), "before"),
        (("--since", "2026-01-02", "--until", "2026-01-01"), "is not before --until"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_meant_is_told(command: Command, given: tuple[str, ...], wrong: str) -> None:
    for name in ("frames", "summary"):
        result = command(name, "-q", KILLED, *given)
        assert result.code == EXIT_USAGE and wrong in result.err and not result.out


def test_each_option_is_declared_once() -> None:
    assert set(SELECTING) == {"since", "until", "topics", "subscriptions", "clients"}
