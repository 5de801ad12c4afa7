"""Observers of a running tap: metrics, findings, a view of the terminal, recordings."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dissector.cli.lake_of_command import shown_lake
from dissector.cli.terminal import Messages, clipped, counted, safe_text, terminal_width
from dissector.errors import UsageError
from dissector.local_paths import typed

if TYPE_CHECKING:
    from dissector.dissection import Options
    from dissector.findings.finding import Finding
    from dissector.tap.finding_incidents import IncidentLog
    from dissector.tap.judging import Judging
    from dissector.tap.recorder import Recorder
    from dissector.tap.rotations import Rotations
    from dissector.tap.server import Server
    from dissector.tap.service import Tap
    from dissector.tap.view import Shown, TapView

_NS: Final = 1_000_000_000


# In the order of `findings.loading`, without "ok".
SEVERITIES: Final = ("error", "warning", "info")


class FindingOptions(NamedTuple):
    """The options of findings. severity: the least one that is printed."""

    severity: str
    lake: Path | None
    replayed: Sequence[str]

    def says(self, severity: str) -> bool:
        """Whether incidents of this severity are printed."""
        return severity in SEVERITIES[: SEVERITIES.index(self.severity) + 1]

    def command(self) -> str | None:
        """The command that shows findings with their frames, None without a lake or files."""
        if (lake := shown_lake(self.lake)) is not None:
            return f"dissector findings --lake {typed(lake)}"
        names = " ".join(map(typed, self.replayed))
        return f"dissector findings {names}" if names else None

    def line(self, one: "Finding", width: int | None) -> str:
        """An incident as one line: with the command that shows more, or cut to the width."""
        when = time.strftime("%H:%M:%SZ", time.gmtime(one.first_ns / 1e9))
        what, _, _ = one.text.partition("\n")
        text = safe_text(f"{one.title}: {what}")
        if width is not None:
            return clipped(f"{when} {one.number} {one.severity}: {text}", width)
        command = self.command()
        more = f"{command} --code" if command else "dissector explain"
        name = f"{one.number} {one.severity} {one.code}"
        return f"finding {name} at {when}: {text} See: {more} {one.number}"

    def summary(self, counts: Mapping[str, int]) -> str:
        """The sentence on the number of incidents, and how to see them."""
        listed = ", ".join(f"{counts[each]:,} {each}" for each in SEVERITIES if each in counts)
        least = [each for each in counts if not self.says(each)]
        hidden = f" (not said: {', '.join(least)}; see --severity)" if least else ""
        command = self.command()
        return f"findings: {listed}{hidden}" + (f"; {command}" if command else "")


def _window_bytes(tap: "Tap") -> int:
    """The limit of a tap's window of rows, bytes."""
    from dissector.limits import MAX_WINDOW_BYTES

    limit = tap.settings.memory_limit
    return MAX_WINDOW_BYTES if limit is None else min(MAX_WINDOW_BYTES, limit // 16)


def shown_topics(order: str, columns: str | None) -> "Shown":
    """Parse --sort and --columns.

    Raises:
        UsageError: a column does not exist.
    """
    from dissector.tap.view import Shown
    from dissector.tap.view_columns import COLUMNS, TOPIC

    names = [*COLUMNS] if columns is None else [each.strip() for each in columns.split(",")]
    for name in (*names, order):
        if name not in COLUMNS and (name, order) != (TOPIC, name):
            raise UsageError(f"{name} is no column of --top; there are {', '.join(COLUMNS)}")
    return Shown([COLUMNS[name] for name in names], order)


class RecorderOptions(NamedTuple):
    """The options of the flight recorder."""

    folder: Path
    keep_bytes: int
    memory_bytes: int
    triggers: tuple[str, ...]
    latency_seconds: float
    redacted: "Options | None"

    def recorder(self, tap: "Tap") -> "Recorder":
        """A recorder of a tap's packets."""
        from dissector.tap.recorder import Recorder
        from dissector.tap.triggers import NAMES, Triggers

        recorder = Recorder(
            self.folder,
            Triggers(self.triggers or NAMES, int(self.latency_seconds * _NS)),
            lambda connection: tap.dissection.ends_of(connection),
            tap.link_types,
            self.memory_bytes,
            self.keep_bytes,
        )
        recorder.redacted = self.redacted
        recorder.signals = tap.signals
        return recorder


class Monitor:
    """Observes a tap while it runs: serves metrics, reports findings, keeps recordings.

    port: of the metrics; None if they are not served.
    """

    def __init__(
        self,
        metrics: str | None,
        names: Sequence[str],
        max_series: int,
        is_live: bool,
        cluster: str | None = None,
    ) -> None:
        from dissector.tap.health import Health
        from dissector.tap.metrics import TapNumbers
        from dissector.tap.server import address_of

        self._address = address_of(metrics) if metrics else None
        self._names = names
        self.port = self._address[1] if self._address else None
        self._health = Health(is_live, max_series)
        self._numbers = TapNumbers(cluster)
        self._max_series = max_series
        self._recorder: Recorder | None = None
        self._judging: Judging | None = None
        self._incidents: IncidentLog | None = None
        self._findings: FindingOptions | None = None
        self._view: TapView | None = None
        self._server: Server | None = None

    def bind(self, words: Messages) -> None:
        """Bind the address, before the process drops its privileges."""
        if self._address is not None:
            from dissector.tap.server import Server, text_of

            self._server = Server(*self._address, self._health, self._numbers, self._names)
            address = text_of(self._address[0], self._server.port)
            words.say(f"metrics at http://{address}/metrics")

    def record(self, recorder: "Recorder") -> None:
        """Add a recorder."""
        self._recorder = recorder

    def find(
        self, tap: "Tap", words: Messages, options: FindingOptions, rotations: "Rotations | None"
    ) -> None:
        """Run the rules of findings over the tap's rows."""
        from dissector.findings.running_findings import Notes
        from dissector.tap.finding_incidents import IncidentLog
        from dissector.tap.judging import Judging

        self._judging = Judging(not tap.source.is_live, _window_bytes(tap))
        self._findings, lake = options, options.lake

        def show(one: "Finding") -> None:
            if options.says(one.severity):
                self._say_finding(options, one, words)

        self._incidents = IncidentLog(
            self._judging, words.say, show, self._max_series, rotations,
            None if lake is None else Notes(lake),
        )  # fmt: skip

    def _say_finding(self, options: FindingOptions, one: "Finding", words: Messages) -> None:
        """Print a finding as one line, above the table of topics if there is one."""
        width = terminal_width(sys.stderr) if sys.stderr.isatty() else None
        line = options.line(one, None if width is None else width - len("dissector: "))
        if self._view is None or not self._view.say(line):
            words.say(line)

    def start(
        self, tap: "Tap", rotations: "Rotations | None", stack: ExitStack, shown: "Shown | None"
    ) -> None:
        """Observe a tap until the stack unwinds: serve metrics, and show topics if requested."""
        is_watched = self._server is not None or shown is not None
        if self._recorder is not None:
            tap.listen(self._recorder)
        self._open_windows(tap, stack, is_watched)
        if not is_watched:
            return
        from dissector.tap.loop_metrics import LoopMetrics

        watch = LoopMetrics(self._health, self._numbers, rotations, self._recorder, self._incidents)
        watch.tap = tap
        tap.listen(self._health)
        tap.listen(watch)
        if self._server is not None:
            self._server.start()
            stack.callback(self._server.close)
        if shown is not None:
            from dissector.tap.view import TapView

            view = TapView(self._health, safe_text, None, self._incidents, shown)
            tap.listen(view)
            stack.callback(view.close)
            self._view = view

    def _open_windows(self, tap: "Tap", stack: ExitStack, is_watched: bool) -> None:
        """Open the windows over the tap's rows for metrics and findings."""
        from dissector.tap.sums import Sums
        from dissector.tap.windows import Windows

        recorder, health, incidents = self._recorder, self._health, self._incidents
        has_stalls = recorder is not None and recorder.triggers.wants_stalls
        takers = [health.sums] if is_watched else [Sums(is_of_permits=True)] if has_stalls else []
        if not takers and incidents is None:
            return
        is_live = tap.source.is_live
        windows = Windows(tap, not is_live, takers, self._judging, _window_bytes(tap))
        tap.listen(windows)
        if incidents is not None:
            tap.listen(incidents)
            stack.callback(incidents.close)
        stack.callback(windows.close)
        health.refresh, health.flush = windows.refresh, windows.flush
        # A file waits until its rows are counted.
        health.ask = windows.ask if is_live else windows.flush
        if recorder is not None and has_stalls:
            recorder.sums, recorder.ask = takers[0], health.ask

    def close(self, words: Messages) -> None:
        """Print the number of incidents, write waiting recordings, and print failed ones."""
        incidents, findings = self._incidents, self._findings
        if findings is not None and incidents is not None and incidents.by_severity:
            words.say(findings.summary(incidents.by_severity))
        if self._recorder is None:
            return
        self._recorder.close()
        if self._recorder.kept:
            recordings = counted(self._recorder.kept, "recording")
            words.say(f"{recordings} in {self._recorder.folder}: {self._recorder.content}")
        if self._recorder.failed:
            text = f"{counted(self._recorder.failed, 'recording')} not written"
            why = self._recorder.problem
            words.missing(f"{text} ({why})" if why else text)
