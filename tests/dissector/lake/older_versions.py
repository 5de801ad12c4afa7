"""Making a lake what a program of an older schema version would have left."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from dissector.lake.manifest import MANIFEST_FOLDER

# Columns that came with each version.
_NEW = {
    2: {"capture", "previous_connection_id"},
    3: {
        "publish_time_ms", "key_hash", "key_shared_mode", "sticky_ranges", "allows_out_of_order",
    },
}  # fmt: skip


def as_version_1(lake: Path, *captures: str) -> Path:
    """Rewrite some captures of a lake, or all: folders named capture=<id>, no such column."""
    return _as_version(1, lake, captures)


def as_version_2(lake: Path, *captures: str) -> Path:
    """The same as version 2 had it."""
    return _as_version(2, lake, captures)


def is_in(version: int, table: str, column: str) -> bool:
    """Whether a column was there; `publish_time_ms` of other tables is as old as they are."""
    since = {name for number, names in _NEW.items() if number > version for name in names}
    return column not in since or (column == "publish_time_ms" and table != "exchanges")


def _as_version(version: int, lake: Path, captures: Sequence[str]) -> Path:
    for path in sorted((lake / MANIFEST_FOLDER).iterdir()):
        manifest = json.loads(path.read_text("utf-8"))
        name = manifest["capture_id"]
        if captures and name not in captures:
            continue
        manifest["schema_version"] = version
        for part in manifest["files"]:
            folder = lake / part["table"] / f"landing={name}"
            if version == 1 and folder.is_dir():
                folder = folder.rename(folder.with_name(f"capture={name}"))
            elif version == 1:
                folder = folder.with_name(f"capture={name}")
            file = folder / part["name"]
            rows = pq.ParquetFile(file).read()
            old = rows.select([c for c in rows.column_names if is_in(version, part["table"], c)])
            pq.write_table(old, file, compression="zstd", store_schema=False)
            data = file.read_bytes()
            part["bytes"], part["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        text = json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, "utf-8")
    return lake
