"""A wire to tap: a pair of virtual interfaces in a network namespace, and who sends on it.

Everything happens in the namespace of a child process or of this thread; nothing of the machine's
own network is touched. What is missing is said in the reason of the skip.
"""

import functools
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.capture.reader import CaptureReader

_numbers = itertools.count()


@functools.cache
def missing() -> str | None:
    """Why there can be no wire here, or None."""
    if os.geteuid() != 0:
        return "needs root for network namespaces and packet sockets"
    if shutil.which("ip") is None:
        return "needs the command ip (iproute2)"
    try:
        with wire():
            return None
    except subprocess.CalledProcessError as error:
        return f"the kernel has no network namespaces or veth pairs: {error.stderr.strip()}"
    except OSError as error:
        return f"the kernel has no packet sockets: {error.strerror}"


def require() -> None:
    """Skip the test, with a reason, where there can be no wire."""
    reason = missing()
    if reason:
        pytest.skip(reason)


class Wire(NamedTuple):
    """Two ends in a namespace: packets sent into `sender` come out at `tapped`."""

    namespace: str
    sender: str
    tapped: str

    def command(self, *arguments: str) -> list[str]:
        """A command that runs in the namespace."""
        return ["ip", "netns", "exec", self.namespace, *arguments]

    def ip(self, *arguments: str) -> None:
        """Change the network of the namespace."""
        _ip("-n", self.namespace, *arguments)

    def dissector(self, *arguments: str) -> list[str]:
        """A command of ours in the namespace."""
        return self.command(sys.executable, "-m", "dissector", *arguments)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def wire(mtu: int = 65_535) -> Iterator[Wire]:
    """A pair of interfaces that are up, quiet (no IPv6 chatter) and take packets of any size."""
    name = f"tap{os.getpid()}-{next(_numbers)}"
    pair = Wire(name, "sender0", "tapped0")
    _ip("netns", "add", name)
    try:
        subprocess.run(
            pair.command("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"), check=False,
            capture_output=True,
        )  # fmt: skip
        pair.ip("link", "add", pair.sender, "type", "veth", "peer", "name", pair.tapped)
        for end in (pair.sender, pair.tapped):
            pair.ip("link", "set", end, "mtu", str(mtu), "up")
        pair.ip("link", "set", "lo", "up")
        yield pair
    finally:
        _ip("netns", "del", name)


@contextmanager
def _one_thread_of_arrow() -> Iterator[None]:
    """Threads that begin in a namespace stay there, and Arrow keeps those that read and write, to
    stores too, for all that comes: one of before does all the work meanwhile."""
    with tempfile.NamedTemporaryFile() as file:
        pq.write_table(pa.table({"column": [1]}), file.name)
        pq.read_table(file.name, pre_buffer=True)
    count = pa.io_thread_count()
    pa.set_io_thread_count(1)
    try:
        yield
    finally:
        pa.set_io_thread_count(count)


@contextmanager
def inside(pair: Wire) -> Iterator[None]:
    """This thread is in the namespace while the body runs."""
    with _one_thread_of_arrow(), _inside(pair):
        yield


@contextmanager
def _inside(pair: Wire) -> Iterator[None]:
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{pair.namespace}", os.O_RDONLY)
    try:
        os.setns(there, 0x40000000) if hasattr(os, "setns") else _setns(there)
        yield
    finally:
        os.setns(before, 0x40000000) if hasattr(os, "setns") else _setns(before)
        os.close(before)
        os.close(there)


def _setns(descriptor: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def wait_for_port(pair: Wire, port: int, seconds: float = 120) -> None:
    """Until somebody listens in the namespace, as a tap does once its sockets are open."""
    end = time.monotonic() + seconds
    with inside(pair):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                assert time.monotonic() < end, f"nobody listens on port {port}"
                time.sleep(0.1)
            else:
                return


def frames_of(path: Path) -> list[bytes]:
    """The packets of an Ethernet capture, as they go on a wire."""
    data = np.fromfile(path, np.uint8)
    reader = CaptureReader()
    reader.start_file()
    frames = []
    position, is_more = 0, True
    while is_more:
        scan = reader.feed(data, position, len(data), True)
        position, is_more = scan.consumed, scan.is_more
        for row in range(scan.rows):
            start = int(reader.packets.offset[row])
            size = int(reader.packets.captured_bytes[row])
            frames.append(data[start : start + size].tobytes())
    return frames


def sender_of(pair: Wire) -> socket.socket:
    """A socket that puts whole packets on the wire; packets that do not fit yet make it wait."""
    with inside(pair):
        sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sending.bind((pair.sender, 0))
    return sending


def send(pair: Wire, frames: list[bytes]) -> None:
    """Put packets on the wire, one after the other."""
    with sender_of(pair) as sending:
        for frame in frames:
            sending.send(frame)
