"""Landing made-up captures, for the tests of the lake."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dissector.blocks import TableBlock
from dissector.lake.landing import Landed, Landing
from tests.dissector.schemas.made import made_block

TABLES_MADE = ("connections", "frames", "messages", "permits", "notices")


@cache
def content(size: int, seed: int = 0) -> bytes:
    """Made-up bytes of a capture file: of one seed each size is a prefix of the larger ones."""
    return bytes((n * 31 + n // 7 + seed * 13) % 251 for n in range(size))


@cache
def blocks_of(data: bytes) -> tuple[TableBlock, ...]:
    """Rows that depend on the bytes alone, made once: whoever lands them only reads them."""
    seed = sum(data) + len(data)
    first = np.array([seed], np.int64)
    files = {"first_ts_ns": first, "last_ts_ns": first + len(data)}
    return (
        *(made_block(table, 5 + len(data) % 7, seed) for table in TABLES_MADE),
        TableBlock("capture_files", 1, {**files, "packets": first}),
    )


def land(lake: Path, name: str, *files: bytes, options: dict[str, Any] | None = None) -> Landed:
    """Land a capture of some files."""
    with Landing(lake, name) as landing:
        feed(landing, *files)
        return landing.commit(options or {})


def feed(landing: Landing, *files: bytes) -> None:
    """Do what a driver does with a capture's files."""
    for number, data in enumerate(files):
        landing.digest.update(data)
        landing.digest.end_file(f"file-{number}.pcap")
    for block in blocks_of(b"".join(files)):
        landing.write(block)


def folder_of(lake: Path, table: str, capture: str) -> Path:
    """Where the files of a table of a landing are."""
    (folder,) = (lake / table).glob(f"day=*/landing={capture}")
    return folder


def tree(lake: Path) -> dict[str, bytes]:
    """Every file of a lake with its bytes."""
    return {
        str(path.relative_to(lake)): path.read_bytes()
        for path in sorted(lake.rglob("*"))
        if path.is_file()
    }
