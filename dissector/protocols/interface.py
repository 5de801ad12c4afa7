"""What a protocol must provide: callbacks for the framing, and a decoder.

A protocol is a folder beside this file and one word in `protocols.PROTOCOL_NAMES`. It handles no
packets: it sees frames, and events between them, in the order of release.
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
# Bytes that are collected before a header that spans ranges is checked again; no protocol needs
# more to check a header.
HEADER_WINDOW: Final = 64
_NS_PER_MS: Final = 1_000_000


# The byte arrays that frames.source selects: input buffer, stream heap, side buffer, arena.
Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]


# Addresses of client and broker, by connection.
Hosts = Mapping[int, tuple[str, str]]


class FrameBlock(NamedTuple):
    """Frames and events of all protocols in order of release.

    matrix: int64[FRAME_COLUMN_COUNT, capacity].
    frames: its rows by name.
    rows: how many are used.
    copies: connections newly known as copies of others (`stream.translations`).
    hosts: of connections of which first frames of the client are in the block.
    """

    matrix: Int64Array
    frames: FrameColumns
    rows: int
    sources: Sources
    copies: tuple[int, ...] = ()
    hosts: Hosts = MappingProxyType({})


# Legs of a pair: two connections with the same frames, captured around a proxy, or before and
# behind the translation of an address, when the one captured second counts as the proxy's.
CLIENT_LEG: Final = "client"  # from the client to the proxy
PROXY_LEG: Final = "broker"  # from the proxy to the broker


class ConnectionFacts(NamedTuple):
    """Facts about a connection as a whole, from its frames; None where they have none.

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
    """All options, for the decoder of one protocol. protocol_number: index in PROTOCOLS."""

    protocol_number: int = 0

    @property
    def reorder_window_ns(self) -> int:
        """How long to wait for late packets."""
        return self.reorder_window_ms * _NS_PER_MS


class Related(NamedTuple):
    """Rows that closed in a block, and notices about relations between frames."""

    rows: list[TableBlock]
    notices: NoticeLog | None = None


@dataclass
class Decoded:
    """The results of a block's first stage, for the later ones; protocols add fields.

    rows: closed rows of tables other than `frames`.
    """

    rows: list[TableBlock]


class ProtocolDecoder(Protocol):
    """Turns the frames of one protocol into rows; one object per capture.

    A block of frames goes through four stages (`dissection.frame_stages`):

    advance: fills the field columns of the protocol's own rows in place; returns `decoded`, which
        is passed to the other stages.
    pair: fills columns that depend on other frames; returns the rows that closed.
    read: returns the rows that need the frames' bytes; then `frame_columns` returns the columns of
        the table `frames` for chosen rows.
    relate: returns the rows about relations between frames, in parallel with `read`.

    Each stage handles the blocks in order, in one thread, in parallel with other stages of earlier
    and later blocks: no two stages use the same memory, except `read` and `frame_columns`; a later
    stage gets values of an earlier one in `decoded`. `pair` and `relate` read the block's columns,
    never the bytes behind them; `relate` writes columns that no other stage reads.

    Called while no block is in any stage: `connection_facts` returns the facts of closed
    connections and drops their state; `open_facts` returns the facts so far; `repeated` returns the
    open connections whose facts repeat another one's, the proxy's side of a pair; `drain_hidden`
    returns the number and bytes of texts with secrets since its last call that only `detail` shows;
    `finish` closes all open rows; `open_rows` returns the rows that `finish` would return now, and
    changes nothing.
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
    """The keys and options of an anonymizer.

    noise: 16 bytes.
    pseudonyms: replace names.
    keeps_names: names stay.
    hidden: returns noise of equal length for bytes.
    """

    noise: bytes
    pseudonyms: Pseudonyms
    keeps_names: bool
    hidden: Callable[[bytes], bytes]


class FrameAnonymizer(Protocol):
    """Anonymizes frames of one protocol.

    repacked, given_up: compressed batches that were compressed again at their length, and batches
        that did not fit and became noise.
    nameless: repacked batches whose names were removed to make them fit.
    """

    repacked: int
    given_up: int
    nameless: int

    def frames(self, data: ByteArray, bounds: Int64Array, packed: Sequence[bool]) -> None:
        """Anonymize frames in place.

        Args:
            bounds: int64[3, frames], starts, rising; announced sizes; ends of the captured bytes.
            packed: by frame, whether its body is compressed.
        """


def _all_of_it(frame: bytes, is_packed: bool) -> list[Span]:
    return [(0, len(frame))]


def _every_one(data: ByteArray, bounds: Int64Array) -> np.ndarray:
    return np.ones(bounds.shape[1], bool)


def _as_hidden(frame: bytes, hidden: bytes) -> bytes:
    return hidden


class ProtocolSpec(NamedTuple):
    """A protocol.

    ports: hints; the content decides.
    check, prove, one_way, announced_limit: plain functions that are compiled as callbacks, see
        `protocols.framing.Callbacks`.
    new_facts: returns the decoder of a capture.
    commands: names of all commands.
    secret_spans: (frame, is_packed) -> byte ranges of secrets in a frame, which may be cut;
        is_packed: its body is compressed.
    suspicious: bool[frames], which of many whole frames may have such ranges: all that do, and
        hardly any other. Data and bounds as of `FrameAnonymizer`.
    mended: (frame, hidden) -> the hidden frame with its checksums as right or wrong as before.
    new_anonymizer: None if frames become noise.
    packed_codecs: compressions of whole bodies.
    is_ordered: answers are paired with requests by order alone, so every frame counts.
    words: by Pulsar's word in our texts, the word of this protocol's users.
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
        """A frame, which may be cut, with its secrets replaced by `*`."""
        spans = self.secret_spans(frame, is_packed)
        return self.mended(frame, masked(frame, spans)) if spans else frame

    def may_hold_secrets(self, data: ByteArray, bounds: Int64Array, packed: Any) -> np.ndarray:
        """bool[frames], which frames must be searched for secrets; whole ones are tested at once.

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
