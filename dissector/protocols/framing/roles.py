"""Who is the client: frames wait until a one-way command, a port or a bound decides it."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from dissector.blocks import Int64Array
from dissector.limits import MAX_ROLE_WAIT_FRAMES
from dissector.notice_log import Notice
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COLUMN_NUMBER
from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.connection_table import find_slot
from dissector.protocols.framing.state import ROLE_BY_FIRST_SEEN, ROLE_BY_PORT, ROLE_DECIDED
from dissector.stream.columns import RangeColumns

_RELEASE_PACKET = COLUMN_NUMBER["release_packet"]
_SIDE = COLUMN_NUMBER["side"]


class WaitingFrame(NamedTuple):
    """A frame whose direction is not known yet: its cells and its bytes."""

    values: Int64Array
    data: bytes


class Roles:
    """Holds back frames of connections whose client is not known, and lets them out in order."""

    def __init__(
        self,
        output: FrameOutput,
        broker_ports: Collection[int],
        ports_of: Callable[[int], tuple[int, int]],
        findings: list[Notice],
    ) -> None:
        self._output = output
        self._broker_ports = broker_ports
        self._ports_of = ports_of
        self._findings = findings
        self._waiting: dict[int, list[WaitingFrame]] = {}

    def direction(self, slot: int, side: int) -> int:
        """0 to_broker, 1 to_client, 2 while the role is open."""
        known = self._output.state.connections
        if known.role[slot] != ROLE_DECIDED:
            return 2
        return int(known.client_side[slot] != side)

    def note(
        self, code: str, ranges: RangeColumns, row: int, flow: int, offset: int, value: int
    ) -> None:
        """Add a notice of a direction at a range."""
        self._findings.append(
            Notice(
                NOTICE_NUMBER[code],
                ts_ns=int(ranges.ts_ns[row]),
                connection_id=int(ranges.connection[row]),
                direction=self.direction(flow >> 1, flow & 1),
                packet=int(ranges.packet[row]),
                stream_offset=offset,
                bytes=value,
                value=value,
            )
        )

    def note_start(
        self, ranges: RangeColumns, row: int, flow: int, offset: int, is_confirmed: bool
    ) -> None:
        """Note where the frames of a direction start, if bytes before it or doubts are left."""
        flows = self._output.state.flows
        skipped = int(flows.skipped[flow])
        if skipped:
            code = "midstream_start" if flows.is_first[flow] else "resync"
            self.note(code, ranges, row, flow, offset, skipped)
        if not is_confirmed:
            self.note("resync_unconfirmed", ranges, row, flow, offset, skipped)
        flows.skipped[flow] = 0

    def hold_last_row(self) -> None:
        """The last row has no direction yet, or has decided it: keep it, or let all out."""
        output = self._output
        row = output.rows - 1
        slot = int(find_slot(output.state, int(output.frames.connection_id[row])))
        known = output.state.connections
        is_decided = known.role[slot] == ROLE_DECIDED
        if is_decided and known.is_from_syn[slot] and known.role_source[slot]:
            self._note("role_flipped", row)
        if is_decided and not known.waiting[slot]:
            return
        data = output.row_data(row)
        values = output.pop_row()
        waiting = self._waiting.setdefault(slot, [])
        waiting.append(WaitingFrame(values, data))
        known.waiting[slot] = len(waiting)
        if not is_decided and len(waiting) < MAX_ROLE_WAIT_FRAMES:
            return
        if not is_decided:
            self._decide_by_port(slot)
        self._release(slot, int(values[_RELEASE_PACKET]))

    def decide(self, slot: int, release_packet: int) -> None:
        """The connection is over: decide without a command and let its frames out."""
        if self._output.state.connections.waiting[slot]:
            self._decide_by_port(slot)
            self._release(slot, release_packet)

    def _note(self, code: str, row: int) -> None:
        frames = self._output.frames
        self._findings.append(
            Notice(
                NOTICE_NUMBER[code],
                ts_ns=int(frames.last_ts_ns[row]),
                connection_id=int(frames.connection_id[row]),
                direction=int(frames.direction[row]),
                packet=int(frames.last_packet[row]),
                stream_offset=int(frames.stream_offset[row]),
            )
        )

    def _decide_by_port(self, slot: int) -> None:
        """Without a one-way command the SYN decides, else a known port, else who spoke."""
        known = self._output.state.connections
        if known.is_from_syn[slot]:
            known.role[slot] = ROLE_DECIDED
            return
        # Of any protocol, as where no frame came out: what listens there answers, whatever it is.
        ports = self._ports_of(int(known.connection_id[slot]))
        hinted = [side for side in (0, 1) if ports[side] in self._broker_ports]
        if len(hinted) == 1:
            known.client_side[slot] = 1 - hinted[0]
            known.role[slot] = ROLE_DECIDED
            known.role_source[slot] = ROLE_BY_PORT
        else:
            known.role_source[slot] = ROLE_BY_FIRST_SEEN

    def _release(self, slot: int, release_packet: int) -> None:
        """Write the waiting rows of a connection, now with their direction."""
        output = self._output
        output.state.connections.waiting[slot] = 0
        for frame in self._waiting.pop(slot, []):
            frame.values[_RELEASE_PACKET] = release_packet
            row = output.write(frame.values, frame.data)
            output.frames.direction[row] = self.direction(slot, int(frame.values[_SIDE]))
