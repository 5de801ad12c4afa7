"""Accounts of a run: sums of what was read, kept and lost, over the rows of the core."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np

from dissector.blocks import Coded, Int64Array, TableBlock, numbers_of
from dissector.limits import MAX_MISSING_SENTENCES, NULL
from dissector.schemas.builders import numbers
from dissector.schemas.enums import BOTH_DIRECTIONS

# Notices that say: a part of the input is not in the output (exit code 3).
MISSING_CODES: Final = (
    "truncated_tail",
    "corrupt_record",
    "skipped_section",
    "damaged_compression",
    "packetless_limit",
    "unknown_link_type",
)
_NOTED_CODES: Final = ("redacted", "packets_shortened", *MISSING_CODES)
_REASONS: Final = 3  # for packets that are not used, which are named
_DECRYPTED: Final = ("decrypted", "partly")  # of a connection in TLS
# Reasons of packets whose link layer is not read, or not known.
_WITHOUT_LINK_TYPE: Final = ("unknown_link_type", "unknown_interface", "interface_limit")


_LARGEST: Final = "hottest_bytes"
_SUMS: Final = (
    "files", "packets", "packets_tcp", "dropped", "stream_bytes", "decoded_bytes", "gap_bytes",
    "cut_bytes", "shortened_bytes", "unparsed_bytes", "hidden_bytes", "dropped_bytes", "one_way",
    "tls_decrypted", "missing_count",
)  # fmt: skip
_COUNTS: Final = ("rows", "notices", "ignored")


class Account:
    """Sums over all captures of a run; can be pickled and added up.

    name: of the capture, and file_names: of its files, for sentences.
    missing: a sentence for each part of the input that could not be read or used, the first
        MAX_MISSING_SENTENCES.
    missing_count: those that could not be read.
    hottest_bytes: stream bytes of the connection with most of them.
    rows: by table.
    notices: by code.
    ignored: packets by reason.
    """

    def __init__(self, name: str = "", file_names: Sequence[str] = ()) -> None:
        self.name = name
        self.file_names = tuple(file_names)
        self.files = 0
        self.packets = 0
        self.packets_tcp = 0
        self.dropped = 0
        self.stream_bytes = 0
        self.hottest_bytes = 0
        self.decoded_bytes = 0
        self.gap_bytes = 0
        self.cut_bytes = 0
        self.unparsed_bytes = 0
        self.tls_decrypted = 0
        self.tls_encrypted: Counter[str] = Counter()
        self.shortened_bytes = 0
        self.hidden_bytes = 0
        self.dropped_bytes = 0
        self.one_way = 0
        self.missing: list[str] = []
        self.missing_count = 0
        self.rows: dict[str, int] = {}
        self.notices: dict[str, int] = {}
        self.ignored: dict[str, int] = {}

    def add(self, block: TableBlock) -> None:
        """Count the rows of a block."""
        self.rows[block.table] = self.rows.get(block.table, 0) + block.rows
        if block.table == "capture_files":
            self._add_files(block)
        elif block.table == "connections":
            self._add_connections(block)
        elif block.table == "notices":
            self._add_notices(block)

    def _add_files(self, block: TableBlock) -> None:
        self.files += block.rows
        self.packets += _total(block, "packets")
        self.packets_tcp += _total(block, "packets_tcp")
        self.dropped += _total(block, "dropped_by_interface")
        listed: Any = block.columns["packets_ignored_by_reason"]
        for counts in listed:
            for reason, count in counts or ():
                self.ignored[reason] = self.ignored.get(reason, 0) + count

    def _add_connections(self, block: TableBlock) -> None:
        dropped_before = self.dropped_bytes
        for direction in BOTH_DIRECTIONS:
            for total, column in (
                ("stream_bytes", "stream_bytes"),
                ("decoded_bytes", "decoded_bytes"),
                ("gap_bytes", "gap_bytes"),
                ("cut_bytes", "snaplen_cut_bytes"),
                ("unparsed_bytes", "unparsed_bytes"),
                ("dropped_bytes", "dropped_bytes"),
            ):
                more = _total(block, f"{column}_{direction}")
                setattr(self, total, getattr(self, total) + more)
        carried = sum(_amounts(block, f"stream_bytes_{each}") for each in BOTH_DIRECTIONS)
        self.hottest_bytes = max(self.hottest_bytes, int(np.max(carried, initial=0)))
        self.one_way += _one_way(block)
        fates: Any = block.columns.get("tls_decryption", ())
        for fate, count in Counter(fates).items():
            if fate in _DECRYPTED:
                self.tls_decrypted += count
            elif fate is not None:
                self.tls_encrypted[fate] += count
        if self.dropped_bytes > dropped_before:
            unused = self._named("TCP payload that fits no place of its stream was not used")
            if unused not in self.missing:
                self._keep(unused)

    def _add_notices(self, block: TableBlock) -> None:
        kinds, texts = block.columns["code"], block.columns["text"]
        assert isinstance(kinds, Coded) and isinstance(texts, Coded)
        listed, firsts, places, counts = np.unique(
            kinds.codes, return_index=True, return_inverse=True, return_counts=True
        )
        codes = [str(kinds.names[kind]) for kind in listed.tolist()]
        for kind in np.argsort(firsts).tolist():
            self.notices[codes[kind]] = self.notices.get(codes[kind], 0) + int(counts[kind])
        size = numbers_of(block, "bytes")
        is_noted = np.array([code in _NOTED_CODES for code in codes], np.bool_)
        for row in np.flatnonzero(is_noted[places]).tolist():
            code = codes[places[row]]
            if code == "redacted":
                self.hidden_bytes += int(size[row])
            elif code == "packets_shortened":
                self.shortened_bytes += int(size[row])
            else:
                self.miss(self._named(str(texts.names[texts.codes[row]])))

    def _named(self, text: str) -> str:
        """Return a notice's sentence with the file's name instead of its number."""

        def name_of(match: re.Match[str]) -> str:
            number = int(match[1])
            return self.file_names[number] if number < len(self.file_names) else match[0]

        named = re.sub(r"\bfile (\d+)\b", name_of, text)
        if named != text:
            return named
        where = self.file_names[0] if len(self.file_names) == 1 else self.name
        return f"{where}: {text}" if where else text

    def miss(self, sentence: str) -> None:
        """Record a part of the input that could not be read."""
        self.missing_count += 1
        self._keep(sentence)

    def _keep(self, sentence: str) -> None:
        if len(self.missing) < MAX_MISSING_SENTENCES:
            self.missing.append(sentence)

    def as_json(self) -> dict[str, Any]:
        """Return all sums for a manifest, without zero and empty ones."""
        sums = {name: getattr(self, name) for name in (*_SUMS, _LARGEST, *_COUNTS, "tls_encrypted")}
        return {name: value for name, value in sums.items() if value} | {"missing": self.missing}

    @classmethod
    def from_json(
        cls, sums: Mapping[str, Any], name: str, file_names: Sequence[str]
    ) -> "Account | None":
        """Parse a manifest's account of a capture; None if it is not valid."""
        account = cls(name, file_names)
        for each in (*_SUMS, _LARGEST):
            value = sums.get(each, 0)
            if not isinstance(value, int) or value < 0:
                return None
            setattr(account, each, value)
        for each in (*_COUNTS, "tls_encrypted"):
            counts = sums.get(each, {})
            if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
                return None
            getattr(account, each).update(counts)
        missing = sums.get("missing")
        if not isinstance(missing, list) or not all(isinstance(text, str) for text in missing):
            return None
        account.missing = missing[:MAX_MISSING_SENTENCES]
        return account

    def merge(self, other: Self) -> None:
        """Add the sums of another capture."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.hottest_bytes = max(self.hottest_bytes, other.hottest_bytes)
        for name in _COUNTS:
            mine = getattr(self, name)
            for key, count in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + count
        self.tls_encrypted.update(other.tls_encrypted)
        self.missing = [*self.missing, *other.missing][:MAX_MISSING_SENTENCES]

    def _why_cut(self) -> str:
        shorter = "missing from packets that are shorter than their IP header says"
        if self.shortened_bytes >= self.cut_bytes:
            return shorter
        return "cut by the snap length" + (f" or {shorter}" if self.shortened_bytes else "")

    @property
    def is_partial(self) -> bool:
        """Whether a part of the input was not read, or not used."""
        return self.missing_count > 0 or self.dropped_bytes > 0

    @property
    def is_unreadable(self) -> bool:
        """Whether there were packets, but none with a supported link type."""
        count = sum(self.ignored.get(reason, 0) for reason in _WITHOUT_LINK_TYPE)
        return "unknown_link_type" in self.ignored and count == self.packets

    def sentence(self, where: str | None = None) -> str:
        """Return one line about what was read, kept and lost.

        Args:
            where: the input's name; None for the number of rows of capture_files.
        """
        frames, connections = self.rows.get("frames", 0), self.rows.get("connections", 0)
        not_used = self.packets - self.packets_tcp
        contents = _counted(connections, "connection")
        if connections > 1 and 0 < 4 * self.stream_bytes <= 5 * self.hottest_bytes:
            share = 100 * self.hottest_bytes // self.stream_bytes
            contents += f" (one carries {share} % of the bytes)"
        contents += f", {_counted(frames, 'frame')}"
        messages = self.rows.get("messages", 0)
        if messages:
            contents += f", {_counted(messages, 'message')}"
        if self.tls_decrypted:
            contents += f", {_counted(self.tls_decrypted, 'TLS connection')} decrypted"
        lost = []
        if self.tls_encrypted:
            why = ", ".join(f"{fate} {count:,}" for fate, count in self.tls_encrypted.most_common())
            encrypted = _counted(self.tls_encrypted.total(), "TLS connection")
            lost.append(f"{encrypted} not decrypted ({why})")
        if self.dropped:
            lost.append(f"{_counted(self.dropped, 'packet')} dropped by the interface")
        if self.gap_bytes:
            lost.append(f"{_counted(self.gap_bytes, 'byte')} never captured")
        if self.cut_bytes:
            lost.append(f"{_counted(self.cut_bytes, 'byte')} {self._why_cut()}")
        if self.unparsed_bytes:
            lost.append(f"{_counted(self.unparsed_bytes, 'byte')} not decoded")
        if self.dropped_bytes:
            lost.append(f"{_counted(self.dropped_bytes, 'byte')} outside their streams not used")
        renumbered = self.notices.get("renumbered", 0)
        if renumbered:
            lost.append(f"{_counted(renumbered, 'stream')} that {_leap(renumbered)} to far numbers")
        if self.one_way:
            lost.append(f"{_counted(self.one_way, 'connection')} seen in one direction only")
        forced = self.notices.get("read_as_asked", 0)
        if forced:
            lost.append(f"{_counted(forced, 'connection')} read as asked, against their content")
        if not_used:
            reasons = sorted(self.ignored.items(), key=lambda entry: (-entry[1], entry[0]))
            named = ", ".join(f"{reason} {count:,}" for reason, count in reasons[:_REASONS])
            if len(reasons) > _REASONS:
                named += f" … {len(reasons)} reasons in all"
            lost.append(
                f"{_counted(not_used, 'packet')} not used" + (f" ({named})" if named else "")
            )
        if self.missing_count:
            lost.append(f"{_counted(self.missing_count, 'part')} of the input not read")
        where = where or f"in {_counted(self.files, 'file')}"
        hidden = f"; {_counted(self.hidden_bytes, 'byte')} of secrets hidden"
        return (
            f"read {_counted(self.packets, 'packet')} {where}: {contents}; "
            f"{', '.join(lost) if lost else 'nothing lost'}{hidden if self.hidden_bytes else ''}"
        )


def _one_way(block: TableBlock) -> int:
    """Count decoded connections with packets in one direction only."""
    columns = [
        [_numbers(block, f"{name}_{direction}") for direction in BOTH_DIRECTIONS]
        for name in ("packets", "decoded_bytes")
    ]
    (asking, answering), (asked, answered) = columns
    is_half = ((asking == 0) & (answered > 0)) | ((answering == 0) & (asked > 0))
    return int(np.count_nonzero(is_half))


def _leap(count: int) -> str:
    return "leaps" if count == 1 else "leap"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _total(block: TableBlock, column: str) -> int:
    """Return the sum of a column of numbers, without nulls."""
    return int(_amounts(block, column).sum())


def _amounts(block: TableBlock, column: str) -> Int64Array:
    """Return a column of numbers with 0 for null."""
    values = _numbers(block, column)
    amounts: Int64Array = np.where(values == NULL, 0, values)
    return amounts


def _numbers(block: TableBlock, column: str) -> Int64Array:
    """Return a column of numbers; all null if the block lacks it."""
    values = block.columns.get(column)
    if values is None:
        return np.full(block.rows, NULL, np.int64)
    return numbers(values, 0, block.rows)
