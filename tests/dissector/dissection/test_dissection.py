"""A real capture through every stage: counts of an independent decoder, and closed accounts."""

import gc
import hashlib
import json
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from dissector.dissection.frame_stages import FrameStages
from dissector.lake.land import land_chain
from dissector.protocols.interface import FrameBlock
from dissector.sources import files
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.busy.traffic import Size, write_capture
from tests.hard.packet_floods import PACKET_FLOODS
from tests.plain import rows_of_block

CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"
MANIFEST = {each["file"]: each for each in json.loads((CAPTURES / "manifest.json").read_text())}
UNDAMAGED = ("java-j74_corrupt.pcap", "java-j12_nack.pcap", "java-j24_unload.pcap")


def tables_of(name: str) -> dict[str, list[dict]]:
    tables: dict[str, list[dict]] = {}
    (chain,) = chains([str(CAPTURES / name)]).chains
    for block in dissect(chain, Options()):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


@pytest.mark.parametrize("name", UNDAMAGED)
def test_frames_and_accounts_of_a_real_capture(name):
    tables = tables_of(name)
    counts = Counter(f"{row['direction']} {row['command']}" for row in tables["frames"])
    assert dict(counts) == MANIFEST[name]["frames"]
    frame_nos = [row["frame_no"] for row in tables["frames"]]
    assert frame_nos == list(range(1, len(frame_nos) + 1))
    for row in tables["connections"]:
        for way in ("to_broker", "to_client"):
            there = sum(
                row[f"{part}_{way}"]
                for part in ("decoded_bytes", "unparsed_bytes", "gap_bytes", "snaplen_cut_bytes")
            )
            assert there == row[f"stream_bytes_{way}"]
    for row in tables["capture_files"]:
        ignored = sum(count for _, count in row["packets_ignored_by_reason"])
        assert row["packets"] == row["packets_tcp"] + ignored == MANIFEST[name]["packets"]


@pytest.mark.parametrize("name", [
    "java-j73_broker_restart-bem.pcap", "java-j72_midstream.pcap", "java-j83_haproxy-v1.pcap",
])  # fmt: skip
def test_the_clients_of_frames_come_before_them_and_change_no_row(name: str) -> None:
    told: dict[int, tuple[str, int, str | None]] = {}
    rows: dict[str, list[dict]] = {}
    (chain,) = chains([str(CAPTURES / name)]).chains
    for block in dissect(chain, Options(want_clients=True)):
        if block.table == "clients":
            ips = block.columns["client_ip"]
            texts = [ips.names[code] for code in ips.codes]
            ports = block.columns["client_port"].tolist()
            ends = zip(texts, ports, block.columns["proxied_client_ip"], strict=True)
            told.update(zip(block.columns["connection_id"].tolist(), ends, strict=True))
            continue
        mine = rows_of_block(block)
        rows.setdefault(block.table, []).extend(mine)
        if block.table == "frames":
            assert {row["connection_id"] for row in mine} <= told.keys()
    assert rows == tables_of(name)
    for row in rows["connections"]:
        if row["connection_id"] in told:
            columns = "client_ip", "client_port", "proxied_client_ip"
            assert told[row["connection_id"]] == tuple(row[column] for column in columns)


