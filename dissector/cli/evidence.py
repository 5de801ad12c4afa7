"""The commands evidence and verify: write a bundle for a bug report, and check bundles."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from dissector.cli import expression, select, selecting
from dissector.cli import options as cli_options
from dissector.cli.anonymize import anonymizer_of, changes
from dissector.cli.lake_of_command import need_inputs_or_lake, opened_lake
from dissector.cli.options import INPUT_NAME, Common, Parsed, Whole
from dissector.cli.show import column_kinds
from dissector.cli.terminal import counted, safe_text
from dissector.errors import InputError, UsageError
from dissector.installed import own_version
from dissector.native.versions import version
from dissector.outputs import new_file, written

if TYPE_CHECKING:
    from dissector.cli.reading import Reading
    from dissector.evidence.anonymizer import Anonymizer
    from dissector.evidence.anonymizing import Anonymized
    from dissector.evidence.cutting import Cut
    from dissector.evidence.frame_selection import Chosen, Filters
    from dissector.evidence.showing import Shown
    from dissector.lake.reader import Lake
    from dissector.queries.sandbox import Sandbox
    from dissector.sources.rings import Chain

# A copy, so that the help imports no library; a test checks that both are equal.
FINDING_NAMES: Final = ("checksum_mismatch", "stall", "redelivery_loop", "error", "lost_receipt")
_LIBRARIES: Final = ("numpy", "pyarrow", "duckdb", "protobuf")
_MOST_FRAMES: Final = 1 << 62


def frame_range(text: str) -> tuple[int, int]:
    """Parse a range A-B, or one number: the first and last frame.

    Raises:
        UsageError: it is neither.
    """
    first, sign, last = text.partition("-")
    if not first.isdecimal() or (sign and not last.isdecimal()):
        raise UsageError(f"{text!r} is no range of frames; write 120-140 or 120")
    low, high = int(first), int(last or first)
    if low > high or high > _MOST_FRAMES:
        raise UsageError(f"{text!r}: the first frame comes first")
    return low, high


def _finding_name(text: str) -> str:
    """Check a name: one of FINDING_NAMES, or a rule's number or code."""
    from dissector.findings.loading import load_rules, named

    if text not in FINDING_NAMES:
        try:
            named(load_rules()[0], [text])
        except UsageError as error:
            raise UsageError(f"{error}, nor is it one of {', '.join(FINDING_NAMES)}") from None
    return text


class _Source(NamedTuple):
    """The capture of a bundle: its rows, its packets, and the outcome of reading."""

    lake: "Lake"
    engine: "Sandbox"
    chains: dict[str, "Chain"]
    reading: "Reading | None"


@click.command(
    epilog=cli_options.example(
        "dissector evidence night.pcap --finding lost_receipt -o report.zip\n"
        "dissector evidence night.pcap -Y 'producer_id == 3 and sequence_id == 17' -o report.zip\n"
        "dissector evidence --lake lake --topic orders --slowest 5 -o report.zip"
    )
)
@cli_options.inputs_or_lake_argument
@cli_options.lake_option("Choose from this lake; INPUT holds its packets.")
@cli_options.capture_option("Choose from this capture of the lake. Repeatable.")
@cli_options.select_option
@click.option(
    "--connection", "connections", multiple=True, type=Whole(0, _MOST_FRAMES), metavar="N",
    help="Choose this one; see dissector connections.",
)  # fmt: skip
@click.option(
    "--frames", "frames", multiple=True, type=Parsed("range", frame_range), metavar="A-B",
    help="Select frames by number. Repeatable.",
)  # fmt: skip
@selecting.selecting_options
@click.option(
    "--slowest", type=Whole(1, 10_000), metavar="N", help="Select the N slowest exchanges."
)
@click.option(
    "--finding", type=Parsed("finding", _finding_name), metavar="NAME",
    help="Select frames that show this: D06, or a name below.",
)  # fmt: skip
@cli_options.output_file_option(required=True)
@cli_options.anonymizing_options
@cli_options.force_option
@cli_options.chain_option
@cli_options.dissecting_options
def evidence(
    common: Common,
    inputs: tuple[str, ...],
    lake: Path | None,
    captures: tuple[str, ...],
    condition: str | None,
    connections: tuple[int, ...],
    frames: tuple[tuple[int, int], ...],
    selected: selecting.Selected,
    slowest: int | None,
    finding: str | None,
    output: Path,
    keep_addresses: bool,
    keep_names: bool,
    key_file: Path | None,
    force: bool,
    chain: str,
) -> int:
    """Write a bundle that shows a finding and can be shared.

    It contains the packets of the selected frames, and those that open their connections, producers
    and consumers; rows and numbers of these; a page to paste into a bug report. A frame must match
    all conditions. The bundle is anonymous by default: see docs/bug-reports.md.

    --finding takes the number or code of a rule (dissector findings), or checksum_mismatch, stall,
    redelivery_loop, error, lost_receipt.
    """
    from dissector.cli.reading import rereadable

    need_inputs_or_lake(inputs, lake, captures, both=True)
    target = new_file(output, (*inputs, *([str(lake)] if lake else ())), is_forced=force)
    from dissector.evidence.frame_selection import Filters

    keep, asked = _keep(condition)
    filters = Filters(keep, connections, frames, slowest=slowest, finding=finding, available=asked)
    if filters.is_everything and selected.is_everything:
        raise UsageError(
            "say what is to be shown: -Y, --connection, --frames, --topic, --subscription, "
            "--client, --since, --until, --slowest or --finding; dissector anonymize makes a copy "
            "of all"
        )
    anonymizer = anonymizer_of(keep_addresses, keep_names, key_file)
    with rereadable(inputs) as files, _opened(files, lake, captures, common, chain) as source:
        filters = filters._replace(selection=selected.of(source.lake))
        parts, manifest, packets = _made(source, filters, anonymizer, common)
        code = 0 if source.reading is None else source.reading.end()
    from dissector.evidence.bundle import write_bundle

    with written(target, is_forced=force) as file:
        write_bundle(file, parts, manifest)
    common.words.say(f"{counted(packets, 'packet')} and what they say written to {output}")
    for sentence in manifest["shown"]:
        common.words.say(sentence)
    print(output)
    return code


