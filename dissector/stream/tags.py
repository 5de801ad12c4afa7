"""Connections of equal addresses and ports behind different tags, and one connection behind many.

A tag is what was around a packet: its VLAN ids and its tunnel. It is no part of a connection's key,
because one connection shows many tags: a mirror tags one direction only, labels and tunnel ids
differ by direction, a mirror of several places shows each packet in several VLANs, or inside a
tunnel and beside it. But two tenants may use the same addresses in two VLANs or overlay networks,
and these are two connections. So content decides. A packet whose tag is new for its direction
belongs

- to the connection whose other direction has this tag, if nothing of this direction was seen there;
- else to a connection whose numbers it fits: a SYN with the initial sequence number that is known,
  any other packet near the end of the stream and of what it acknowledges;
- else to a new connection. If another of the same addresses is open, both are kept apart, with the
  notice addresses_shared.

The last two tags of each direction are known. On request (StreamOptions.vlan_in_key) content counts
for nothing: other tags, other connection.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_SHARED_ADDRESSES, NULL, TAG_REACH_BYTES
from dissector.notices import NOTICE_NUMBER
from dissector.stream import layout
from dissector.stream.columns import ENDED_IDLE
from dissector.stream.connections import (
    Key,
    close_now,
    find_connection,
    give_up,
    has_key,
    side_at,
)
from dissector.stream.layout import (
    BITS,
    ISN,
    LOWER_OTHER_TAG,
    LOWER_TAG,
    NO_TAG,
    ORIGIN,
    SIDE_BITS,
    SIDE_HAS_ORIGIN,
    TCP_ACK,
    TCP_SYN,
    TOP,
)
from dissector.stream.output import note
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, sequence_at
from dissector.stream.state import StreamState

_ADDRESSES_SHARED: Final = NOTICE_NUMBER["addresses_shared"]
# How well a connection fits a packet, from not at all on.
_NOT: Final = 0
_BY_CONTENT: Final = 1
_BY_OTHER_SIDE: Final = 2
_KNOWN: Final = 3


@inlined
def _is_near(cells: Int64Array, side: int, sequence: int) -> bool:
    """Whether a number lies near the end of a side's stream."""
    end = sequence_at(cells[side + ORIGIN], cells[side + TOP])
    return -TAG_REACH_BYTES <= distance(sequence, end) <= TAG_REACH_BYTES


@kernel
def _fits(cells: Int64Array, base: int, side_no: int, segment: Segment) -> bool:
    """Whether a packet's numbers continue what is known of a connection."""
    side = side_at(base, side_no)
    peer = side_at(base, 1 - side_no)
    if segment.flags & TCP_SYN and cells[side + ISN] != NULL:
        return bool(cells[side + ISN] == segment.sequence)
    is_known = False
    if cells[side + SIDE_BITS] & SIDE_HAS_ORIGIN:
        if not _is_near(cells, side, segment.sequence):
            return False
        is_known = True
    if segment.flags & TCP_ACK and cells[peer + SIDE_BITS] & SIDE_HAS_ORIGIN:
        if not _is_near(cells, peer, segment.acknowledgement):
            return False
        is_known = True
    return is_known


@kernel
def _fit(cells: Int64Array, base: int, key: Key, segment: Segment, by_tag_only: int) -> int:
    """How well a connection of the same addresses fits a packet."""
    tag = cells[base + LOWER_TAG + key.is_upper]
    if key.tag in (tag, cells[base + LOWER_OTHER_TAG + key.is_upper]):
        return _KNOWN
    other = 1 - key.is_upper
    if tag == NO_TAG and key.tag in (
        cells[base + LOWER_TAG + other],
        cells[base + LOWER_OTHER_TAG + other],
    ):
        return _BY_OTHER_SIDE
    if by_tag_only:
        return _NOT
    side_no = key.is_upper ^ (cells[base + BITS] & 1)
    return _BY_CONTENT if _fits(cells, base, side_no, segment) else _NOT


@kernel
def find_tagged(state: StreamState, key: Key, segment: Segment) -> int:
    """The row of the connection that a packet belongs to, or -1; of equals the latest.

    If none is found and another would be one too many of these addresses, the one that was silent
    for the longest time is given up: every packet of theirs passes by all of them.
    """
    cells = state.cells
    base = find_connection(cells, state.index, key)
    if base >= 0:
        return base
    best = _NOT
    fellows = 0
    oldest = -1
    mask = len(state.index) - 1
    at = key.hash & mask
    while state.index[at] >= 0:
        row = state.index[at]
        if has_key(cells, row, key):
            fellows += 1
            if oldest < 0 or cells[row + layout.LAST_TS] < cells[oldest + layout.LAST_TS]:
                oldest = row
            fit = _fit(cells, row, key, segment, state.registers[layout.VLAN_IN_KEY])
            is_later = (
                base >= 0 and cells[row + layout.CONNECTION_ID] > cells[base + layout.CONNECTION_ID]
            )
            if fit > best or (fit == best and fit != _NOT and is_later):
                best = fit
                base = row
        at = (at + 1) & mask
    if base < 0 and fellows >= MAX_SHARED_ADDRESSES:
        if cells[oldest + BITS] & layout.CONNECTION_CLOSED:
            close_now(state, oldest, ENDED_IDLE)
        else:
            give_up(state, oldest)
    return int(base)


@kernel
def inherit_tags(state: StreamState, base: int, before: int, key: Key) -> None:
    """A connection was opened: it knows the tags of the one before it, and of others of its
    addresses a notice tells.

    before: the row of the connection that it follows, or -1.
    """
    cells = state.cells
    if before >= 0:
        for place in range(2):
            tag = cells[before + LOWER_TAG + place]
            if place == key.is_upper and tag == key.tag:
                tag = cells[before + LOWER_OTHER_TAG + place]
            cells[base + LOWER_OTHER_TAG + place] = tag
    mask = len(state.index) - 1
    at = key.hash & mask
    while state.index[at] >= 0:
        row = state.index[at]
        is_open = not cells[row + BITS] & layout.CONNECTION_CLOSED
        if row != base and is_open and has_key(cells, row, key):
            other = cells[row + layout.CONNECTION_ID]
            note(state, base, _ADDRESSES_SHARED, NULL, NULL, other)
            return
        at = (at + 1) & mask


@inlined
def keep_tag(cells: Int64Array, base: int, key: Key) -> None:
    """Remember what was around a packet of a connection."""
    place = base + LOWER_TAG + key.is_upper
    if cells[place] != key.tag:
        if cells[place] != NO_TAG:
            cells[base + LOWER_OTHER_TAG + key.is_upper] = cells[place]
        cells[place] = key.tag
        if cells[base + layout.VLANS] == 0:
            cells[base + layout.VLANS] = key.vlans
        if cells[base + layout.TUNNEL] == 0:
            cells[base + layout.TUNNEL] = key.tunnel
        if key.tunnel == 0:
            cells[base + BITS] |= layout.CONNECTION_NATIVE
