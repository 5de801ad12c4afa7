"""What may be a chain of frames in the runs of directions, and what it says of their protocol."""

from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.resync import AT, Rule, is_confirmed_by_packets, tells_protocol
from dissector.protocols.framing.roles import Roles
from dissector.protocols.framing.state import UNDECIDED
from dissector.protocols.framing.unsynchronised import Run, UnsynchronisedFlows


class Chains:
    """The chains of all directions that are searched.

    Args:
        judges: the callbacks check and prove of all protocols, as kernels take them; count: how
            many protocols there are.
    """

    def __init__(
        self,
        runs: UnsynchronisedFlows,
        output: FrameOutput,
        roles: Roles,
        judges: tuple[tuple, tuple],  # type: ignore[type-arg]
        count: int,
    ) -> None:
        self._runs = runs
        self._output = output
        self._roles = roles
        self._judges = judges
        self._all = tuple(range(count))

    def _is_open(self, flow: int) -> bool:
        return bool(self._output.state.connections.protocol[flow >> 1] == UNDECIDED)

    def protocols(self, flow: int) -> tuple[int, ...]:
        """The protocols of which a direction may have frames."""
        if self._is_open(flow):
            return self._all
        return (int(self._output.state.connections.protocol[flow >> 1]),)

    def rule(self, flow: int, protocol: int, is_final: int) -> Rule:
        """How the frames of a direction are judged."""
        flows = self._output.state.flows
        limit, skipped = int(flows.limit[flow]), int(flows.skipped[flow])
        direction = self._roles.direction(flow >> 1, flow & 1)
        is_open = int(self._is_open(flow))
        return Rule(*self._judges, protocol, direction, limit, is_final, is_open, skipped)

    def begin_with(self, run: Run, flow: int) -> bool:
        """Whether a run holds the first bytes of a connection, which begin with a frame or are no
        protocol's."""
        return bool(run.is_known_start and self._is_open(flow) and not run.hole_count)

    def protocols_of(self, flow: int) -> list[int]:
        """The protocols of which a direction's run has a chain."""
        run = self._runs.get(flow)
        if run is None or run.mode is not None or self.begin_with(run, flow):
            return []
        return [each for each in self.protocols(flow) if run.trail(each).search[AT] >= 0]

    def told(self, flow: int) -> int | None:
        """The protocol that a chain of a direction tells, of which no byte follows."""
        for protocol in self.protocols_of(flow):
            if self.tells(flow, protocol, 1):
                run = self._runs[flow]
                run.is_confirmed = is_confirmed_by_packets(run.for_kernel(protocol))
                return protocol
        return None

    def tells(self, flow: int, protocol: int, is_end: int) -> bool:
        """Whether the chain of a direction tells that its protocol is this one.

        Args:
            is_end: no byte of it follows.
        """
        run = self._runs[flow].for_kernel(protocol)
        return bool(tells_protocol(run, self.rule(flow, protocol, is_end), is_end))
