"""What is chosen, what belongs to it, and how few packets show the same.

Here are tested: dissector.evidence.frame_selection, cutting, facts, source_files, bundle.
"""

import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.dissection import Options
from dissector.errors import InputError, UsageError
from dissector.evidence import cutting, facts
from dissector.evidence import frame_selection as selecting
from dissector.evidence.bundle import EvidenceBundle, write_bundle
from dissector.evidence.source_files import chains_of
from dissector.lake.land import land_chain
from dissector.lake.reader import Lake, open_lake
from dissector.queries.sandbox import Sandbox, sandbox_over
from dissector.queries.selection import Asked, Client, Selection
from dissector.sources.bundled import MANIFEST, PACKETS
from dissector.sources.rings import Chain

UNLOAD = Path(__file__).resolve().parents[3] / "captures/pulsar-apache/java-j24_unload.pcap"
CHAIN = Chain((str(UNLOAD),), "j24")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("cutting") / "lake"
    land_chain(CHAIN, folder, Options())
    with open_lake(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def engine(lake: Lake) -> Iterator[Sandbox]:
    with sandbox_over(lake) as opened:
        yield opened


def chosen(engine: Sandbox, part: Sandbox | None = None, **asked: object) -> selecting.Chosen:
    wanted = selecting.Filters(**asked)  # type: ignore[arg-type]
    return selecting.choose(engine, wanted, part=part)


def picked(engine: Sandbox, part: Sandbox | None = None, **asked: object) -> set[int]:
    """Numbers of the frames that are selected themselves."""
    return {*chosen(engine, part, **asked).of_role(selecting.SELECTED)}


def picked_of(lake: Lake, engine: Sandbox, selection: Selection, **asked: object) -> set[int]:
    """The same of a part of the capture."""
    with sandbox_over(lake, selection=selection, has_ready_views=False) as part:
        return picked(engine, part=part, selection=selection, **asked)


def commands(engine: Sandbox, numbers: list[int]) -> list[str]:
    listed = ", ".join(map(str, numbers))
    found = engine.rows(
        f"SELECT command FROM frames WHERE frame_no IN ({listed}) ORDER BY frame_no"
    )
    return [row["command"] for row in found]


def test_conditions_narrow_each_other(lake: Lake, engine: Sandbox) -> None:
    hundred = picked(engine, frames=[(1, 100)])
    assert hundred == {*range(1, 101)}
    topics = Asked(topics=["j24"]).selection()
    some = picked_of(lake, engine, topics, frames=[(1, 100)])
    assert 0 < len(some) < 100 and some < hundred
    with pytest.raises(UsageError, match="nothing was written"):
        picked(engine, connections=[7])
    with pytest.raises(UsageError, match="nothing was written"):
        picked_of(lake, engine, Selection(subscriptions=("it's none",)))
    client = engine.rows("SELECT client_ip, client_port FROM connections")[0]
    own = Selection(clients=(Client.of(f"{client['client_ip']}:{client['client_port']}"),))
    theirs = engine.rows("SELECT frame_no FROM frames WHERE connection_id = 0")
    assert picked_of(lake, engine, own) == {row["frame_no"] for row in theirs}


def test_frames_are_chosen_by_names_that_were_learnt_behind_them(tmp_path: Path) -> None:
    """Of a producer that was opened before the capture, until it is named."""
    whole = (UNLOAD.parent / "java-j28_compaction.pcap").read_bytes()
    at = 24
    for _ in range(60):
        at += 16 + int.from_bytes(whole[at + 8 : at + 12], "little")
    (tmp_path / "cut.pcap").write_bytes(whole[:24] + whole[at:])
    land_chain(Chain((str(tmp_path / "cut.pcap"),), "cut"), tmp_path / "lake", Options())
    selection = Asked(topics=["j28"]).selection()
    with open_lake(tmp_path / "lake") as lake, sandbox_over(lake) as engine:
        frames = picked_of(lake, engine, selection)
        named = engine.rows("SELECT frame_no FROM frames WHERE topic LIKE '%/j28'")
    assert len(frames) > len(named) + 10 and frames > {row["frame_no"] for row in named}


def test_the_slowest_are_pairs(engine: Sandbox) -> None:
    selection = chosen(engine, slowest=3)
    assert len(selection.of_role(selecting.SELECTED)) == 6
    (row,) = engine.rows(
        "SELECT max(latency_ns) AS most FROM exchanges WHERE request_frame_no IN "
        f"({', '.join(map(str, selection.of_role(selecting.SELECTED)))})",
    )
    (whole,) = engine.rows("SELECT max(latency_ns) AS most FROM exchanges")
    assert row == whole


def test_what_belongs_to_a_send_is_there(engine: Sandbox) -> None:
    selection = chosen(engine, finding="lost_receipt")
    assert commands(engine, selection.of_role(selecting.SELECTED)) == ["SEND"] * 5
    opening = commands(engine, selection.of_role(selecting.SET_UP))
    expected = {"CONNECT", "CONNECTED", "PRODUCER", "PRODUCER_SUCCESS", "CLOSE_PRODUCER"}
    assert set(opening) == expected


def test_few_packets_show_the_same(engine: Sandbox) -> None:
    part = cutting.cut(engine, CHAIN, chosen(engine, slowest=3), Options(), has_permits=False)
    assert (part.selected, part.differing) == (6, 0)
    assert len(part.taken) < 40 and set(part.levels.values()) == {cutting.FRAMES_ONLY}
    part.data.close()


def test_that_no_answer_came_is_shown_by_all_packets_between(engine: Sandbox) -> None:
    """One that is left out looks like one that was lost."""
    selection = chosen(engine, finding="lost_receipt")
    part = cutting.cut(engine, CHAIN, selection, Options(), has_permits=False)
    assert (part.selected, part.differing) == (5, 0)
    assert len(part.taken) == 304 and set(part.levels.values()) == {cutting.BETWEEN}
    assert list(part.taken) == sorted(set(part.taken))
    with cutting.reread(part.data, Options()) as (_, alone):
        roles = cutting.roles_in(alone, part.taken, engine, selection)
        assert commands(alone, roles[selecting.SELECTED]) == ["SEND"] * 5
    part.data.close()


def test_more_packets_are_taken_where_few_say_something_else(engine: Sandbox) -> None:
    (row,) = engine.rows("SELECT max(frame_no) AS last FROM frames WHERE command = 'MESSAGE'")
    selection = chosen(engine, frames=[(row["last"], row["last"])])
    part = cutting.cut(engine, CHAIN, selection, Options(), has_permits=True)
    assert part.differing == 0 and part.levels == {0: cutting.WHOLE}
    part.data.close()


ROUND_TRIPS = "SELECT client_port, first_ts_ns, handshake_rtt_ns FROM connections ORDER BY ALL"
# A handshake that is whole, one that data ended, several connections, some without an opening.
OPENED = ("java-j24_unload", "java-j12_nack", "../cursus/go-group_rebalance_two_consumers")


@pytest.mark.parametrize("name", OPENED)
def test_round_trips_of_networks_are_those_of_the_capture(name: str, tmp_path: Path) -> None:
    chain = Chain((str(UNLOAD.parent / f"{name}.pcap"),), "x")
    land_chain(chain, tmp_path / "lake", Options())
    with open_lake(tmp_path / "lake") as lake, sandbox_over(lake) as whole:
        selection = chosen(whole, frames=[(1, 5)])
        part = cutting.cut(whole, chain, selection, Options(), has_permits=False)
        connections = ", ".join(map(str, part.levels))
        before = ROUND_TRIPS.replace("ORDER", f"WHERE connection_id IN ({connections}) ORDER")
        with cutting.reread(part.data, Options()) as (_, alone):
            assert alone.rows(ROUND_TRIPS) == whole.rows(before) != []
        part.data.close()


def test_sentences_of_packets_name_nothing(engine: Sandbox) -> None:
    selection = chosen(engine, finding="lost_receipt")
    said = [text for texts in facts.sentences(engine, selection).values() for text in texts]
    assert any(text.startswith("selected: SEND, producer_id 0, sequence_id 146") for text in said)
    assert any("outcome dropped_after_close" in text for text in said)
    assert not any("j24" in text or "public" in text for text in said)


def test_facts_of_the_whole_capture(engine: Sandbox) -> None:
    (capture,) = {row["capture"] for row in engine.rows("SELECT capture FROM frames")}
    told = facts.whole(engine, capture)
    assert told["frames"] == 1230
    assert "| SEND | dropped_after_close | 5 |" in told["often"]
    assert told["unseen"][0] == "- Nothing is missing between its first and its last packet."
    (source,) = facts.capture_facts(engine, capture)["sources"]
    assert source["packets"] == 755 and "file_name" not in source


def test_files_of_a_lake_are_told_by_their_bytes(lake: Lake, tmp_path: Path) -> None:
    assert chains_of(lake, []) == {}
    shutil.copy(UNLOAD, tmp_path / "renamed.pcap")
    ((_, chain),) = chains_of(lake, [str(tmp_path)]).items()
    assert chain.files == (str(tmp_path / "renamed.pcap"),)
    with (tmp_path / "renamed.pcap").open("ab") as file:
        file.write(b"\0")
    assert chains_of(lake, [str(tmp_path)]) == {}


def test_a_bundle_is_the_same_bytes_whenever_it_is_made(tmp_path: Path) -> None:
    parts = {PACKETS: b"packets", "a.txt": b"a"}
    made = []
    for _ in range(2):
        sink = io.BytesIO()
        write_bundle(sink, parts, {"what": "x"})
        made.append(sink.getvalue())
    assert made[0] == made[1]
    path = tmp_path / "b.zip"
    path.write_bytes(made[0])
    assert EvidenceBundle(str(path)).parts == parts
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read(MANIFEST))
        assert {info.date_time[0] for info in archive.infolist()} == {1980}
    assert told["parts"]["a.txt"]["bytes"] == 1
    path.write_bytes(made[0][:-30])
    with pytest.raises(InputError, match="no bundle"):
        EvidenceBundle(str(path))
