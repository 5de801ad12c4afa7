"""Whatever ids clients choose for producers, consumers and requests, the rows are the same."""

from typing import Final

import pytest

from tests.anycut import differences, rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import CAPTURES, Tables
from tests.dissector.test_lost_packets import whole
from tests.wire.other_ids import IDS, Choice, drawn, free, lowest, renamed

# Frames that were cut keep their ids.
CUT: Final = ("var-snaplen96", "mut-snap200")
FEW: Final = (
    "pulsar/cpp-s15_errors.pcap",
    "pulsar/cpp-s22_multi_one_conn.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j60_txn_commit.pcap",
    "pulsar-apache/java-j73_broker_restart-bem.pcap",
    "pulsar-apache/mut-loss1-java-j24_unload.pcap",
)
ALL: Final = sorted(
    f"{each.parent.name}/{each.name}"
    for each in CAPTURES.glob("*/*.pcap*")
    if each.parent.name != "cursus" and not each.name.startswith(CUT)
)
WAYS: Final[dict[str, Choice]] = {"drawn": drawn("ids"), "lowest": lowest, "free": free}


def without_ids(tables: Tables) -> Tables:
    return {
        table: [
            {name: value for name, value in row.items() if name not in IDS}
            for row in rows
            if row.get("code") != "checksum_offload"
        ]
        for table, rows in tables.items()
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else FEW)
def test_other_ids_change_nothing_but_themselves(name: str, way: str) -> None:
    """Also if all connections have the same ones, and requests one after the other one number."""
    data, tables = whole(name)
    made = renamed(data, tables, WAYS[way])
    rows = rows_of(made.capture)
    assert differences(without_ids(tables), without_ids(rows)) == {}
    for row in rows["frames"]:
        before = tables["frames"][row["frame_no"] - 1]
        for id_ in IDS:
            if before[id_] is not None:
                assert row[id_] == made.ids.get((row["frame_no"], id_), before[id_])
    if way == "drawn" and made.ids:
        assert made.capture != data and rows["frames"] != tables["frames"]
