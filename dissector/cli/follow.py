"""The command follow: one connection's bytes, both directions in order, gaps beside them.

The input is read twice. The first pass determines the client's side and the positions of secrets,
the second one prints. It hides the secrets of `stream_secrets`, as files of packets do, and the
whole body of commands with credentials: no machine needs to parse the output.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from dissector.cli import options, selecting
from dissector.cli.local_time import shown_time
from dissector.cli.options import INPUT_NAME, Common, Whole
from dissector.cli.terminal import Paint
from dissector.codecs.printable import json_text
from dissector.errors import UsageError
from dissector.protocols import spec_of
from dissector.stream_secrets import DirectionSecrets, Frame

if TYPE_CHECKING:
    from dissector.blocks import TableBlock
    from dissector.cli.reading import Reading
    from dissector.queries.selection import Selection

KINDS: Final = ("hex", "text", "raw", "jsonl")
_SECRET_COMMANDS: Final = frozenset(
    {
        *("CONNECT", "AUTH_CHALLENGE", "AUTH_RESPONSE"),
        *("AUTH", "JOIN_CLUSTER", "LEAVE_CLUSTER", "HEARTBEAT_CLUSTER"),
        "INTERNAL_BATCH",  # whose records may hold credentials, as base64
    }
)
_SHOWN_HEAD_BYTES: Final = 10  # of a secret frame: two lengths and the command's type
_LINE_BYTES: Final = 16
_OTHER: Final = {"to_broker": "to_client", "to_client": "to_broker", "unknown": "unknown"}
_ARROWS: Final = {"to_broker": ">", "to_client": "<", "unknown": "?"}
_STYLES: Final = {"to_broker": "cyan", "to_client": "green", "unknown": "bold"}


class ConversationPart(NamedTuple):
    """A part of the conversation.

    kind: data, lost (never captured) or cut (its packet was captured in part).
    size: bytes of the stream.
    data: the captured bytes.
    hidden: the number of bytes shown as `*`.
    """

    direction: str
    kind: str
    stream_offset: int
    size: int
    packet: int
    ts_ns: int
    data: bytes
    hidden: int


class ConnectionFacts:
    """The first pass's results about the connection."""

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.ends: dict[str, Any] | None = None
        self.directions = ["to_broker", "to_client"]  # by endpoint
        # Filled until a frame gives the direction.
        self._endpoint_of_packet: dict[int, int] = {}
        self._is_known = False
        self.secrets = (DirectionSecrets(), DirectionSecrets())  # by endpoint
        self._early: list[tuple[str, int, Frame, bool]] = []  # while no direction is known

    def add(self, block: "TableBlock") -> None:
        """Process a block of the first pass."""
        from dissector.schemas.rows import arrow_batch

        if block.table == "conversation":
            columns: dict[str, Any] = block.columns
            if not self._is_known:
                endpoints = columns["endpoint_index"].tolist()
                packets = columns["packet"].tolist()
                self._endpoint_of_packet.update(zip(packets, endpoints, strict=True))
            for endpoint_index, offset, data in _parts(block):
                self.secrets[endpoint_index].add(offset, data)
        elif block.table in ("frames", "connections"):
            import pyarrow.compute as pc

            batch = arrow_batch(block)
            batch = batch.filter(pc.equal(batch.column("connection_id"), self.connection))
            if block.table == "frames":
                self._add_frames(batch)
            elif batch.num_rows:
                self.ends = batch.to_pylist()[0]

    def _add_frames(self, batch: Any) -> None:
        names = (
            *("direction", "command", "first_packet", "stream_offset", "frame_bytes"),
            *("protocol", "compression"),
        )
        for direction, command, packet, offset, size, protocol, codec in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            if not self._is_known and packet in self._endpoint_of_packet:
                endpoint_index = self._endpoint_of_packet[packet]
                self.directions[endpoint_index] = direction
                self.directions[1 - endpoint_index] = _OTHER[direction]
                self._is_known = direction != "unknown"
            if command is None:
                continue
            spec = spec_of(protocol)
            is_packed = spec is not None and codec in spec.packed_codecs
            frame = Frame(offset, offset + size, protocol, is_packed)
            self._early.append((direction, packet, frame, command in _SECRET_COMMANDS))
        if self._is_known:
            self._endpoint_of_packet.clear()
            self._give_frames()

    def _give_frames(self) -> None:
        """Assign the waiting frames to the endpoints that sent them."""
        for direction, packet, frame, hides_body in self._early:
            endpoint_index = self._endpoint_of_packet.get(packet, 0)
            if direction in self.directions and direction != "unknown":
                endpoint_index = self.directions.index(direction)
            self.secrets[endpoint_index].add_frame(frame)
            if hides_body:
                head = min(frame.start + _SHOWN_HEAD_BYTES, frame.end)
                self.secrets[endpoint_index].spans.append((head, frame.end))
        self._early.clear()

    def finish(self) -> None:
        """End the first pass."""
        protocol = self.ends["protocol"] if self.ends is not None else ""
        is_midstream = self.ends is not None and self.ends["started"] == "midstream"
        self._give_frames()
        for direction in self.secrets:
            direction.finish(protocol, is_midstream)


