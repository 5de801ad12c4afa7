"""follow: both directions in order, gaps named beside the bytes, secrets hidden."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dissector.blocks import Coded, Spans, TableBlock
from dissector.cli.exits import EXIT_OK, EXIT_USAGE
from dissector.cli.follow import Facts, Piece, hex_lines, pieces, text_lines
from dissector.cli.terminal import Paint
from tests.dissector.cli.conftest import Command
from tests.wire.pcaps import pulsar_frames

PLAIN = Paint("never")
TOKEN = b"eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"


def raw(process: Command, capture: Path, direction: str, *more: str) -> bytes:
    found = process(
        "follow", capture, "--connection", "0", "-T", "jsonl", "--direction", direction, *more
    )
    assert found.code == EXIT_OK, found.err
    return b"".join(bytes.fromhex(json.loads(line)["data"]) for line in found.lines)


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
    found = command("follow", nacks, "--connection", "99")
    assert (found.code, found.out) == (EXIT_USAGE, "")
    assert "no connection 99, there is only 0" in found.err


def test_the_dump_names_both_ends(command: Command, nacks: Path) -> None:
    found = command("follow", nacks, "--connection", "0")
    assert found.lines[0].startswith("# connection 0, pulsar: ")
    assert found.lines[1].startswith("> ") and " offset 0, " in found.lines[1]


def conversation(*rows: tuple[int, int, int, bytes | int]) -> TableBlock:
    """side, stream_offset, packet, and bytes that are there or the length of a gap."""
    data = b"".join(row[3] for row in rows if isinstance(row[3], bytes))
    lengths = [len(row[3]) if isinstance(row[3], bytes) else -1 for row in rows]
    starts = np.cumsum([0] + [max(length, 0) for length in lengths])[:-1]
    return TableBlock(
        "conversation",
        len(rows),
        {
            "side": np.array([row[0] for row in rows]),
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
            "first_packet": np.array([row[2] for row in rows]),
            "stream_offset": np.array([row[3] for row in rows]),
            "frame_bytes": np.array([row[4] for row in rows]),
        },
    )


def facts(*blocks: TableBlock) -> Facts:
    found = Facts(0)
    for block in blocks:
        found.add(block)
    found.finish()
    return found


def test_sides_get_their_direction_from_frames() -> None:
    opener_is_broker = facts(
        conversation((0, 0, 7, b"x"), (1, 0, 8, b"y")), frames(("to_client", "CONNECTED", 7, 0, 1))
    )
    assert opener_is_broker.directions == ["to_client", "to_broker"]
    assert facts(conversation((0, 0, 7, b"x"))).directions == ["to_broker", "to_client"]


@pytest.mark.parametrize("cuts", [[0, 60], [0, 5, 25, 60], [0, 30, 31, 32, 60]], ids=str)
def test_secrets_are_hidden_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = bytes(range(60))
    rows = [(0, a, 1, stream[a:b]) for a, b in pairwise(cuts)]
    known = facts(
        conversation((0, 0, 1, stream)),
        frames(("to_broker", "CONNECT", 1, 0, 20), ("to_broker", "SEND", 1, 20, 10),
               ("to_broker", "AUTH_RESPONSE", 1, 30, 25)),
    )  # fmt: skip
    found = list(pieces(conversation(*rows), known, redact=True))
    shown = b"".join(piece.data for piece in found)
    assert shown == stream[:10] + b"*" * 10 + stream[20:40] + b"*" * 15 + stream[55:]
    plain = pieces(conversation(*rows), known, redact=False)
    assert b"".join(piece.data for piece in plain) == stream


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"x " + TOKEN + b" y", b"x " + b"*" * len(TOKEN) + b" y"),
        (
            b"GET /\r\nAuthorization: Basic dTpw\r\n\r\n",
            b"GET /\r\nAuthorization:***********\r\n\r\n",
        ),
    ],
    ids=["token", "header"],
)
def test_tokens_outside_of_frames_are_hidden(data: bytes, shown: bytes) -> None:
    (piece,) = pieces(conversation((1, 0, 1, data)), Facts(0), redact=True)
    assert piece.data == shown


def test_gaps_stand_beside_the_bytes() -> None:
    found = list(
        pieces(conversation((0, 0, 1, b"ab"), (0, 2, 1, 40), (0, 42, 3, b"c")), Facts(0), True)
    )
    assert [(piece.kind, piece.size, piece.data) for piece in found] == [
        ("data", 2, b"ab"),
        ("lost", 40, b""),
        ("data", 1, b"c"),
    ]
    lines = [line for piece in found for line in hex_lines(piece, PLAIN)]
    assert lines[2] == "> 1970-01-01T00:00:01.000000Z p1 offset 2, 40 bytes never captured"
    assert lines[4].split() == ["0000002a", "63", "c"]


def test_bytes_become_safe_lines() -> None:
    data = b"ab\x1b[2J\\\n\xff" + bytes(10)
    piece = Piece("to_client", "data", 16, len(data), 5, 0, data, 0)
    title, first, second = hex_lines(piece, PLAIN)
    assert title == "< 1970-01-01T00:00:00.000000Z p5 offset 16, 19 bytes"
    assert first == (
        "  00000010  61 62 1b 5b 32 4a 5c 0a  ff 00 00 00 00 00 00 00  ab.[2J\\........."
    )
    assert second.startswith("  00000020  00 00 00 ")
    assert list(text_lines(piece, PLAIN))[1].startswith(r"  ab\x1b[2J\x5c\x0a\xff\x00")


CURSUS = (
    b"\0\0\0\x30\0\0AUTH principal=a token=SECRET-ONE"
    b"\0\0\0\x30\0\0INTERNAL_BATCH internal_token=SECRET-TWO payload=x"
    b'\0\0\0\x30\0\7clusterAUTH SECRET-THREE JOIN_CLUSTER {"token": "SECRET-FOUR", "id": 1}'
    b"\0\0\0\x30\0\0TXN_PUBLISH message=hello auth_token=SECRET-FIVE"
    b"\0\0\0\x06\0\0LIST"
)


@pytest.mark.parametrize("step", [1, 5, 17, 64, 1000])
def test_cursus_tokens_are_hidden_however_the_stream_is_cut(step: int) -> None:
    facts = Facts(0)
    shown = b"".join(
        facts.hide("to_broker", at, CURSUS[at : at + step])[0] for at in range(0, len(CURSUS), step)
    )
    assert len(shown) == len(CURSUS)
    if step == 1000:  # a word without a name cannot be told from half of it
        assert b"SECRET" not in shown
    for number in (b"ONE", b"TWO", b"FOUR", b"FIVE"):
        assert number not in shown
    assert b"LIST" in shown and b"payload=x" in shown and b"principal=a" in shown
    assert facts.hide("to_client", 0, b"OK")[0] == b"OK"
