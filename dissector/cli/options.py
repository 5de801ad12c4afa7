"""The options that several commands share: one long name for each idea, declared once."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from dissector.cli import uncompiled
from dissector.cli.compiling import Compiling
from dissector.cli.local_time import speak_local_time
from dissector.cli.terminal import NORMAL, QUIET, VERBOSE, Messages, show_fetching
from dissector.errors import UsageError
from dissector.local_paths import is_utf8, local, located
from dissector.native.progress import listen
from dissector.options import READING, Options, flags
from dissector.protocols import PROTOCOL_NAMES
from dissector.storage import progress
from dissector.storage.addresses import has_known_scheme

Command = TypeVar("Command", bound=Callable[..., Any])
if TYPE_CHECKING:
    # From click 8.3 on the class says what it converts to; before it takes no argument.
    _NumberType = click.ParamType[int]
    _AnyType = click.ParamType[Any]
else:
    _NumberType = _AnyType = click.ParamType

CHAIN_MODES: Final = ("auto", "all", "none")

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class CommandGroup(click.Group):
    """Lists the commands in the order in which they were added, not by letter.

    modules: the module that declares a command, by its name; it is imported when it is asked for.
    """

    def __init__(
        self, *args: Any, modules: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.modules: Final = modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules) or list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.modules and cmd_name not in self.commands:
            self.add_command(getattr(import_module(self.modules[cmd_name]), cmd_name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:  # click knows only the commands that were imported
            from difflib import get_close_matches

            for near in get_close_matches(args[0], self.list_commands(ctx), n=1):
                raise UsageError(f"no command {args[0]}; did you mean {near}?") from error
            raise


class Parsed(_AnyType):
    """A parameter type: parses a text of the command line.

    Args:
        name: of the type. read: returns the value, or raises UsageError with a sentence.
    """

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _checked(self.read, self, value, param, ctx)


def size_of(text: str) -> int:
    """Parse a number of bytes, with or without a unit: 65536, 64KiB, 512MB.

    Raises:
        UsageError: it is none.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no size; write 65536, 64KiB or 512MB")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])


class LocalPath(click.Path):
    """A path of this machine; the type of every option that names a file or folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":  # as of a variable that is not set; else it would be the current folder
            self.fail("the name is empty", param, ctx)
        if not self.file_okay and isinstance(value, str) and not is_utf8(value):
            self.fail("the name of this folder is not UTF-8: name another", param, ctx)
        return super().convert(_checked(local, self, value, param, ctx), param, ctx)


class LakePath(LocalPath):
    """A lake: a folder, or an address in a store, which is converted to its local folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not has_known_scheme(value):
            return super().convert(value, param, ctx)
        from dissector.lake.mirror import folder_of

        return _checked(folder_of, self, value, param, ctx)


def _checked(
    check: Callable[[str], Any],
    kind: Any,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    try:
        return check(value) if isinstance(value, str) else value
    except UsageError as error:
        kind.fail(str(error), param, ctx)


def port_protocol(text: str) -> tuple[int, str]:
    """Parse PORT=PROTOCOL, such as 6655=pulsar.

    Raises:
        UsageError: it is none.
    """
    port, sign, protocol = text.partition("=")
    if not sign or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{text!r} is no port and protocol; write 6655=pulsar")
    if protocol not in PROTOCOL_NAMES:
        raise UsageError(f"{text!r}: known protocols are {', '.join(PROTOCOL_NAMES)}")
    return int(port), protocol


SIZE: Final = Parsed("size", size_of)
# The name of input files: a path, a pattern, an address, `-` for standard input.
INPUT_NAME: Final = Parsed("text", located)


class Whole(_NumberType):
    """A whole number with bounds, which the help text does not repeat."""

    name = "integer"

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        if not self.low <= number <= self.high:
            self.fail(f"{number} is not between {self.low} and {self.high}", param, ctx)
        return number


def usable_cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


class Common(NamedTuple):
    """The shared options. core: those of the dissection."""

    loudness: int = NORMAL
    is_progress_requested: bool = True
    color: str = "auto"
    jobs: int = 1
    is_strict: bool = False
    core: Options = Options()

    @property
    def words(self) -> Messages:
        """The printer of this run's messages."""
        return Messages(self.loudness)

    @property
    def is_progress_shown(self) -> bool:
        """Whether the options allow a progress bar."""
        return self.is_progress_requested and self.loudness > QUIET

    def core_options(self, **more: Any) -> Options:
        """The options of the dissection. more: further ones of this command."""
        return dataclasses.replace(self.core, **more)


# Set by the scripts of `dissector completion` when a shell requests completions.
COMPLETE: Final = "_DISSECTOR_COMPLETE"

_SPEAKING: Final = (
    click.option("-q", "--quiet", is_flag=True, help="Print only errors and what is missing."),
    click.option("-v", "--verbose", is_flag=True, help="Print more: one line per capture."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
    click.option("--no-progress", is_flag=True, help="Draw no progress bar on the terminal."),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Colour the output.",
    ),
    click.option(
        "--local-time",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=speak_local_time,
        help="Show and read times in the zone TZ, not UTC.",
    ),
)
# Settings of options whose values need a parser of the command line.
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "decode_as": {"type": Parsed("port=protocol", port_protocol), "multiple": True, "default": ()},
    "protocol": {"type": click.Choice(["auto", *PROTOCOL_NAMES])},
    "keylog": {"type": LocalPath(dir_okay=False)},
}


