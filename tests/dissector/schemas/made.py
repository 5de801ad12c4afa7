"""Blocks with made-up rows: every table, every kind of column, nulls of all patterns."""

import random
from typing import Any

import numpy as np

from dissector.blocks import Coded, Column, Lists, Spans, TableBlock
from dissector.limits import NULL
from dissector.schemas import TABLES
from dissector.schemas import Column as Declared

NAMES: list[bytes] = [f"persistent://public/default/{n}".encode() for n in range(40)]
NAMES += [b"", "persistent://p/d/\u00e4\u20ac\U0001f600".encode(), b"bad-\xff\xc3(\xe2\x82"]
WORDS = ("ok", "error", "unknown")
_NUMBERS = (0, 1, -1, 7, 1 << 62, -(1 << 63), (1 << 63) - 1, 1_700_000_000_123_456_789)


def made_block(table: str, rows: int, seed: int, columns: str = "") -> TableBlock:
    """A block of one table; each column is left out, empty, full or mixed.

    Args:
        columns: comma-separated names; if given, only these are there.
    """
    chance = random.Random(f"{table} {seed}")
    wanted = set(columns.split(",")) if columns else None
    found: dict[str, Column] = {}
    for column in TABLES[table].columns:
        if column.name in ("capture", "origin_capture") or (wanted and column.name not in wanted):
            continue
        if not wanted and chance.random() < 0.2:
            continue
        found[column.name] = _column(column, rows, chance)
    return TableBlock(table, rows, found)


def _column(column: Declared, rows: int, chance: random.Random) -> Column:
    share = chance.choice((0.0, 0.0, 0.1, 0.5, 1.0))
    null = np.array([chance.random() < share for _ in range(rows)], np.bool_)
    if column.type in ("bigint", "boolean"):
        if chance.random() < 0.1:
            return [None if n else chance.randrange(2) for n in null]
        limit = 2 if column.type == "boolean" else len(_NUMBERS)
        values = [chance.choice(_NUMBERS[:limit]) for _ in range(rows)]
        return np.where(null, NULL, np.array(values, np.int64))
    if column.type.startswith("timestamp"):
        start = chance.choice((-5_000, 1_700_000_000_000_000_999))
        return np.where(null, NULL, start + 777 * np.arange(rows))
    if column.type == "string":
        return _text(rows, null, chance)
    if column.type == "array<bigint>":
        return _lists(rows, null, chance)
    return [None if n else _object(column.type, chance) for n in null]


def _text(rows: int, null: Any, chance: random.Random) -> Column:
    kind = chance.randrange(5)
    if kind == 0:
        codes = np.array([chance.randrange(len(WORDS)) for _ in range(rows)], np.int64)
        return Coded(np.where(null, -1, codes), WORDS)
    if kind == 1:
        codes = np.array([chance.randrange(len(NAMES)) for _ in range(rows)], np.int64)
        return Coded(np.where(null, NULL, codes), NAMES)
    if kind == 2:
        return [None if n else chance.choice(("plain", "\u00e4", b"\xfe-", b"x")) for n in null]
    texts = (b"", b"key-1", b"key-22", "\u20ac".encode(), b"\xff\xff" if kind == 3 else b"abc")
    chosen = [chance.choice(texts) for _ in range(rows)]
    gap = chance.randrange(2)
    data = b"".join(text + b"?" * gap for text in chosen)
    lengths = np.array([len(text) for text in chosen], np.int64)
    starts = np.cumsum(lengths + gap) - lengths - gap
    lengths = np.where(null, NULL, lengths)
    return Spans(np.frombuffer(data, np.uint8), starts, lengths, is_hex=chance.random() < 0.3)


def _lists(rows: int, null: Any, chance: random.Random) -> Column:
    if chance.random() < 0.3:
        return [None if n else [chance.choice(_NUMBERS)] * chance.randrange(3) for n in null]
    counts = np.array([chance.randrange(4) for _ in range(rows)], np.int64)
    starts = np.array([chance.randrange(5) for _ in range(rows)], np.int64)
    values = np.array([chance.choice(_NUMBERS) for _ in range(8)], np.int64)
    return Lists(values, starts, np.where(null, -1, counts))


def _object(kind: str, chance: random.Random) -> Any:
    size = chance.randrange(3)
    if kind == "map<string,bigint>":
        return {f"reason_{n}": chance.randrange(100) for n in range(size)}
    if kind == "map<string,string>":
        return {f"key {n}": chance.choice(("v", b"\xff", "")) for n in range(size)}
    return [chance.choice(("ethernet", b"raw")) for _ in range(size)]
