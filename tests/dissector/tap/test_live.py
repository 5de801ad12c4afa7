"""A real wire: what the tap lands is what was sent, what it lost it says."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OUTPUT
from dissector.dissection import Dissection, Options
from dissector.errors import DependencyError, UsageError
from dissector.lake.reader import open_lake
from dissector.packet.link import ETHERNET
from dissector.tap import service
from dissector.tap.filters import ALL, of_ports, without_own
from dissector.tap.interfaces import (
    Interface,
    chosen,
    find_interface,
    interface_names,
    is_seen_elsewhere,
    is_up,
    receive_offload,
)
from dissector.tap.live import Live
from dissector.tap.memory import MemoryLimit
from dissector.tap.packet_batches import Cuts, PacketBatch
from dissector.tap.ring import BLOCK_BYTES, Ring
from dissector.tap.rotations import Rotations
from dissector.tap.service import Tap, TapSettings
from tests.choosing import examples
from tests.disks import disk_of
from tests.dissector.observed import CAPTURES, tables_of
from tests.dissector.tap.test_service import joined
from tests.dissector.tap.wire import Wire, frames_of, inside, require, sender_of, wire
from tests.hard.floods import SCANS, as_pcap

PORT = 9498
CAPTURE = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
TIMES = ("ts", "_ns", "latency_bucket", "clock_steps", "text", "history")

pytestmark = pytest.mark.root


@pytest.fixture
def pair():
    require()
    with wire() as ends, inside(ends):
        yield ends


def without_times(rows: list[dict]) -> list[dict]:
    """Rows but for what depends on when packets came."""
    return [
        {name: value for name, value in row.items() if not name.endswith(TIMES)} for row in rows
    ]


def wait_until_up(*names: str, up: bool = True) -> None:
    """The kernel says some time after a change whether packets can pass."""
    end = time.monotonic() + 30
    while any(is_up(name) is not up for name in names) and time.monotonic() < end:
        time.sleep(0.01)


class Sending:
    """A listener that sends when the tap has begun, and ends it a moment after."""

    def __init__(self, pair: Wire, frames: list[bytes], pause: float = 0.0005) -> None:
        self.socket = sender_of(pair)
        self.frames = list(frames)
        self.pause = pause
        self.tap: Tap | None = None
        self.sent = 0

    def packets(self, packet_batch: PacketBatch) -> None:
        pass

    def rows(self, blocks: object) -> None:
        pass

    def tick(self, now: float) -> None:
        for frame in self.frames:
            self.socket.send(frame)
            self.sent += 1
            if self.pause:
                time.sleep(self.pause)
        self.frames = []
        assert self.tap is not None
        self.tap.signals.is_end_requested = True


def tapped(pair: Wire, frames: list[bytes], lake: Path | None = None, **options) -> Tap:
    """Send packets while a tap runs; gives the tap that ended."""
    pause = options.pop("pause", 0.0005)
    source = Live([find_interface(pair.tapped)], **options)
    rotations = Rotations(lake, source.name, {}, may_wait=False) if lake else None
    sending = Sending(pair, frames, pause)
    tap = Tap(source, TapSettings(Options(), rotate_ns=200_000_000), rotations, [sending])
    sending.tap = tap
    try:
        tap.run()
        assert tap.account.packets == source.received() == source.taken
    finally:
        source.close()
        sending.socket.close()
    return tap


def test_what_passes_is_landed_row_for_row(pair, tmp_path):
    frames = frames_of(CAPTURE)
    tap = tapped(pair, frames, tmp_path)
    assert tap.account.packets == len(frames) and tap.kernel_dropped == 0
    assert len(tap.fates) >= 2 and not any(fate.problem for fate in tap.fates)
    found, whole = joined(tmp_path), tables_of(str(CAPTURE))
    for table in ("connections", "frames", "producers", "consumers", "messages", "acks",
                  "exchanges", "deliveries", "permits"):  # fmt: skip
        assert without_times(found[table]) == without_times(whole[table]), table
    for row in found["capture_files"]:
        assert (row["format"], row["sha256"], row["file_name"]) == ("live", None, pair.tapped)
        assert row["dropped_by_interface"] == 0 and row["link_types"] == ["ETHERNET"]
        assert row["tap_run"] == f"tapped0-{found['capture_files'][0]['first_ts_ns']}"


def test_a_scan_beside_real_traffic_takes_nothing_of_it(pair, tmp_path):
    """Eight SYNs of ever new addresses behind each packet: no frame is lost, nothing is dropped."""
    frames = frames_of(CAPTURE)
    records = as_pcap(SCANS["slow syns"](8 * len(frames)))[24:]
    syns = [records[at + 16 : at + 70] for at in range(0, len(records), 70)]
    beside = [packet for n, own in enumerate(frames) for packet in (own, *syns[8 * n : 8 * n + 8])]
    alone, both = tmp_path / "alone", tmp_path / "both"
    tapped(pair, frames, alone)
    tap = tapped(pair, beside, both, pause=0.0001)
    assert tap.account.packets == len(beside) and tap.kernel_dropped == 0
    without, within = joined(alone), joined(both)
    for table in ("frames", "exchanges", "deliveries", "messages"):
        assert len(within[table]) == len(without[table]) > 0
    assert len(within["connections"]) == len(without["connections"]) + len(syns)


def test_b61_received_and_dropped_are_what_was_sent_and_the_lake_says_so(pair, tmp_path):
    frames = frames_of(CAPTURE) * 30
    tap = tapped(pair, frames, tmp_path, ring_bytes=2 * BLOCK_BYTES, pause=0)
    assert tap.kernel_dropped > 0
    assert tap.account.packets + tap.kernel_dropped == len(frames)
    tables = joined(tmp_path)
    assert sum(row["dropped_by_interface"] for row in tables["capture_files"]) == tap.kernel_dropped
    said = [row for row in tables["notices"] if row["code"] == "kernel_dropped"]
    assert sum(int(row["text"].split()[3]) for row in said) == tap.kernel_dropped


def test_segments_as_long_as_offload_makes_them_are_whole(pair, tmp_path):
    frame = frames_of(CAPTURE)[0]
    long = frame[:14] + b"\x45\0" + (60_000).to_bytes(2, "big") + frame[18:34]
    long = (long + frame[34:54]).ljust(60_014, b"x")
    tap = tapped(pair, [long], tmp_path)
    assert tap.account.packets == 1
    assert joined(tmp_path)["capture_files"][0]["packets_ignored_by_reason"] in ([], None)


def test_a_tag_that_the_kernel_took_out_is_back_in_the_lake(pair, tmp_path):
    frames = [frame[:12] + b"\x81\0\0\x64" + frame[12:] for frame in frames_of(CAPTURE)]
    tapped(pair, frames, tmp_path)
    (row,) = joined(tmp_path)["connections"]
    assert row["vlan_ids"] == [100]


def test_a_filter_passes_ports_and_own_traffic_stays_out(pair):
    frames = frames_of(CAPTURE)
    ports = {int.from_bytes(frame[34 + at : 36 + at], "big") for frame in frames for at in (0, 2)}
    broker = 6650 if 6650 in ports else min(ports)
    assert tapped(pair, frames, program=of_ports([broker])).account.packets == len(frames)
    assert tapped(pair, frames[:50], program=of_ports([1])).account.packets == 0
    # To this host: the address of the tapped end, so that the kernel says so of the packets.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as asking:
        asking.bind((pair.tapped, 0))
        mac = asking.getsockname()[4]
    mine = [mac + frame[6:] for frame in frames[:50]]
    assert tapped(pair, mine, program=without_own(broker)).account.packets == 0
    assert tapped(pair, mine, program=without_own(1)).account.packets == 50
    assert tapped(pair, frames[:50], program=without_own(broker)).account.packets == 50


def test_b62_a_filter_that_matches_nothing_beside_tags_is_told(pair, tmp_path):
    frames = [frame[:12] + b"\x81\0\0\x64" + frame[12:] for frame in frames_of(CAPTURE)[:20]]
    source = Live([find_interface(pair.tapped)], of_ports([1]), is_filtered=True)
    sending = sender_of(pair)
    events = source.packet_batches(Dissection(Options()), Cuts())
    try:
        next(events)
        for frame in frames:
            sending.send(frame)
        end = time.monotonic() + 5
        found = []
        while not found and time.monotonic() < end:
            next(events)
            found = source.notices()
    finally:
        source.close()
        sending.close()
    assert [finding.value for finding in found] == [20]


class Running:
    """A tap in a process of its own that packets are sent to."""

    def __init__(self, pair: Wire, lake: Path, *options: str) -> None:
        self.pair, self.lake = pair, lake
        self.process = subprocess.Popen(
            pair.dissector("tap", "-i", pair.tapped, "--lake", str(lake), *options),
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._frames = frames_of(CAPTURE)[:30]

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def landed(self) -> int:
        return len(list(self.lake.glob("_manifest/*.json")))

    def sent_until(self, condition) -> None:
        end = time.monotonic() + 120
        while not condition() and time.monotonic() < end and self.process.poll() is None:
            with sender_of(self.pair) as sending:
                for frame in self._frames:
                    try:
                        sending.send(frame)
                    except OSError:
                        break
            time.sleep(0.3)
        assert condition()

    def metric(self, name: str) -> float:
        """A number of the metrics, 0 before there are any."""
        ask = self.pair.command("curl", "-s", f"http://127.0.0.1:{PORT}/metrics")
        text = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
        found = [line.split()[-1] for line in text.splitlines() if line.startswith(name)]
        return float(found[0]) if found else 0.0

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said


def test_b61_an_interface_that_goes_down_and_comes_back_is_a_notice(pair, tmp_path):
    with Running(pair, tmp_path, "--rotate", "1s") as tap:
        tap.sent_until(lambda: tap.landed() >= 1)
        pair.ip("link", "set", pair.tapped, "down")
        time.sleep(2)
        pair.ip("link", "set", pair.tapped, "up")
        before = tap.landed()
        tap.sent_until(lambda: tap.landed() > before + 1)
        status, said = tap.end()
    assert status == 0, said
    codes = [row["code"] for row in joined(tmp_path)["notices"]]
    assert codes.count("interface_down") == codes.count("interface_up") == 1


def test_a_full_disk_stops_landing_and_not_the_metrics(pair, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("needs the command curl")
    lost = 'dissector_tap_packets_dropped_total{by="queue"}'
    options = ("--rotate", "500ms", "--metrics", str(PORT))
    with disk_of("16m", tmp_path) as disk, Running(pair, disk / "lake", *options) as tap:
        tap.sent_until(lambda: tap.landed() >= 1)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        tap.sent_until(lambda: tap.metric(lost) > 0)
        before = tap.metric("dissector_tap_packets_received_total")
        tap.sent_until(lambda: tap.metric("dissector_tap_packets_received_total") > before)
        assert tap.metric("dissector_tap_landing") == 0
        (disk / "filler").unlink()
        landed = tap.landed()
        tap.sent_until(lambda: tap.landed() > landed)
        status, said = tap.end()
        assert status == EXIT_OUTPUT and " not landed; " in said
        tables = joined(disk / "lake")
    told = [row for row in tables["notices"] if row["code"] == "queue_dropped"]
    landed_packets = sum(row["packets"] for row in tables["capture_files"])
    captured, missing = (
        int(said.split(text)[0].split()[-1].replace(",", ""))
        for text in (" packets captured", " not landed")
    )
    assert landed_packets + missing == captured and told


@contextlib.contextmanager
def two_wires() -> Iterator[list[socket.socket]]:
    """Sockets that send to tapped0 and to tapped1; this thread is in their namespace."""
    with wire() as pair, inside(pair), contextlib.ExitStack() as open_ends:
        pair.ip("link", "add", "sender1", "type", "veth", "peer", "name", "tapped1")
        for end in ("sender1", "tapped1"):
            pair.ip("link", "set", end, "mtu", "65535", "up")
        senders = []
        for end in ("sender0", "sender1"):
            sender = open_ends.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            sender.bind((end, 0))
            senders.append(sender)
        yield senders


class SendingToTwo(Sending):
    """Sends the packets of the client to one wire and those of the broker to the other."""

    def __init__(self, ends: list[socket.socket], frames: list[bytes], pause: float) -> None:
        self.ends, self.client = ends, frames[0][26:30]
        self.frames, self.pause, self.sent = list(frames), pause, 0
        self.socket = self
        self.times: list[int] = []

    def send(self, frame: bytes) -> None:
        self.ends[frame[26:30] == self.client].send(frame)

    def packets(self, packet_batch: PacketBatch) -> None:
        self.times += packet_batch.packets.ts_ns[: packet_batch.rows].tolist()


def tapped_twice(
    ends: list[socket.socket], frames: list[bytes], pause: float, lake: Path | None = None
) -> list[int]:
    """Times of the packets in the order in which a tap of both wires took them."""
    source = Live([find_interface("tapped0"), find_interface("tapped1")], ring_bytes=32 << 20)
    rotations = Rotations(lake, source.name, {}, may_wait=False) if lake else None
    sending = SendingToTwo(ends, frames, pause)
    sending.tap = Tap(source, TapSettings(Options()), rotations, [sending])
    try:
        sending.tap.run()
    finally:
        source.close()
    assert len(sending.times) == sending.sent
    return sending.times


def test_interfaces_are_merged_by_time(tmp_path):
    require()
    with two_wires() as ends:
        tapped_twice(ends, frames_of(CAPTURE), 0.0005, tmp_path)
    found, whole = joined(tmp_path), tables_of(str(CAPTURE))
    for table in ("connections", "frames", "exchanges", "deliveries"):
        assert without_times(found[table]) == without_times(whole[table]), table
    (file,) = found["capture_files"]
    assert file["file_name"] == "tapped0,tapped1" and file["clock_steps"] == 0


def test_the_last_packets_of_interfaces_are_merged_by_time_too():
    """Each ring gives its last block out at a moment of its own, the older packets maybe later."""
    require()
    with two_wires() as ends:
        for _ in range(examples(12, 5)):
            times = tapped_twice(ends, frames_of(CAPTURE)[:12], 0.006)
            assert times == sorted(times)


def test_interfaces_tell_what_they_are():
    assert "lo" in interface_names()
    found = find_interface("lo")
    assert (found.link_type, found.is_loopback) == (ETHERNET, True)
    assert not is_up("nowhere0") and receive_offload("nowhere0") == (False, False)
    with pytest.raises(UsageError, match="there is no such interface; there are"):
        find_interface("nowhere0")


def test_any_is_what_is_up_and_not_seen_elsewhere(pair):
    names = ["tapped0", "any", "sender0"]
    wait_until_up("sender0", "tapped0")
    assert [each.name for each in chosen(names)] == ["tapped0", "sender0"]
    pair.ip("link", "set", pair.tapped, "down")
    wait_until_up("sender0", "tapped0", up=False)
    try:
        with pytest.raises(UsageError, match="-i any: no interface is up; there are lo, "):
            chosen(["any"])
    finally:
        pair.ip("link", "set", pair.tapped, "up")
    wait_until_up("sender0", "tapped0")
    assert [each.name for each in chosen(["any", "lo"])] == ["sender0", "tapped0", "lo"]


def test_interfaces_whose_packets_another_one_sees_are_told(tmp_path, monkeypatch):
    plain = dict.fromkeys(("eth0", "veth0", "port0", "switch"), "")
    kinds = plain | {"bond0": "bond", "docker0": "bridge", "eth0.7": "vlan", "alone.7": "vlan"}
    for name, kind in kinds.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "uevent").write_text(f"DEVTYPE={kind}\nINTERFACE={name}\n")
    for name, master in (("eth0", "bond0"), ("veth0", "docker0"), ("port0", "switch")):
        (tmp_path / name / "master").symlink_to(tmp_path / master)
    (tmp_path / "eth0.7" / "lower_eth0").symlink_to(tmp_path / "eth0")
    up = {"bond0", "switch"}
    monkeypatch.setattr("dissector.tap.interfaces.is_up", lambda name: name in up)
    found = [name for name in sorted(kinds) if is_seen_elsewhere(name, tmp_path)]
    # A bridge that is down sees nothing; what has a switch as its master, only the port sees.
    assert found == ["eth0", "eth0.7"]
    up.add("docker0")
    assert is_seen_elsewhere("veth0", tmp_path)


def test_who_may_not_capture_is_told_how(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(DependencyError, match="CAP_NET_RAW") as incidents:
        Ring(Interface("lo", 1, ETHERNET, True), ALL, 2 * BLOCK_BYTES)
    assert incidents.value.exit_code == 5


def test_a_card_that_stamps_nothing_is_told(pair):
    with pytest.raises(DependencyError, match="does not stamp"):
        Live([find_interface(pair.tapped)], wants_hardware_time=True)


def test_b61_a_crash_at_any_moment_leaves_only_whole_captures(pair, tmp_path):
    frames = frames_of(CAPTURE)
    for delay in (0.2, 0.45, 0.7):
        tap = subprocess.Popen(
            pair.dissector("tap", "-i", pair.tapped, "--lake", str(tmp_path), "--rotate", "100ms"),
            stderr=subprocess.DEVNULL,
        )
        before = len(list(tmp_path.glob("_manifest/*.json")))
        end = time.monotonic() + 60
        with sender_of(pair) as sending:
            killed_at = None
            while time.monotonic() < end:
                for frame in frames[:100]:
                    sending.send(frame)
                time.sleep(0.02)
                if killed_at is None and len(list(tmp_path.glob("_manifest/*.json"))) > before:
                    killed_at = time.monotonic() + delay
                if killed_at is not None and time.monotonic() > killed_at:
                    break
        os.kill(tap.pid, signal.SIGKILL)
        tap.wait()
    with open_lake(tmp_path) as lake:
        from dissector.lake.reader import verify

        assert not verify(lake) and len(lake.captures) >= 3


def test_a_tap_over_its_memory_begins_a_new_run_and_says_so(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(service, "_MEMORY_SECONDS", -1.0)
    frames = frames_of(CAPTURE)

    def in_use() -> int:
        """Too much as soon as all of the first connection was seen, however long that takes."""
        is_seen = tap.packet_counts()[0] >= len(frames) and not tap.memory_restarts
        return 1 << 40 if is_seen else 1

    memory = MemoryLimit(1 << 30, in_use, lambda: None)
    source = Live([find_interface(pair.tapped)])
    rotations = Rotations(tmp_path, source.name, {}, may_wait=False)
    first, second = Sending(pair, frames), Sending(pair, frames)
    tap = Tap(source, TapSettings(Options(), rotate_ns=10**11), rotations, [first], memory=memory)

    class Twice:
        def __init__(self) -> None:
            self.turns = 0

        def packets(self, packet_batch: PacketBatch) -> None:
            pass

        def rows(self, blocks: object) -> None:
            pass

        def tick(self, now: float) -> None:
            tap.signals.is_end_requested = False
            if tap.memory_restarts:
                self.turns += 1
                second.tick(now)

    first.tap = second.tap = tap
    tap.listen(Twice())
    tap.run()
    source.close()
    for each in (first, second):
        each.socket.close()
    assert tap.memory_restarts == 1 and tap.account.packets == 2 * len(frames)
    tables = joined(tmp_path)
    assert [row["code"] for row in tables["notices"]].count("memory_restart") == 1
    assert len({row["tap_run"] for row in tables["capture_files"]}) == 2
    assert [row["connection_id"] for row in tables["connections"]] == [0, 0]
