"""Captures from their files to rows: files of a chain, buffers, progress, what cannot be read."""

import gzip
import hashlib
import lzma
import threading
from concurrent.futures import thread as pools
from importlib import metadata
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from dissector.capture import reader
from dissector.dissection import Options
from dissector.errors import InputError
from dissector.limits import READ_BUFFER_BYTES
from dissector.schemas import SCHEMA_VERSION
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain, chains
from tests.dissector.joining.cutting import SAMPLES
from tests.plain import rows_of_block
from tests.wire.captures import Record, pcap, pcapng
from tests.wire.packets import ACK, SYN, ethernet, ipv4, segment, udp

START_NS = 1_700_000_000_000_000_000


def records(count: int = 200) -> list[Record]:
    """A connection with one byte per packet, and a UDP packet between any two."""
    records = [Record(START_NS, segment(sequence=999, flags=SYN))]
    for number in range(count):
        at = START_NS + 1_000_000 * number
        records.append(Record(at, segment(b"x", sequence=1000 + number, flags=ACK)))
        records.append(Record(at, ethernet(ipv4(udp(b"?", 1, 2), protocol=17))))
    return records


def chain_of(*paths: Path) -> Chain:
    (chain,) = chains([str(path) for path in paths], "all").chains
    return chain


def tables_of(
    chain: Chain, options: Options | None = None, **more: Any
) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {}
    for block in dissect(chain, options or Options(), **more):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_a_capture_may_end_after_some_packets(tmp_path: Path, make: Any) -> None:
    """As if its files had ended behind the last one, whatever is there, and whoever compresses."""
    one, two = make(records()[:90]), make(records()[90:])
    whole, shorter = tmp_path / "whole", tmp_path / "shorter"
    for folder in (whole, shorter):
        folder.mkdir()
        (folder / "night.pcap").write_bytes(one)
    (whole / "night.pcap1.gz").write_bytes(gzip.compress(two + b"tail"))
    (shorter / "night.pcap1").write_bytes(make(records()[90:97]))
    (whole / "night.pcap2").write_bytes(make([Record(START_NS + 10**12, segment(b"late"))]))
    tables = tables_of(chain_of(*sorted(whole.iterdir())), Options(max_packets=97))
    wanted = tables_of(chain_of(*sorted(shorter.iterdir())))
    for files in (tables, wanted):
        for row in files["capture_files"]:
            del row["file_name"], row["compressed"]
    assert tables == wanted and tables["capture_files"][1]["packets"] == 7


def test_a_file_has_a_row_of_its_own_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "night.pcap"
    content = pcap(records(), snaplen=1234)
    path.write_bytes(content)
    blocks = list(dissect(chain_of(path), Options(), cluster="prod"))
    assert blocks[-1].table == "capture_files"
    (row,) = arrow_batch(blocks[-1]).to_pylist()
    assert row["packets_ignored_by_reason"] == [("udp", 200)]
    expected = {
        "file_name": "night.pcap",
        "file_index": 0,
        "tap_run": None,
        "cluster": "prod",
        "sha256": hashlib.sha256(content).hexdigest(),
        "file_bytes": len(content),
        "format": "pcap",
        "compressed": None,
        "packets": 401,
        "packets_tcp": 201,
        "first_packet": 1,
        "snaplen": 1234,
        "first_ts_ns": START_NS,
        "last_ts_ns": START_NS + 199_000_000,
        "is_truncated": False,
        "dissector_version": metadata.version("pulsar-dissector"),
        "schema_version": SCHEMA_VERSION,
    }
    assert {name: row[name] for name in expected} == expected


def test_files_of_a_chain_are_one_capture(tmp_path: Path) -> None:
    packets = records()
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(pcap(packets))
    parts = []
    for number, start in enumerate(range(0, len(packets), 100)):
        path = tmp_path / f"part{number}.pcap"
        path.write_bytes(pcap(packets[start : start + 100]))
        parts.append(path)
    one, many = tables_of(chain_of(whole)), tables_of(chain_of(*parts))
    assert {name: rows for name, rows in many.items() if name != "capture_files"} == {
        name: rows for name, rows in one.items() if name != "capture_files"
    }
    rows = many["capture_files"]
    assert [row["file_index"] for row in rows] == list(range(5))
    assert [row["first_packet"] for row in rows] == [1, 101, 201, 301, 401]
    assert sum(row["packets"] for row in rows) == 401
    assert sum(row["packets_tcp"] for row in rows) == 201


