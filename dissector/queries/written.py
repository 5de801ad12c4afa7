"""The Parquet files that an engine wrote for a query, whichever engine it was."""

from pathlib import Path


def written(folder: Path, name: str) -> list[str]:
    """<name>.parquet of a folder, or the files of the folder <name>, in order; none if neither."""
    single = folder / f"{name}.parquet"
    files = [single] if single.is_file() else sorted((folder / name).glob("*.parquet"))
    return [str(file) for file in files]
