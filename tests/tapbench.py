"""Speed of the live tap: python -m tests.tapbench CAPTURE... [--packets N] [--megabytes N].

Sends the packets of Ethernet captures over a pair of virtual interfaces in a network namespace at a
steady rate, again and again (each round over connections and topics of its own), and prints what
the tap says at the end beside what was sent: received + dropped = sent. Needs root.

Several captures are mixed packet by packet, each over hosts of its own, CAPTURE:N takes N megabytes
of it; --acks N adds what hosts send for every Nth segment; --scan N has N SYNs a second of ever new
addresses beside them, on the same wire. The goal, 100,000 packets and 100 MB a
second on one core, with packets of 1000 bytes in the mean:

    python -m tests.tapbench bench/small-300.pcap:30 bench/kib-300.pcap:80 \\
        bench/batch-300.pcap:60 bench/lz4-300.pcap:30 --acks 4 --pin --lake --seconds 300
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from captures.make.traffic import write_packets
from tests.dissector.tap.traffic import mixed, rename, topic_names
from tests.dissector.tap.wire import Wire, frames_of, missing, sender_of, wire
from tests.hard.floods import SCANS, as_pcap

BATCH = 128  # packets in one call of the system
_METRICS_PORT = 9499
_WARMING = 2000  # packets before anything is measured
_LOOK_SECONDS = 2.0
_SCRAPE_LOOKS = 7  # a scrape every 14 s; Prometheus asks every 15 s or minute
_SCANNED = 1 << 16  # addresses of one round of a scan
_SYN_BYTES = 54


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
        self._names = topic_names(self.data)
        self._round = 0

    def next_round(self) -> None:
        """Other client ports and topics: connections and names that were not seen before."""
        self._round += 1
        self.data[self._client] += 1
        rename(self.data, self._names, self._round)

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


class Scan(threading.Thread):
    """SYNs at a steady rate until `end`. sent: how many so far."""

    def __init__(self, pair: Wire, rate: float) -> None:
        super().__init__(daemon=True)
        self._pair = pair
        self._rate = rate
        self._is_over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        """Until `end`."""
        if not self._rate:
            return
        records = as_pcap(SCANS["slow syns"](_SCANNED))[24:]
        size = 16 + _SYN_BYTES
        frames = [records[at + 16 : at + size] for at in range(0, len(records), size)]
        sender, place = Sender(frames), 0
        with sender_of(self._pair) as socket:
            began = time.perf_counter()
            while not self._is_over.is_set():
                due = int((time.perf_counter() - began) * self._rate) - self.sent
                done = sender.send(socket.fileno(), place, min(due, BATCH, _SCANNED - place))
                self.sent += done
                place += done
                if place == _SCANNED:
                    place = 0
                    sender.data[sender.starts + 26] += 1  # the first byte of the address
                elif due <= BATCH:
                    time.sleep(0.002)

    def end(self) -> int:
        """How many were sent."""
        self._is_over.set()
        self.join()
        return self.sent


def cpu_seconds(process: int) -> float:
    """Time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page(pair: Wire, path: str) -> str:
    """What the tap answers."""
    return subprocess.run(
        pair.command("curl", "-s", f"http://127.0.0.1:{_METRICS_PORT}{path}"),
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip


def metric(pair: Wire, name: str) -> float:
    """One of the tap's metrics, summed over its labels."""
    text = page(pair, "/metrics")
    matches = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)", text, re.MULTILINE)
    return sum(map(float, matches))


class Lag(threading.Thread):
    """Looks every few seconds how late the numbers are, and scrapes. longest: seconds; scrape:
    the slowest answer, seconds."""

    def __init__(self, pair: Wire) -> None:
        super().__init__(daemon=True)
        self._pair = pair
        self._is_over = threading.Event()
        self.longest = self.scrape = 0.0

    def run(self) -> None:
        """Until `end`."""
        looks = 0
        while not self._is_over.wait(_LOOK_SECONDS):
            said = page(self._pair, "/healthz")
            if said:
                self.longest = max(self.longest, json.loads(said)["lag_seconds"])
            looks += 1
            if looks % _SCRAPE_LOOKS == 0:
                began = time.perf_counter()
                page(self._pair, "/metrics")
                self.scrape = max(self.scrape, time.perf_counter() - began)

    def end(self) -> float:
        """The longest lag so far."""
        self._is_over.set()
        self.join()
        return self.longest


