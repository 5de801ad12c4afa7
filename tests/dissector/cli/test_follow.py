"""follow: both directions in order, gaps named beside the bytes, secrets hidden."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dissector.blocks import Coded, Spans, TableBlock
from dissector.cli.exits import EXIT_OK, EXIT_USAGE
from dissector.cli.follow import ConnectionFacts, ConversationPart, hex_lines, portions, text_lines
from dissector.cli.terminal import Paint
from tests.dissector.cli.conftest import Command
from tests.hard.tape import Tape, capture
from tests.wire import pulsar
from tests.wire.pcaps import pulsar_frames

PLAIN = Paint("never")
TOKEN = b"eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"


def raw(process: Command, capture: Path, direction: str, *more: str) -> bytes:
    result = process(
        "follow", capture, "--connection", "0", "-T", "jsonl", "--direction", direction, *more
    )
    assert result.code == EXIT_OK, result.err
    return b"".join(bytes.fromhex(json.loads(line)["data"]) for line in result.lines)


def test_the_bytes_of_both_directions_are_those_on_the_wire(process: Command, nacks: Path) -> None:
    expected = {b"".join(frames) for frames in pulsar_frames(nacks)}
    found = {raw(process, nacks, way, "--no-redact") for way in ("to_broker", "to_client")}
    assert found == expected


def test_raw_output_is_the_bytes_and_nothing_else(command: Command, nacks: Path) -> None:
    import subprocess
    import sys

    arguments = ["follow", str(nacks), "--connection", "0", "-T", "raw", "--direction", "to_client"]
    done = subprocess.run(
        [sys.executable, "-m", "dissector", *arguments], capture_output=True, check=True
    )
    assert done.stdout in {b"".join(frames) for frames in pulsar_frames(nacks)}


def test_credentials_are_hidden_and_their_place_is_kept(process: Command, nacks: Path) -> None:
    plain = raw(process, nacks, "to_broker", "--no-redact")
    hidden = raw(process, nacks, "to_broker")
    assert len(plain) == len(hidden) and plain != hidden
    connect = 4 + int.from_bytes(plain[:4], "big")
    assert hidden[connect:] == plain[connect:]
    assert hidden[10:connect] == b"*" * (connect - 10)


def test_a_connection_that_is_not_there_is_named(command: Command, nacks: Path) -> None:
    result = command("follow", nacks, "--connection", "99")
    assert (result.code, result.out) == (EXIT_USAGE, "")
    assert "no connection 99, there is only 0" in result.err


def test_the_dump_names_both_ends(command: Command, nacks: Path) -> None:
    result = command("follow", nacks, "--connection", "0")
    assert result.lines[0].startswith("# connection 0, pulsar: ")
    assert result.lines[1].startswith("> ") and " offset 0, " in result.lines[1]


def conversation(*rows: tuple[int, int, int, bytes | int]) -> TableBlock:
    """side, stream_offset, packet, and bytes that are there or the length of a gap."""
    data = b"".join(row[3] for row in rows if isinstance(row[3], bytes))
    lengths = [len(row[3]) if isinstance(row[3], bytes) else -1 for row in rows]
    starts = np.cumsum([0] + [max(length, 0) for length in lengths])[:-1]
    return TableBlock(
        "conversation",
        len(rows),
        {
            "endpoint_index": np.array([row[0] for row in rows]),
            "kind": Coded(np.array([int(isinstance(row[3], int)) for row in rows]),
                          ("data", "lost", "cut")),
            "stream_offset": np.array([row[1] for row in rows]),
            "bytes": np.array([row[3] if isinstance(row[3], int) else len(row[3]) for row in rows]),
            "packet": np.array([row[2] for row in rows]),
            "ts": np.array([row[2] * 10**9 for row in rows]),
            "data": Spans(np.frombuffer(data, np.uint8), starts, np.array(lengths)),
        },
    )  # fmt: skip


def frames(*rows: tuple[str, str, int, int, int]) -> TableBlock:
    """direction, command, first packet, stream_offset, frame_bytes."""
    return TableBlock(
        "frames",
        len(rows),
        {
            "connection_id": np.zeros(len(rows), np.int64),
            "direction": [row[0] for row in rows],
            "command": [row[1] for row in rows],
            "protocol": ["pulsar"] * len(rows),
            "first_packet": np.array([row[2] for row in rows]),
            "stream_offset": np.array([row[3] for row in rows]),
            "frame_bytes": np.array([row[4] for row in rows]),
        },
    )


def facts(*blocks: TableBlock) -> ConnectionFacts:
    facts = ConnectionFacts(0)
    for block in blocks:
        facts.add(block)
    facts.finish()
    return facts


def test_sides_get_their_direction_from_frames() -> None:
    opener_is_broker = facts(
        conversation((0, 0, 7, b"x"), (1, 0, 8, b"y")), frames(("to_client", "CONNECTED", 7, 0, 1))
    )
    assert opener_is_broker.directions == ["to_client", "to_broker"]
    assert facts(conversation((0, 0, 7, b"x"))).directions == ["to_broker", "to_client"]


SEEK = pulsar.simple(pulsar.command("SEEK", consumer_id=1, request_id=2))
CONNECT = pulsar.simple(pulsar.command("CONNECT", client_version="c", auth_data=b"abcd"))
ANSWER = pulsar.simple(pulsar.command("AUTH_RESPONSE", client_version="c"))


@pytest.mark.parametrize("cuts", [[0, 60], [0, 5, 25, 60], [0, 30, 31, 32, 60]], ids=str)
def test_secrets_are_hidden_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = CONNECT + SEEK + ANSWER
    first, second = len(CONNECT), len(CONNECT + SEEK)
    assert first > 10 and len(stream) > 45
    cuts = [min(cut, len(stream)) for cut in cuts[:-1]] + [len(stream)]
    rows = [(0, a, 1, stream[a:b]) for a, b in pairwise(cuts)]
    known = facts(
        conversation((0, 0, 1, stream)),
        frames(("to_broker", "CONNECT", 1, 0, first), ("to_broker", "SEEK", 1, first, len(SEEK)),
               ("to_broker", "AUTH_RESPONSE", 1, second, len(ANSWER))),
    )  # fmt: skip
    found = list(portions(conversation(*rows), known, redact=True))
    shown = b"".join(portion.data for portion in found)
    heads = CONNECT[:10] + b"*" * (first - 10), ANSWER[:10] + b"*" * (len(ANSWER) - 10)
    assert shown == heads[0] + SEEK + heads[1]
    plain = portions(conversation(*rows), known, redact=False)
    assert b"".join(portion.data for portion in plain) == stream


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"x " + TOKEN + b" y", b"x " + b"*" * len(TOKEN) + b" y"),
        (
            b"GET /\r\nAuthorization: Basic dTpw\r\n\r\n",
            b"GET /\r\nAuthorization: **********\r\n\r\n",
        ),
        (
            b"GET /?access_token=ab1&x=1 HTTP/1.1\r\nCookie: a=b; c=d\r\nHost: h\r\n",
            b"GET /?access_token=***&x=1 HTTP/1.1\r\nCookie: ********\r\nHost: h\r\n",
        ),
        (b"Set-Cookie: id=7; Path=/\r\n", b"Set-Cookie: ************\r\n"),
    ],
    ids=["token", "header", "query and cookie", "set-cookie"],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_secrets_outside_of_frames_are_hidden_however_cut(
    data: bytes, shown: bytes, step: int
) -> None:
    rows = [(1, at, at + 1, data[at : at + step]) for at in range(0, len(data), step)]
    known = facts(conversation(*rows))
    assert b"".join(portion.data for portion in portions(conversation(*rows), known, True)) == shown


def test_what_follows_a_hole_in_a_secret_goes_with_it() -> None:
    known = facts(conversation((0, 0, 1, b"x token=abc"), (0, 11, 1, 5), (0, 16, 2, b"def y")))
    assert known.secrets[0].hidden(0, b"x token=abc")[0] == b"x token=***"
    # Nothing tells what behind a hole is the value's rest: up to the end of the line it goes.
    assert known.secrets[0].hidden(16, b"def y")[0] == b"*****"


def test_bytes_in_no_frame_of_a_known_protocol_are_hidden() -> None:
    size = len(SEEK)
    stream = b"rest of CONNECT" + SEEK + b"lost" + SEEK
    known = ConnectionFacts(0)
    known.add(conversation((0, 0, 1, stream)))
    rows = [("to_broker", "SEEK", 1, at, size) for at in (15, 15 + size + 4)]
    known.add(frames(*rows))
    known.ends = {"protocol": "pulsar", "started": "syn"}
    known.finish()
    assert known.secrets[0].hidden(0, stream)[0] == b"*" * 15 + SEEK + b"****" + SEEK


def test_the_rest_of_a_secret_that_began_before_the_capture_is_hidden() -> None:
    known = ConnectionFacts(0)
    known.add(conversation((0, 0, 1, b"ZXN0In0.SflKxw next\nwords")))
    known.ends = {"protocol": "http", "started": "midstream"}
    known.finish()
    assert known.secrets[0].hidden(0, b"ZXN0In0.SflKxw next\nwords")[0] == b"*" * 19 + b"\nwords"


def test_a_proxy_header_stays() -> None:
    stream = b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + SEEK
    known = ConnectionFacts(0)
    known.add(conversation((0, 0, 1, stream)))
    known.add(frames(("to_broker", "SEEK", 1, 32, len(SEEK))))
    known.ends = {"protocol": "pulsar", "started": "syn"}
    known.finish()
    assert known.secrets[0].hidden(0, stream) == (stream, 0)


def test_gaps_stand_beside_the_bytes() -> None:
    found = list(
        portions(
            conversation((0, 0, 1, b"ab"), (0, 2, 1, 40), (0, 42, 3, b"c")),
            ConnectionFacts(0),
            True,
        )
    )
    assert [(portion.kind, portion.size, portion.data) for portion in found] == [
        ("data", 2, b"ab"),
        ("lost", 40, b""),
        ("data", 1, b"c"),
    ]
    lines = [line for portion in found for line in hex_lines(portion, PLAIN)]
    assert lines[2] == "> 1970-01-01T00:00:01.000000Z p1 offset 2, 40 bytes never captured"
    assert lines[4].split() == ["0000002a", "63", "c"]


def test_bytes_become_safe_lines() -> None:
    data = b"ab\x1b[2J\\\n\xff" + bytes(10)
    portion = ConversationPart("to_client", "data", 16, len(data), 5, 0, data, 0)
    title, first, second = hex_lines(portion, PLAIN)
    assert title == "< 1970-01-01T00:00:00.000000Z p5 offset 16, 19 bytes"
    assert first == (
        "  00000010  61 62 1b 5b 32 4a 5c 0a  ff 00 00 00 00 00 00 00  ab.[2J\\........."
    )
    assert second.startswith("  00000020  00 00 00 ")
    assert list(text_lines(portion, PLAIN))[1].startswith(r"  ab\x1b[2J\x5c\x0a\xff\x00")


CURSUS = (
    b"\0\0\0\x30\0\0AUTH principal=a token=SECRET-ONE"
    b"\0\0\0\x30\0\0INTERNAL_BATCH internal_token=SECRET-TWO payload=x"
    b'\0\0\0\x30\0\7clusterAUTH SECRET-THREE JOIN_CLUSTER {"token": "SECRET-FOUR", "id": 1}'
    b"\0\0\0\x30\0\0TXN_PUBLISH message=hello auth_token=SECRET-FIVE"
    b"\0\0\0\x06\0\0LIST"
)


@pytest.mark.parametrize("step", [1, 5, 17, 64, 1000])
def test_cursus_tokens_are_hidden_however_the_stream_is_cut(step: int) -> None:
    rows = [(0, at, 1, CURSUS[at : at + step]) for at in range(0, len(CURSUS), step)]
    known = facts(conversation(*rows))
    shown = b"".join(portion.data for portion in portions(conversation(*rows), known, redact=True))
    assert len(shown) == len(CURSUS)
    assert b"SECRET" not in shown
    assert b"LIST" in shown and b"payload=x" in shown and b"principal=a" in shown


SECRETS = {"token": "Zq7-tok", "property": "hunter-Zq8", "error": "Zq9pw"}


def pulsar_capture(folder: Path, mss: int) -> Path:
    """A connection whose commands hold secrets in fields that are not theirs alone."""
    tape = Tape(mss=mss)
    tape.open()
    tape.connect()
    lookup = {"topic": "t", "request_id": 1, "original_auth_data": SECRETS["token"]}
    pair = [{"key": "db.password", "value": SECRETS["property"]}]
    tape.frame(True, pulsar.simple(pulsar.command("LOOKUP", **lookup)))
    tape.frame(True, pulsar.simple(pulsar.command("PARTITIONED_METADATA", **lookup)))
    producer = {"topic": "t", "producer_id": 2, "request_id": 2, "metadata": pair}
    tape.frame(True, pulsar.simple(pulsar.command("PRODUCER", **producer)))
    tape.frame(True, pulsar.send(metadata_fields={"properties": pair}))
    text = f"no: pwd={SECRETS['error']}"
    error = {"request_id": 2, "error": "UnknownError", "message": text}
    tape.frame(False, pulsar.simple(pulsar.command("ERROR", **error)))
    path = folder / "secrets.pcap"
    path.write_bytes(capture(tape.records()))
    return path


@pytest.mark.parametrize("mss", [11, 1448])
def test_secret_fields_of_any_command_are_hidden(
    command: Command, tmp_path: Path, mss: int
) -> None:
    path = pulsar_capture(tmp_path, mss)

    def bytes_of(*more: str) -> bytes:
        result = command("follow", path, "--connection", 0, "-T", "jsonl", *more)
        rows = [json.loads(line) for line in result.lines]
        rows.sort(key=lambda row: (row["direction"], row["stream_offset"]))
        return b"".join(bytes.fromhex(row["data"]) for row in rows)

    plain, shown = bytes_of("--no-redact"), bytes_of()
    text = command("follow", path, "--connection", 0, "-T", "text").out
    assert len(plain) == len(shown)
    for secret in SECRETS.values():
        assert secret.encode() in plain
        assert secret.encode() not in shown and secret not in text