def landed(paths: list[Path], lake: Path) -> dict[str, str]:
    """Digests of the Parquet files of one capture."""
    (chain,) = chains([str(path) for path in paths], "all").chains
    land_chain(chain, lake, Options(properties=True, payload_sha256=True, want_detail="all"))
    files = sorted(lake.rglob("*.parquet"))
    return {str(f.relative_to(lake)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.mark.parametrize("pattern", [
    "pulsar/ring.pcap*", "pulsar/cpp-s25_midstream.pcap", "pulsar/fake-f07_chunking64k.pcap",
    "pulsar/fake-f02_errors.pcap", "pulsar-apache/cpp-s08_nack-proxy-any.pcap",
    "pulsar-apache/java-j16_dlq_retry.pcap", "pulsar-apache/java-j35_tls.pcap",
    "pulsar-apache/mut-loss1-java-j24_unload.pcap",
    "pulsar-apache/mut-vlan-java-j20_partitioned.pcap", "cursus/tls-mixed.pcap",
    "cursus/go-transactions.pcap", "cursus/go-batch_gzip.pcap", "busy",
])  # fmt: skip
def test_stages_that_run_beside_each_other_change_no_byte(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is the faster one: many blocks are under way in buffers that are used again."""
    paths = sorted(CAPTURES.parent.glob(pattern))
    if pattern == "busy":
        paths, sizes = [tmp_path / "busy.pcap"], (50, 900, 3_000, 200)
        write_capture(paths[0], Size(4_000, connections=100, message_bytes=sizes, lost=70))
    size = sum(path.stat().st_size for path in paths)
    monkeypatch.setattr(files, "READ_BUFFER_BYTES", max(3_000, size // 60))
    begin, random = FrameStages.begin, Random(pattern)

    def delayed(stage: str) -> Callable[..., Any]:
        run = getattr(FrameStages, stage)

        def slow(*arguments: Any) -> Any:
            time.sleep(random.choice((0, 0, 0, 0.004)))
            return run(*arguments)

        return slow

    def one_by_one(self: FrameStages, frames: FrameBlock) -> None:
        begin(self, frames)
        self.finish()

    with monkeypatch.context() as patch:
        patch.setattr(FrameStages, "begin", one_by_one)
        expected = landed(paths, tmp_path / "one-by-one")
    assert landed(paths, tmp_path / "together") == expected
    for stage in ("_decode", "_pair", "_read", "_relate"):
        monkeypatch.setattr(FrameStages, stage, delayed(stage))
    assert landed(paths, tmp_path / "delayed") == expected


def test_a_finished_dissection_leaves_at_once() -> None:
    """Without waiting for a search for garbage: one holds megabytes, and a lake has thousands."""
    gc.collect()
    gc.disable()
    try:
        dissection = Dissection(Options())
        dissection.start_file()
        dissection.finish()
        gone = weakref.ref(dissection)
        del dissection
        assert gone() is None
    finally:
        gc.enable()


def rows_of(blocks: list) -> dict[str, Counter]:
    """The rows of blocks, in any order, but those of frames and notices."""
    found: dict[str, Counter] = {}
    for block in blocks:
        if block.rows and block.table not in ("frames", "notices"):
            rows = rows_of_block(block)
            for row in rows:
                row.pop("last_seq_to_broker", None)
                row.pop("last_seq_to_client", None)
            found.setdefault(block.table, Counter()).update(map(str, rows))
    return found


@pytest.mark.parametrize("name", [*UNDAMAGED, "../cursus/go-group_rebalance_two_consumers.pcap"])
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_what_stands_open_are_the_rows_of_an_end(name, share):
    data = np.frombuffer((CAPTURES / name).read_bytes(), np.uint8).copy()
    dissection = Dissection(Options())
    dissection.start_file()
    end = int(share * len(data))
    rest, _ = dissection.feed(data, 0, end, False)
    while dissection.pending_bytes() and end < len(data):  # an end makes frames of parts of them
        end = min(end + 100, len(data))
        rest, _ = dissection.feed(data, rest, end, False)
    dissection.rotate()
    open_rows = rows_of(dissection.open_rows())
    assert open_rows == rows_of(dissection.open_rows()), "asking changes nothing"
    dissection.end_file()
    ended = rows_of(dissection.finish())
    assert open_rows["connections"].total() == ended["connections"].total()
    assert open_rows == ended
    assert rest and rows_of(dissection.open_rows()).keys() <= {"connections"}


def test_notices_that_wait_for_their_connections_are_bounded_however_the_input_is_cut(monkeypatch):
    """A flood of connections behind ever other tunnels has two notices each."""
    for module in ("dissection.dissection", "notice_log"):
        monkeypatch.setattr(f"dissector.{module}.MAX_NOTICES", 20)
    data = np.frombuffer(PACKET_FLOODS["tunnel ids"](300), np.uint8).copy()
    seen = []
    for step in (len(data), 5000):
        dissection = Dissection(Options())
        dissection.start_file()
        blocks, position = [], 0
        for end in (*range(step, len(data), step), len(data)):
            position, found = dissection.feed(data, position, end, end == len(data))
            blocks += found
            assert dissection._connections._held.count <= 20
        dissection.end_file()
        blocks += dissection.finish()
        (rows,) = [rows_of_block(each) for each in blocks if each.table == "notices"]
        seen.append(rows)
        assert len(rows) == 21 and rows[-1]["code"] == "notices_limit"
        assert int(rows[-1]["text"].split()[0]) > 200
    assert seen[0] == seen[1]
