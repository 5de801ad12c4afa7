"""Parts of commands that capture from interfaces: sources, signals, closing messages, rows."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from dissector.cli.exits import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_OUTPUT, EXIT_PARTIAL
from dissector.cli.options import Common
from dissector.cli.reading import tell_missing
from dissector.cli.terminal import NORMAL, QUIET, Messages, bytes_text, counted

if TYPE_CHECKING:
    from dissector.blocks import TableBlock
    from dissector.tap.packet_batches import PacketBatch, PacketSource
    from dissector.tap.rotations import Rotations
    from dissector.tap.service import Signals, Tap


@contextmanager
def signal_handlers(is_tap: bool = True) -> Iterator["Signals"]:
    """Handle signals: SIGINT and SIGTERM end after all is written; SIGHUP rotates a tap, SIGUSR1
    starts a recording."""
    from dissector.tap.service import Signals

    signals = Signals()

    def end(*_: object) -> None:
        signals.is_end_requested = True

    def rotate(*_: object) -> None:
        signals.is_rotation_requested = True

    def record(*_: object) -> None:
        signals.is_recording_requested = True

    handlers = {signal.SIGINT: end, signal.SIGTERM: end}
    if is_tap:
        handlers |= {signal.SIGHUP: rotate, signal.SIGUSR1: record}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interfaces(
    names: Sequence[str],
    expression: str | None,
    ring_bytes: int,
    wants_hardware_time: bool,
    own_port: int | None,
    words: Messages,
) -> "PacketSource":
    """Open the rings of network interfaces; the system's kernel fills them from now on.

    Raises:
        UsageError: no such interface, an invalid filter, more memory than is free.
        DependencyError: the right to capture is missing.
    """
    from dissector.tap.filters import ALL, Program, compiled, without_own
    from dissector.tap.interfaces import ANY, chosen, is_up
    from dissector.tap.live import Live
    from dissector.tap.memory import available_bytes

    selected = chosen(names)
    if ANY in names:
        words.say(f"any: {', '.join(interface.name for interface in selected)}")
    for interface in selected:
        if not is_up(interface.name):
            words.missing(f"{interface.name} is down; packets come once it is up")
    # The system's kernel allocates the memory of rings at once, at other processes' expense.
    free = available_bytes()
    if free is not None and ring_bytes > free // 2:
        raise click.UsageError(
            f"--ring {bytes_text(ring_bytes)} is more than half of the {bytes_text(free)} that are "
            "free; give less"
        )
    programs: dict[int, Program] = {}
    for name, _, link_type, _ in selected:
        if link_type not in programs:
            program = compiled(expression, name, link_type) if expression else ALL
            programs[link_type] = without_own(own_port, program) if own_port else program
    name_of_all = ANY if ANY in names else None
    return Live(selected, programs, ring_bytes, bool(expression), wants_hardware_time, name_of_all)


def end_of(tap: "Tap", rotations: "Rotations | None", words: Messages) -> int:
    """Print what was captured, and what was lost; return the exit code."""
    account, source = tap.account, tap.source
    tell_missing(account, words)
    files = counted(len(source.file_names), "file")
    words.say(account.sentence(f"on {source.part_name}" if source.is_live else f"in {files}"))
    text = f"{counted(account.packets, 'packet')} captured"
    text += f", {tap.kernel_dropped:,} dropped by kernel"
    if tap.fates and rotations is not None:
        text += f", {rotations.lost_packets:,} not landed"
        there = max(0, rotations.landed - rotations.delivery.waiting)
        text += f"; {counted(there, 'rotation')} in the lake"
    is_whole = not (tap.kernel_dropped or account.is_partial or (rotations and rotations.lost))
    words.say(text, NORMAL if is_whole else QUIET)
    if rotations is not None and rotations.upkeep_problem:
        words.say(rotations.upkeep_problem)
    if rotations is not None and rotations.delivery.waiting:
        words.missing(rotations.delivery.sentence() or "")
    if rotations is not None and (rotations.lost or rotations.delivery.waiting):
        return EXIT_OUTPUT
    if account.is_unreadable and not source.is_live:
        return EXIT_INPUT
    return EXIT_PARTIAL if account.is_partial and not source.is_live else 0


class _Rows:
    """A listener that buffers closed rows until they are read."""

    def __init__(self) -> None:
        self.blocks: list[TableBlock] = []

    def packets(self, packet_batch: "PacketBatch") -> None:
        """Ignore packets."""

    def rows(self, blocks: "Sequence[TableBlock]") -> None:
        """Buffer the blocks."""
        self.blocks += blocks

    def tick(self, now: float) -> None:
        """Ignore the clock."""


class Interfaces:
    """The capture of interfaces, with the `base_name` that captures of files have."""

    def __init__(self, base_name: str) -> None:
        self.base_name: Final = base_name


class LiveReading:
    """Packets of interfaces, read as `reading.Reading` reads files: until SIGINT or SIGTERM.

    chains: one.
    """

    def __init__(
        self, names: Sequence[str], expression: str | None, common: Common, stack: ExitStack
    ) -> None:
        from dissector.tap.live import RING_BYTES
        from dissector.tap.privileges import drop_all_but_capturing

        self._common = common
        self._signals = stack.enter_context(signal_handlers(is_tap=False))
        self._source = interfaces(names, expression, RING_BYTES, False, None, common.words)
        stack.callback(self._source.close)
        drop_all_but_capturing()
        self.chains = [Interfaces(self._source.name)]
        self._tap: Tap | None = None

    def blocks(
        self, title: str, is_quiet: bool = False, **core: Any
    ) -> "Iterator[tuple[Interfaces, TableBlock]]":
        """Rows as they close, from the first packet on."""
        from dissector.tap.service import Tap, TapSettings

        rows = _Rows()
        settings = TapSettings(
            self._common.core_options(**core), memory_limit=self._common.core.memory_limit
        )
        self._tap = Tap(self._source, settings, None, [rows], self._signals)
        for _ in self._tap.steps():
            closed, rows.blocks = rows.blocks, []
            yield from ((self.chains[0], block) for block in closed)

    def end(self, is_interrupted: bool = False) -> int:
        """Print what was captured; return the exit code."""
        assert self._tap is not None, "blocks were asked for"
        end_of(self._tap, None, self._common.words)
        return EXIT_INTERRUPTED if is_interrupted or self._signals.is_end_requested else 0
