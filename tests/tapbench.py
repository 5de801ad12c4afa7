"""Speed of the live tap: python -m tests.tapbench CAPTURE [--packets N] [--megabytes N].

Sends the packets of an Ethernet capture over a pair of virtual interfaces in a network namespace at
a steady rate, again and again (each round over connections of its own), and prints what the tap
says at the end beside what was sent: received + dropped = sent. Needs root.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.dissector.tap.wire import Wire, frames_of, missing, sender_of, wire

BATCH = 128  # packets in one call of the system
_METRICS_PORT = 9499


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p), ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_long), ("sent", ctypes.c_long),
    )  # fmt: skip


class Sender:
    """All packets in one buffer, ready for sendmmsg."""

    def __init__(self, frames: list[bytes]) -> None:
        self.sizes = np.array([len(frame) for frame in frames])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.data = np.frombuffer(bytearray(b"".join(frames)), np.uint8)
        self.count = len(frames)
        self._vectors = (_Vector * self.count)()
        self._headers = (_Header * self.count)()
        base, vectors = self.data.ctypes.data, ctypes.addressof(self._vectors)
        for place, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            self._vectors[place] = _Vector(base + int(start), int(size))
            header = self._headers[place]
            header.vectors = vectors + place * ctypes.sizeof(_Vector)
            header.count = 1
        self._library = ctypes.CDLL(None, use_errno=True)
        ports = self.data[self.starts[:, None] + np.arange(34, 38)]
        source = ports[:, 0].astype(np.int64) << 8 | ports[:, 1]
        target = ports[:, 2].astype(np.int64) << 8 | ports[:, 3]
        values, counts = np.unique(np.concatenate([source, target]), return_counts=True)
        broker = values[counts.argmax()]
        self._client = self.starts + np.where(source == broker, 36, 34)

    def next_round(self) -> None:
        """Other client ports: connections that were not seen before."""
        high = self.data[self._client]
        self.data[self._client] = high + 1

    def send(self, number: int, first: int, count: int) -> int:
        """Packets first to first + count through the socket of this number."""
        at = ctypes.addressof(self._headers) + first * ctypes.sizeof(_Header)
        return max(0, self._library.sendmmsg(number, ctypes.c_void_p(at), count, 0))


def steady(
    sender: Sender, pair: Wire, seconds: float, packets: float, size: float
) -> tuple[int, int, float]:
    """Send at a rate; gives packets and bytes sent, and how long it took."""
    sent = sent_bytes = place = 0
    with sender_of(pair) as socket:
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            if sent > passed * packets or sent_bytes > passed * size:
                time.sleep(0.0005)
                continue
            count = min(BATCH, sender.count - place)
            done = sender.send(socket.fileno(), place, count)
            sent += done
            sent_bytes += int(sender.sizes[place : place + done].sum())
            place += done
            if place == sender.count:
                place = 0
                sender.next_round()
        return sent, sent_bytes, time.perf_counter() - began


def cpu_seconds(process: int) -> float:
    """Time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def metric(pair: Wire, name: str) -> float:
    """One number of the tap's metrics."""
    text = subprocess.run(
        pair.command("curl", "-s", f"http://127.0.0.1:{_METRICS_PORT}/metrics"),
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    found = re.search(rf"^{re.escape(name)} (\S+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """One run; numbers by name."""
    sender = Sender(frames_of(Path(arguments.capture)))
    with wire() as pair, tempfile.TemporaryDirectory() as folder:
        command = [
            "tap",
            "-i",
            pair.tapped,
            "--metrics",
            str(_METRICS_PORT),
            "--ring",
            arguments.ring,
        ]
        if arguments.lake:
            command += ["--lake", f"{folder}/lake", "--rotate", "60s"]
        tap = subprocess.Popen(pair.dissector(*command), stderr=subprocess.PIPE, text=True)
        while not metric(pair, "dissector_tap_memory_bytes"):
            time.sleep(0.2)
        with sender_of(pair) as warming:
            for frame in frames_of(Path(arguments.capture))[:2000]:
                warming.send(frame)
        time.sleep(3)
        busy = cpu_seconds(tap.pid)
        time.sleep(arguments.idle)
        idle = (cpu_seconds(tap.pid) - busy) / max(arguments.idle, 1e-9)
        busy = cpu_seconds(tap.pid)
        sent, size, passed = steady(
            sender, pair, arguments.seconds, arguments.packets, arguments.megabytes * 1e6
        )
        used = cpu_seconds(tap.pid) - busy
        lag = metric(pair, "dissector_tap_lag_seconds")
        memory = metric(pair, "dissector_tap_memory_bytes")
        tap.send_signal(signal.SIGTERM)
        _, said = tap.communicate(timeout=300)
    last = said.strip().splitlines()[-1]
    captured, dropped = (
        int(each.replace(",", ""))
        for each in re.findall(r"[\d,]+(?= packets? capt| dropped)", last)
    )
    return {
        "sent": sent + 2000, "captured": captured, "dropped": dropped,
        "packets_per_second": round(sent / passed),
        "megabytes_per_second": round(size / passed / 1e6, 1),
        "cpu_share": round(used / passed, 2), "cpu_share_idle": round(idle, 4),
        "lag_seconds": lag, "memory_megabytes": round(memory / 1e6), "said": last,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture")
    parser.add_argument("--packets", type=float, default=100_000, help="a second")
    parser.add_argument("--megabytes", type=float, default=100, help="a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--idle", type=float, default=10, help="seconds of silence before")
    parser.add_argument("--ring", default="64MiB")
    parser.add_argument("--lake", action="store_true", help="land rotations, too")
    reason = missing()
    print(json.dumps({"skipped": reason} if reason else measure(parser.parse_args()), indent=1))
