"""Hints: what other tools write, what is misspelt, and values that a column never has."""

import re

import pytest

from dissector.cli import expression, select, suggestions
from dissector.cli.show import column_kinds
from dissector.errors import UsageError
from dissector.schemas import TABLES


def refusal(text: str, table: str = "frames") -> str:
    with pytest.raises(UsageError) as caught:
        select.check(text, expression.parse(text), column_kinds(table))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('command = "SEND"', "write == instead of ="),
        ("client_ip == 10.1.2.3", 'an address is a text: write "10.1.2.3"'),
        ('command === "SEND"', "write == instead of ="),
        ('command == "SEND" && frame_no > 3', "write and instead of &&"),
        ('command == "SEND" || frame_no > 3', "write or instead of ||"),
        ("!retransmitted", "write not instead of !"),
        ('topic =~ "x"', "write matches instead of =~"),
        ("frame_no <> 3", "write != instead of"),
        ('command eq "SEND"', "write == instead of eq"),
        ('(command eq "SEND")', "write == instead of eq"),
        ("frame_no gt 3", "write > instead of gt"),
        ("NOT retransmitted", "write not instead of NOT"),
        ("frame_no > 3 AND frame_no < 5", "write and instead of AND"),
        ("command == SEND", 'text stands in quotes: command == "SEND"'),
        ("command == send", 'text stands in quotes: command == "SEND"'),
        ("checksum == mismatched", 'text stands in quotes: checksum == "mismatch"'),
        ("topic == orders", 'text stands in quotes: topic == "orders"'),
        ('command == "send"', 'no command is "send"; did you mean "SEND"?'),
        ('command == "SNED"', 'did you mean "SEND"?'),
        ('command in ("SEND", "Message")', 'did you mean "MESSAGE"?'),
        ('"send" == command', 'did you mean "SEND"?'),
        ('command != "xyzzy"', "all are in capitals"),
        ('checksum == "Mismatch"', 'did you mean "mismatch"?'),
        ('checksum == "wrong"', "it is one of ok, mismatch, absent, not_evaluated"),
        ('ack_type == "cumulative"', 'did you mean "Cumulative"?'),
        ('compression == "lz4"', 'did you mean "LZ4"?'),
        ("frame.number == 3", "write first_packet or last_packet"),
        ("tcp.stream == 3", "write connection_id"),
        ("frame.len > 3", "write frame_bytes"),
        ("tcp.port == 6650", "client_port is a column of connections"),
        ('ip.addr == "10.0.0.1"', "client_ip is a column of connections"),
        ('broker_ip == "10.0.0.1"', "broker_ip is a column of connections"),
        ("tcp.analysis.retransmission", "write retransmitted"),
        ('pulsar.topic == "x"', "did you mean topic?"),
        ('pulsar.producerName == "x"', "did you mean producer_name?"),
        ("pulsar.sequence_id == 3", "did you mean sequence_id?"),
        ("frame_nr == 3", "did you mean frame_no?"),
        ("Frame_No == 3", "did you mean frame_no?"),
        ("nonsense_of_mine == 3", "see dissector fields"),
    ],
)
def test_the_nearest_thing_that_works_is_named(text: str, hint: str) -> None:
    assert hint in refusal(text)


def test_columns_of_the_table_at_hand_are_named() -> None:
    assert "write client_port or broker_port" in refusal("tcp.port == 6650", "connections")
    assert "write client_ip or broker_ip" in refusal('ip.addr == "10.0.0.1"', "connections")


@pytest.mark.parametrize(
    "text",
    ['command == "UNKNOWN_83"', 'command == "RESPONSE_OK"', 'command contains "send"',
     'command matches "^S"', 'topic == "send"', "command == null", 'checksum in ("ok", null)',
     'command < "b"'],
)  # fmt: skip
def test_what_can_match_is_taken(text: str) -> None:
    select.check(text, expression.parse(text), column_kinds("frames"))


def test_values_are_those_that_the_columns_name() -> None:
    for column, values in suggestions.VALUES.items():
        meanings = [
            each.meaning for name in ("frames", "connections")
            for each in TABLES[name].columns if each.name == column
        ]  # fmt: skip
        assert meanings, column
        for meaning in meanings:
            listed = set(re.findall(r"\w+", meaning))
            for value in values:
                is_of_other = column == "protocol" and len(meaning) < 25  # of frames: two of them
                assert value in listed or is_of_other, (column, value)


def test_columns_for_fields_of_wireshark_exist() -> None:
    known = {column.name for table in TABLES.values() for column in table.columns}
    assert {name for names in suggestions.WIRESHARK.values() for name in names} <= known


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("land", "x.pcap", "-o", "lake"), "dissector land has no option -o: write --lake;"),
        (("land", "x.pcap", "--output", "lake"), "has no option --output: write --lake;"),
        (("analyze", "x.pcap", "--lake", "lake"), "has no option --lake: write -o;"),
        (("tap", "-i", "lo", "-w", "x"), "write --record;"),
        (("anonymize", "x.pcap", "-w", "y"), "write -o;"),
        (("frames", "x.pcap", "-o", "y"), "write -w;"),
        (("frames", "-r", "x.pcap"), "files to read stand without an option;"),
        (("frames", "--lake", "lake"), "dissector sql --lake LAKE;"),
        (("lake", "list", "--lake", "lake"), "dissector lake list has no option --lake: name the"),
        (("frames", "x.pcap", "--json"), "write -T jsonl;"),
        (("sql", "x.pcap", "--json"), "write --format jsonl;"),
        (("findings", "x.pcap", "-T", "jsonl"), "write --json;"),
        (("summary", "x.pcap", "-o", "y"), "> FILE keeps what is printed;"),
        (("frames", "x.pcap", "--from", "-30m"), "write --since;"),
        (("frames", "x.pcap", "--topics", "y"), "Did you mean one of: '--strict', '--topic'?"),
    ],
)
def test_an_option_of_a_sibling_is_answered_with_the_own_one(command, arguments, hint):
    done = command(*arguments)
    assert done.code == 1 and hint in done.err and done.err.count("\n") == 1


def test_options_that_are_suggested_exist(command):
    """Each advice helps some command, and no command lacks an option that it is told to write."""
    from dissector.cli.main import _MODULES, dissector

    have = {}
    for name in _MODULES:
        one = dissector.get_command(None, name)
        have[name] = {option for each in one.params for option in each.opts}
    for missing, instead in suggestions.OPTIONS.items():
        for option in (one.partition(" ")[0] for one in instead if one.startswith("-")):
            assert any(option in own and missing not in own for own in have.values()), option
