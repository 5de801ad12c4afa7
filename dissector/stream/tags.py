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

Content decides about packets of known tags, too, if their numbers cannot belong to the connection
(`numbering.py`): another of the same addresses has them, or payload opens one, with the notice
renumbered.

The last two tags of each direction are known. On request (StreamOptions.vlan_in_key) content counts
for nothing: other tags, other connection.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import MAX_SHARED_ADDRESSES, NULL, TAG_REACH_BYTES
from dissector.notices import NOTICE_NUMBER
from dissector.stream import connections as stream_connections
from dissector.stream import numbering
from dissector.stream.checksums import looks_damaged
from dissector.stream.columns import ENDED_IDLE
from dissector.stream.connections import ConnectionKey
from dissector.stream.output import note
from dissector.stream.records import TCP_ACK, TCP_SYN, Directions, direction_at
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance
from dissector.stream.state import StreamState

_ADDRESSES_SHARED: Final = NOTICE_NUMBER["addresses_shared"]
_RENUMBERED: Final = NOTICE_NUMBER["renumbered"]
# How well a connection fits a packet, worst first.
_NOT: Final = 0
_STAYS: Final = 1  # by its tag alone: its numbers do not belong there
_BY_CONTENT: Final = 2
_BY_OTHER_SIDE: Final = 3
_KNOWN: Final = 4
_BY_SYN: Final = 5  # a SYN whose number is known, or that acknowledges the one that is


@inlined
def _is_near(directions: Directions, direction_index: int, sequence: int) -> bool:
    """Whether a number lies near the end of a side's stream, as far as that is known."""
    end = numbering.end_of(directions, direction_index)
    return -TAG_REACH_BYTES <= distance(sequence, end) <= TAG_REACH_BYTES


@kernel
def _fits(state: StreamState, connection: int, endpoint_index: int, segment: Segment) -> bool:
    """Whether a packet's numbers continue what is known of a connection."""
    directions = state.directions
    direction_index = direction_at(connection, endpoint_index)
    peer = direction_at(connection, 1 - endpoint_index)
    if segment.flags & TCP_SYN and directions.isn[direction_index] != NULL:
        return bool(directions.isn[direction_index] == segment.sequence)
    is_known = False
    if numbering.end_of(directions, direction_index) != NULL:
        if not _is_near(directions, direction_index, segment.sequence):
            return False
        is_known = True
    if segment.flags & TCP_ACK and directions.has_origin[peer]:
        if not _is_near(directions, peer, segment.acknowledgement):
            return False
        is_known = True
    return is_known


@inlined
def _has_tag(directions: Directions, direction_index: int, tag: int) -> bool:
    """Whether a tag is one of the last two of a side."""
    return bool(tag in (directions.tag[direction_index], directions.previous_tag[direction_index]))


