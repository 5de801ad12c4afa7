"""Damaged captures read by tshark, in both modes of its TCP reassembly, and by us, as a table.

python -m tests.hard.wireshark

Both see frames that begin with their length (tests/hard/frames.lua tells tshark how), both are held
against the frames that the generator sent. Of each program: how many of those whose bytes are all
in the capture came out whole, and how many came out that nobody sent. Not a part of the suite: it
needs tshark, and its figures are those of one version.
"""

import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.hard.tape import Packet, Tape, capture, receipt, send
from tests.plain import rows_of_block
from tests.wire.captures import Record
from tests.wire.packets import ACK

SCRIPT = Path(__file__).with_name("frames.lua")
BURSTS = 16
BURST = 6  # sends that a client writes at once, as clients do
SIZES = (60, 500, 3000)
SNAPLEN = 200
Damage = Callable[[Tape], None]


class Score(NamedTuple):
    """Frames decoded whole, and frames that nobody sent."""

    whole: int
    false: int


def pipelined() -> Tape:
    """A conversation whose frames do not begin where segments begin."""
    chance = random.Random(3)
    tape = Tape()
    tape.open()
    tape.connect()
    for burst in range(BURSTS):
        numbers = range(burst * BURST, (burst + 1) * BURST)
        sends = [send(number, chance.randbytes(chance.choice(SIZES))) for number in numbers]
        answers = [receipt(number) for number in numbers]
        for to_broker, frames in ((True, sends), (False, answers)):
            tape.frames[not to_broker].extend(frames)
            tape.say(to_broker, b"".join(frames))
    tape.close()
    return tape


def _data(tape: Tape) -> list[int]:
    """Which packets have payload."""
    return [n for n, packet in enumerate(tape.packets) if packet.payload]


def _inside(tape: Tape) -> list[int]:
    """Packets that a frame goes on behind: full segments to the broker."""
    return [
        n for n in _data(tape) if tape.packets[n].to_broker and len(tape.packets[n].payload) == 1448
    ]


def _swap(tape: Tape, one: int, other: int) -> None:
    """Two packets in each other's place; times stay in order."""
    first, second = tape.packets[one], tape.packets[other]
    tape.packets[one] = second._replace(ts_ns=first.ts_ns)
    tape.packets[other] = first._replace(ts_ns=second.ts_ns)


def nothing(tape: Tape) -> None:
    """Undamaged."""


def two_swapped(tape: Tape) -> None:
    """Two segments arrive in reverse order."""
    at = _inside(tape)[8]
    _swap(tape, at, at + 1)


def many_swapped(tape: Tape) -> None:
    """Every fourth segment arrives after the next one."""
    for at in _inside(tape)[::4]:
        if tape.packets[at + 1].payload and tape.packets[at + 1].to_broker:
            _swap(tape, at, at + 1)


def segment_late(tape: Tape) -> None:
    """A segment arrives 40 packets late."""
    at = _inside(tape)[8]
    late = tape.packets.pop(at)
    tape.packets.insert(at + 40, late._replace(ts_ns=tape.packets[at + 39].ts_ns + 1))


def segment_lost(tape: Tape) -> None:
    """One segment was never captured."""
    del tape.packets[_inside(tape)[8]]


def loss(tape: Tape) -> None:
    """Every 20th packet was never captured."""
    tape.packets = [each for n, each in enumerate(tape.packets) if n < 12 or n % 20]


def copied(tape: Tape) -> None:
    """A mirror port sends every packet twice."""
    tape.packets = [each for packet in tape.packets for each in (packet, packet)]


def sent_again(tape: Tape) -> None:
    """Every fifth segment is retransmitted, 10 packets later."""
    for at in reversed(_data(tape)[10::5]):
        again = tape.packets[at]._replace(
            ts_ns=tape.packets[min(at + 10, len(tape.packets) - 1)].ts_ns, identification=60_000
        )
        tape.packets.insert(min(at + 11, len(tape.packets)), again)


def resegmented(tape: Tape) -> None:
    """A lost segment is retransmitted together with the next one."""
    at = _inside(tape)[8]
    lost, behind = tape.packets[at], tape.packets[at + 1]
    payload = lost.payload + behind.payload
    tape.packets[at + 1] = behind._replace(ts_ns=lost.ts_ns)
    again = lost._replace(payload=payload, ts_ns=behind.ts_ns, identification=60_000)
    tape.packets[at : at + 2] = [tape.packets[at + 1], again]


def middle(tape: Tape) -> None:
    """The capture begins in the middle of a frame."""
    tape.packets = tape.packets[_inside(tape)[4] + 1 :]


def cut(tape: Tape) -> None:
    """Packets are cut to 200 bytes."""


