"""-d PORT=PROTOCOL and --protocol: what the user says of a connection decides how it is read."""

from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OK
from dissector.lake.reader import open_lake
from tests.dissector.cli.conftest import Command
from tests.dissector.observed import CAPTURES

PULSAR = CAPTURES / "pulsar" / "cpp-s01_handshake_producer.pcap"
CURSUS = CAPTURES / "cursus" / "go-eventstore.pcap"
TLS = CAPTURES / "pulsar" / "fake-f17_tls.pcap"
HTTP = CAPTURES / "pulsar-apache" / "java-j34_http_lookup.pcap"
# A capture, what its user says of it, and what is said of its content then.
AGAINST = [
    (PULSAR, ("-d", "6650=cursus"), "cursus"),
    (PULSAR, ("--protocol", "cursus"), "cursus"),
    (CURSUS, ("-d", "9000=pulsar"), "pulsar"),
    (CURSUS, ("--protocol", "pulsar"), "pulsar"),
]
against_content = pytest.mark.parametrize(("capture", "options", "named"), AGAINST)


def columns(command: Command, name: str, capture: Path, *options: str) -> tuple[list[str], str]:
    """The column `protocol` of what a command lists, and its words."""
    result = command(name, capture, "-T", "fields", "-e", "protocol", *options)
    assert result.code == EXIT_OK
    return result.lines, result.err


@against_content
def test_connections_are_what_the_user_says(command, capture, options, named) -> None:
    plain, said = columns(command, "connections", capture)
    assert named not in plain and "as asked" not in said
    values, said = columns(command, "connections", capture, *options)
    assert values == [named] * len(plain)
    word = "connection" if len(plain) == 1 else "connections"
    assert f"{len(plain)} {word} read as asked, against their content" in said


@against_content
def test_frames_are_of_the_protocol_that_is_named_or_there_are_none(
    command, capture, options, named
) -> None:
    """Any body may be Cursus's, of an unknown command; what is no Pulsar header is not decoded."""
    plain, _ = columns(command, "frames", capture)
    values, said = columns(command, "frames", capture, *options)
    assert values == ([named] * len(plain) if named == "cursus" else [])
    assert "bytes not decoded" in said


@against_content
def test_a_lake_and_a_tap_hold_what_the_user_says(
    command, capture, options, named, tmp_path
) -> None:
    """The same connections, the same notice for each."""
    read = []
    for arguments in (("land", capture), ("tap", "--replay", capture)):
        lake = tmp_path / arguments[0]
        result = command(*arguments, "--lake", lake, *options)
        assert result.code == EXIT_OK
        assert "read as asked, against" in result.err
        with open_lake(lake) as opened:
            connections = opened.table("connections").to_pylist()
            notices = opened.table("notices").to_pylist()
        assert {row["protocol"] for row in connections} == {named}
        told = [row["connection_id"] for row in notices if row["code"] == "read_as_asked"]
        assert sorted(told) == sorted(row["connection_id"] for row in connections)
        read.append(sorted((row["connection_id"], row["unparsed_bytes_to_broker"]) for row in
                           connections))  # fmt: skip
    assert read[0] == read[1]


@against_content
def test_a_summary_is_of_what_the_user_says(command, capture, options, named) -> None:
    result = command("summary", capture, *options)
    assert "read as asked, against" in result.err
    assert named in result.out


@pytest.mark.parametrize("capture", [PULSAR, CURSUS])
def test_other_ports_are_not_touched(command, capture) -> None:
    options = ("-d", "7001=pulsar", "-d", "7002=cursus")
    for name in ("connections", "frames"):
        plain = columns(command, name, capture)
        assert columns(command, name, capture, *options) == plain


@pytest.mark.parametrize(
    ("capture", "options"),
    [(PULSAR, ("--protocol", "pulsar")), (CURSUS, ("-d", "9000=cursus", "-d", "6650=pulsar"))],
)
def test_who_says_what_is_there_changes_nothing(command, capture, options) -> None:
    plain = command("frames", capture, "-T", "jsonl")
    result = command("frames", capture, "-T", "jsonl", *options)
    assert (result.out, result.err) == (plain.out, plain.err)


@pytest.mark.parametrize(("capture", "name"), [(TLS, "tls"), (HTTP, "http")])
def test_tls_and_http_are_read_as_asked_too_and_said_to_be_something_else(
    command, capture, name
) -> None:
    plain, _ = columns(command, "connections", capture)
    assert name in plain
    values, said = columns(command, "connections", capture, "--protocol", "pulsar")
    assert set(values) == {"pulsar"}
    count = plain.count(name)
    word = "connection" if count == 1 else "connections"
    assert f"{count} {word} read as asked, against their content" in said
