"""What a protocol must provide to be dissected: callbacks for the framing, and facts.

A protocol is a folder beside this file and one word in `protocols.PROTOCOL_NAMES`. It knows nothing
of packets: it sees frames, and events between them, in the order of release.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from dissector.blocks import ByteArray, Column, Int64Array, TableBlock
from dissector.codecs.redaction import masked
from dissector.codecs.secret_keys import Span
from dissector.notice_log import NoticeLog
from dissector.options import Options
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pseudonyms import Pseudonyms

# Signatures of the callbacks, in the compiler's words.
CHECK_SIGNATURE = "int64(uint8[::1], int64, int64, int64, int64, int64)"
SPAN_SIGNATURE = "int64(uint8[::1], int64, int64)"
# Bytes that are gathered before a header that straddles ranges is looked at again; no protocol
# needs more to tell a header.
HEADER_WINDOW: Final = 64
_NS_PER_MS: Final = 1_000_000


# The byte arrays that frames.source selects: input buffer, stream heap, side buffer, arena.
Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]


class FrameBlock(NamedTuple):
    """Frames and events of all protocols in order of release.

    matrix: int64[FRAME_COLUMN_COUNT, capacity].
    frames: its rows by name.
    rows: how many are used.
    """

    matrix: Int64Array
    frames: FrameColumns
    rows: int
    sources: Sources


# Legs of a proxied pair: the two connections of a client that were captured around a proxy.
CLIENT_LEG: Final = "client"  # from the client to the proxy
PROXY_LEG: Final = "broker"  # from the proxy to the broker


class ConnectionFacts(NamedTuple):
    """What its frames say of a connection as a whole; None where they say nothing.

    leg: CLIENT_LEG or PROXY_LEG.
    twin_connection_id: the pair's other connection.
    """

    client_version: str | None = None
    server_version: str | None = None
    protocol_version: int | None = None
    feature_flags: tuple[str, ...] | None = None
    max_message_bytes: int | None = None
    proxied_client_ip: str | None = None
    leg: str | None = None
    twin_connection_id: int | None = None


@dataclass(frozen=True)
class DecoderOptions(Options):
    """All options, for the facts of one protocol. protocol_number: index in PROTOCOLS."""

    protocol_number: int = 0

    @property
    def reorder_window_ns(self) -> int:
        """How long to wait for late packets."""
        return self.reorder_window_ms * _NS_PER_MS


class Related(NamedTuple):
    """Rows that closed in a block, and notices of what frames have to do with each other."""

    rows: list[TableBlock]
    notices: NoticeLog | None = None


@dataclass
class Decoded:
    """What the first stage found out about a block, for the later ones; protocols add to it.

    rows: of other tables than `frames`, that closed there.
    """

    rows: list[TableBlock]


class ProtocolDecoder(Protocol):
    """Turns the frames of one protocol into rows; one object per capture.

    A block of frames goes through four stages (`dissection.frame_stages`):

    advance: fills the field columns of the protocol's own rows in place; what it returns is handed
        to the others as `decoded`.
    pair: fills columns that other frames tell, and gives rows that closed with that.
    read: gives rows that take reading what frames hold; then `frame_columns` names the columns of
        the table `frames` for chosen rows.
    relate: gives the rows of what frames have to do with each other, beside `read`.

    Each stage takes the blocks in order, in a thread, beside the other stages of the blocks before
    and behind: no two of them touch the same memory, but for `read` with `frame_columns`; what a
    later one needs of an earlier one is in `decoded`. `pair` and `relate` read the block's columns,
    never the bytes behind them; `relate` writes columns that it alone reads.

    When no block is in any stage: `connection_facts` says by connection what is known of those that
    are over, if anything, and forgets them, `open_facts` what is known by now; `repeated` tells the
    connections that are known by now to repeat another one's facts, the proxy's leg of a pair, and
    not yet over; `drain_hidden` tells how many texts that no column but `detail` shows held a
    secret since it was asked last, and their bytes; `finish` closes what is open; `open_rows` gives
    the rows that it would give now, and changes nothing.
    """

    notices: NoticeLog

    def advance(self, block: FrameBlock) -> Decoded: ...

    def pair(self, block: FrameBlock, decoded: Any) -> Related: ...

    def read(self, block: FrameBlock, decoded: Any) -> Related: ...

    def relate(self, block: FrameBlock, decoded: Any) -> Related: ...

    def frame_columns(
        self, block: FrameBlock, decoded: Any, rows: Int64Array
    ) -> dict[str, Column]: ...

    def connection_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]: ...

    def open_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]: ...

    def repeated(self) -> Collection[int]: ...

    def drain_hidden(self) -> tuple[int, int]: ...

    def finish(self) -> list[TableBlock]: ...

    def open_rows(self) -> list[TableBlock]: ...


class AnonymizerKeys(NamedTuple):
    """What anonymous bytes follow from.

    noise: 16 bytes.
    pseudonyms: other names.
    keeps_names: names stay.
    hidden: makes noise of bytes, as many.
    """

    noise: bytes
    pseudonyms: Pseudonyms
    keeps_names: bool
    hidden: Callable[[bytes], bytes]


class FrameAnonymizer(Protocol):
    """Makes frames of one protocol anonymous.

    repacked, given_up: compressed batches that were made anew at their length, and those that are
        noise because they could not be.
    nameless: of the first those without room for a name.
    """

    repacked: int
    given_up: int
    nameless: int

    def frames(self, data: ByteArray, bounds: Int64Array, packed: Sequence[bool]) -> None:
        """Treat frames in place.

        Args:
            bounds: int64[3, frames], starts, rising; announced sizes; ends of what is there.
            packed: of each, whether its body is compressed.
        """


def _all_of_it(frame: bytes, is_packed: bool) -> list[Span]:
    return [(0, len(frame))]


def _every_one(data: ByteArray, bounds: Int64Array) -> np.ndarray:
    return np.ones(bounds.shape[1], bool)


def _as_hidden(frame: bytes, hidden: bytes) -> bytes:
    return hidden


class ProtocolSpec(NamedTuple):
    """A protocol.

    ports: hints, content decides.
    check, prove, one_way, announced_limit: plain functions that are compiled as callbacks (see
        `protocols.framing.Callbacks`.
    prove: 1 right checksum, 0 none, -1 wrong).
    new_facts: makes the facts of a capture.
    commands: the names of all.
    secret_spans: where the secrets of a frame are, or of what there is of it from its beginning on
        (is_packed: its body is compressed).
    suspicious: which of many frames can have such spans, all that do, hardly one that does not, as
        bool[frames]. Of bytes and bounds as of `FrameAnonymizer`, of frames that are whole.
    mended: a frame with its secrets hidden, its sums as right as before.
    new_anonymizer: without one frames become noise.
    packed_codecs: compressions of whole bodies.
    is_ordered: answers belong to requests by their order alone, so that each frame counts.
    words: what its users call what texts say in Pulsar's words.
    """

    name: str
    ports: tuple[int, ...]
    check: Callable[..., int]
    prove: Callable[..., int]
    one_way: Callable[..., int]
    announced_limit: Callable[..., int]
    new_facts: Callable[[DecoderOptions], ProtocolDecoder]
    commands: tuple[str, ...] = ()
    secret_spans: Callable[[bytes, bool], list[Span]] = _all_of_it
    suspicious: Callable[[ByteArray, Int64Array], np.ndarray] = _every_one
    mended: Callable[[bytes, bytes], bytes] = _as_hidden
    new_anonymizer: Callable[[AnonymizerKeys], FrameAnonymizer] | None = None
    packed_codecs: frozenset[str] = frozenset()
    is_ordered: bool = False
    words: Mapping[str, str] = MappingProxyType({})

    def hide_secrets(self, frame: bytes, is_packed: bool) -> bytes:
        """A frame, or what there is of it from its beginning on, with its secrets as `*`."""
        spans = self.secret_spans(frame, is_packed)
        return self.mended(frame, masked(frame, spans)) if spans else frame

    def may_hold_secrets(self, data: ByteArray, bounds: Int64Array, packed: Any) -> np.ndarray:
        """Which frames are worth a search, bool[frames]; those that are whole are told at once.

        Args:
            bounds, packed: see `FrameAnonymizer`.
        """
        starts, sizes, ends = bounds
        is_worth_it = np.ones(len(starts), bool)
        rows = np.flatnonzero((ends - starts == sizes) & ~np.array(packed, bool))
        if len(rows):
            is_worth_it[rows] = self.suspicious(data, np.ascontiguousarray(bounds[:, rows]))
        return is_worth_it


Specs = Sequence[ProtocolSpec]
