"""The shared part of all jobs: options, session, and a report over a lake on Spark.

A job names the sections that it writes; `dissector.report.pipeline` computes them.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dissector.errors import DissectorError
from dissector.lake.mirror import folder_of
from dissector.lake.reader import open_lake
from dissector.local_paths import local
from dissector.queries.selection import Asked
from dissector.report.pipeline import ReportProgress, Scope, write
from dissector.report.result import SECTIONS
from dissector.spark import session
from dissector.spark.engine import SparkEngine
from dissector.storage.addresses import has_known_scheme

PARTIAL: Final = 3  # the exit code if some captures of the lake cannot be read


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every job."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--lake", required=True, type=_lake, metavar="LAKE", help="the lake to read"
    )
    options.add_argument(
        "-o", "--output", required=True, type=local, metavar="DIR", help="where to write"
    )
    options.add_argument(
        "--capture", action="append", default=[], metavar="ID", help="only this one (repeatable)"
    )
    options.add_argument("--since", metavar="T", help="from this time on (UTC)")
    options.add_argument("--until", metavar="T", help="up to this time (UTC)")
    options.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this one (repeatable)"
    )
    for name, value in (("subscription", "NAME"), ("client", "ADDRESS")):
        options.add_argument(
            f"--{name}", action="append", default=[], metavar=value, help="only this one, likewise"
        )
    options.add_argument("--exact", action="store_true", help="exact percentiles, by sorting")
    options.add_argument("--force", action="store_true", help="write beside other files there")
    options.add_argument("--master", help="Spark master (default: local[*])")
    return options


def _lake(text: str) -> Path:
    """The folder of a lake; for a lake in a store, its local folder."""
    return folder_of(text) if has_known_scheme(text) else Path(local(text))


def _log(text: str) -> None:
    print(text, file=sys.stderr)


def _log_step(done: int, total: int, what: str) -> None:
    """Print the progress on a terminal only."""
    if sys.stderr.isatty():
        _log(f"{done} of {total} steps done, now {what}")


def main(
    argv: Sequence[str] | None = None,
    *,
    description: str | None = None,
    sections: Sequence[str] = tuple(SECTIONS),
    has_page: bool = False,
) -> int:
    """Run one job from the command line.

    Args:
        argv: arguments, None for those of the process. has_page: whether to write the page.

    Returns:
        The exit code.
    """
    options = parser(description or "")
    program = Path(sys.argv[0])
    try:
        args = options.parse_args(argv)
        asked = Asked(args.since, args.until, args.topic, args.subscription, args.client)
        asked.check()
        with open_lake(args.lake) as lake:
            what = asked.selection(lake.last_ts_ns)
            unread = () if args.capture else lake.unread
        name = f"dissector-{program.stem}"
        with session.started(args.master, name) as spark:
            write(
                args.lake,
                Path(args.output),
                partial(SparkEngine, spark),
                Scope(tuple(args.capture), what, args.exact, tuple(sections)),
                ReportProgress(_log, _log_step),
                has_page=has_page,
                is_forced=args.force,
            )
    except DissectorError as error:
        _log(f"{program.name}: {error}")
        return error.exit_code
    for each in unread:
        _log(each.text)
    print(os.path.join(args.output, "report.json"))
    return PARTIAL if unread else 0