def test_formats_and_compression_change_nothing_but_the_file_s_row(tmp_path: Path) -> None:
    packets = records()
    contents = {
        "a.pcap": pcap(packets),
        "b.pcap": pcap(packets, order=">"),
        "c.pcapng": pcapng(packets),
        "d.pcap.gz": gzip.compress(pcap(packets)),
    }
    found = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        tables = tables_of(chain_of(tmp_path / name))
        (row,) = tables.pop("capture_files")
        assert row["format"] == ("pcapng" if name.endswith("ng") else "pcap")
        assert row["compressed"] == ("gzip" if name.endswith("gz") else None)
        found.append(tables)
    assert all(tables == found[0] for tables in found)


def test_progress_rises_to_the_stored_size(tmp_path: Path) -> None:
    path = tmp_path / "night.pcap.gz"
    path.write_bytes(gzip.compress(pcap(records(3000))))
    seen: list[int] = []
    for _ in dissect(chain_of(path), Options(), seen.append):
        pass
    assert seen == sorted(seen) and seen[-1] == path.stat().st_size


def test_a_cut_file_keeps_what_was_good(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap(records())[:-30])
    tables = tables_of(chain_of(path))
    (row,) = tables["capture_files"]
    assert row["is_truncated"] and row["packets"] == 400
    assert "truncated_tail" in [each["code"] for each in tables["notices"]]


def test_damaged_compression_keeps_what_was_good(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap.gz"
    path.write_bytes(gzip.compress(pcap(records(2000)))[:-200])
    tables = tables_of(chain_of(path))
    (row,) = tables["capture_files"]
    assert row["is_truncated"] and 0 < row["packets"] < 4001
    assert "damaged_compression" in [each["code"] for each in tables["notices"]]


def test_a_header_without_packets_is_a_capture_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap([]))
    tables = tables_of(chain_of(path))
    assert tables.get("connections", []) == []
    (row,) = tables["capture_files"]
    assert (row["packets"], row["first_ts_ns"], row["is_truncated"]) == (0, None, False)


def test_a_chain_of_which_nothing_can_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "gone.pcap"
    path.write_bytes(pcap(records(3)))
    chain = chain_of(path)
    path.unlink()
    with pytest.raises(InputError, match=r"gone\.pcap"):
        list(dissect(chain, Options()))


PACK = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "lz4": lz4.frame.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}


@pytest.mark.parametrize("codec", PACK)
def test_a_bomb_is_read_no_further_than_the_bound(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of it, and hashed, does not depend on which thread is quicker."""
    monkeypatch.setattr(reader, "MAX_PACKETLESS_BYTES", 1 << 20)
    path = tmp_path / "bomb.pcap"
    path.write_bytes(PACK[codec](pcap(records()) + bytes(64 << 20)))
    found = [tables_of(Chain((str(path),), "bomb")) for _ in range(2)]
    assert found[0] == found[1]
    (file,) = found[0]["capture_files"]
    assert file["is_truncated"] and file["packets"] == 401
    assert file["file_bytes"] <= 3 * READ_BUFFER_BYTES
    codes = [row["code"] for row in found[0]["notices"]]
    assert {"corrupt_record", "packetless_limit"} <= set(codes)


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_a_run_that_is_stopped_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """One that pools do not know, as an interrupt came while it started, ends like the others."""
    monkeypatch.setattr(pools, "_threads_queues", {})
    path = SAMPLES / "java-j12_nack.pcap"
    before = {*threading.enumerate()}
    blocks = dissect(chain_of(path), Options())
    for block in blocks:
        if block.table == "frames":
            break
    started = {*threading.enumerate()} - before
    assert len(started) > 1
    with pytest.raises(error) as stopped:  # it refers to all objects of the run
        blocks.throw(error)
    for thread in started:
        thread.join(20)
    assert not any(thread.is_alive() for thread in started) and stopped
