"""Inputs to begin with: what is right, for each target. python -m tests.fuzz.seeds FOLDER."""

import struct
import sys
from pathlib import Path

from tests.anycut import bytes_of, rows_of
from tests.dissector.observed import CAPTURES
from tests.hard import source_cases
from tests.hard.tape import TOPIC, capture, receipt, send, simple, talk
from tests.wire import packets, pulsar
from tests.wire.captures import pcapng
from tests.wire.recut import is_pcap
from tests.wire.unloads import opened_in, small

MOST_BYTES = 6000  # of a sample that begins anywhere

COMMANDS = (
    simple("CONNECT", client_version="x", protocol_version=21),
    simple("PRODUCER", topic=TOPIC, producer_id=2, request_id=5),
    simple("SUBSCRIBE", topic=TOPIC, subscription="s", subType="Shared", consumer_id=1,
           request_id=3),
    simple("SUCCESS", request_id=3),
    simple("FLOW", consumer_id=1, messagePermits=10),
    simple("ACK", consumer_id=1, ack_type="Individual",
           message_id=[{"ledgerId": 7, "entryId": 1}]),
    simple("ERROR", request_id=3, error="UnknownError", message="no"),
    simple("CLOSE_PRODUCER", producer_id=1, request_id=9),
    receipt(1),
)  # fmt: skip


def seeds() -> dict[str, dict[str, bytes]]:
    """Inputs by target and name."""
    tape = talk(2, sizes=(40,))
    whole = capture(tape.records())
    seeds: dict[str, dict[str, bytes]] = {
        "files": {name: make(whole[:600]) for name, make in source_cases.COMPRESSORS.items()},
        "dissection": {
            "pcap": whole,
            "pcapng": pcapng(tape.records()),
            "interfaces": source_cases.several_interfaces()[:3000],
            "sections": source_cases.sections_of_both_orders()[:3000],
            "zeros": source_cases.hole_of_zeros()[:3000],
        },
    }
    seeds["files"]["pcap"] = whole[:300]
    seeds["packets"] = {
        str(number): bytes([number])
        + b"".join(_prefixed(_on_link(each.data, number)) for each in tape.records()[:8])
        for number in range(11)
    }
    seeds["streams"] = {"order": b"".join(
        struct.pack(">BBHBB", 0x18, side | 64, at, 12, 20) for at in range(0, 900, 96)
        for side in (0, 1)
    ), "open": bytes([2, 0, 0, 0, 0, 0, 0x12, 1, 0, 0, 0, 0, 0x11, 64, 0, 9, 9, 9])}  # fmt: skip
    sends = [send(n, b"payload" * n) for n in range(3)]
    stream = b"".join([*COMMANDS[1:], *sends])
    seeds["frames"] = {"frames": b"".join(
        bytes([len(each) // 4 + 1]) + each.ljust(1 + (len(each) // 4 + 1) * 4, b"\0")
        for each in (stream[:500], *COMMANDS, *sends)
    ), "stream": b"\xff" + stream}  # fmt: skip
    seeds["fields"] = {str(n): _parts(each) for n, each in enumerate((*COMMANDS, *sends))}
    seeds["fields"]["all"] = b"".join(_parts(each) for each in (*COMMANDS, *sends))
    message = pulsar.command("MESSAGE", consumer_id=1, message_id={"ledgerId": 7, "entryId": 1})
    seeds["fields"]["message"] = _parts(COMMANDS[2]) + _parts(pulsar.simple(message), how=1)
    return seeds


def unload_seeds() -> dict[str, bytes]:
    """Every sample as if its capture had begun later, and then its topics had been unloaded."""
    by_name = {}
    for path in sorted(CAPTURES.glob("*/*.pcap*")):
        data = bytes_of(path)
        if is_pcap(data):
            by_name[f"unload-{path.name}"] = small(data, opened_in(rows_of(data)), MOST_BYTES)
    return by_name


def _prefixed(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def _on_link(data: bytes, number: int) -> bytes:
    inner = data[14:]
    by_number = {
        0: data, 1: struct.pack("<I", 2) + inner, 2: b"\xff\x03\x00\x21" + inner,
        5: struct.pack(">I", 2) + inner, 6: packets.linux_sll(inner), 10: packets.linux_sll2(inner),
    }  # fmt: skip
    return by_number.get(number, inner)


def _parts(frame: bytes, how: int = 0) -> bytes:
    """A frame as the target `fields` takes it."""
    (size,) = struct.unpack_from(">I", frame, 4)
    command, rest = frame[8 : 8 + size][:255], frame[8 + size :][:255]
    return bytes([how, len(command), len(rest)]) + command + rest


def main(folder: str) -> None:
    """Write them, a folder for each target."""
    every = seeds()
    every["dissection"] |= unload_seeds()
    for target, inputs in every.items():
        here = Path(folder) / target
        here.mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (here / f"seed-{name}").write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
