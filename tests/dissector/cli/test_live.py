"""Frames of an interface: printed as they come, until somebody ends it."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_INTERRUPTED
from dissector.cli.main import run
from tests.dissector.observed import CAPTURES, tables_of
from tests.dissector.tap.wire import Wire, frames_of, require, send, wire

CAPTURE = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
FIELDS = ("-T", "fields", "-e", "frame_no", "-e", "command", "-e", "topic")
SOON = 60.0  # compiled passes are loaded first


@contextlib.contextmanager
def printing(pair: Wire, *options: str) -> Iterator[subprocess.Popen]:
    """`frames -i` in the namespace of a wire, once its socket is open."""
    command = pair.dissector("frames", "-i", pair.tapped, *options)
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    try:
        end = time.monotonic() + SOON
        while pair.tapped not in opened(pair):
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < end, "no socket was opened"
            time.sleep(0.05)
        yield running
    finally:
        running.kill()
        running.communicate()


def opened(pair: Wire) -> list[str]:
    """The interfaces of the namespace that have packet sockets of rings."""
    table = subprocess.run(pair.command("cat", "/proc/net/packet"), capture_output=True, text=True,
                           check=True)  # fmt: skip
    numbers = [line.split()[4] for line in table.stdout.splitlines()[1:]]
    names = subprocess.run(pair.command("ip", "-o", "link"), capture_output=True, text=True,
                           check=True)  # fmt: skip
    found = dict(line.split(": ")[:2] for line in names.stdout.splitlines())
    return [found.get(number, "").partition("@")[0] for number in numbers]


def read(running: subprocess.Popen, lines: int) -> list[str]:
    """The first lines that it prints, which it has to print while it runs."""
    assert running.stdout is not None
    data, end = b"", time.monotonic() + SOON
    while data.count(b"\n") < lines:
        ready, _, _ = select.select([running.stdout], [], [], max(0, end - time.monotonic()))
        assert ready, f"{lines} lines did not come: {data!r}"
        piece = os.read(running.stdout.fileno(), 1 << 16)
        assert piece, running.communicate()
        data += piece
    return data.decode().splitlines()


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_frames_are_printed_as_they_come_and_are_those_of_a_file(number):
    require()
    packets, rows = frames_of(CAPTURE), tables_of(str(CAPTURE))["frames"]
    expected = ["\t".join((str(row["frame_no"]), row["command"], row["topic"] or ""))
                for row in rows]  # fmt: skip
    with wire() as pair, printing(pair, *FIELDS) as running:
        send(pair, packets[:20])
        first = read(running, 5)
        assert first == expected[: len(first)], "while it runs"
        send(pair, packets[20:])
        rest = read(running, len(rows) - len(first))
        running.send_signal(number)
        out, said = running.communicate(timeout=30)
    assert first + rest + out.decode().splitlines() == expected
    assert running.returncode == EXIT_INTERRUPTED
    last = said.decode().splitlines()[-2:]
    assert last[0].startswith(f"dissector: read {len(packets)} packets on {pair.tapped}: ")
    assert last[1] == f"dissector: {len(packets)} packets captured, 0 dropped by kernel"


@pytest.mark.root
def test_a_count_ends_it_and_lines_for_people_have_a_date():
    require()
    with wire() as pair, printing(pair, "-c", "2", "--bpf", "tcp port 6650") as running:
        send(pair, frames_of(CAPTURE))
        out, said = running.communicate(timeout=SOON)
    heading, *lines = out.decode().splitlines()
    assert running.returncode == 0 and len(lines) == 2
    assert heading.split()[:4] == ["no", f"{datetime.now(UTC):%Y-%m-%d}", "UTC", "packets"]
    assert "> CONNECT " in lines[0] and all(len(line) <= 100 for line in lines)
    assert "stopped after 2 rows, as -c says" in said.decode()


@pytest.mark.root
def test_a_reader_that_leaves_ends_it_quietly():
    require()
    with wire() as pair, printing(pair) as running:
        assert running.stdout is not None
        running.stdout.close()
        running.stdout = None
        send(pair, frames_of(CAPTURE))
        _, said = running.communicate(timeout=SOON)
    assert b"rror" not in said and running.returncode not in (2, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give INPUT... or -i IFACE"),
        ([str(CAPTURE), "-i", "lo"], "give INPUT... or -i IFACE, not both"),
        ([str(CAPTURE), "--bpf", "tcp"], "--bpf does nothing without -i IFACE"),
        (["-i", "lo", "-w", "x.pcapng"], "-w needs packets that can be read twice"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], sentence: str, capsys) -> None:
    assert run(["frames", *arguments]) == 1
    assert sentence in capsys.readouterr().err
    assert not Path("x.pcapng").exists()
