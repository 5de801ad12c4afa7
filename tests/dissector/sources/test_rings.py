"""Names and times of ring files, chains, base names, ids."""

import gzip
import os
import random

import pytest

from dissector.errors import UsageError
from dissector.sources import file_times
from dissector.sources.decompress import InputBytes
from dissector.sources.rings import base_name, capture_id, chains
from tests.wire.captures import Record, pcap, pcapng

SECOND = 10**9

BASE_NAMES = {
    "x.pcap": "x-pcap",
    "Some Capture (1).pcap": "some-capture--1--pcap",
    "x.pcap.gz": "x-pcap",
    "x.pcap.zst": "x-pcap",
    "x.pcap.xz": "x-pcap",
    "x.pcapng.lz4": "x-pcapng",
    "ring.pcap0": "ring-pcap",
    "ring.pcap": "ring-pcap",
    "ring.pcap12.gz": "ring-pcap",
    "ring.pcap007": "ring-pcap",
    "trace": "trace",
    "trace3": "trace",
    "tap_00001_20260101120000.pcapng": "tap-pcapng",
    "tap_20260101120000_00017.pcapng": "tap-pcapng",
    "my_tap_123456_20260101120000.pcap.gz": "my_tap-pcap",
    "tap-20260101.pcap": "tap-pcap",
    "tap-2026-01-01_12-00-00.pcap": "tap-pcap",
    "tap-2026-01-01T12:00:00.pcap3": "tap-pcap",
    "tap_1767225600.pcap": "tap-pcap",
    "20260101-tap.pcap": "tap-pcap",
    "run1.pcap": "run1-pcap",
    "run2026.pcap": "run2026-pcap",
    "java-j12_nack.pcap": "java-j12_nack-pcap",
    "20269999.pcap": "20269999-pcap",
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}ber.pcap7": "uber-pcap",
    "\u591c\u95f4-20260101.pcap.gz": "u591c-u95f4-pcap",
    "-": "stdin",
}


@pytest.mark.parametrize(("name", "base"), BASE_NAMES.items(), ids=BASE_NAMES.keys())
def test_base_names_lose_ring_and_compression_suffixes(name, base):
    assert base_name([name]) == base
    if name != "-":
        assert base_name([f"/some/folder_00001_20260101120000/{name}"]) == base


def test_ids_name_the_bytes_and_stay_short():
    assert capture_id("x-pcap", "0123456789abcdef" * 4) == "c-x-pcap-0123456789ab"
    assert len(capture_id(base_name(["x" * 250]), "0" * 64)) < 200


def stored(folder, name, *seconds, build=pcap, pack=bytes):
    path = folder / name
    path.write_bytes(pack(build([Record(int(second * SECOND), b"x") for second in seconds])))
    return str(path)


def names(plan):
    return [[os.path.basename(file) for file in chain.files] for chain in plan.chains]


def shuffled(paths, seed=1):
    paths = list(paths)
    random.Random(seed).shuffle(paths)
    return paths


def test_a_ring_that_starts_its_numbers_again_is_put_in_time_order(tmp_path):
    files = [
        stored(tmp_path, "ring.pcap0", 20, 29),
        stored(tmp_path, "ring.pcap1", 30, 35),
        stored(tmp_path, "ring.pcap2", 5, 10),
        stored(tmp_path, "ring.pcap3", 10, 19.5),
    ]
    plan = chains(shuffled(files))
    assert names(plan) == [["ring.pcap2", "ring.pcap3", "ring.pcap0", "ring.pcap1"]]
    assert plan.chains[0].base_name == "ring-pcap"
    assert plan.problems == []
    assert len(chains(files, "none").chains) == 4


TOOLS = {
    "tcpdump -C": ["tap.pcap", "tap.pcap1", "tap.pcap2", "tap.pcap10"],
    "tcpdump -C without extension": ["tap", "tap1", "tap2", "tap10"],
    "tcpdump -C -W": ["tap.pcap00", "tap.pcap01", "tap.pcap02"],
    "tcpdump -G": ["tap-20260101-1159.pcap", "tap-20260101-1200.pcap"],
    "tcpdump -G %s": ["tap_1767225600.pcap", "tap_1767225660.pcap"],
    "tcpdump -C -G": ["tap-20260101.pcap", "tap-20260101.pcap1", "tap-20260102.pcap"],
    "dumpcap": ["tap_00001_20260101120000.pcapng", "tap_00002_20260101120500.pcapng"],
    "dumpcap nametimenum": ["tap_20260101120000_00001.pcapng", "tap_20260101120500_00002.pcapng"],
}


@pytest.mark.parametrize("files", TOOLS.values(), ids=TOOLS.keys())
def test_the_names_of_tools_make_one_capture(tmp_path, files):
    build = pcapng if files[0].endswith("ng") else pcap
    paths = [
        stored(tmp_path, name, 10 * number, 10 * number + 9, build=build)
        for number, name in enumerate(files, 1)
    ]
    assert names(chains(shuffled(paths))) == [files]
    packed = [stored(tmp_path, f"z{name}.gz", 5 + n, 5 + n, pack=gzip.compress, build=build)
              for n, name in enumerate(files)]  # fmt: skip
    assert names(chains(shuffled(packed))) == [[f"z{name}.gz" for name in files]]


