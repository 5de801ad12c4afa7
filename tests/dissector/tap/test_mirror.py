"""Real TCP between two hosts, mirrored to the tap by traffic control, a tcpdump beside."""

import functools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dissector.dissection import Options
from dissector.lake.land import land_chain
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_live import without_times
from tests.dissector.tap.test_service import joined
from tests.dissector.tap.wire import Wire, require, wait_for_port, wire

CAPTURE = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
PORT = 6650
METRICS_PORT = 9497

pytestmark = pytest.mark.root

# Plays one side of a conversation from a file of lines: who speaks, and what, in hex.
PEER = """
import socket, sys
role, address, port, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if role == "broker":
    listening = socket.create_server((address, port))
    print("listens", flush=True)
    link, _ = listening.accept()
else:
    link = socket.create_connection((address, port), timeout=20)
link.settimeout(20)
for line in open(path):
    speaker, data = line.split()
    data = bytes.fromhex(data)
    if speaker == role:
        link.sendall(data)
    else:
        left = len(data)
        while left:
            left -= len(link.recv(left))
link.close()
"""


@functools.cache
def conversation() -> list[tuple[str, bytes]]:
    """What client and broker of a real capture said, in turns."""
    (chain,) = chains([str(CAPTURE)]).chains
    turns: list[tuple[str, bytes]] = []
    for block in dissect(chain, Options(follow_connection=0)):
        if block.table == "conversation":
            data = block.columns["data"]
            for row, endpoint_index in enumerate(block.columns["endpoint_index"].tolist()):
                start, size = int(data.starts[row]), int(data.lengths[row])
                speaker = ("client", "broker")[endpoint_index]
                turns.append((speaker, data.data[start : start + size].tobytes()))
    return turns


@contextmanager
def two_hosts() -> Iterator[tuple[Wire, Wire]]:
    """A client's namespace and a broker's, linked; packets of the broker's end are mirrored to a
    pair in its namespace, one end of which can be tapped."""
    with wire() as broker, wire() as client:
        broker.ip("link", "add", "host0", "type", "veth", "peer", "name", "host1")
        broker.ip("link", "set", "host1", "netns", client.namespace)
        for host, name, address in ((broker, "host0", "10.9.0.1"), (client, "host1", "10.9.0.2")):
            host.ip("addr", "add", f"{address}/24", "dev", name)
            host.ip("link", "set", name, "up")
        for command in (
            ("qdisc", "add", "dev", "host0", "clsact"),
            *(
                ("filter", "add", "dev", "host0", way, "protocol", "ip", "u32", "match", "u32",
                 "0", "0", "action", "mirred", "egress", "mirror", "dev", broker.sender)
                for way in ("ingress", "egress")
            ),
        ):  # fmt: skip
            done = subprocess.run(
                broker.command("tc", *command), capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"the kernel cannot mirror: tc {command[0]}: {done.stderr.strip()}")
        yield broker, client


def wait_for(path: Path, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not path.exists() or path.stat().st_size == 0:
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.05)


def wait_until_quiet(path: Path) -> None:
    """Until a recording has not grown for a while: what is in its ring is lost when it ends."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < 3:
        if path.stat().st_size != size:
            size, since = path.stat().st_size, time.monotonic()
        time.sleep(0.1)


def talk(broker: Wire, client: Wire, script: Path) -> None:
    """Let both sides say what the script says, over real TCP."""
    peers = []
    for host, role in ((broker, "broker"), (client, "client")):
        command = (sys.executable, "-c", PEER, role, "10.9.0.1", str(PORT), str(script))
        pipe = subprocess.PIPE
        peer = subprocess.Popen(host.command(*command), stdout=pipe, stderr=pipe, text=True)
        peers.append(peer)
        if role == "broker":
            assert peer.stdout is not None and peer.stdout.readline() == "listens\n"
    for peer in peers:
        _, said = peer.communicate(timeout=120)
        assert peer.returncode == 0, said


def test_the_taps_lake_is_the_lake_of_a_recording_beside_it(tmp_path):
    require()
    for command in ("tcpdump", "tc"):
        if shutil.which(command) is None:
            pytest.skip(f"needs the command {command}")
    script = tmp_path / "script"
    script.write_text("".join(f"{who} {data.hex()}\n" for who, data in conversation()))
    recording = tmp_path / "recording.pcap"
    with two_hosts() as (broker, client):
        dump = subprocess.Popen(
            broker.command("tcpdump", "-i", broker.tapped, "-w", str(recording), "-U", "-s", "0",
                           "--nano", "-Z", "root"),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        tap = subprocess.Popen(
            broker.dissector("tap", "-i", broker.tapped, "--lake", str(tmp_path / "tap"),
                             "--rotate", "1s", "--metrics", str(METRICS_PORT)),
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for(recording)
        wait_for_port(broker, METRICS_PORT)
        talk(broker, client, script)
        wait_until_quiet(recording)
        tap.send_signal(signal.SIGTERM)
        _, said = tap.communicate(timeout=120)
        assert tap.returncode == 0, said
        dump.send_signal(signal.SIGINT)
        dump.wait(30)
    assert " 0 dropped by kernel" in said
    (chain,) = chains([str(recording)]).chains
    land_chain(chain, tmp_path / "file", Options())
    found, whole = joined(tmp_path / "tap"), joined(tmp_path / "file")
    assert whole["frames"] and len(whole["connections"]) == 1
    for table in ("connections", "frames", "producers", "consumers", "messages", "acks",
                  "exchanges", "deliveries", "permits"):  # fmt: skip
        assert without_times(found[table]) == without_times(whole[table]), table