def _parts(block: "TableBlock") -> Iterator[tuple[int, int, bytes]]:
    """Endpoint, offset and bytes of a block's ranges; missing ranges have no bytes."""
    columns: dict[str, Any] = block.columns
    data = columns["data"]
    for row in range(block.rows):
        start, size = int(data.starts[row]), max(int(data.lengths[row]), 0)
        held = data.data[start : start + size].tobytes()
        yield int(columns["endpoint_index"][row]), int(columns["stream_offset"][row]), held


def portions(
    block: "TableBlock", facts: ConnectionFacts, redact: bool
) -> Iterator[ConversationPart]:
    """The parts of the conversation in a block."""
    columns: dict[str, Any] = block.columns
    kinds = columns["kind"]
    for row, (endpoint_index, offset, held) in enumerate(_parts(block)):
        direction = facts.directions[endpoint_index]
        hidden = 0
        if redact and held:
            held, hidden = facts.secrets[endpoint_index].hidden(offset, held)
        kind = str(kinds.names[int(kinds.codes[row])])
        size, packet, ts_ns = (int(columns[name][row]) for name in ("bytes", "packet", "ts"))
        yield ConversationPart(direction, kind, offset, size, packet, ts_ns, held, hidden)


def _title(portion: ConversationPart, paint: Paint) -> str:
    where = f"{shown_time(portion.ts_ns)} p{portion.packet} offset {portion.stream_offset}"
    line = f"{_ARROWS[portion.direction]} {where}, {portion.size} bytes"
    if portion.kind != "data":
        why = (
            "never captured" if portion.kind == "lost" else "cut off: its packet is not there whole"
        )
        return paint(f"{line} {why}", "yellow")
    if portion.hidden:
        line += f", {portion.hidden} hidden"
    return paint(line, _STYLES[portion.direction])


def hex_lines(portion: ConversationPart, paint: Paint) -> Iterator[str]:
    """A title, then 16 bytes per line: offset in the stream, hexadecimal digits, characters."""
    yield _title(portion, paint)
    for start in range(0, len(portion.data), _LINE_BYTES):
        part = portion.data[start : start + _LINE_BYTES]
        digits = f"{part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}"
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"  {portion.stream_offset + start:08x}  {digits}  {letters}"


def text_lines(portion: ConversationPart, paint: Paint) -> Iterator[str]:
    r"""A title, then the bytes as text: printable ASCII unchanged, other bytes as \xNN."""
    yield _title(portion, paint)
    if portion.data:
        letters = (
            chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}"
            for byte in portion.data
        )
        yield "  " + "".join(letters)


def json_lines(portion: ConversationPart, paint: Paint) -> Iterator[str]:
    """One JSON object; data as hexadecimal digits."""
    yield json_text({**portion._asdict(), "data": portion.data.hex() if portion.data else None})


_LINES: Final[dict[str, Callable[[ConversationPart, Paint], Iterator[str]]]] = {
    "hex": hex_lines,
    "text": text_lines,
    "jsonl": json_lines,
}


