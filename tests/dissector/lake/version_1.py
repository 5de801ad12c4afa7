"""Making a lake what a program of schema version 1 would have left, for tests of reading it."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq

from dissector.lake.manifest import MANIFEST_FOLDER

_NEW = {"capture", "previous_connection_id"}


def as_version_1(lake: Path, *captures: str) -> Path:
    """Rewrite some captures of a lake, or all: folders named capture=<id>, no such column."""
    for path in sorted((lake / MANIFEST_FOLDER).iterdir()):
        manifest = json.loads(path.read_text("utf-8"))
        name = manifest["capture_id"]
        if captures and name not in captures:
            continue
        manifest["schema_version"] = 1
        for part in manifest["files"]:
            folder = lake / part["table"] / f"landing={name}"
            if folder.is_dir():
                folder = folder.rename(folder.with_name(f"capture={name}"))
            else:
                folder = folder.with_name(f"capture={name}")
            file = folder / part["name"]
            rows = pq.ParquetFile(file).read()
            old = rows.drop([column for column in rows.column_names if column in _NEW])
            pq.write_table(old, file, compression="zstd", store_schema=False)
            data = file.read_bytes()
            part["bytes"], part["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        text = json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, "utf-8")
    return lake
