"""Frames as lines: aligned, short enough, and with what is wrong in front of what is long."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.cli.frame_lines import COLUMNS, LINE_COLUMNS, FrameLines, short_topic
from dissector.cli.terminal import Paint, columns_of
from dissector.schemas import TABLES

PLAIN = Paint("never")
LONG = "persistent://tenant/namespace/" + "a-topic-with-a-long-name-" * 3 + "partition-7"


def frame(**values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "connection_id": 0, "frame_no": 12, "direction": "to_broker", "command": "SEND",
        "last_ts_ns": 1_795_254_379_901_123_456, "first_packet": 45, "last_packet": 47,
        "frame_bytes": 1187, "status": "complete", "retransmitted": False,
    }  # fmt: skip
    return row | values


def line_of(width: int | None = LINE_COLUMNS, **values: Any) -> str:
    *_, line = FrameLines(PLAIN, width).lines(frame(**values))
    return line


def test_a_frame_is_one_line_with_what_it_is_about() -> None:
    line = line_of(
        producer_id=0, sequence_id=3, topic="persistent://t/n/x", checksum="ok", message_count=5,
        producer_name="p",
    )  # fmt: skip
    assert line == (
        "   12 09:46:19.901123 p45-47  c0   > SEND           1187 prod=0  seq=3     messages=5 "
        "t/n/x by=p"
    )


def test_a_day_stands_above_its_frames_once() -> None:
    lines = FrameLines(PLAIN)
    heading = lines.heading(frame())
    (line,) = lines.lines(frame())
    assert heading.split()[:4] == ["no", "2026-11-21", "UTC", "packets"]
    assert heading.index("2026") == line.index("09:46:19")
    assert heading.index("conn") == line.index("c0")
    later = [*lines.lines(frame(last_ts_ns=1_795_340_779_901_123_456))]
    assert later[0] == "# 2026-11-22 UTC" and len(later) == 2
    assert next(lines.lines(frame(last_ts_ns=None))) == "# no time"
    assert FrameLines(PLAIN).heading(None).split()[1] == "time"
    for width in (80, LINE_COLUMNS):
        assert " no time" in FrameLines(PLAIN, width).heading(frame(last_ts_ns=None))


def test_a_frame_says_what_is_wrong_with_it() -> None:
    line = line_of(
        checksum="mismatch", status="cut_by_gap", retransmitted=True, direction="unknown",
        command=None, first_packet=47,
    )  # fmt: skip
    assert " p47 " in line and " ? ? " in line
    assert line.endswith("checksum=mismatch cut_by_gap retransmitted")


def test_hostile_names_stay_on_their_line() -> None:
    line = line_of(None, topic="a\n\x1b]0;title\x07", error_text="no \u202e room")
    assert line.isprintable()
    assert r"a\x0a\x1b]0;title\x07" in line and r'"no \u202e room"' in line


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [(7, 7, "p7"), (9, 10, "p9-10"), (45, 47, "p45-47"), (1234, 1239, "p1234-39"),
     (1299, 1301, "p1299-301"), (99, 101, "p99-101")],
)  # fmt: skip
def test_packets_are_a_range_of_as_few_digits_as_tell_it(first: int, last: int, text: str) -> None:
    assert f" {text} " in line_of(first_packet=first, last_packet=last)


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        ({"producer_id": 1, "sequence_id": 2, "ledger_id": 3, "entry_id": 4},
         "prod=1  seq=2     id=3:4"),
        ({"consumer_id": 1, "ledger_id": 3, "entry_id": 4, "ack_type": "Individual"},
         "cons=1  id=3:4    ack=Individual"),
        ({"consumer_id": 1, "permits": 20}, "cons=1  permits=20"),
        ({"request_id": 5, "consumer_id": 1}, "cons=1  req=5"),
        ({"request_id": 5}, "        req=5"),
        ({"request_id": 2629702314863225576}, "        req=…5576"),
        ({"message_count": 7, "compression": "LZ4"}, "                  messages=7 codec=LZ4"),
        ({"message_count": 1, "compression": "NONE"}, ""),
    ],
)  # fmt: skip
def test_ids_stand_below_each_other(values: dict[str, Any], ids: str) -> None:
    assert line_of(**values) == f"{line_of()}{f' {ids}' if ids else ''}"


def test_an_error_has_the_room_of_ids_and_no_name_of_a_class() -> None:
    text = "org.apache.pulsar.broker.service.BrokerServiceException$NamingException: is taken"
    line = line_of(request_id=5, error_code="ProducerBusy", error_text=text, topic=LONG)
    assert ' req=5 ProducerBusy "is taken" ' in line and line.endswith("tition-7")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("persistent://public/default/x", "x"), ("persistent://t/n/x", "t/n/x"),
        ("non-persistent://public/default/x", "non-persistent://public/default/x"),
        ("x", "x"), ("persistent://", "persistent://"),
    ],
)  # fmt: skip
def test_topics_are_what_clients_take(name: str, short: str) -> None:
    assert short_topic(name) == short


NAMES = st.one_of(st.none(), st.text(max_size=80), st.just(LONG))


@given(
    st.sampled_from([40, 60, 80, 100, 140, 500]), NAMES, NAMES, NAMES, NAMES,
    st.sampled_from(["SEND", "REDELIVER_UNACKNOWLEDGED_MESSAGES", None]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)  # fmt: skip
def test_no_line_is_longer_than_it_may_be(width, topic, text, name, code, command, number) -> None:
    values = {
        "topic": topic, "error_text": text, "producer_name": name, "subscription": name,
        "error_code": code, "command": command, "request_id": number, "sequence_id": number,
        "frame_no": abs(number), "last_ts_ns": number,
    }  # fmt: skip
    made = FrameLines(PLAIN, width)
    lines = [made.heading(None), *made.lines(frame(**values))]
    assert all(columns_of(line) <= width and line.isprintable() for line in lines)
    colours = [*FrameLines(Paint("always"), width).lines(frame(**values))]
    assert len(colours) == len(lines) - 1


def test_what_there_is_room_for_is_whole_and_nothing_is_left_out_of_a_long_line() -> None:
    values = {"topic": LONG, "subscription": "s", "producer_name": "p", "consumer_name": "c d"}
    assert line_of(None, **values).endswith('partition-7 sub=s by=p to="c d"')
    short = line_of(100, **values)
    assert len(short) == 100 and short.endswith("partition-7 sub=s") and "tenant" in short


def test_a_narrow_line_has_milliseconds_and_no_packets() -> None:
    assert line_of(80).startswith("   12 09:46:19.901 c0   > SEND")


def test_columns_below_each_other_stay_so_when_numbers_grow() -> None:
    lines = FrameLines(PLAIN)
    wide = [*lines.lines(frame(frame_no=1_234_567, connection_id=12_345))][-1]
    narrow = [*lines.lines(frame())][-1]
    assert wide.index("SEND") == narrow.index("SEND")


def test_colours_mark_what_is_wrong() -> None:
    *_, line = FrameLines(Paint("always")).lines(frame(checksum="mismatch", topic="mismatch"))
    assert "\x1b[31mSEND\x1b[0m" in line and "\x1b[31mchecksum=mismatch\x1b[0m mismatch" in line


def test_columns_exist() -> None:
    assert set(COLUMNS) <= {column.name for column in TABLES["frames"].columns}


def test_a_command_that_is_cut_is_not_added_once_more() -> None:
    values = frame(command="PARTITIONED_METADATA_RESPONSE")
    (*_, plain), (*_, coloured) = (
        FrameLines(Paint(choice), 40).lines(values) for choice in ("never", "always")
    )
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain and plain.endswith("…")
