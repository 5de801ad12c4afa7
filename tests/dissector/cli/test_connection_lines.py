"""Connections as lines: aligned, in a pipe all columns, on a terminal those that fit."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dissector.cli.connection_lines import COLUMNS, ConnectionLines
from dissector.cli.terminal import Paint, columns_of
from dissector.schemas import TABLES

PLAIN = Paint("never")


def connection(**values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "connection_id": 3, "first_ts_ns": 0, "last_ts_ns": 1_500_000_000, "client_ip": "::1",
        "client_port": 5, "broker_ip": "10.0.0.1", "broker_port": 6650, "protocol": "pulsar",
        "history": "ShAd", "started": "midstream", "ended": "fin", "closed_first_by": "client",
        "gap_bytes_to_broker": 7, "client_version": "Go \x1b",
    }  # fmt: skip
    return row | values


def lines_of(*rows: dict[str, Any], width: int | None = None, color: str = "never") -> list[str]:
    made = ConnectionLines(Paint(color), width)
    made.widen(rows)
    return [made.heading(), *map(made.line, rows)]


def test_a_connection_is_one_line_with_as_many_cells_as_the_heading() -> None:
    heading, line = lines_of(connection())
    cells = line.split()
    assert cells[:5] == ["3", "1970-01-01T00:00:00.000000Z", "1.500000", "[::1]:5", "10.0.0.1:6650"]
    assert dict(zip(heading.split(), cells, strict=False))["gap_bytes"] == "7/0"
    assert line.endswith(r"midstream closed_by=client client_version=Go \x1b")

    assert line.index("midstream") == heading.index("notes")


def test_a_pair_is_named_by_leg_and_twin() -> None:
    _, line = lines_of(connection(leg="broker", twin_connection_id=3))
    assert line.endswith("leg=broker twin=3")


def test_cells_stand_below_each_other() -> None:
    heading, *lines = lines_of(
        connection(), connection(connection_id=100_000, client_ip="10.100.100.100", history=None)
    )
    for head in ("first_ts", "client", "broker", "protocol", "history", "ended", "notes"):
        place = heading.index(head)
        assert all(line[place - 1] == " " != line[place] for line in lines)


def test_a_terminal_gets_the_columns_that_fit() -> None:
    made = ConnectionLines(PLAIN, 100)
    row = connection(client_ip="10.100.100.100", started="syn")
    made.widen([row])
    assert made.heading().split()[:2] == ["#conn", "first_ts"]
    assert made.left_out == ["notes", "history", "retransmitted", "protocol", "duration_s"]
    assert "7/0" in made.line(row)


@given(st.integers(40, 200), st.text(max_size=60), st.integers(0, 1 << 62))
def test_no_line_is_longer_than_the_terminal(width: int, text: str, number: int) -> None:
    row = connection(connection_id=number, client_version=text, history=text)
    assert all(columns_of(line) <= width for line in lines_of(row, width=width))


def test_gaps_are_marked() -> None:
    assert "\x1b[33m7/0\x1b[0m" in lines_of(connection(), color="always")[1]
    assert "\x1b" not in lines_of(connection(gap_bytes_to_broker=0), color="always")[1]


def test_columns_exist() -> None:
    assert set(COLUMNS) <= {column.name for column in TABLES["connections"].columns}
