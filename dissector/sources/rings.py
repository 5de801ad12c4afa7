"""Which files form one capture, in which order, and what the capture is called.

Tools that write a ring of files name them so that they can be told: tcpdump -C puts a number behind
the name (`tap.pcap`, `tap.pcap1`, or with -W `tap.pcap00`), tcpdump -G a time into it
(`tap-20260101-1200.pcap`), dumpcap both in front of the extension
(`tap_00001_20260101120000.pcapng`). Files of one folder whose names differ only there are one
capture as far as their times do not overlap. The order is that of the first packets, since the
numbers of a ring start again. Other files are captures of their own: numbers elsewhere in a name
("run1.pcap") are no tool's.

A file that is there twice, under whatever name and compressed or not, counts once; so does one that
is the beginning of another, as when a copy was made while the file was still being written.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from dissector.codecs.readable import plain_letters
from dissector.errors import UsageError
from dissector.limits import REORDER_WINDOW_MS
from dissector.sources import locations
from dissector.sources.decompress import STDIN
from dissector.sources.file_times import Look, last_ts_ns, longer_of, look
from dissector.sources.files import FileProblem, file_name, given, is_file, readable
from dissector.sources.inputs import Named, expand, looks_like_a_capture, no_capture_in

ChainMode = Literal["auto", "all", "none"]

_COMPRESSION: Final = re.compile(r"\.(?:gz|gzip|zst|zstd|lz4|xz)$", re.IGNORECASE)
_DUMPCAP: Final = re.compile(
    r"^(?P<base>.+?)_(?:\d{5,}_\d{14}|\d{14}_\d{5,})(?P<extension>(?:\.[A-Za-z]\w*)?)$"
)
_NUMBERED: Final = re.compile(
    r"^(?P<base>.+\.(?:pcap|pcapng|cap|dmp|dump|tcpdump|trace)|[^.]*[^.\d])(?P<number>\d+)$",
    re.IGNORECASE,
)
# What strftime patterns make: a date, perhaps with a time of day, or seconds since 1970.
_TIME: Final = re.compile(
    r"[-_.]?(?<!\d)(?:"
    r"(?:19|20)\d\d(?P<dash>[-_.]?)(?:0[1-9]|1[0-2])(?P=dash)(?:0[1-9]|[12]\d|3[01])"
    r"(?:[-_.T ]?(?:[01]\d|2[0-3])(?:[-_.:h]?[0-5]\d(?:[-_.:m]?[0-6]\d)?)?)?"
    r"|1\d{9})(?!\d)"
)
_ID_DIGITS: Final = 12
_SLIVER: Final = 16  # files may overlap by this part of the shorter one: reordering at the boundary


class Chain(NamedTuple):
    """The files of one capture in order, and its base name (as ids have it)."""

    files: tuple[str, ...]
    base_name: str

    @property
    def is_stdin(self) -> bool:
        """Whether it can be read only once."""
        return STDIN in self.files

    @property
    def shown_names(self) -> tuple[str, ...]:
        """What its files are called in sentences."""
        names = map(given, self.files)
        return tuple("standard input" if name == STDIN else readable(name) for name in names)

    @property
    def stored_bytes(self) -> int:
        """Bytes of its files as they lie on disk, for progress; 0 for what is not there to ask."""
        return sum(locations.state_of(path).size for path in self.files if is_file(path))


class RingPlan(NamedTuple):
    """The captures to read, and the inputs that cannot be (see `files.raise_if_nothing`).

    copies: files whose packets are all in another one, and that one.
    """

    chains: list[Chain]
    problems: list[FileProblem]
    copies: dict[str, str]

    @property
    def repeated(self) -> list[str]:
        """A sentence about each copy."""
        return [
            f"{path}: all of it is in {other}, and read once" for path, other in self.copies.items()
        ]


class _RingName(NamedTuple):
    """A file name taken apart.

    base: without ring and compression suffixes.
    mark: what was taken out of it, empty where nothing was.
    """

    base: str
    mark: str


def _ring_name(path: str) -> _RingName:
    name = file_name(path)
    if path != STDIN:
        name = _COMPRESSION.sub("", name)
    if match := _DUMPCAP.match(name):
        base = match["base"] + match["extension"]
        return _RingName(base, name[len(match["base"]) :])
    base, mark = name, ""
    if match := _NUMBERED.match(base):
        base, mark = match["base"], match["number"]
    if match := _TIME.search(base):
        rest = base[: match.start()] + base[match.end() :]
        if rest.strip("-_. "):
            base, mark = rest.lstrip("-_ "), f"{match[0]}/{mark}"
    return _RingName(base, mark)


def _ring_position(path: str) -> tuple[str, str]:
    """What the files of one ring have in common: folder and base name."""
    return locations.folder_of(path), _ring_name(path).base


def base_name(files: Sequence[str]) -> str:
    """The name of a capture of these files (in order), as its id has it.

    It comes from the first file: the name without folder, ring and compression suffixes, in plain
    letters.
    """
    return plain_letters(_ring_name(files[0]).base)


def capture_id(base: str, sha256: str) -> str:
    """The id of a capture; sha256: hex digest over the uncompressed bytes of its chain."""
    return f"c-{base}-{sha256[:_ID_DIGITS]}"


def chains(inputs: Iterable[str], mode: ChainMode = "auto") -> RingPlan:
    """Find the files behind the inputs and divide them into captures.

    Args:
        inputs: files, folders, patterns, "-" for standard input.
        mode: auto = ring files of one tap together; all = everything one capture; none = each its
            own.

    Returns:
        Captures in the order of their first inputs, and the inputs that cannot be read. What a
        folder holds besides captures is passed over.

    Raises:
        UsageError: standard input shall be chained with files, whose times would have to be known.
    """
    inputs = list(inputs)
    named_files, problems = expand(inputs)
    paths: list[str] = []
    looks: dict[str, Look] = {}
    for path, is_in_folder in named_files:
        if not is_file(path):
            if not is_in_folder:  # a pipe in a folder may wait for its writer for ever
                paths.append(path)  # a look would take bytes that do not come again
            continue
        seen = look(path)
        if seen.problem is None:
            paths.append(path)
            looks[path] = seen
        elif not is_in_folder or looks_like_a_capture(path):
            problems.append(seen.problem)
    problems += _empty_folders(inputs, named_files, looks, problems)
    repeated = _repeated(looks.values())
    paths = [path for path in paths if path not in repeated]
    looks = {path: seen for path, seen in looks.items() if path not in repeated}
    if mode == "all" and len(paths) > 1:
        if len(looks) < len(paths):
            raise UsageError("standard input and pipes cannot be chained with files; give either")
        groups = [_in_time_order([looks[path] for path in paths])]
    elif mode == "auto":
        groups = _rings(paths, looks)
    else:
        groups = [[path] for path in paths]
    return RingPlan([Chain(tuple(group), base_name(group)) for group in groups], problems, repeated)


def _empty_folders(
    inputs: Sequence[str],
    named_files: Sequence[Named],
    looks: Mapping[str, Look],
    problems: Sequence[FileProblem],
) -> list[FileProblem]:
    """Folders that the user named which hold files, but no capture nor what looked like one."""
    useful = {*looks, *(problem.path for problem in problems)}
    empty = []
    for folder in dict.fromkeys(inputs):
        inside = [
            name.path for name in named_files if name.path.startswith(os.path.join(folder, ""))
        ]
        if inside and useful.isdisjoint(inside):
            empty.append(no_capture_in(folder, inside))
    return empty


def _repeated(looks: Iterable[Look]) -> dict[str, str]:
    """Files that are equal to another one or its beginning, and that other one.

    Only files that begin with the same packet time are compared, and only up to the first byte that
    differs. Of equal files the one with most neighbours in its ring is kept, then the first.
    """
    seen_all = list(looks)
    rings = [_ring_position(seen.path) for seen in seen_all]
    neighbours = Counter(rings)
    kept: dict[int, list[Look]] = {}
    repeated: dict[str, str] = {}
    order = sorted(range(len(rings)), key=lambda number: -neighbours[rings[number]])
    for seen in [seen_all[number] for number in order]:
        if seen.first_ts_ns is None:
            continue
        others = kept.setdefault(seen.first_ts_ns, [])
        for index, other in enumerate(others):
            longer = longer_of(other, seen)
            if longer is other:
                repeated[seen.path] = other.path
                break
            if longer is seen:
                old, new = other.path, seen.path
                repeated = {
                    path: new if original == old else original
                    for path, original in repeated.items()
                }
                repeated[old], others[index] = new, seen
                break
        else:
            others.append(seen)
    return repeated


def _natural(path: str) -> tuple[tuple[int, str], ...]:
    """A sort key under which "x2" comes before "x10"."""
    parts = re.findall(r"\d+|\D+", path)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def _in_time_order(looks: Iterable[Look]) -> list[str]:
    """Paths by the time of the first packet; files without packets last; ties by name."""
    ordered = sorted(
        looks,
        key=lambda seen: (
            seen.first_ts_ns is None,
            seen.first_ts_ns or 0,
            _natural(seen.path),
        ),
    )
    return [seen.path for seen in ordered]


def _rings(paths: Sequence[str], looks: dict[str, Look]) -> list[list[str]]:
    """Divide paths into captures by names and times, in the order in which each first appears."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    alone: list[list[str]] = []
    for path in paths:
        ring = _ring_name(path)
        group = groups.setdefault(_ring_position(path), {})
        if path not in looks or ring.mark in group:
            alone.append([path])  # the same place in the ring twice, as with x.pcap and x.pcap.gz
        else:
            group[ring.mark] = path
    divided = list(alone)
    for group in groups.values():
        ordered = _in_time_order(looks[path] for path in group.values())
        divided.extend(_without_overlap(ordered, looks))
    order = {path: number for number, path in enumerate(paths)}
    return sorted(divided, key=lambda files: min(order[path] for path in files))


def _without_overlap(ordered: Sequence[str], looks: dict[str, Look]) -> list[list[str]]:
    """Cut a row of files in time order where one begins before the one before it ends."""
    if len(ordered) < 2:
        return [list(ordered)] if ordered else []
    spans: list[tuple[int, int] | None] = []
    for path in ordered:
        first, last = looks[path].first_ts_ns, last_ts_ns(path)
        spans.append(None if first is None or last is None else (first, last))
    divided = [[ordered[0]]]
    for path, before, span in zip(ordered[1:], spans, spans[1:], strict=False):
        if before is None or span is None or _follows(before, span):
            divided[-1].append(path)
        else:
            divided.append([path])
    return divided


def _follows(before: tuple[int, int], span: tuple[int, int]) -> bool:
    """Whether a file begins where another ends, but for a sliver of reordered packets."""
    shorter = min(before[1] - before[0], span[1] - span[0])
    allowed_ns = min(max(shorter, 0) // _SLIVER, REORDER_WINDOW_MS * 1_000_000)
    return before[1] - span[0] <= allowed_ns
