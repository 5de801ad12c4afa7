"""However TCP cuts a stream into segments, the rows are the same: real captures, cut elsewhere."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.cli.main import run
from dissector.dissection import Options
from dissector.lake.reader import open_lake
from tests.anycut import at_random, behind, bytes_of, differences, each_byte, frame_starts, rows_of
from tests.dissector.observed import CAPTURES, Row, Tables
from tests.hard.tape import Tape, simple
from tests.wire.captures import pcap
from tests.wire.cursus import VECTORS, frame
from tests.wire.recut import Places, out_of_order, recut

# Short captures in which every kind of frame and of beginning is.
CURSUS = (
    "cursus/apr26-raw_commands.pcap",
    "cursus/go-batch_gzip.pcap",
    "cursus/go-consume_streaming.pcap",
    "cursus/go-eventstore.pcap",
    "cursus/go-idempotent.pcap",
    "cursus/go-negotiate_structured_errors.pcap",
    "cursus/go-produce_singles_acks_0.pcap",
    "cursus/java-produce_acks0.pcap",
    "cursus/py-txn_token_in_payload.pcap",
    "cursus/raw-commands_all.pcap",
    "cursus/raw-seed_positional.pcap",
    "cursus/tls-mixed.pcap",
)
PULSAR = (
    "pulsar/cpp-s01_handshake_producer.pcap",
    "pulsar/cpp-s18_keepalive.pcap",
    "pulsar/fake-f14_batch_index_ack.pcap",
    "pulsar/fake-f17_tls.pcap",
    "pulsar/tap-oneway.pcap",
    "pulsar/var-any-sll1.pcap",
    "pulsar-apache/go-g06_txn-bem.pcap",
    "pulsar-apache/java-j12_nack_batch_index.pcap",
    "pulsar-apache/java-j34_http_lookup.pcap",
    "pulsar-apache/java-j83_haproxy-v1.pcap",
    "pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap",
)
each = pytest.mark.parametrize("name", (*CURSUS, *PULSAR))


@cache
def whole(name: str) -> tuple[bytes, Tables]:
    capture = bytes_of(CAPTURES / name)
    return capture, rows_of(capture)


AGAINST = [
    ("pulsar/cpp-s01_handshake_producer.pcap", "cursus"),
    ("pulsar-apache/java-j83_haproxy-v1.pcap", "pulsar"),
    ("pulsar-apache/java-j83_haproxy-v1.pcap", "cursus"),
    ("pulsar/fake-f17_tls.pcap", "cursus"),
    ("cursus/go-eventstore.pcap", "cursus"),
    ("cursus/go-eventstore.pcap", "pulsar"),
]


def differs(name: str, places: Places) -> dict[str, Any]:
    capture, tables = whole(name)
    cut = recut(capture, places)
    assert len(cut) > len(capture)
    return differences(tables, rows_of(cut))


@each
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 11])
def test_frames_may_be_cut_behind_any_of_their_first_bytes(name: str, count: int) -> None:
    """A length prefix, a command's tag, a word: a header comes in two segments."""
    starts = frame_starts(whole(name)[1])
    if starts:
        assert differs(name, behind(starts, count)) == {}


@each
def test_every_byte_may_come_in_a_segment_of_its_own(name: str) -> None:
    """Also TLS, HTTP and the header that a proxy puts before a connection."""
    assert differs(name, each_byte) == {}


@settings(max_examples=40, derandomize=True)
@given(st.sampled_from((*CURSUS, *PULSAR)), st.integers(0, 1 << 32))
def test_segments_may_be_cut_anywhere(name: str, seed: int) -> None:
    assert differs(name, at_random(seed)) == {}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_keepalives_of_brokers_stay_where_their_length_is_cut(count: int) -> None:
    """Four zero bytes are a whole frame of Cursus, and prove nothing where they are searched."""
    name = "cursus/go-ipv6_loopback.pcap"
    tables = whole(name)[1]
    kept = [row for row in tables["frames"] if row["command"] == "KEEPALIVE"]
    assert kept
    assert differs(name, behind(frame_starts(tables), count)) == {}


@pytest.mark.parametrize(("name", "protocol"), AGAINST)
def test_what_the_user_names_is_read_the_same_however_it_is_cut(name: str, protocol: str) -> None:
    """Also whether the content contradicts."""
    options = Options(protocol=protocol)
    capture, plain = whole(name)
    named = rows_of(capture, options)
    for places in (behind(frame_starts(plain), 2), each_byte):
        assert differences(named, rows_of(recut(capture, places), options)) == {}
    assert {row["protocol"] for row in named["connections"]} == {protocol}


