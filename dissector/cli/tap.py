"""The command tap: the same numbers live."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from dissector.cli import options as cli_options
from dissector.cli import selecting
from dissector.cli.land import refuse_lake_inputs
from dissector.cli.live import end_of, interfaces, signal_handlers
from dissector.cli.monitoring import (
    SEVERITIES,
    FindingOptions,
    Monitor,
    RecorderOptions,
    shown_topics,
)
from dissector.cli.options import INPUT_NAME, SIZE, Common, Whole
from dissector.cli.spans import DAYS, DURATION, ROTATE, SPEED, Rotate
from dissector.outputs import refuse_inputs_in

if TYPE_CHECKING:
    from dissector.tap.packet_batches import PacketSource
    from dissector.tap.rotations import Rotations
    from dissector.tap.service import TapSettings

_NS: Final = 1_000_000_000
_TRIGGERS: Final = ("checksum", "latency", "stall", "error")
# A parameter, its option as users write it, and parameters that need it.
_GO_TOGETHER: Final = (
    ("interface", "-i IFACE", ("bpf", "ring", "timestamps")),
    ("replay", "--replay INPUT", ("speed",)),
    ("metrics", "--metrics PORT", ("metrics_host",)),
    ("record", "--record DIR", ("keep", "recall", "trigger", "trigger_latency")),
    ("findings", "--findings", ("severity",)),
    ("top", "--top", ("sort", "columns")),
    ("lake", "--lake LAKE", ("keep_lake",)),
)


def _settings(
    common: Common, rotate: Rotate, duration: float | None, cluster: str | None
) -> "TapSettings":
    from dissector.tap.packet_batches import NEVER_NS
    from dissector.tap.service import TapSettings

    return TapSettings(
        common.core_options(),
        int(rotate.seconds * _NS) if rotate.seconds else NEVER_NS >> 1,
        rotate.size or NEVER_NS,
        int(duration * _NS) if duration else None,
        cluster,
        common.core.memory_limit,
    )


def _replay(
    inputs: Sequence[str], speed: float, common: Common, stack: ExitStack
) -> tuple["PacketSource", list[str]]:
    """The files as one source, and sentences about inputs that cannot be read.

    With --strict they are read once before, as rotations are written during reading.
    """
    from dissector.cli.reading import Reading, rereadable
    from dissector.tap.playback import FilePlayback

    if common.is_strict:
        inputs = stack.enter_context(rereadable(inputs))
    reading = Reading(inputs, common, "all")
    problems = list(reading.account.missing)
    if common.is_strict:
        for _ in reading.blocks("checking"):
            pass
        reading.refuse_if_partial()
    return FilePlayback(reading.chains[0], speed), problems


def _rotations(
    lake: Path, source: "PacketSource", settings: "TapSettings", keep_days: int | None
) -> "Rotations":
    from dissector.tap.rotations import QUEUE_BYTES, Rotations

    options = {**settings.core.as_json(), "cluster": settings.cluster}
    limit = settings.memory_limit
    size = QUEUE_BYTES if limit is None else min(QUEUE_BYTES, limit // 8)
    return Rotations(lake, source.name, options, not source.is_live, size, keep_days)


def _refuse_idle_options(context: click.Context) -> None:
    """Refuse options that do nothing without another one that is missing.

    Raises:
        UsageError: there is such an option, or not one source.
    """
    given = context.params
    if context.args:
        name = context.args[0]
        raise click.UsageError(
            f"{name}: `tap` takes no input by itself; write --replay {name} for a capture, "
            f"-i {name} for an interface"
        )
    if given["interface"] and given["replay"]:
        raise click.UsageError("give -i IFACE or --replay INPUT, not both")
    if not given["interface"] and not given["replay"]:
        from dissector.tap.interfaces import interface_names, is_up

        names = ", ".join(name for name in interface_names() if is_up(name))
        raise click.UsageError(
            f"give -i IFACE or --replay INPUT; interfaces that are up: {names or 'none'}"
        )
    for other, option, idle in _GO_TOGETHER:
        if given[other]:
            continue
        for name in idle:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name.replace('_', '-')} does nothing without {option}")


def _refuse_inputs(replay: Sequence[str], lake: Path | None, record: Path | None) -> None:
    """Refuse files to replay that lie where they could be replaced, or deleted as old recordings.

    Raises:
        OutputError: there is one.
    """
    if lake is not None:
        refuse_lake_inputs(lake, replay)
    if record is not None:
        refuse_inputs_in([record], replay, "--record")


@click.command(
    context_settings={"allow_extra_args": True},  # for the message on their purpose
    epilog=cli_options.example(
        "dissector tap -i eth1 --metrics 9401 --lake lake --rotate 60s\n"
        "dissector tap -i eth1 --lake s3://lakes/east --keep-lake 30d\n"
        "dissector tap -i eth1 --bpf 'tcp port 6650' --top\n"
        "dissector tap --replay night.pcap --lake lake"
    ),
)
@click.option(
    "-i",
    "--interface",
    multiple=True,
    metavar="IFACE",
    help="Capture from this network interface or any. Repeatable.",
)
@click.option("--bpf", metavar="EXPR", help="Let the kernel pass only these, as tcpdump does.")
@click.option(
    "--ring",
    type=SIZE,
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Buffer waiting packets in so much memory.",
)
@click.option(
    "--timestamps",
    type=click.Choice(["kernel", "hardware"]),
    default="kernel",
    show_default=True,
    help="Choose the source of packet timestamps.",
)
@click.option(
    "--replay", multiple=True, type=INPUT_NAME, metavar="INPUT",
    help="Read packets from files, one chain. Repeatable.",
)  # fmt: skip
@click.option(
    "--speed",
    type=SPEED,
    default="max",
    show_default=True,
    metavar="real|max|N",
    help="Replay as captured, as fast as possible, or N times as fast.",
)
@cli_options.lake_option("Write rotations to this lake.")
@click.option(
    "--keep-lake",
    type=DAYS,
    metavar="DAYS",
    help="Remove older days from the lake, whole ones, UTC: 30d.",
)
@click.option(
    "--rotate",
    type=ROTATE,
    default="60s",
    show_default=True,
    metavar="TIME|SIZE",
    help="End a rotation after a time, a size, or either: 60s,256MB.",
)
@click.option(
    "--metrics",
    metavar="ADDR:PORT",
    help="Serve /metrics and /healthz, on loopback by default.",
)
@click.option(
    "--metrics-host",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name, too. Repeatable.",
)
@click.option(
    "--max-series",
    type=Whole(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Keep N label sets of a metric, count the rest as `other`.",
)
@click.option(
    "--record",
    type=cli_options.FOLDER,
    metavar="DIR",
    help="Record packets of findings there, raw without --redact.",
)
@click.option(
    "--keep",
    type=SIZE,
    default="2GB",
    show_default=True,
    metavar="SIZE",
    help="Delete the oldest recordings beyond this.",
)
@click.option(
    "--recall",
    type=SIZE,
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Buffer so many of the last packets for recordings.",
)
@click.option(
    "--trigger",
    type=click.Choice(_TRIGGERS),
    multiple=True,
    metavar="NAME",
    help="Record at: checksum, latency, stall, error. Repeatable.  [default: all]",
)
@click.option(
    "--trigger-latency",
    type=DURATION,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Record sends that are answered later than this.",
)
@cli_options.private_option
@click.option(
    "--findings/--no-findings",
    default=True,
    show_default=True,
    help="Print the findings of the rules, minute by minute.",
)
@click.option(
    "--severity",
    type=click.Choice(SEVERITIES),
    default="warning",
    show_default=True,
    help="Print findings of at least this severity.",
)
@click.option("--top", is_flag=True, help="Show the busiest topics while it runs.")
@click.option(
    "--sort",
    metavar="COLUMN",
    default="rate",
    show_default=True,
    help="Sort topics of --top by this column, or by topic.",
)
@click.option(
    "--columns",
    metavar="COLUMN,...",
    help="Show these columns of --top.  [default: all]",
)
@selecting.no_selecting_options(
    "a tap counts all that comes, --bpf chooses by address; dissector summary --lake takes it"
)
@cli_options.cluster_option
@click.option("--duration", type=DURATION, metavar="TIME", help="End after 30s, 5m, 8h.")
@cli_options.dissecting_options
def tap(
    common: Common,
    interface: tuple[str, ...],
    bpf: str | None,
    ring: int,
    timestamps: str,
    replay: tuple[str, ...],
    speed: float,
    lake: Path | None,
    keep_lake: int | None,
    rotate: Rotate,
    metrics: str | None,
    metrics_host: tuple[str, ...],
    max_series: int,
    record: Path | None,
    keep: int,
    recall: int,
    trigger: tuple[str, ...],
    trigger_latency: float,
    findings: bool,
    severity: str,
    top: bool,
    sort: str,
    columns: str | None,
    cluster: str | None,
    duration: float | None,
) -> int:
    """Dissect packets live.

    Ends by itself with --duration or at the end of a replay; SIGINT and SIGTERM end it with
    everything written and exit code 0, SIGHUP begins a new rotation.

    Recordings contain the original bytes, for their owner alone (mode 0600). With --redact given,
    secrets in them are hidden at equal length and checksums corrected.
    """
    _refuse_idle_options(click.get_current_context())
    _refuse_inputs(replay, lake, record)
    shown = shown_topics(sort, columns) if top else None
    with signal_handlers() as signals, ExitStack() as stack:
        from dissector.tap.privileges import drop_all_but_capturing
        from dissector.tap.service import Tap

        settings = _settings(common, rotate, duration, cluster)
        monitor = Monitor(metrics, metrics_host, max_series, bool(interface), cluster)
        source: PacketSource
        problems: list[str] = []
        if interface:
            wants_hardware_time = timestamps == "hardware"
            source = interfaces(
                interface, bpf, ring, wants_hardware_time, monitor.port, common.words
            )
        else:
            source, problems = _replay(replay, speed, common, stack)
        stack.callback(source.close)
        monitor.bind(common.words)
        drop_all_but_capturing()
        rotations = _rotations(lake, source, settings, keep_lake) if lake else None
        running = Tap(source, settings, rotations, signals=signals)
        for problem in problems:
            running.account.miss(problem)
        if record:
            redacted = settings.core if cli_options.is_redact_asked() else None
            kept = RecorderOptions(record, keep, recall, trigger, trigger_latency, redacted)
            monitor.record(kept.recorder(running))
        if findings:
            finding_options = FindingOptions(severity, lake, replay)
            monitor.find(running, common.words, finding_options, rotations)
        # Closed before the last messages, else the view would draw over them.
        with ExitStack() as watching:
            monitor.start(running, rotations, watching, shown)
            running.run()
        monitor.close(common.words)
        return end_of(running, rotations, common.words)