def _keep(condition: str | None) -> tuple[Any, str | None]:
    """The filter of -Y over rows of frames, and a query of the values of its first column."""
    if condition is None:
        return None, None
    parsed = expression.parse(condition)
    select.check(condition, parsed, column_kinds("frames"))
    return lambda batch: select.mask(parsed, batch), select.question("frames", parsed)


@contextmanager
def _opened(
    inputs: Sequence[str], lake: Path | None, captures: Sequence[str], common: Common, mode: str
) -> Iterator[_Source]:
    """Open rows and packets of the user's inputs."""
    from dissector.evidence.source_files import chains_of
    from dissector.queries.sandbox import sandbox_over
    from dissector.report.counted_captures import chosen_captures
    from dissector.report.workspace import temporary

    with opened_lake(inputs, lake, common, mode) as opened, temporary() as work:
        rows = opened.lake
        if captures:
            rows = rows._replace(captures=tuple(chosen_captures(rows.captures, captures)))
        if opened.reading is None:
            chains = chains_of(rows, inputs)
        else:
            chains = {name: chain for chain, name in opened.reading.capture_ids.items()}
        with sandbox_over(rows, folder=work) as engine:
            yield _Source(rows, engine, chains, opened.reading)


def _made(
    source: _Source, filters: "Filters", anonymizer: "Anonymizer", common: Common
) -> tuple[dict[str, bytes], dict[str, Any], int]:
    """Build a bundle: its parts, its manifest's facts, and the number of its packets."""
    from dissector.evidence.anonymizing import anonymize
    from dissector.evidence.cutting import cut, path_of, reread, roles_in
    from dissector.evidence.frame_selection import SELECTED, choose
    from dissector.evidence.showing import sentences, shown_by, wanted_findings
    from dissector.evidence.streams import ASKED, TreatedStreams, memory_file
    from dissector.queries.sandbox import sandbox_over
    from dissector.sources.dissect import dissect
    from dissector.sources.rings import Chain

    is_of_rule = filters.finding is not None and filters.finding not in FINDING_NAMES
    incidents = wanted_findings(source.engine, str(filters.finding)) if is_of_rule else []
    if filters.selection.is_everything:
        chosen = choose(source.engine, filters, incidents)
    else:  # as in all that reads lakes, also by names that were learnt later
        with sandbox_over(
            source.lake, selection=filters.selection, has_ready_views=False
        ) as selected_part:
            chosen = choose(source.engine, filters, incidents, selected_part)
    if chosen.capture not in source.chains:
        raise InputError(
            f"the packets of {chosen.capture} are not at hand: name its files as INPUT"
        )
    chain, options = source.chains[chosen.capture], common.core_options()
    selected = set(chosen.of_role(SELECTED))
    before = [
        one
        for one in incidents
        if one.capture == chosen.capture and selected & {each.frame_no for each in one.evidence}
    ]
    part = cut(
        source.engine, chain, chosen, options, has_permits=filters.finding == "stall",
        lacking=lambda own: sum(not each.is_same for each in shown_by(own, before)),
    )  # fmt: skip
    comments = _comments(source.engine, chosen, part)
    file = memory_file()
    with part.data:
        slice = Chain((path_of(part.data),), "packets")
        rows = dissect(slice, common.core_options(**ASKED))
        streams = TreatedStreams(anonymizer.treat, rows, in_memory=True)
        done = anonymize(slice, streams, anonymizer, file, comments)
    with file, reread(file, options) as (lake, own):
        shown = shown_by(own, before)
        file.seek(0)
        manifest = _manifest(source, filters, (chosen, part, done), anonymizer, common)
        manifest["roles"] = roles_in(own, part.taken, source.engine, chosen)
        if shown:
            pairs = [each.as_row() for each in shown]
            manifest["finding"] = {"name": filters.finding, "findings": pairs}
            manifest["shown"] += sentences(pairs)
        parts = _parts(lake, file.read(), manifest, source, shown)
        return parts, manifest, len(part.taken)


