"""Real captures with what others saw of them: an independent decoder's counts, the clients' logs.

Each capture is dissected once per session; its rows are plain dictionaries, table by table.
"""

import functools
import gzip
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.choosing import covering
from tests.plain import rows_of_block

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
FOLDERS = ("pulsar", "pulsar-apache")

Row = dict[str, Any]
Tables = dict[str, list[Row]]

# The two small brokers of the folder `pulsar`, and packets that are damaged or missing.
_SNAPLEN = ("var-snaplen96", "mut-snap200")
_MIDSTREAM = ("cpp-s25_midstream", "java-j72_midstream", "ring")
_ONE_WAY = ("tap-oneway", "mut-c2b")
_OPAQUE = ("fake-f17_tls", "java-j35_tls")
_LOSSY = ("tap-caploss", "mut-loss1")

_CHANGED = ("var", "tap", "mut")
_FLAWS = ("cut", "lossy", "midstream", "one_way", "opaque")

TABLES = (
    "capture_files",
    "connections",
    "frames",
    "producers",
    "consumers",
    "messages",
    "acks",
    "exchanges",
    "deliveries",
    "permits",
    "events",
    "notices",
)


class Case(NamedTuple):
    """One capture of a manifest."""

    folder: str
    name: str

    @property
    def path(self) -> Path:
        return CAPTURES / self.folder / self.name

    @property
    def truth(self) -> Row:
        return _manifest(self.folder)[self.name]

    @property
    def seen(self) -> Row:
        """What the client says of the run in sum."""
        return self.truth["observed_by_client"]

    @property
    def tables(self) -> Tables:
        return tables_of(str(self.path))

    @property
    def events(self) -> list[Row]:
        """The client's log, where there is one."""
        return _events(self.folder, self.truth.get("client_log"))

    def _is(self, kinds: tuple[str, ...]) -> bool:
        return self.name.startswith(kinds)

    @property
    def is_cut(self) -> bool:
        """Packets were cut short."""
        return self._is(_SNAPLEN)

    @property
    def is_lossy(self) -> bool:
        """Packets are missing."""
        return self._is(_LOSSY)

    @property
    def is_midstream(self) -> bool:
        """The capture began after the handshake."""
        return self._is(_MIDSTREAM)

    @property
    def is_one_way(self) -> bool:
        """Only what the client sent was captured."""
        return self._is(_ONE_WAY)

    @property
    def is_opaque(self) -> bool:
        """TLS: there is nothing to decode."""
        return self._is(_OPAQUE)

    @property
    def has_both_proxy_sides(self) -> bool:
        """A proxy's client side and broker side, so that everything is there twice."""
        return self.name == "cpp-s08_nack-proxy-any.pcap"

    @property
    def is_whole(self) -> bool:
        """Both directions from the handshake on, no byte missing, once."""
        return not (
            self.is_cut
            or self.is_lossy
            or self.is_midstream
            or self.is_one_way
            or self.is_opaque
            or self.has_both_proxy_sides
        )

    @property
    def is_of_the_clients(self) -> bool:
        """Whether the connections that the log is about are in the capture: not so on the link
        between two brokers."""
        return self.name != "java-j80_geo-link.pcap"


def shown_by(case: Case) -> set[str]:
    """What a sample shows of all that samples may show: its frames by direction and command, if
    its folder tells them, who made it, how it was captured and what is missing in it. What was
    captured in another way or changed afterwards (`var`, `tap`, `mut`) is of a kind of its own."""
    if case.folder not in (*FOLDERS, "cursus"):
        return {case.folder}
    with (gzip.open if case.path.suffix == ".gz" else open)(case.path, "rb") as file:
        header = file.read(24)
    captured = f"file {header[:4].hex()} {header[20:].hex()} {case.truth.get('network')}"
    flaws = {f"is_{flaw}" for flaw in _FLAWS if getattr(case, f"is_{flaw}")}
    maker, *more = case.name.split(".pcap")[0].split("-")
    ways = {f"way {each}" for each in more[1:]}
    if maker in _CHANGED:
        ways.add(case.name)
    return {case.folder, maker, captured, *flaws, *ways, *case.truth["frames"]}


def few_cases(cases: Collection[Case]) -> list[Case]:
    """The fewest samples that show all that these do; all of them at night."""
    named = {name_of(case): case for case in cases}
    shown = {name: shown_by(case) for name, case in named.items()}
    return [named[name] for name in covering(shown, lambda name: named[name].path.stat().st_size)]


@functools.cache
def _manifest(folder: str) -> dict[str, Row]:
    entries = json.loads((CAPTURES / folder / "manifest.json").read_text("utf-8"))
    return {entry["file"]: entry for entry in entries}


@functools.cache
def _events(folder: str, log: str | None) -> list[Row]:
    if log is None:
        return []
    with gzip.open(CAPTURES / folder / log, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@functools.cache
def tables_of(*paths: str) -> Tables:
    """The tables of one capture; several files are one chain."""
    (chain,) = chains(list(paths), "all" if len(paths) > 1 else "auto").chains
    tables: Tables = {name: [] for name in TABLES}
    for block in dissect(chain, Options()):
        tables[block.table].extend(rows_of_block(block))
    return tables


# Random clients: `test_random_clients` says what they saw.
RANDOM_CASES = [Case("pulsar-random", name) for name in _manifest("pulsar-random")]
CURSUS_CASES = [Case("cursus", name) for name in _manifest("cursus")]
CASES = [Case(folder, name) for folder in FOLDERS for name in _manifest(folder)]
LOGGED = [case for case in CASES if case.events and case.is_of_the_clients and not case.is_opaque]


def name_of(case: Case) -> str:
    """The id of a test."""
    return f"{case.folder}/{case.name}"


class Id(NamedTuple):
    """One entry, and the place in its batch or None."""

    ledger: int
    entry: int
    batch_index: int | None = None


def ids_of(event: Row) -> list[Id]:
    """The ids of a log's event: of a chunked message those of its first and last chunk."""
    text = event.get("mid")
    if text is None:
        return []
    rust = re.match(r"Some\(\((-?\d+), (-?\d+)\)\)", text)
    if rust:
        return [Id(int(rust[1]), int(rust[2]))]
    ids = []
    for part in text.split(";"):
        numbers = [int(number) for number in part.split(":")]
        index = numbers[3] if len(numbers) > 3 and numbers[3] >= 0 else None
        ids.append(Id(numbers[0], numbers[1], index))
    return ids


def is_topic(found: str | None, asked: str) -> bool:
    """Whether a topic is the one that a client names, or a partition of it."""
    return found is not None and (
        found == asked or re.fullmatch(re.escape(asked) + r"-partition-\d+", found) is not None
    )


def milliseconds(row: Row) -> float:
    """The stamp of a row."""
    return row["ts"].timestamp() * 1000
