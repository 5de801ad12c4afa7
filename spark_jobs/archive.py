"""Pack the program for workers that have nothing but Python and Spark.

    python -m spark_jobs.archive -o dissector.tar.gz

The archive holds `lib`, this program and the libraries that it needs, compiled parts included, and
`kernels`, the machine code of its own passes, which would take each worker minutes to compile. It
fits machines of the same kind: operating system, Python version, processor (on another processor
the passes are compiled once more, on first use). Spark unpacks it in the folder where an executor
runs; `settings_of` names the settings that point there.
"""

import argparse
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dissector.errors import OutputError
from dissector.jit import cache_folder, module_digest

DISTRIBUTION: Final = "pulsar-dissector"
PACKAGES: Final = ("dissector", "spark_jobs")
# The folder in which Spark unpacks the archive, below an executor's own.
UNPACKED: Final = "dissector-archive"
_NOT_NEEDED: Final = frozenset(("__pycache__", "tests", "include"))
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")


def settings_of(archive: Path | None) -> dict[str, str]:
    """Spark's settings that make executors use an archive; none without one."""
    if archive is None:
        return {}
    return {
        "spark.archives": f"{archive.absolute()}#{UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"{UNPACKED}/lib",
        "spark.executorEnv.DISSECTOR_CACHE": f"{UNPACKED}/kernels",
    }


def needed(distribution: str = DISTRIBUTION) -> list[str]:
    """The distributions that one needs to run, without its extras, at any depth; not itself."""
    found: set[str] = set()
    waiting = [distribution]
    while waiting:
        for text in metadata.requires(waiting.pop()) or ():
            match = _NAME.match(text)
            name = re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""
            if not name or name in found or "extra ==" in text:
                continue
            try:
                metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue  # not wanted on this system, as its marker says
            found.add(name)
            waiting.append(name)
    return sorted(found)


def _library_files() -> Iterator[tuple[Path, str]]:
    for name in needed():
        for file in metadata.files(name) or ():
            path = Path(str(file.locate()))
            is_inside = not file.is_absolute() and ".." not in file.parts
            if is_inside and path.is_file() and not _NOT_NEEDED.intersection(file.parts):
                yield path, f"lib/{file.as_posix()}"


def _own_files() -> Iterator[tuple[Path, str]]:
    """This program, as it runs here: a development install names its folder and holds no files."""
    import dissector

    root = Path(dissector.__file__).resolve().parent.parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, f"lib/{path.relative_to(root).as_posix()}"


def _kernel_files() -> Iterator[tuple[Path, str]]:
    """Machine code of the text that runs here; that of older texts stays behind."""
    for folder in sorted(cache_folder().glob("dissector*-*")):
        module, _, digest = folder.name.rpartition("-")
        if folder.is_dir() and digest == module_digest(module):
            for path in sorted(folder.glob("*.kernel")):
                yield path, f"kernels/{folder.name}/{path.name}"


def write(output: Path, is_compressed: bool | None = None) -> None:
    """Write the archive, at once or not at all.

    Args:
        is_compressed: None = if its name ends in gz.
    """
    is_gzip = output.suffix in (".gz", ".tgz") if is_compressed is None else is_compressed
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    version = metadata.version(DISTRIBUTION)
    level: Any = {"compresslevel": 1} if is_gzip else {}
    told = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n".encode()
    try:
        with tarfile.open(fresh, "w:gz" if is_gzip else "w", **level) as tar:
            for path, name in chain(_library_files(), _own_files(), _kernel_files()):
                tar.add(path, name, recursive=False)
            entry = tarfile.TarInfo(f"lib/pulsar_dissector-{version}.dist-info/METADATA")
            entry.size = len(told)
            tar.addfile(entry, io.BytesIO(told))
        fresh.replace(output)
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the archive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="*.tar or *.tar.gz")
    try:
        write(Path(parser.parse_args(argv).output))
    except OutputError as error:
        print(f"archive.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