def _parts(
    lake: "Lake", packets: bytes, manifest: dict[str, Any], source: _Source,
    shown: Sequence["Shown"],
) -> dict[str, bytes]:  # fmt: skip
    from dissector.cli.bundling import README, REDACTION, derived, page
    from dissector.evidence.facts import whole
    from dissector.sources.bundled import PACKETS

    parts = {PACKETS: packets, **derived(lake, manifest["roles"])}
    facts = whole(source.engine, manifest["capture"]["id"])
    selected = manifest["roles"].get("selected", [])
    parts[README] = page(manifest, facts, lake, selected, shown).encode()
    parts[REDACTION] = "".join(f"{line}\n" for line in manifest["changed"]).encode()
    del manifest["capture"]["id"]
    return parts


def _comments(engine: "Sandbox", chosen: "Chosen", part: "Cut") -> dict[int, list[str]]:
    """The comment of each packet: its number in the capture, and the frames that end in it."""
    from dissector.evidence.facts import sentences

    texts = sentences(engine, chosen)
    return {
        position: [f"packet {number} of the capture", *texts.get(number, ())]
        for position, number in enumerate(part.taken, 1)
    }


def _manifest(
    source: _Source, filters: "Filters", made: tuple["Chosen", "Cut", "Anonymized"],
    anonymizer: "Anonymizer", common: Common,
) -> dict[str, Any]:  # fmt: skip
    """The manifest's facts, without the parts."""
    from dissector.evidence.facts import capture_facts

    chosen, part, done = made
    versions = {"dissector": own_version()}
    versions |= {name: version(name) for name in _LIBRARIES}
    return {
        "what": _what(filters),
        "versions": versions,
        "command": _command(filters, anonymizer),
        "options": {
            name: value
            for name, value in common.core_options().as_json().items()
            if name not in ("follow_connection", "want_detail")
        },
        "capture": {"id": chosen.capture, **capture_facts(source.engine, chosen.capture)},
        "shown": _shown(part),
        "changed": changes(done, anonymizer),
    }


def _shown(part: "Cut") -> list[str]:
    """Sentences that compare the packets alone with the whole capture."""
    whole = sum(level > 0 for level in part.levels.values())
    same = part.selected - part.differing
    lines = [
        f"The packets alone say the same as the whole capture of {same:,} of "
        f"{counted(part.selected, 'selected frame')} (fields, outcomes, latencies)."
    ]
    if whole:
        of = counted(whole, "connection")
        lines.append(f"For that, more than the frames' own packets of {of} had to be taken.")
    if part.differing:
        lines.append(f"Of {counted(part.differing, 'frame')} the rest of the capture is needed.")
    return lines


def _what(filters: "Filters") -> str:
    """The selection in words, without names."""
    parts = []
    if filters.finding:
        parts.append(filters.finding.replace("_", " "))
    if filters.slowest:
        parts.append(f"the {filters.slowest} slowest exchanges")
    if filters.frames:
        spans = ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in filters.frames)
        parts.append(f"frames {spans}")
    if filters.connections:
        parts.append(f"connection {', '.join(map(str, filters.connections))}")
    for what in ("topic", "subscription", "client"):
        if getattr(filters.selection, f"{what}s"):
            parts.append(f"frames of a {what}")
    if filters.keep is not None:
        parts.append("frames that fit an expression")
    if filters.selection.is_of_time:
        parts.append("frames of a time")
    return ", ".join(parts)