@inlined
def _is_at_home(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether a packet's numbers are possible for a side."""
    if segment.flags & TCP_SYN:
        return True
    is_foreign = numbering.is_of_another_stream(directions, direction_index, segment)
    return not is_foreign and not numbering.acknowledges_another_stream(
        directions, direction_index, segment
    )


@inlined
def _is_syn_of(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether a SYN has a side's known initial number, or acknowledges its peer's."""
    if segment.flags & TCP_SYN == 0:
        return False
    is_answer = segment.flags & TCP_ACK != 0
    is_answer = is_answer and numbering.acknowledges_syn(
        directions, direction_index ^ 1, segment.acknowledgement
    )
    return bool(is_answer or directions.isn[direction_index] == segment.sequence)


@kernel
def _fit(
    state: StreamState, connection: int, key: ConnectionKey, segment: Segment, data: ByteArray
) -> int:
    """How well a connection of the same addresses fits a packet."""
    directions = state.directions
    direction_index = stream_connections.direction_of(state.connections, connection, key.is_upper)
    by_tag = _NOT
    if _has_tag(directions, direction_index, key.tag):
        by_tag = _KNOWN
    elif directions.tag[direction_index] == stream_connections.NO_TAG and _has_tag(
        directions, direction_index ^ 1, key.tag
    ):
        by_tag = _BY_OTHER_SIDE
    if not _is_at_home(directions, direction_index, segment):
        # Only undamaged payload opens a connection of its own.
        addresses = state.connections.address_sum[connection]
        stays = not numbering.is_of_another_stream(
            directions, direction_index, segment
        ) or looks_damaged(directions, state.counters, direction_index, addresses, segment, data)
        return _STAYS if stays and by_tag != _NOT else _NOT
    if by_tag != _NOT:
        return _BY_SYN if _is_syn_of(directions, direction_index, segment) else by_tag
    if state.settings.vlan_in_key[0]:
        return _NOT
    return _BY_CONTENT if _fits(state, connection, direction_index & 1, segment) else _NOT


@kernel
def find_tagged(state: StreamState, key: ConnectionKey, segment: Segment, data: ByteArray) -> int:
    """The row of the connection that a packet belongs to, or -1; the latest of several that fit.

    If none fits and these addresses have MAX_SHARED_ADDRESSES connections, the one that was silent
    for the longest time is evicted: a packet of these addresses is compared with each of them.
    """
    connections = state.connections
    best_row = stream_connections.find_connection(state, key)
    if best_row >= 0:
        direction_index = stream_connections.direction_of(connections, best_row, key.is_upper)
        is_sure = segment.flags & TCP_SYN == 0 or _is_syn_of(
            state.directions, direction_index, segment
        )
        if is_sure and _is_at_home(state.directions, direction_index, segment):
            return best_row
    best_row = -1
    best_fit = _NOT
    fellows = 0
    oldest = -1
    mask = len(state.index) - 1
    for steps in range(mask + 1):
        row = state.index[(key.hash + steps) & mask]
        if row < 0:
            stream_connections.note_steps(state, steps)
            break
        if stream_connections.has_key(connections, row, key):
            fellows += 1
            if oldest < 0 or connections.last_ts_ns[row] < connections.last_ts_ns[oldest]:
                oldest = row
            fit = _fit(state, row, key, segment, data)
            is_later = (
                best_row >= 0
                and connections.connection_id[row] > connections.connection_id[best_row]
            )
            if fit > best_fit or (fit == best_fit and fit != _NOT and is_later):
                best_fit = fit
                best_row = row
    if best_row < 0 and fellows >= MAX_SHARED_ADDRESSES:
        if connections.ended_packet[oldest] != NULL:
            stream_connections.close_now(state, oldest, ENDED_IDLE)
        else:
            stream_connections.evict(state, oldest)
    return int(best_row)


@kernel
def inherit_tags(state: StreamState, connection: int, before: int, key: ConnectionKey) -> None:
    """Give a new connection the tags of the one before it; a notice tells of other open ones of
    its addresses.

    before: the row of the connection that it follows, or -1.
    """
    connections = state.connections
    directions = state.directions
    if before >= 0:
        for is_upper in range(2):
            direction_index = stream_connections.direction_of(connections, before, is_upper)
            tag = directions.tag[direction_index]
            if is_upper == key.is_upper and tag == key.tag:
                tag = directions.previous_tag[direction_index]
            directions.previous_tag[
                stream_connections.direction_of(connections, connection, is_upper)
            ] = tag
    mask = len(state.index) - 1
    for steps in range(mask + 1):
        row = state.index[(key.hash + steps) & mask]
        if row < 0:
            return
        is_open = connections.ended_packet[row] == NULL
        if row != connection and is_open and stream_connections.has_key(connections, row, key):
            other = connections.connection_id[row]
            direction_index = stream_connections.direction_of(connections, row, key.is_upper)
            is_tagged = _has_tag(directions, direction_index, key.tag) or _has_tag(
                directions, direction_index ^ 1, key.tag
            )
            kind = _RENUMBERED if is_tagged else _ADDRESSES_SHARED
            note(state, connection, kind, NULL, NULL, other)
            return


@inlined
def keep_tag(state: StreamState, connection: int, key: ConnectionKey) -> None:
    """Store the tag, VLANs and tunnel of a connection's packet."""
    connections = state.connections
    directions = state.directions
    direction_index = stream_connections.direction_of(connections, connection, key.is_upper)
    if directions.tag[direction_index] != key.tag:
        if directions.tag[direction_index] != stream_connections.NO_TAG:
            directions.previous_tag[direction_index] = directions.tag[direction_index]
        directions.tag[direction_index] = key.tag
        if connections.vlans[connection] == 0:
            connections.vlans[connection] = key.vlans
        if connections.tunnel[connection] == 0:
            connections.tunnel[connection] = key.tunnel
        if key.tunnel == 0:
            connections.is_native[connection] = 1
