"""Generates the reference of commands, docs/commands.md.

python -m dissector.cli.document            print docs/commands.md
python -m dissector.cli.document FILE       write it
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from dissector.cli.exits import EXITS
from dissector.cli.main import dissector
from dissector.notices import NOTICES

HELP_WIDTH: Final = 78  # columns used of a terminal of 80

_OPENING: Final = """\
# Commands

This page is generated from the program: `dissector COMMAND --help` prints the same.

INPUT is a file, a folder, a pattern, or `-` for standard input: pcap or pcapng, any of them inside
gzip, zstd, lz4 or xz. Content decides, not the name. Data goes to standard output, everything else
to standard error; a progress bar is drawn on a terminal only. Nothing half-written is ever left
under a final name.
"""

_SELECTING: Final = """\
## A part of what is read

    dissector summary night.pcap --since 2026-01-31T23:55 --until 2026-02-01T00:05 --over-time=1m
    dissector frames night.pcap --since -30s --topic orders --subscription billing
    dissector connections night.pcap --client 10.0.0.0/8
    dissector sql --lake lake --client 10.0.0.5:51234 "select topic, count(*) from sends group by 1"

- `--since T`, `--until T`: from T on, up to but without T. ISO 8601, UTC unless T says a zone
  (`2026-01-31T12:00+01:00`) or `--local-time` is given. `-30m` (`s`, `m`, `h`, `d`) counts back
  from the last packet of the input.
- `--topic NAME`: this topic and its partitions; a short name is one of `public/default`, or a
  topic of Cursus.
- `--subscription NAME`: rows that name this subscription (of Cursus: group). A send names none, so
  no send is selected.
- `--client ADDRESS`: connections whose client, the side that is no broker, has this address
  (`10.0.0.5`, `2001:db8::5`), with a port as a rule one connection (`10.0.0.5:51234`,
  `[2001:db8::5]:51234`), or is in this network (`10.0.0.0/8`). It is the address on the wire,
  or, without a port, the one that a proxy names in its PROXY header (`proxied_client_ip`).

Repeated names or addresses match any of them. Different options must all match.

The whole input is dissected first: state, names and balances are those of the whole. A frame
belongs to the time at which it was complete, an exchange to that of its request; a connection is
selected if it had a packet in the time and, with names, a selected frame. Rows without topic and
connection, such as notices about a file, stay.

`summary`, `findings`, `report`, `analyze`, `evidence` and spark jobs count and judge the selected
rows, and show the selection beside their numbers; in `sql` the tables have no other rows. `frames`
prints rows as they arrive, selects by the names known by then, and says how many rows it left out
for that; the others also use names that were learnt later, of producers and consumers that were
opened before the capture.
`follow` accepts times, `compare` names and addresses. `land`, `tap` and `anonymize` process the
whole, and say which command reads a part. If a selection matches nothing, one line says so, exit
code 1.

`--local-time` shows times in the local zone, or in that of `TZ`, with their offset, and reads times
without a zone as such. JSON, CSV, Parquet, tab-separated fields and bundles stay UTC.

`summary --over-time` adds a table of at most 61 steps, `--over-time=1m` one of minutes; `--json`
has it as `over_time`. [metrics.md](metrics.md#over_time) explains its columns.

## Selecting rows

`-Y EXPR` keeps the rows for which an expression is true:

    dissector frames night.pcap -Y 'command == "SEND" and frame_bytes > 100_000'
    dissector frames night.pcap -Y 'topic contains "orders" and not (checksum == "ok")'
    dissector frames night.pcap -Y 'command in ("FLOW", "MESSAGE") and consumer_id == 3'
    dissector frames night.pcap -Y 'ts >= "2026-01-31T23:59:00" and error_code != null'

- Names are columns of the shown table (`dissector fields frames`).
- `==` `!=` `<` `<=` `>` `>=` compare with a number (`1_000`, `0x1f`, `-1`), a text in quotes,
  `true`, `false`, or another column. Times are compared with a text of ISO 8601, UTC unless it
  says a zone.
- `in (…)` is one of several; `contains` finds a substring, or a member of a list; `matches` finds
  a regular expression (RE2).
- `and`, `or`, `not` and parentheses; `not` binds closest, then `and`, then `or`. A Boolean column
  may stand alone: `retransmitted and not is_batch`.
- A comparison with a null is false, so `partition != 3` leaves out rows without a partition. Test
  for nulls with `partition == null` and `partition != null`.

`--fail-on EXPR` uses the same language over the numbers of `report.json`; a name is a path:

    dissector summary night.pcap --fail-on 'send_latency.total.latency_ms.p99 > 50'
    dissector summary night.pcap --fail-on 'coverage.total.notices_by_code.gap_lost > 0'

`finding.severity` tests findings. They include faults of the capture itself (gaps, one direction
only), which may hide others: these have the section `coverage`. A capture without packets is no
fault: there is nothing to judge.

    dissector findings night.pcap --fail-on 'finding.severity >= warning'
    dissector findings night.pcap \\
      --fail-on 'finding.severity >= warning and finding.section != "coverage"'
"""


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def all_commands() -> list[tuple[str, click.Command]]:
    """Every command with its full name, `dissector` first, in the order of --help."""
    return [("dissector", dissector), *_commands(dissector, "dissector")]


def help_text(name: str, command: click.Command) -> str:
    """The output of `name --help` on a terminal of 80 columns."""
    words = name.split(" ")
    settings = {**dissector.context_settings, "terminal_width": HELP_WIDTH}
    context = click.Context(dissector, info_name=words[0], **settings)
    for word in words[1:]:
        assert isinstance(context.command, click.Group)
        subcommand = context.command.get_command(context, word)
        assert subcommand is not None
        context = click.Context(subcommand, info_name=word, parent=context, **settings)
    assert context.command is command
    return command.get_help(context)


def commands_page() -> str:
    """The text of docs/commands.md."""
    lines = [_OPENING]
    for name, command in all_commands():
        lines += [f"## {name}", "", "```text", help_text(name, command), "```", ""]
    lines.append(_SELECTING)
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXITS]
    lines += [
        "",
        "If the reader of its output ends (`| head`), a command ends silently, as by SIGPIPE.",
    ]
    lines += ["", "## Notices", ""]
    lines += [
        "The table `notices` has a row for everything odd, lost or limited; reports count them.",
        "",
        "| code | severity | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{kind.code}` | {kind.severity} | {_plain(kind.sentence)} |" for kind in NOTICES]
    return "\n".join(lines) + "\n"


def _plain(sentence: str) -> str:
    """The sentence of a notice with a letter in place of each number."""
    return sentence.replace("{value}", "*n*").replace("{value2}", "*m*").replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Print the page, or write it to the named file; options are no file names."""
    if arguments and not arguments[0].startswith("-"):
        Path(arguments[0]).write_text(commands_page(), "utf-8")
    else:
        sys.stdout.write(commands_page())


if __name__ == "__main__":
    main(sys.argv[1:])
