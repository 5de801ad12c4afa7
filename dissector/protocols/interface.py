"""What a protocol must provide to be dissected: callbacks for the framing, and facts.

A protocol is a folder beside this file and one line in `protocols.PROTOCOLS`. It knows nothing of
packets: it sees frames, and events between them, in the order of release.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dissector.blocks import ByteArray, Column, Int64Array, TableBlock
from dissector.findings import Findings
from dissector.protocols.columns import FrameColumns

# Signatures of the callbacks, in the compiler's words.
CHECK_SIGNATURE = "int64(uint8[::1], int64, int64, int64, int64, int64)"
SPAN_SIGNATURE = "int64(uint8[::1], int64, int64)"


class FrameBlock(NamedTuple):
    """Frames and events of all protocols in order of release.

    matrix: int64[FRAME_COLUMN_COUNT, capacity]; frames: its rows by name; rows: how many are used;
    sources: byte arrays that frames.source selects: input buffer, stream heap, side buffer, arena.
    """

    matrix: Int64Array
    frames: FrameColumns
    rows: int
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray]


class ConnectionFacts(NamedTuple):
    """What a handshake says, for the connections table; None where it says nothing."""

    client_version: str | None = None
    server_version: str | None = None
    protocol_version: int | None = None
    feature_flags: tuple[str, ...] | None = None
    max_message_bytes: int | None = None
    proxied_client_ip: str | None = None


class FactsOptions(NamedTuple):
    """Options that facts obey. detail: `none`, `rare` or `all`; place: index in PROTOCOLS."""

    place: int
    reorder_window_ns: int
    detail: str = "rare"
    redact: bool = True
    properties: bool = False
    payload_sha256: bool = False


class Facts(Protocol):
    """Turns the frames of one protocol into rows; one object per capture.

    `advance` fills the field columns of its own protocol's rows of a block in place and returns the
    rows of all tables but `frames`, which closed there; `frame_columns` names the columns of the
    `frames` table for chosen rows of the block just advanced; `finish` closes what is open.
    """

    findings: Findings

    def advance(self, block: FrameBlock) -> list[TableBlock]: ...

    def frame_columns(self, block: FrameBlock, rows: Int64Array) -> dict[str, Column]: ...

    def connection_facts(self) -> dict[int, ConnectionFacts]: ...

    def finish(self) -> list[TableBlock]: ...


class ProtocolSpec(NamedTuple):
    """A protocol.

    ports: hints, content decides; check, prove, one_way, announced_limit: plain functions that are
    compiled as callbacks (see `protocols.framing.Callbacks`; prove: 1 right checksum, 0 none, -1
    wrong); is_opening: 1 if a strict header alone, at the first byte after a SYN, is proof enough.
    """

    name: str
    ports: tuple[int, ...]
    check: Callable[..., int]
    prove: Callable[..., int]
    one_way: Callable[..., int]
    announced_limit: Callable[..., int]
    new_facts: Callable[[FactsOptions], Facts]


Specs = Sequence[ProtocolSpec]
