"""Every packet and every byte of every sample capture ends in exactly one counter."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dissector.dissection import Options
from dissector.dissection.conversation import TABLE
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.accounting import check
from tests.dissector import observed
from tests.naive.packets import NaiveSegment, segments
from tests.naive.streams import ACK, FIN, RST, SYN, Part, Seen, reassemble

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
NAMES = sorted(
    str(path.relative_to(CAPTURES))
    for path in CAPTURES.glob("pulsar*/*")
    if path.name.endswith((".pcap", ".pcap.gz", ".pcapng"))
)
WAYS = ("to_broker", "to_client")
COPY_US = 50_000
every_capture = pytest.mark.parametrize("name", NAMES)
FEW = observed.few_cases([observed.Case(*name.split("/")) for name in NAMES])
some_captures = pytest.mark.parametrize("name", [*map(observed.name_of, FEW)])


def tables_of(name: str) -> observed.Tables:
    return observed.tables_of(str(CAPTURES / name))


class Pair(NamedTuple):
    """Two endpoints, in the order of their addresses and ports."""

    one: tuple[str, int]
    other: tuple[str, int]


class Sent(NamedTuple):
    """A naive packet beside what is told of it."""

    segment: NaiveSegment
    seen: Seen


@cache
def packets_of(name: str) -> tuple[Sent, ...]:
    """The TCP packets, side 0 being the endpoint that sorts first."""
    sent = []
    for each in segments(str(CAPTURES / name)):
        ends = (each.source, each.source_port), (each.destination, each.destination_port)
        pair = Pair(*sorted(ends))
        endpoint_index = int(ends[0] != pair.one)
        seen = Seen(
            pair, endpoint_index, each.sequence, each.acknowledgement, each.flags, each.payload,
            each.wire_bytes,
        )  # fmt: skip
        sent.append(Sent(each, seen))
    return tuple(sent)


@every_capture
def test_rows_add_up(name: str) -> None:
    """Packets, stream bytes, frames and gaps, in all tables that count them."""
    check(tables_of(name))


@every_capture
def test_packets_are_those_that_another_decoder_finds(name: str) -> None:
    tables = tables_of(name)
    packets = packets_of(name)
    assert sum(row["packets_tcp"] for row in tables["capture_files"]) == len(packets)
    payload = sum(row[f"payload_bytes_{way}"] for row in tables["connections"] for way in WAYS)
    assert payload == sum(packet.segment.wire_bytes for packet in packets)


@some_captures
def test_streams_equal_those_put_together_offline(name: str) -> None:
    rows = {row["connection_id"]: row for row in tables_of(name)["connections"]}
    connections = reassemble(packet.seen for packet in packets_of(name))
    pairs = _pairs(name)
    assert len(rows) == len(connections) == len(pairs)
    for number, (connection, pair) in enumerate(zip(connections, pairs, strict=True)):
        ends = [(rows[number][f"{who}_ip"], rows[number][f"{who}_port"]) for who in _WHO]
        assert Pair(*sorted(ends)) == pair
        # Side 0 opened the connection or was seen first, as the first row of `follow` says.
        followed = _followed(name, number)
        sides = (connection.sides[0].parts(), connection.sides[1].parts())
        assert followed in ([sides[0], sides[1]], [sides[1], sides[0]])
        for way, end in zip(WAYS, ends, strict=True):
            endpoint_index = int(end != pair.one)
            parts = sides[endpoint_index]
            for kind, column in (("lost", "gap_bytes"), ("cut", "snaplen_cut_bytes")):
                length = sum(part.length for part in parts if part.kind == kind)
                assert rows[number][f"{column}_{way}"] == length
            assert rows[number][f"stream_bytes_{way}"] == sum(part.length for part in parts)


_WHO = ("client", "broker")


def _pairs(name: str) -> list[Pair]:
    """The address pair of each connection of the naive reassembly, in its order."""
    isn: dict[tuple[object, int], int] = {}
    known: set[object] = set()
    pairs: list[Pair] = []
    for _, seen in packets_of(name):
        key = (seen.pair, seen.endpoint_index)
        is_new = seen.flags & (SYN | ACK) == SYN and isn.get(key, seen.sequence) != seen.sequence
        if seen.pair not in known or is_new:
            known.add(seen.pair)
            isn.pop((seen.pair, 1 - seen.endpoint_index), None)
            isn.pop(key, None)
            assert isinstance(seen.pair, Pair)
            pairs.append(seen.pair)
        if seen.flags & SYN:
            isn[key] = seen.sequence
    return pairs


def _followed(name: str, connection: int) -> list[list[Part]]:
    """The pieces of both sides as `follow` shows them, neighbours of one kind joined."""
    sides: list[list[Part]] = [[], []]
    (chain,) = chains([str(CAPTURES / name)]).chains
    for block in dissect(chain, Options(follow_connection=connection)):
        if block.table != TABLE:
            continue
        kinds, spans = block.columns["kind"], block.columns["data"]
        for row in range(block.rows):
            parts = sides[int(block.columns["endpoint_index"][row])]
            kind = kinds.names[int(kinds.codes[row])]
            at, size = int(spans.starts[row]), max(0, int(spans.lengths[row]))
            data = spans.data[at : at + size].tobytes()
            part = Part(
                kind,
                int(block.columns["stream_offset"][row]),
                int(block.columns["bytes"][row]),
                data,
            )
            if parts and parts[-1].kind == kind:
                last = parts.pop()
                part = Part(kind, last.start, last.length + part.length, last.data + data)
            parts.append(part)
    return sides


@some_captures
def test_what_was_sent_again_was_seen_before(name: str) -> None:
    """Counted offline: packets all of whose bytes were there before, SYNs and FINs included."""
    expected = _sent_again(name)
    for row in tables_of(name)["connections"]:
        for way, who in zip(WAYS, _WHO, strict=True):
            end = (row[f"{who}_ip"], row[f"{who}_port"])
            if row["connection_id"] in expected:
                again, late, copies = expected[row["connection_id"]][end]
                assert row[f"duplicate_packets_{way}"] == copies
                assert row[f"retransmitted_packets_{way}"] == again
                assert row[f"out_of_order_packets_{way}"] == late
                letter = "T" if (row["role_source"], who) == ("syn", "client") else "t"
                if row["role_source"] == "syn":
                    assert (letter in row["history"]) == (again > 0)


def _sent_again(name: str) -> dict[int, dict[tuple[str, int], tuple[int, int, int]]]:
    """By connection and sender: packets that repeat bytes, that came late, copies by the tap."""
    numbers: dict[object, int] = {}
    counts: dict[int, dict[tuple[str, int], tuple[int, int, int]]] = {}
    first_us: dict[object, int] = {}
    origins: dict[tuple[int, int], int] = {}
    places_of: dict[tuple[int, int], set[int]] = {}
    tops: dict[tuple[int, int], int] = {}
    total = 0
    isn: dict[object, int] = {}
    for segment, seen in packets_of(name):
        if seen.flags & (SYN | ACK) == SYN and isn.get(seen.pair) != seen.sequence:
            isn[seen.pair] = seen.sequence
            numbers.pop(seen.pair, None)
        if seen.pair not in numbers:
            numbers[seen.pair] = total
            total += 1
        number = numbers[seen.pair]
        end = (segment.source, segment.source_port)
        pair = seen.pair
        assert isinstance(pair, Pair)
        ends = counts.setdefault(number, {pair.one: (0, 0, 0), pair.other: (0, 0, 0)})
        again, late, copies = ends[end]
        # A packet sent again has an IP identification of its own.
        copy = (number, end, seen, segment.window, segment.tsval, segment.ip_id)
        if segment.ts_us - first_us.get(copy, -COPY_US - 1) <= COPY_US:
            ends[end] = again, late, copies + 1
            continue
        first_us[copy] = segment.ts_us
        if seen.flags & RST:
            continue
        way = (number, seen.endpoint_index)
        origin = origins.setdefault(way, seen.sequence)
        known = places_of.setdefault(way, set())
        top = tops.get(way, -1)
        near = (seen.sequence - origin - top + (1 << 31)) % (1 << 32) - (1 << 31) + top
        size = seen.wire_bytes + bool(seen.flags & SYN) + bool(seen.flags & FIN)
        if size <= 1 and near == top and not seen.flags & (SYN | FIN):
            continue  # a keep-alive
        places = set(range(near, near + size))
        if places & known:
            again += 1
        elif places and near < top:
            late += 1
        ends[end] = again, late, copies
        known |= places
        tops[way] = max(places, default=top) if near + size > top else top
    return counts
