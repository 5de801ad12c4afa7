"""Lake tables whose rows are as odd as the wire, damage and clocks can make them, by chance.

Engines that shall give the same numbers are held against each other on them. Rows stay within the
schema: what is never null is not, and what this program alone writes (outcomes, commands, events)
has one of its own words; what comes off the wire can be anything.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dissector.buckets import bucket_of
from dissector.schemas import TABLES, Column
from dissector.schemas.column import NEVER
from tests.dissector.report.made import RandomCapture, Row, Tables, write_lake

# Names and texts that clients and brokers choose.
WIRE_TEXTS: Final = frozenset(
    {
        "topic", "subscription", "producer_name", "consumer_name", "name", "error_text",
        "client_version", "server_version", "real_topic", "real_subscription", "partition_key",
        "replicated_from", "tls_sni", "chunk_uuid", "cluster", "file_name",
    }
)  # fmt: skip
ODD_TEXTS: Final = (
    "", " ", "persistent://t/n/a-partition-0", "persistent://t/n/a-partition-00", "-partition-1",
    "persistent://t/n/a-s-0-RETRY", "PERSISTENT://T/N/A", "pulsar.repl.", "übermäßig",
    "ubermassig", "日本語トピック", "🦆" * 30, "\N{RIGHT-TO-LEFT OVERRIDE}txet",
    "e\N{COMBINING ACUTE ACCENT}", "é", "ß", "SS", "tr\u0131ck", "'; drop table frames; --",
    '"quoted" \\ back', "{topic} %s ${x} :name ?", "tab\tline\nend\r", "\x7f\x1b[31mred",
    "\ufffd", "NULL", "null", "nan", "1e999", "a" * 4096,
)  # fmt: skip
# What a wire field of 64 bits can hold; sums of a few stay within 128 bits, not within 64.
ODD_IDS: Final = (
    0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63) + 1, -(2**31),
)  # fmt: skip
ODD_SIZES: Final = (0, 0, 1, 255, 2**31, 2**33 + 1, 10**12)
ODD_TIMES_NS: Final = (0, 1, -1, -5_000_000, 999, 1000, 1001, 2**40, 10**15)
# Never odd: what says which row it is, and sizes of an enumeration.
_KEYS: Final = frozenset(
    {
        "capture", "origin_capture", "connection_id", "frame_no", "file_index", "schema_version",
        "incarnation", "sha256",
    }
)  # fmt: skip
_ID_ENDS: Final = ("ledger_id", "entry_id", "sequence_id", "request_id", "_bits", "partition")
_HOUR_US: Final = 3_600_000_000


class OddTables:
    """A copy of tables with seeded oddities.

    tables: the result. done: how often each kind of oddity was applied, by table and kind.

    Args:
        share: of the rows of each table that get odd values.
    """

    def __init__(self, tables: Tables, seed: int, share: float = 0.1) -> None:
        self._random = random.Random(seed)
        self._share = share
        self.done: dict[tuple[str, str], int] = {}
        self.tables: Tables = {name: [dict(row) for row in rows] for name, rows in tables.items()}
        for name in sorted(self.tables):
            self._change_values(name)
            if name != "capture_files":
                self._change_rows(name)
        self._lose_names()

    def _note(self, table: str, kind: str) -> None:
        self.done[table, kind] = self.done.get((table, kind), 0) + 1

    def _change_values(self, table: str) -> None:
        rows = self.tables[table]
        columns = [each for each in TABLES[table].columns if each.name not in _KEYS]
        seen = {each.name: [row.get(each.name) for row in rows] for each in columns}
        for row in rows:
            if self._random.random() >= self._share:
                continue
            for column in self._random.sample(columns, self._random.randint(1, 3)):
                kind = self._random.choice(("null", "swapped", "odd"))
                change = getattr(self, f"_{kind}")
                if change(row, column, seen[column.name]):
                    self._note(table, kind)
            if "latency_bucket" in row:  # whoever writes rows derives it
                latency = row["latency_ns"]
                is_known = latency is not None and latency >= 0
                row["latency_bucket"] = int(bucket_of(latency)) if is_known else None

    def _null(self, row: Row, column: Column, seen: list[Any]) -> bool:
        if column.null == NEVER:
            return False
        row[column.name] = None
        return True

    def _swapped(self, row: Row, column: Column, seen: list[Any]) -> bool:
        """The value of another row: a combination that nobody thought of."""
        value = self._random.choice(seen)
        if value is None and column.null == NEVER:
            return False
        row[column.name] = value
        return True

    def _odd(self, row: Row, column: Column, seen: list[Any]) -> bool:
        pick = self._random.choice
        name, value = column.name, row.get(column.name)
        if column.type == "boolean":
            row[name] = not value
        elif column.type == "string":
            if name not in WIRE_TEXTS:
                return False
            row[name] = pick(ODD_TEXTS)
        elif column.type == "array<bigint>":
            row[name] = pick(([], [0], [-1, 2**62], [1] * 70))
        elif column.type == "timestamp[us, UTC]":
            row[name] = (value or 0) + self._random.randrange(-_HOUR_US, _HOUR_US)
        elif column.type != "bigint":
            return False
        elif name.endswith(_ID_ENDS) or name.startswith("crc32c"):
            row[name] = pick(ODD_IDS) if not name.startswith("crc32c") else pick((0, 2**32 - 1))
        elif column.unit == "ns since 1970":
            row[name] = (value or 0) + 1000 * self._random.randrange(-_HOUR_US, _HOUR_US)
        elif name.endswith("_ns"):
            row[name] = pick(ODD_TIMES_NS)
        elif column.unit or name.endswith(("_count", "_bytes")):
            row[name] = pick(ODD_SIZES)
        else:
            row[name] = pick((0, 1, 2, 63, 64, 10**6))
        return True

    def _change_rows(self, table: str) -> None:
        """Some rows are there twice, some are missing, some stand elsewhere."""
        rows: list[Row] = []
        for row in self.tables[table]:
            chance = self._random.random() / self._share
            if chance < 0.05:
                self._note(table, "missing")
                continue
            rows.append(row)
            if chance < 0.3:
                self._note(table, "double")
                rows.append(dict(row))
            elif chance < 0.5 and len(rows) > 2:
                self._note(table, "moved")
                place = self._random.randrange(len(rows) - 1)
                rows[place], rows[-1] = rows[-1], rows[place]
        self.tables[table] = rows

    def _lose_names(self) -> None:
        """Of some consumers and producers no row has the name but the one that introduces them."""
        for table, key in (("consumers", "consumer_id"), ("producers", "producer_id")):
            for one in self.tables.get(table, ()):
                if self._random.random() >= 3 * self._share:
                    continue
                self._note(table, "late name")
                who = (one["connection_id"], one.get(key))
                for other in ("exchanges", "deliveries", "permits", "acks", "frames"):
                    for row in self.tables.get(other, ()):
                        if (row.get("connection_id"), row.get(key)) == who:
                            row |= {name: None for name in ("topic", "subscription") if name in row}


def odd_captures(
    seed: int, count: int = 3, sends: int = 120, share: float = 0.1
) -> dict[str, Tables]:
    """Captures of both protocols with odd rows, by id; the same ones for a seed.

    They share topics, ledgers and entries, and some are of one cluster, as those of test brokers
    that began anew are.
    """
    found = {}
    for number in range(count):
        made = RandomCapture(seed * 100 + number, sends, sends).tables
        kinds: tuple[Callable[[Tables], None], ...] = (_of_cursus, _of_cluster, _as_it_is)
        kinds[(seed + number) % len(kinds)](made)
        name = f"c-odd-{seed}-{number}"
        found[name] = OddTables(made, seed * 100 + number, share).tables
    return found


def odd_lake(folder: Path, seed: int, count: int = 3, sends: int = 120, share: float = 0.1) -> Path:
    """`odd_captures` as a lake; returns its folder."""
    return write_lake(folder, odd_captures(seed, count, sends, share))


def _as_it_is(tables: Tables) -> None:
    """Pulsar, of no named cluster."""


def _of_cluster(tables: Tables) -> None:
    for row in tables["capture_files"]:
        row["cluster"] = "one"


def _of_cursus(tables: Tables) -> None:
    """The rows as Cursus has them: no ids of producers and consumers, lags, no permits."""
    for row in (*tables["connections"], *tables["frames"]):
        if row["protocol"] == "pulsar":
            row["protocol"] = "cursus"
    for row in tables["exchanges"]:
        row["producer_id"] = None
    for place, row in enumerate((*tables["deliveries"], *tables["acks"])):
        lag = (None, 5, 0, 1 << 31)[place % 4]
        row |= {"consumer_id": None, "partition": place % 3, "lag": lag}
    tables["permits"].clear()