@pytest.mark.parametrize("name", [*CURSUS[:7], *CURSUS[9:11], *PULSAR[:3]])
def test_naming_the_protocol_that_is_there_changes_nothing(name: str) -> None:
    """Then the slow path takes every beginning; of each connection there is one."""
    protocol = "cursus" if name in CURSUS else "pulsar"
    capture, plain = whole(name)
    assert differences(plain, rows_of(capture, Options(protocol=protocol))) == {}


# What a side may say: frames of either protocol, known and not, other protocols, anything.
SAYINGS = st.one_of(
    st.sampled_from([bytes.fromhex(digits) for digits in VECTORS.values()]),
    st.sampled_from([frame(b"\0\1t" + b"some words that no list of commands has, at all"),
                     frame(b"CREATED by nobody we know"), frame(b"OK"), frame(b""), frame(b"gr8")]),
    st.sampled_from([simple("CONNECT", client_version="c", protocol_version=21), simple("PING"),
                     simple("CONNECTED", server_version="b", protocol_version=21)]),
    st.sampled_from([b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 10.9.8.7 10.0.0.2 5 6650\r\n",
                     b"PROXY but not so", b"\x16\3\1\0\5hello", bytes(33)]),
    st.binary(min_size=1, max_size=70),
)  # fmt: skip


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), SAYINGS), min_size=1, max_size=3))
def test_a_connection_may_begin_with_anything(said: list[tuple[bool, bytes]]) -> None:
    """Each is said in one segment, or byte by byte. (Three frames that begin packets tell more.)"""
    tape = Tape()
    tape.open()
    for to_broker, data in said:
        tape.say(to_broker, data)
    tape.close()
    once = pcap(tape.records())
    assert differences(rows_of(once), rows_of(recut(once, each_byte))) == {}


def both(one: str, other: str) -> bytes:
    """Two captures of one link type as one, the second's packets behind the first's."""
    first, second = (bytes_of(CAPTURES / name) for name in (one, other))
    assert first[:4] == second[:4] and first[20:24] == second[20:24]
    return first + second[24:]


def test_both_protocols_may_be_in_one_capture() -> None:
    mixed = both("cursus/go-eventstore.pcap", "pulsar/cpp-s01_handshake_producer.pcap")
    tables = rows_of(mixed)
    assert {row["protocol"] for row in tables["frames"]} == {"cursus", "pulsar"}
    for places in (behind(frame_starts(tables), 1), behind(frame_starts(tables), 3), each_byte):
        assert differences(tables, rows_of(recut(mixed, places))) == {}


@pytest.mark.parametrize("name", ["cursus/go-ipv6_loopback.pcap", "pulsar/cpp-s18_keepalive.pcap"])
def test_a_tap_gives_the_rows_of_a_file_whose_segments_are_tiny(name: str, tmp_path: Path) -> None:
    capture, tables = whole(name)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(recut(capture, each_byte))
    found = []
    for arguments in (["land", str(cut)], ["tap", "--replay", str(cut)]):
        lake = tmp_path / arguments[0]
        assert run([*arguments, "--lake", str(lake), "-q"]) == 0
        with open_lake(lake) as opened:
            rows = {table: opened.table(table).to_pylist() for table in tables}
        for row in (row for each in rows.values() for row in each):
            row.pop("capture")
        found.append({table: sorted(each, key=repr) for table, each in rows.items()})
    assert found[0] == found[1]
    assert len(found[0]["frames"]) == len(tables["frames"])


@settings(max_examples=20, derandomize=True)
@given(st.sampled_from((*CURSUS, *PULSAR)), st.integers(0, 1 << 32))
def test_pieces_may_come_twice_and_in_another_order(name: str, seed: int) -> None:
    """Pieces of one segment change places, some are sent again: the frames are the same."""
    capture, tables = whole(name)
    places = behind(frame_starts(tables), 1 + seed % 3) if seed % 2 else at_random(seed)
    shuffled = rows_of(out_of_order(recut(capture, places), random.Random(seed)))
    assert [plain(row) for row in shuffled["frames"]] == [plain(row) for row in tables["frames"]]


def plain(row: Row) -> Row:
    """A frame without times, which copies may move, and its place, counted from what came first."""
    left_out = ("stream_offset", "ts", "first_ts_ns", "last_ts_ns")
    return {name: value for name, value in row.items() if name not in left_out}
