"""Record traffic on the loopback interface with what its clients saw, for a folder of samples."""

import contextlib
import gzip
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar

ROOT = Path(__file__).resolve().parents[2]


class Place(NamedTuple):
    """The broker, and where clients write what they see."""

    broker: str
    admin: str
    events: Path

    def client(self) -> pulsar.Client:
        """A client with connections of its own."""
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        return pulsar.Client(f"pulsar://{self.broker}", logger=logger, operation_timeout_seconds=10)

    def log(self, ev: str, **more: Any) -> None:
        """One event; a write that appends a line is whole among those of other processes."""
        line = json.dumps({"t": now(), "ev": ev, **more}) + "\n"
        file = os.open(self.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def ask(self, topic: str, step: str, body: bytes | None = None) -> None:
        """One request of the admin API about a topic."""
        path = topic.replace("://", "/")
        request = urllib.request.Request(
            f"http://{self.admin}/admin/v2/{path}/{step}", body,
            {"Content-Type": "application/json"}, method="PUT",
        )  # fmt: skip
        try:
            urllib.request.urlopen(request, timeout=15).close()
        except (urllib.error.URLError, TimeoutError) as error:
            self.log("error", what=step, err=str(error), topic=topic)


def now() -> float:
    """Milliseconds since 1970."""
    return round(time.time() * 1000, 3)


def mid(one: pulsar.MessageId) -> str:
    """A message id as events have it."""
    return f"{one.ledger_id()}:{one.entry_id()}:{one.partition()}:{one.batch_index()}"


@contextlib.contextmanager
def recorded(folder: Path, name: str, port: int) -> Iterator[Path]:
    """Record what happens meanwhile; the file is where clients write their events, one a line.

    The capture, the events and an entry of manifest.json are in `folder` afterwards.
    """
    with tempfile.TemporaryDirectory() as made:
        capture, events = Path(made, "capture.pcap"), Path(made, "events.jsonl")
        events.touch()
        tcpdump = subprocess.Popen(
            ["tcpdump", "-Z", "root", "-i", "lo", "-s", "0", "-B", "65536", "-w", capture,
             f"tcp port {port}"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tcpdump.stderr is not None
        while "listening on" not in (line := tcpdump.stderr.readline()):
            if not line:
                raise SystemExit("tcpdump does not capture on the loopback interface")
        yield events
        time.sleep(2)  # tcpdump reads what the kernel has put together once a second
        tcpdump.terminate()
        told = tcpdump.stderr.read()
        tcpdump.wait()
        if "\n0 packets dropped" not in told:
            raise SystemExit(f"packets are missing: {told}")
        packets = int(re.search(r"(\d+) packets captured", told)[1])
        folder.mkdir(exist_ok=True)
        entry = entry_of(name, events, capture, port, packets)
        for path, stored in ((capture, entry["file"]), (events, entry["client_log"])):
            with gzip.GzipFile(folder / stored, "wb", mtime=0) as to, path.open("rb") as source:
                shutil.copyfileobj(source, to)
    manifest = folder / "manifest.json"
    entries = json.loads(manifest.read_text("utf-8")) if manifest.exists() else []
    entries = [each for each in entries if each["file"] != entry["file"]] + [entry]
    entries.sort(key=lambda each: each["file"])
    manifest.write_text(json.dumps(entries, indent=1) + "\n", "utf-8")
    print(json.dumps(entry))


def entry_of(name: str, events: Path, capture: Path, port: int, packets: int) -> dict[str, Any]:
    """The entry of the manifest."""
    version = importlib.metadata.version("pulsar-client")
    seen = [json.loads(line) for line in events.read_text("utf-8").splitlines()]
    return {
        "file": f"{name}.pcap.gz",
        "scenario": name,
        "network": "loopback mtu65536",
        "client": f"pulsar-client {version} (PyPI, C++ core 4.2.0)",
        "broker": "Apache Pulsar standalone 4.0.1 (Maven)",
        "broker_is_real": True,
        "client_log": f"{name}.events.jsonl.gz",
        "observed_by_client": observed(seen),
        "packets": packets,
        "frames": frames_of(capture, port),
    }


def frames_of(capture: Path, port: int) -> dict[str, int]:
    """Frames by direction and command as Wireshark puts them together (tests/hard/frames.lua)."""
    names = dict(
        (int(number), name)
        for name, number in re.findall(
            r"^\s+([A-Z_]+)\s*=\s*(\d+);",
            (ROOT / "proto/PulsarApi.proto").read_text().split("message BaseCommand")[1], re.M,
        )
    )  # fmt: skip
    fields = [each for name in ("tcp.dstport", "lpf.frame") for each in ("-e", name)]
    read = subprocess.run(
        ["tshark", "-r", capture, "-X", f"lua_script:{ROOT / 'tests/hard/frames.lua'}",
         "-d", f"tcp.port=={port},lpf", "-Y", "lpf.frame", "-T", "fields", *fields],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    found: Counter[str] = Counter()
    for line in read.splitlines():
        to, frames = line.split("\t")
        for frame in frames.split(","):
            way = "to_broker" if int(to) == port else "to_client"
            found[f"{way} {names[int(frame[18:20], 16)]}"] += 1
    return dict(sorted(found.items()))


def observed(events: list[dict[str, Any]]) -> dict[str, int]:
    """What the clients saw, in sum."""
    found = Counter(each["ev"] for each in events)
    found["send_ok"] = sum(each["ev"] == "send" and "mid" in each for each in events)
    found["recv_redelivered"] = sum(each.get("redelivery_count", 0) > 0 for each in events)
    return dict(sorted(found.items()))