def packets_of(arguments: argparse.Namespace) -> list[bytes]:
    """What shall be sent, one round of it."""
    captures = []
    for each in arguments.captures:
        path, _, most = each.partition(":")
        frames, size = frames_of(Path(path)), 0
        for place, frame in enumerate(frames):
            size += len(frame)
            if most and size > float(most) * 1e6:
                del frames[place:]
                break
        captures.append(frames)
    return mixed(captures, arguments.acks)


def tap_command(arguments: argparse.Namespace, pair: Wire, folder: str) -> list[str]:
    """The tap that is measured."""
    command = ["tap", "-i", pair.tapped, "--metrics", str(_METRICS_PORT)]
    command += ["--ring", arguments.ring]
    if arguments.lake:
        command += ["--lake", f"{folder}/lake", "--rotate", arguments.rotate]
    return pair.dissector(*command)


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """One run; numbers by name."""
    frames = packets_of(arguments)
    sender = Sender(frames)
    cores = sorted(os.sched_getaffinity(0)) if arguments.pin else []
    with wire() as pair, tempfile.TemporaryDirectory() as folder:
        tap = subprocess.Popen(
            tap_command(arguments, pair, folder), stderr=subprocess.PIPE, text=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, cores[:1])) if cores else None,
        )  # fmt: skip
        if cores:
            os.sched_setaffinity(0, cores[1:])
        while not metric(pair, "dissector_tap_memory_bytes"):
            time.sleep(0.2)
        with sender_of(pair) as warming:
            for frame in frames[:_WARMING]:
                warming.send(frame)
        del frames
        time.sleep(3)
        busy = cpu_seconds(tap.pid)
        time.sleep(arguments.idle)
        idle = (cpu_seconds(tap.pid) - busy) / max(arguments.idle, 1e-9)
        busy = cpu_seconds(tap.pid)
        lag, scan = Lag(pair), Scan(pair, arguments.scan)
        lag.start()
        scan.start()
        sent, size, passed = steady(
            sender, pair, arguments.seconds, arguments.packets, arguments.megabytes * 1e6
        )
        scanned = scan.end()
        used = cpu_seconds(tap.pid) - busy
        longest = lag.end()
        memory = metric(pair, "dissector_tap_memory_bytes")
        gaps, seen = (metric(pair, f"dissector_{name}_total") for name in ("gaps", "frames"))
        tap.send_signal(signal.SIGTERM)
        _, said = tap.communicate(timeout=300)
    last = said.strip().splitlines()[-1]
    captured, dropped = (
        int(each.replace(",", ""))
        for each in re.findall(r"[\d,]+(?= packets? capt| dropped)", last)
    )
    return {
        "sent": sent + _WARMING, "scanned": scanned, "captured": captured, "dropped": dropped,
        "missing": sent + _WARMING + scanned - captured - dropped,
        "gaps": round(gaps), "frames": round(seen), "packets_per_second": round(sent / passed),
        "megabytes_per_second": round(size / passed / 1e6, 1),
        "cpu_share": round(used / passed, 2), "cpu_share_idle": round(idle, 4),
        "cpu_seconds_per_million": round(used / max(captured, 1) * 1e6, 2),
        "longest_lag_seconds": longest, "slowest_scrape_seconds": round(lag.scrape, 3),
        "memory_megabytes": round(memory / 1e6), "said": last,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", nargs="+")
    parser.add_argument("--packets", type=float, default=100_000, help="a second")
    parser.add_argument("--megabytes", type=float, default=100, help="a second")
    parser.add_argument("--acks", type=int, default=0, help="segments that one acknowledges")
    parser.add_argument("--scan", type=float, default=0, help="SYNs a second beside them")
    parser.add_argument("--pin", action="store_true", help="the tap on one core, we on the others")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--idle", type=float, default=10, help="seconds of silence before")
    parser.add_argument("--ring", default="64MiB")
    parser.add_argument("--lake", action="store_true", help="land rotations, too")
    parser.add_argument("--rotate", default="60s")
    parser.add_argument("--write", help="write one round to this capture instead of sending it")
    chosen = parser.parse_args()
    reason = missing()
    if chosen.write:
        write_packets(Path(chosen.write), iter(packets_of(chosen)), None)
    else:
        print(json.dumps({"skipped": reason} if reason else measure(chosen), indent=1))