def _core_option(option: "dataclasses.Field[Any]") -> Callable[[Any], Any]:
    """The flag of an option of the dissection, derived from its declaration."""
    long = "--" + option.name.removesuffix("_ms").replace("_", "-")
    metadata = option.metadata
    chosen: dict[str, Any] = {"default": option.default, "show_default": True}
    if isinstance(option.default, bool):
        long, chosen["show_default"] = (
            (f"{long}/--no-{option.name}", True) if option.default else (long, False)
        )
        chosen["is_flag"] = True
    elif "words" in metadata:
        chosen["type"] = click.Choice(metadata["words"])
    elif "bounds" in metadata:
        chosen["type"] = Whole(*metadata["bounds"])
    elif metadata.get("metavar") == "SIZE":
        chosen["type"] = SIZE
    chosen |= _KINDS.get(option.name, {})
    names = ("-d", long) if option.name == "decode_as" else (long,)
    return click.option(
        *names, option.name, help=metadata["help"], metavar=metadata.get("metavar"), **chosen
    )


def core_flags(commands: str) -> dict[str, Callable[[Any], Any]]:
    """Flags of the dissection's options by their names there. commands: READING or LANDING."""
    return {option.name: _core_option(option) for option in flags(commands)}


_READING: Final = core_flags(READING)
_DISSECTING: Final = (
    click.option(
        "-j",
        "--jobs",
        type=Whole(1, 1024),
        metavar="N",
        help="Land N captures at once; one alone uses several CPUs, too.  [default: usable CPUs]",
    ),
    click.option("--strict", is_flag=True, help="Write nothing, exit 2, if input is missing."),
    *_READING.values(),
)


def _collect(values: dict[str, Any]) -> Common:
    """Remove the shared options from a command's parameters; return them."""
    values.pop("debug")
    quiet, verbose = values.pop("quiet"), values.pop("verbose")
    if quiet and verbose:
        raise click.UsageError("-q and -v exclude each other")
    common = Common(
        loudness=QUIET if quiet else VERBOSE if verbose else NORMAL,
        is_progress_requested=not values.pop("no_progress"),
        color=values.pop("color"),
    )
    listen(Compiling(common.words, common.is_progress_shown))
    progress.listen(show_fetching if common.is_progress_shown else None)
    if "jobs" not in values:
        return common
    uncompiled.choose(values.get("inputs", ()), common.words)
    core = {name: values.pop(name) for name in _READING}
    core["decode_as"] = dict(core["decode_as"])
    chosen = Options(**core)
    if chosen.keylog is not None or "SSLKEYLOGFILE" in os.environ:
        from dissector.sources.key_logs import complaints

        for sentence in complaints(chosen):
            common.words.missing(sentence)
    return common._replace(
        jobs=values.pop("jobs") or usable_cpus(), is_strict=values.pop("strict"), core=chosen
    )