def test_other_numbers_are_captures_of_their_own(tmp_path):
    files = [stored(tmp_path, f"run{number}.pcap", number, number + 0.5) for number in (1, 2, 3)]
    assert names(chains(files)) == [["run1.pcap"], ["run2.pcap"], ["run3.pcap"]]


def test_files_that_overlap_in_time_are_not_one_ring(tmp_path):
    files = [stored(tmp_path, "a.pcap0", 10, 20), stored(tmp_path, "a.pcap1", 15, 25)]
    assert names(chains(files)) == [["a.pcap0"], ["a.pcap1"]]
    assert names(chains(files, "all")) == [["a.pcap0", "a.pcap1"]]


def test_a_sliver_of_overlap_is_reordering_at_the_border(tmp_path):
    files = [stored(tmp_path, "a.pcap0", 10, 20), stored(tmp_path, "a.pcap1", 19.9, 25)]
    assert names(chains(files)) == [["a.pcap0", "a.pcap1"]]
    files = [stored(tmp_path, "b.pcap0", 10, 20), stored(tmp_path, "b.pcap1", 19.7, 25)]
    assert names(chains(files)) == [["b.pcap0"], ["b.pcap1"]]


def test_rings_of_two_folders_stay_apart(tmp_path):
    for later, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        stored(tmp_path / folder, "a.pcap0", 1, 2 + later / 2)
        stored(tmp_path / folder, "a.pcap1", 3, 4 + later)
    assert names(chains([str(tmp_path)])) == [["a.pcap0", "a.pcap1"]] * 2


def test_the_same_capture_packed_and_plain_is_one(tmp_path):
    files = [stored(tmp_path, "x.pcap", 1), stored(tmp_path, "x.pcap.gz", 1, pack=gzip.compress)]
    plan = chains(files)
    assert names(plan) == [["x.pcap"]]
    assert plan.repeated == [f"{files[1]}: all of it is in {files[0]}, and read once"]


def test_of_one_name_packed_and_plain_with_other_packets_are_two(tmp_path):
    files = [stored(tmp_path, "x.pcap", 1), stored(tmp_path, "x.pcap.gz", 2, pack=gzip.compress)]
    plan = chains(files)
    assert names(plan) == [["x.pcap"], ["x.pcap.gz"]]
    assert {chain.base_name for chain in plan.chains} == {"x-pcap"}


def test_a_file_that_holds_another_one_stands_for_it(tmp_path):
    long = stored(tmp_path, "tap.pcap", 1, 2, 3)
    early = stored(tmp_path, "copy.pcap", 1, 2)
    other = stored(tmp_path, "other.pcap", 1, 2, 4)
    for order in ([long, early, other], [other, early, long], [early, other, long]):
        plan = chains(order)
        assert sorted(names(plan)) == [["other.pcap"], ["tap.pcap"]]
        assert len(plan.repeated) == 1 and plan.repeated[0].startswith(early)


def test_of_many_that_begin_at_one_time_none_is_opened_once_more_for_each_other(
    tmp_path, monkeypatch
):
    opened = []

    def counted(path):
        opened.append(path)
        return InputBytes(path)

    monkeypatch.setattr(file_times, "InputBytes", counted)
    counts = []
    for number in (3, 12):
        files = [stored(tmp_path, f"x{each}.cap", 1, each + 2) for each in range(number)]
        opened.clear()
        assert len(chains(files, "none").chains) == number
        counts.append(len(opened) / number)
    assert counts[0] == counts[1]


def test_files_without_packets_close_the_chain(tmp_path):
    files = [stored(tmp_path, f"a.pcap{number}", *times) for number, times in
             enumerate([(), (5, 6), (1, 2)])]  # fmt: skip
    assert names(chains(files)) == [["a.pcap2", "a.pcap1", "a.pcap0"]]


def test_all_puts_everything_in_time_order(tmp_path):
    files = [
        stored(tmp_path, "x10.cap", 3, 4),
        stored(tmp_path, "x2.cap", 3, 5),
        stored(tmp_path, "a", 1),
    ]
    assert names(chains(files, "all")) == [["a", "x2.cap", "x10.cap"]]


def test_captures_come_in_the_order_of_the_inputs(tmp_path):
    files = [stored(tmp_path, name, 9 - number) for number, name in enumerate(("z.cap", "a.cap"))]
    assert names(chains([*files, "-"])) == [["z.cap"], ["a.cap"], ["-"]]
    assert chains(["-"], "all").chains == [(("-",), "stdin")]
    with pytest.raises(UsageError, match="cannot be chained"):
        chains([*files, "-"], "all")


def test_a_pipe_is_not_looked_into(tmp_path):
    path = str(tmp_path / "pipe.pcap")
    os.mkfifo(path)
    assert names(chains([path])) == [["pipe.pcap"]]


def test_folders_may_hold_other_things(tmp_path):
    stored(tmp_path, "a.pcap", 1)
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "broken.pcap").write_text("not a capture")
    plan = chains([str(tmp_path)])
    assert names(plan) == [["a.pcap"]]
    assert [os.path.basename(problem.path) for problem in plan.problems] == ["broken.pcap"]
    named = chains([str(tmp_path / "manifest.json")])
    assert named.chains == [] and "not a capture" in named.problems[0].text