def _command(filters: "Filters", anonymizer: "Anonymizer") -> str:
    """The command without names: paths, topics, expressions."""
    words = ["dissector", "evidence", "INPUT"]
    words += [word for number in filters.connections for word in ("--connection", str(number))]
    words += [word for a, b in filters.frames for word in ("--frames", f"{a}-{b}")]
    words += ["--topic", "NAME"] * len(filters.selection.topics)
    words += ["--subscription", "NAME"] * len(filters.selection.subscriptions)
    words += ["--client", "ADDRESS"] * len(filters.selection.clients)
    words += ["-Y", "EXPR"] if filters.keep is not None else []
    words += ["--since", "T"] if filters.selection.since_ns is not None else []
    words += ["--until", "T"] if filters.selection.until_ns is not None else []
    words += ["--slowest", str(filters.slowest)] if filters.slowest else []
    words += ["--finding", filters.finding] if filters.finding else []
    words += ["--keep-addresses"] if anonymizer.keeping.addresses else []
    words += ["--keep-names"] if anonymizer.keeping.names else []
    return shlex.join([*words, "-o", "BUNDLE.zip"])


@click.command(epilog=cli_options.example("dissector verify report.zip"))
@click.argument("bundles", nargs=-1, required=True, type=INPUT_NAME, metavar="BUNDLE...")
@cli_options.speaking_options
def verify(common: Common, bundles: tuple[str, ...]) -> int:
    """Check bundles of evidence.

    Every part must have the SHA-256 in the manifest, and the packets, read again, must yield the
    contents of the other parts. Exit code 2 if not.
    """
    for path in bundles:
        _verify(path, common)
    return 0


def _verify(path: str, common: Common) -> None:
    from dissector.cli.bundling import derived, same
    from dissector.dissection import Options
    from dissector.evidence.bundle import EvidenceBundle
    from dissector.evidence.cutting import reread
    from dissector.evidence.streams import memory_file
    from dissector.sources.bundled import PACKETS

    bundle = EvidenceBundle(path)
    manifest = bundle.manifest
    options = Options(**_known_options(manifest.get("options"), path))
    roles = manifest.get("roles") if isinstance(manifest.get("roles"), dict) else {}
    file = memory_file()
    with file:
        file.write(bundle.parts[PACKETS])
        with reread(file, options) as (lake, own):
            try:
                again = derived(lake, roles or {})
            except (TypeError, AttributeError):
                raise InputError(
                    f"{path}: the bundle is damaged: its roles cannot be read"
                ) from None
            shown = _shown_again(manifest, own, path)
    differing = [
        name for name, data in again.items() if not same(name, data, bundle.parts.get(name))
    ]
    differing += [] if shown is not None else ["the finding in manifest.json"]
    if differing:
        mine = own_version()
        theirs = str((manifest.get("versions") or {}).get("dissector"))
        by = (
            "" if mine == theirs else f" (made by version {safe_text(theirs)[:20]}, this is {mine})"
        )
        raise InputError(
            f"{path}: its packets do not say what {', '.join(sorted(differing))} says{by}"
        )
    common.words.say(
        f"{path}: {counted(len(bundle.parts), 'part')} as they were, and its packets say the same"
    )
    for sentence in shown or ():
        common.words.say(safe_text(sentence))


def _shown_again(manifest: dict[str, Any], own: "Sandbox", path: str) -> list[str] | None:
    """Sentences on the finding that a bundle's packets show; None if they contradict the manifest.

    Raises:
        InputError: the manifest's entry on the finding is malformed.
    """
    from dissector.evidence.showing import facts_of, findings_in, sentences

    stored = manifest.get("finding")
    if stored is None:
        return []
    try:
        stated = [pair["packets"] for pair in stored["findings"] if pair["packets"] is not None]
        lines = sentences(stored["findings"])
        here = [facts_of(one) for one in findings_in(own, str(stored["name"]))]
    except (TypeError, KeyError, AttributeError, UsageError):
        raise InputError(f"{path}: the bundle is damaged: its finding cannot be read") from None
    return lines if all(each in here for each in stated) else None


def _known_options(options: Any, path: str) -> dict[str, Any]:
    """The core's options in a manifest."""
    if not isinstance(options, dict):
        raise InputError(f"{path}: the bundle is damaged: its options cannot be read")
    known = ("protocol", "max_frame_bytes", "reorder_window_ms", "overlap", "verify_checksums")
    kinds = (str, int, int, str, bool)
    core_options = {
        name: options[name]
        for name, kind in zip(known, kinds, strict=True)
        if isinstance(options.get(name), kind)
    }
    ports = options.get("decode_as")
    if isinstance(ports, dict) and all(str(port).isdecimal() for port in ports):
        core_options["decode_as"] = {int(port): str(name) for port, name in ports.items()}
    return core_options