def keep_alives(tape: Tape) -> None:
    """A byte of garbage before the next one, now and then."""
    for at in reversed(_data(tape)[10::7]):
        packet = tape.packets[at]
        probe = packet._replace(
            sequence=packet.sequence - 1, payload=b"\0", flags=ACK, identification=61_000
        )
        tape.packets.insert(at, probe)


DAMAGES: tuple[Damage, ...] = (
    nothing, two_swapped, many_swapped, segment_late, segment_lost, loss, copied, sent_again,
    resegmented, keep_alives, middle, cut,
)  # fmt: skip


def starts(tape: Tape) -> list[dict[int, bytes]]:
    """By direction the frames that were sent, by their offset in the stream."""
    starts: list[dict[int, bytes]] = [{}, {}]
    for side, frames in enumerate(tape.frames):
        at = 0
        for frame in frames:
            starts[side][at] = frame
            at += len(frame)
    return starts


def captured(tape: Tape, packets: list[Packet], snaplen: int) -> Counter[bytes]:
    """The frames whose bytes are all in the packets."""
    isn = (1000, 500_000)
    seen: list[set[int]] = [set(), set()]
    for packet in packets:
        side = 0 if packet.to_broker else 1
        at = packet.sequence - isn[side] - 1
        room = max(0, snaplen - (len(tape.whole(packet)) - len(packet.payload)))
        seen[side].update(range(at, at + min(len(packet.payload), room)))
    return Counter(
        frame
        for side, frames in enumerate(starts(tape))
        for at, frame in frames.items()
        if seen[side].issuperset(range(at, at + len(frame)))
    )


def tshark(path: Path, is_out_of_order: bool, wanted: Counter[bytes]) -> Score:
    """The frames that tshark decodes from a capture."""
    done = subprocess.run(
        [
            "tshark", "-n", "-r", path, "-X", f"lua_script:{SCRIPT}",
            "-o", f"tcp.reassemble_out_of_order:{str(is_out_of_order).upper()}",
            "-T", "fields", "-e", "lpf.frame", "-E", "occurrence=a", "-E", "aggregator=,",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    counts = Counter(
        bytes.fromhex(each.replace(":", ""))
        for line in done.stdout.splitlines()
        for each in line.split(",")
        if each
    )
    return score(counts, wanted)


def score(found: Counter[bytes], wanted: Counter[bytes]) -> Score:
    """Each wanted frame counts once, however often it was decoded."""
    whole = sum(min(found[frame], count) for frame, count in wanted.items())
    return Score(whole, sum(count for frame, count in found.items() if frame not in wanted))


def ours(path: Path, tape: Tape, packets: list[Packet], wanted: Counter[bytes]) -> Score:
    """The frames that we decode, whole ones, compared by the stream's bytes at their place."""
    isn = (1000, 500_000)
    # Without a SYN offsets count from the first byte seen of a direction.
    has_syn = bool(packets[0].flags & 2)
    firsts = [
        0 if has_syn else next(p.sequence for p in packets if p.to_broker == (side == 0))
        - isn[side] - 1
        for side in (0, 1)
    ]  # fmt: skip
    counts: Counter[bytes] = Counter()
    for block in dissect(Chain((str(path),), "tap"), Options()):
        if block.table != "frames":
            continue
        for row in rows_of_block(block):
            if row["status"] == "complete":
                side = 0 if row["direction"] == "to_broker" else 1
                at = row["stream_offset"] + firsts[side]
                counts[bytes(tape.sent[side][at : at + row["frame_bytes"]])] += 1
    return score(counts, wanted)


def version() -> str:
    """The version of tshark."""
    told = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True)
    match = re.search(r"\d+\.\d+\.\d+", told.stdout)
    assert match is not None
    return match[0]


def main() -> int:
    """Print the table; returns the exit code."""
    if shutil.which("tshark") is None:
        print("tshark is not installed", file=sys.stderr)
        return 5
    print(f"| damage | frames there | tshark {version()}, default | out of order | ours |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tap.pcap"
        for damage in DAMAGES:
            tape = pipelined()
            damage(tape)
            snaplen = SNAPLEN if damage is cut else 1 << 18
            records = [
                Record(each.ts_ns, each.data[:snaplen], len(each.data)) for each in tape.records()
            ]
            path.write_bytes(capture(records, snaplen=snaplen))
            wanted = captured(tape, tape.packets, snaplen)
            scores = [tshark(path, mode, wanted) for mode in (False, True)]
            scores.append(ours(path, tape, tape.packets, wanted))
            cells = [str(each.whole) + (f" (+{each.false} false)" if each.false else "")
                     for each in scores]  # fmt: skip
            told = (damage.__doc__ or "").rstrip(".")
            print("|", " | ".join([told, str(wanted.total()), *cells]), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