def _with_common(options: tuple[Callable[[Any], Any], ...], command: Command) -> Command:
    @wraps(command)
    def collected(**values: Any) -> Any:
        return command(common=_collect(values), **values)

    decorated: Any = with_options(*options)(collected)
    result: Command = decorated
    return result


def speaking_options(command: Command) -> Command:
    """Add the options of all commands; the command receives them as `common`."""
    return _with_common(_SPEAKING, command)


def dissecting_options(command: Command) -> Command:
    """Add the options of all commands, and those of reading captures, as `common`."""
    return _with_common((*_DISSECTING, *_SPEAKING), command)


def is_redact_asked() -> bool:
    """Whether --redact was given: without it, files of packets are raw."""
    context = click.get_current_context()
    is_given = context.get_parameter_source("redact") is ParameterSource.COMMANDLINE
    return is_given and bool(context.params["redact"])


def with_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Options that several commands share, as one decorator; --help lists them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def example(text: str) -> str:
    """The example at the end of a help text, its lines kept."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in text.splitlines())


chain_option = click.option(
    "--chain",
    type=click.Choice(CHAIN_MODES),
    default="auto",
    show_default=True,
    help="Join ring files to one capture, or all, or none.",
)


FILE: Final = LocalPath(dir_okay=False, path_type=Path)
FOLDER: Final = LocalPath(file_okay=False, path_type=Path)
LAKE: Final = LakePath(file_okay=False, path_type=Path)


def lake_option(text: str, **settings: Any) -> Callable[[Any], Any]:
    """--lake. text: its help; settings: as click.option takes them."""
    return click.option("--lake", **{"type": LAKE, "metavar": "LAKE", "help": text, **settings})


def capture_option(text: str) -> Callable[[Any], Any]:
    """--capture, of a lake. text: its help."""
    return click.option("--capture", "captures", multiple=True, metavar="ID", help=text)


def output_file_option(**settings: Any) -> Callable[[Any], Any]:
    """-o, a file. settings: as click.option takes them."""
    return click.option(
        "-o", "--output-file", "output", type=FILE, metavar="FILE", help="Write to this file.",
        **settings,
    )  # fmt: skip


def json_option(text: str) -> Callable[[Any], Any]:
    """--json. text: its help."""
    return click.option("--json", "is_json", is_flag=True, help=text)


def _as_text(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from dissector.sources.files import readable

    if value is not None and not value.strip():
        raise click.BadParameter("the name is empty")
    return None if value is None else readable(value)


cluster_option = click.option(
    "--cluster", metavar="NAME", callback=_as_text, help="Label the captures as of this cluster."
)
force_option = click.option(
    "--force", is_flag=True, help="Replace existing output; an input is never replaced."
)


def _narrow(context: click.Context, _: click.Parameter, is_private: bool) -> None:
    """Let only the owner read files that this process and its children write."""
    if is_private:
        before = os.umask(0o077)
        context.call_on_close(lambda: os.umask(before))


private_option = click.option(
    "--private",
    is_flag=True,
    expose_value=False,
    callback=_narrow,
    help="Let only this user read the output (mode 0600).",
)
master_option = click.option(
    "--master", metavar="URL", help="Run on this Spark master.  [default: local[*]]"
)
exact_option = click.option("--exact", is_flag=True, help="Compute percentiles from all values.")
fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    metavar="EXPR",
    help="Exit 6 if this is true of the report. Repeatable.",
)
select_option = click.option(
    "-Y",
    "--select",
    "condition",
    metavar="EXPR",
    help="Select matching rows, e.g. 'permits > 100'.",
)
# Options of outputs that are shared: an anonymous copy, a bundle of evidence.
anonymizing_options = with_options(
    click.option("--keep-addresses", is_flag=True, help="Keep IP and MAC addresses."),
    click.option(
        "--keep-names", is_flag=True, help="Keep names, keys and properties; secrets go anyway."
    ),
    click.option(
        "--key-file",
        type=FILE,
        metavar="FILE",
        help="Read the key from this file, or write one there.  [default: a new one, not kept]",
    ),
)
inputs_or_lake_argument = click.argument("inputs", nargs=-1, type=INPUT_NAME, metavar="[INPUT]...")
inputs_argument = click.argument(
    "inputs", nargs=-1, required=True, type=INPUT_NAME, metavar="INPUT..."
)