def _first_pass(reading: "Reading", connection: int) -> ConnectionFacts:
    facts = ConnectionFacts(connection)
    for _, block in reading.blocks("looking", follow_connection=connection):
        facts.add(block)
    facts.finish()
    if facts.ends is None:
        count = reading.account.rows.get("connections", 0)
        there = "there is only 0" if count == 1 else f"they are 0 to {count - 1}"
        if not count:
            there = "there are none"
        raise UsageError(f"no connection {connection}, {there}; see dissector connections")
    return facts


def _heading(facts: ConnectionFacts) -> str:
    ends = facts.ends
    assert ends is not None
    return (
        f"# connection {facts.connection}, {ends['protocol']}: {ends['client_ip']} port "
        f"{ends['client_port']} > {ends['broker_ip']} port {ends['broker_port']}"
    )


def _show(
    blocks: Sequence[tuple[Any, "TableBlock"]] | Iterator[tuple[Any, "TableBlock"]],
    facts: ConnectionFacts,
    common: Common,
    kind: str,
    is_wanted: Callable[[ConversationPart], bool],
) -> int:
    """Print the selected parts; return their number."""
    shown = 0
    paint = Paint(common.color)
    if kind in ("hex", "text"):
        print(_heading(facts))
    for _, block in blocks:
        if block.table != "conversation":
            continue
        for portion in portions(block, facts, common.core.redact):
            if not is_wanted(portion):
                continue
            shown += 1
            if kind != "raw":
                for line in _LINES[kind](portion, paint):
                    print(line)
                continue
            sys.stdout.buffer.write(portion.data)
            if portion.kind != "data" or portion.hidden:
                common.words.missing(_title(portion, Paint("never")))
    return shown


def _is_wanted(part: "Selection", only: str | None, portion: ConversationPart) -> bool:
    is_in_time = part.lasts(portion.ts_ns, portion.ts_ns)
    return is_in_time and only in (None, portion.direction)


@click.command(
    epilog=options.example(
        "dissector follow night.pcap --connection 3\n"
        "dissector follow night.pcap --connection 3 -T raw --direction to_client > bytes"
    )
)
@click.argument("source", type=INPUT_NAME, metavar="INPUT")
@click.option(
    "--connection",
    required=True,
    type=Whole(0, 1 << 62),
    metavar="N",
    help="Choose this one; see dissector connections.",
)
@click.option(
    "-T",
    "--format",
    "kind",
    type=click.Choice(KINDS),
    default="hex",
    show_default=True,
    help="Choose a dump, text, the bytes, or JSON lines.",
)
@click.option(
    "--direction",
    "only",
    type=click.Choice(["to_broker", "to_client"]),
    help="Show one direction only.",
)
@selecting.times_options
@selecting.no_selecting_options(
    "follow shows one connection: dissector connections, with this option, lists their numbers",
    "topics", "subscriptions", "clients",
)  # fmt: skip
@options.chain_option
@options.dissecting_options
def follow(
    common: Common,
    source: str,
    connection: int,
    kind: str,
    only: str | None,
    selected: selecting.Selected,
    chain: str,
) -> int:
    """Print one conversation, both directions in order.

    Missing bytes are marked between the others, never filled in. Times select bytes by the time of
    their capture.
    """
    from dissector.cli.reading import Reading, rereadable

    with rereadable([source]) as inputs:
        reading = Reading(inputs, common, chain)
        if len(reading.chains) > 1:
            raise UsageError(f"follow takes one capture, {source} holds {len(reading.chains)}")
        part = selected.of_files(reading)
        facts = _first_pass(reading, connection)
        reading = Reading(inputs, common, chain)
        reading.refuse_if_partial()
        is_interrupted, shown = False, 0
        blocks = reading.blocks(
            "reading", is_quiet=sys.stdout.isatty(), follow_connection=connection
        )
        try:
            shown = _show(blocks, facts, common, kind, partial(_is_wanted, part, only))
        except KeyboardInterrupt:
            is_interrupted = True
        code = reading.end(is_interrupted)
        if not (shown or part.is_everything or is_interrupted):
            raise UsageError(f"no byte of the connection was captured{part.words(shown_time, ' ')}")
        return code
