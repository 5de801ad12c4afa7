"""Making a lake what a program of an older schema version would have left."""

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dissector.lake.manifest import MANIFEST_FOLDER
from tests.dissector.lake.landed import folder_of

# Columns that came with each version.
_NEW = {
    2: {"*.capture", "deliveries.previous_connection_id"},
    3: {
        "exchanges.publish_time_ms",
        "messages.key_hash",
        "consumers.key_shared_mode",
        "consumers.sticky_ranges",
        "consumers.allows_out_of_order",
        *(
            f"frames.{name}"
            for name in (
                "message_permits",
                "ack_set",
                "watcher_id",
                "is_ready",
                "is_active",
                "txn_action",
                "available_permits",
            )
        ),
    },
}
# Those of frames, by themselves.
NEW_IN_FRAMES = {name.removeprefix("frames.") for name in _NEW[3] if name.startswith("frames.")}
# Tables that came with version 3.
_NEW_TABLES = ("events",)


def as_version_1(lake: Path, *captures: str) -> Path:
    """Rewrite some captures of a lake, or all: folders named capture=<id>, no such column."""
    return _as_version(1, lake, captures)


def as_version_2(lake: Path, *captures: str) -> Path:
    """The same as version 2 had it."""
    return _as_version(2, lake, captures)


def as_version_3(lake: Path, *captures: str) -> Path:
    """The same as version 3 had it: these rows, and no folders of days."""
    return _as_version(3, lake, captures)


def as_old(
    rows: Mapping[str, list[dict[str, Any]]], captures: Collection[str]
) -> dict[str, list[dict[str, Any]]]:
    """Rows by table as they are read when some captures are of version 1 or 2."""
    new = {tuple(name.split(".")) for name in _NEW[3]}
    found = {}
    for table, of_table in rows.items():
        gone = {column: None for name, column in new if name == table}
        found[table] = [
            row | gone if row["capture"] in captures else row
            for row in of_table
            if table not in _NEW_TABLES or row["capture"] not in captures
        ]
    return found


def _as_version(version: int, lake: Path, captures: Sequence[str]) -> Path:
    since = {name for number, names in _NEW.items() if number > version for name in names}

    def gone(table: str, column: str) -> bool:
        return f"{table}.{column}" in since or f"*.{column}" in since

    for path in sorted((lake / MANIFEST_FOLDER).iterdir()):
        manifest = json.loads(path.read_text("utf-8"))
        name = manifest["capture_id"]
        if captures and name not in captures:
            continue
        manifest["schema_version"] = version
        for part in [*manifest["files"]]:
            if part["table"] in _NEW_TABLES and version < 3:
                shutil.rmtree(folder_of(lake, part["table"], name))
                manifest["files"].remove(part)
                continue
            folder = lake / part["table"] / f"{'capture' if version == 1 else 'landing'}={name}"
            if not folder.is_dir():
                folder_of(lake, part["table"], name).rename(folder)
            if version == 3:
                continue
            file = folder / part["name"]
            rows = pq.ParquetFile(file).read()
            old = rows.drop([column for column in rows.column_names if gone(part["table"], column)])
            pq.write_table(old, file, compression="zstd", store_schema=False)
            data = file.read_bytes()
            part["bytes"], part["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        for day in filter(lambda day: not any(day.iterdir()), lake.glob("*/day=*")):
            day.rmdir()
        text = json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, "utf-8")
    return lake
