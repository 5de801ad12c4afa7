"""The command `dissector`: its subcommands, and how errors become one line and an exit code."""

from dissector.cli import environment  # before all that takes long to import

# isort: split
import errno
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Final, TextIO

import click

from dissector.cli import exits
from dissector.cli.options import COMPLETE, CommandGroup
from dissector.cli.terminal import safe_text
from dissector.errors import DissectorError
from dissector.installed import DISTRIBUTION
from dissector.local_paths import is_utf8

# Errors of the operating system that mean that the output could not be written.
_WRITE_ERRORS: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES),
        *(errno.EPERM, errno.EBADF),
    }
)
# DuckDB's error text for KeyboardInterrupt, in a query and in its calls of Python.
_STOPPED_QUERY: Final = re.compile(r"Query interrupted|.*\bKeyboardInterrupt:?\s*", re.S)

EPILOG: Final = """\b
Example:
  dissector analyze night.pcap -o result    # then open result/report/report.html
  dissector summary night.pcap              # the same numbers at once, without Java

\b
Exit codes: 0 all input read, 1 usage or nothing selected, 2 no readable input,
3 a part of the input is missing, 4 output not written, 5 a component is missing,
6 a --fail-on condition was met, 130 interrupted.
"""


# The commands in the order of --help, and the modules that declare them.
_MODULES: Final = {
    "land": "dissector.cli.land",
    "report": "dissector.cli.report",
    "analyze": "dissector.cli.report",
    "summary": "dissector.cli.report",
    "findings": "dissector.cli.findings",
    "explain": "dissector.cli.findings",
    "compare": "dissector.cli.compare",
    "sql": "dissector.cli.sql",
    "frames": "dissector.cli.show",
    "connections": "dissector.cli.show",
    "follow": "dissector.cli.follow",
    "fields": "dissector.cli.show",
    "evidence": "dissector.cli.evidence",
    "verify": "dissector.cli.evidence",
    "anonymize": "dissector.cli.anonymize",
    "lake": "dissector.cli.lake",
    "tap": "dissector.cli.tap",
    "doctor": "dissector.cli.doctor",
    "version": "dissector.cli.doctor",
    "completion": "dissector.cli.doctor",
}


@click.group(
    cls=CommandGroup,
    modules=_MODULES,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    None, "-V", "--version", package_name=DISTRIBUTION, message="%(prog)s %(version)s",
    help="Print the version of the program.",
)  # fmt: skip
def dissector() -> None:
    """Read captures of Apache Pulsar or Cursus traffic: latency, permits, redelivery, checksums."""


def _complain(text: str) -> None:
    lines = " ".join(line.strip() for line in text.splitlines() if line.strip())
    print(f"dissector: {safe_text(lines)}", file=sys.stderr)


def _usage_text(error: click.UsageError) -> str:
    """The text of a usage error: the fault, its place, and the help to read."""
    path = error.ctx.command_path if error.ctx else "dissector"
    if isinstance(error, click.NoSuchOption) and error.ctx:
        from dissector.cli.suggestions import instead_of_option

        own = [one for one in error.ctx.command.params if isinstance(one, click.Option)]
        known = {name: one.help or "" for one in own if not one.hidden for name in one.opts}
        if instead := instead_of_option(error.option_name, known):
            return f"{path} has no option {error.option_name}: {instead}; see {path} --help"
    return f"{error.format_message().rstrip('.')}; see {path} --help"


def _end_by_broken_pipe() -> int:
    """End by SIGPIPE without a message, as other tools do when their reader has closed the pipe."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    return exits.EXIT_OUTPUT  # not reached where the signal exists


def _explain(error: Exception) -> tuple[str, int]:
    """The line and the exit code of an exception."""
    if isinstance(error, click.UsageError):
        return _usage_text(error), exits.EXIT_USAGE
    if isinstance(error, DissectorError):
        return str(error), error.exit_code
    if isinstance(error, ImportError):
        name = error.name or "a library"
        return f"{name} is missing: {error}; see dissector doctor", exits.EXIT_DEPENDENCY
    if isinstance(error, MemoryError):
        return "out of memory; --memory-limit 512MB makes it give up old state", exits.EXIT_INPUT
    if isinstance(error, OSError):
        if error.errno in _WRITE_ERRORS and not error.filename:
            return _output_text(error), exits.EXIT_OUTPUT
        prefix = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        code = exits.EXIT_OUTPUT if error.errno in _WRITE_ERRORS else exits.EXIT_INPUT
        return f"{prefix}{error.strerror or error}", code
    if isinstance(error, UnicodeEncodeError) and not is_utf8(error.object):
        name = os.fsencode(error.object).decode("utf-8", "backslashreplace")
        return (
            f"{name[:200]}: a name that is not UTF-8 cannot be used here; rename it",
            exits.EXIT_USAGE,
        )
    kind = type(error).__name__
    return (
        f"internal error, please report it: {kind}: {error}; --debug shows more",
        exits.EXIT_INPUT,
    )


def _output_text(error: OSError) -> str:
    """The text of an error on standard output."""
    if error.errno == errno.EBADF:
        return "standard output is closed: let it lead somewhere, such as > /dev/null"
    return f"standard output: {error.strerror or error}; free some space or write elsewhere"


def _open_streams() -> None:
    """Open the null device for each standard stream that the parent of this process closed.

    Else the next opened file would be standard output, and errors would be written to it. Reading
    or writing a closed stream fails; its errors are discarded.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The system allocates the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    # Characters that a terminal's encoding lacks are escaped: no name may end a run.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str], command: click.Command = dissector) -> int:
    """Run one command and return its exit code; errors end as one line on stderr."""
    is_debug = "--debug" in arguments
    try:
        with command.make_context(command.name, list(arguments)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.EXIT_OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        return _end_by_broken_pipe()
    except KeyboardInterrupt:
        _complain("interrupted")
        return exits.EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return exits.EXIT_USAGE
    except Exception as error:
        if _is_interrupt(error):
            _complain("interrupted")
            return exits.EXIT_INTERRUPTED
        if is_debug and not isinstance(error, click.UsageError):
            raise
        text, code = _explain(error)
        _complain(text)
        return code


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt that DuckDB wrapped in its own error."""
    while error is not None:
        is_of_duckdb = isinstance(error, RuntimeError) or "duckdb" in type(error).__module__
        if is_of_duckdb and _STOPPED_QUERY.fullmatch(str(error)):
            return True
        error = error.__cause__
    return False


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str = "",
    lineno: int = 0,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without the source line."""
    _complain(str(message))


def main() -> int:
    """Entry point of the command `dissector`."""
    asked = os.environ.get(COMPLETE)
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(dissector, {}, "dissector", COMPLETE, asked)
    _open_streams()
    warnings.showwarning = _warn
    code = run(sys.argv[1:])
    try:
        sys.stdout.close()
    except BrokenPipeError:
        return _end_by_broken_pipe()
    except OSError as error:
        if code != exits.EXIT_OUTPUT:  # else it was said already
            _complain(_output_text(error))
        code = exits.EXIT_OUTPUT
    environment.leave_with(code)
    return code


environment.hear_interrupts()
if __name__ == "__main__":
    sys.exit(main())
