"""Connections of joined captures as one each, and what joining changed, on hand-made rows."""

import duckdb

from dissector.joining import merged
from tests.dissector.joining.made import placed
from tests.dissector.joining.test_links import after, row


def _left_out(db: duckdb.DuckDBPyConnection, *rows: tuple[str, int, str, int]) -> None:
    columns = "capture VARCHAR, connection_id BIGINT, direction VARCHAR, bytes BIGINT"
    db.execute(f"CREATE TABLE left_out ({columns})")
    for each in rows:
        db.execute("INSERT INTO left_out VALUES (?, ?, ?, ?)", each)


def test_frames_that_two_captures_have_count_once() -> None:
    names = "frames", "stream_bytes", "decoded_bytes"
    counts = [(4, 400, 390), (3, 200, 200)]
    first, second = (
        made(
            capture,
            0,
            **{f"{name}_to_broker": value for name, value in zip(names, given, strict=True)},
        )
        for made, capture, given in zip((row, after), "ab", counts, strict=True)
    )
    db = placed([first, second])
    _left_out(db, ("b", 0, "to_broker", 40), ("b", 0, "to_broker", 60), ("a", 0, "to_client", 7))
    db.execute(merged.MERGED)
    (found,) = db.sql("FROM merged").to_arrow_table().to_pylist()
    assert [found[f"{name}_to_broker"] for name in names] == [5, 500, 490]
    assert [found[f"{name}_to_client"] for name in names] == [None, None, None]


def test_rows_of_one_connection_become_one() -> None:
    first = row("a", 3, protocol="pulsar", started="syn", packets_to_broker=5, client_version="x")
    second = after("b", 0, protocol="none", ended="fin", packets_to_broker=2, ended_packet=9)
    second["stream_bytes_to_broker"] = 1000
    second["tls_alert_to_client"] = "close_notify"
    alone = row("b", 1, connection_key="else", packets_to_broker=4)
    db = placed([first, second, alone])
    _left_out(db)
    db.execute(merged.MERGED)
    other, found = db.sql("FROM merged ORDER BY capture DESC").to_arrow_table().to_pylist()
    assert (found["capture"], found["connection_id"], found["protocol"]) == ("a", 3, "pulsar")
    assert (found["started"], found["ended"], found["ended_packet"]) == ("syn", "fin", 9)
    assert (found["first_ts_ns"], found["last_ts_ns"]) == (0, second["last_ts_ns"])
    assert (found["packets_to_broker"], found["client_version"]) == (7, "x")
    assert found["tls_alert_to_client"] == "close_notify"
    assert (found["first_seq_to_broker"], found["last_seq_to_broker"]) == (1000, 3000)
    # Nothing but acknowledgements of a FIN came behind the boundary.
    assert (found["first_seq_to_client"], found["last_seq_to_client"]) == (500, 900)
    assert (other["capture"], other["connection_id"], other["packets_to_broker"]) == ("b", 1, 4)
    behind = db.sql(merged.BEHIND).to_arrow_table().to_pylist()
    assert [(each["capture"], each["connection_id"]) for each in behind] == [("b", 0)]


def test_one_whose_directions_ended_in_different_captures_is_closed() -> None:
    before = row("a", fin_packet_to_client=8)
    then = after("b", first_seq_to_client=901, fin_packet_to_broker=3)
    db = placed([before, then])
    _left_out(db)
    db.execute(merged.MERGED)
    (found,) = db.sql("FROM merged").to_arrow_table().to_pylist()
    assert (found["ended"], found["ended_packet"]) == ("fin", 3)


def test_changes_are_counted_before_and_after() -> None:
    db = duckdb.connect()
    more = {
        "exchanges": ("outcome", "response_capture"),
        "deliveries": ("outcome", "ack_capture", "previous_capture", "publish_to_delivery_ns"),
        "permits": ("event", "baseline_known"),
    }
    for table, (value, *others) in more.items():
        columns = f"'a' AS capture, 'x' AS {value}, "
        columns += ", ".join(f"NULL::BIGINT AS {name}" for name in others)
        for prefix in ("all", "closed"):
            db.execute(f"CREATE TABLE {prefix}_{table} AS SELECT {columns}")
    db.execute("UPDATE closed_exchanges SET response_capture = 1")
    rows = db.sql(merged.changes()).to_arrow_table().select(merged.CHANGES.names).to_pylist()
    assert len(rows) == 6 and all(each["rows"] == 1 for each in rows)
    later = {(each["moment"], each["table"]): each["exchanges_answered_later"] for each in rows}
    assert later["after", "exchanges"] == 1 and sum(later.values()) == 1
