"""What is left open is open in the tables: no receipt, no acknowledgement."""

from pathlib import Path

from tests.busy.pending import write_live, write_pending
from tests.busy.test_busy import tables_of

_COUNT = 12_000


def test_sends_have_no_receipt(tmp_path: Path) -> None:
    path = tmp_path / "sends.pcap"
    write_pending(path, "outstanding sends", _COUNT)
    tables = tables_of(path)
    sends = [row for row in tables["exchanges"] if row["request_command"] == "SEND"]
    assert len(sends) == len(tables["messages"]) == _COUNT
    assert {row["response_command"] for row in sends} == {None}


def test_deliveries_are_not_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "deliveries.pcap"
    write_pending(path, "open deliveries", _COUNT)
    tables = tables_of(path)
    assert len(tables["deliveries"]) == _COUNT
    assert not tables.get("acks")


def test_connections_from_before_are_read_from_their_first_packet(tmp_path: Path) -> None:
    path = tmp_path / "live.pcap"
    assert write_live(path, 50) == 400
    tables = tables_of(path)
    assert len(tables["frames"]) == 400
    assert {row["started"] for row in tables["connections"]} == {"midstream"}
    assert not tables.get("notices")
