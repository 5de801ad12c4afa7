"""Packs the program for workers that have only Python and Spark.

    python -m spark_jobs.archive -o dissector.tar.gz

The archive has `lib`, this program with its libraries and their compiled parts, and `kernels`, the
machine code of the kernels, which would take each worker minutes to compile. It fits machines with
the same operating system and Python version; on another processor type the kernels are compiled on
first use. Spark unpacks it in the folder where an executor runs; `settings_of` returns the settings
with these paths.
"""

import argparse
import io
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dissector.errors import DissectorError
from dissector.installed import DISTRIBUTION
from dissector.jit import program_digest, read_kept
from dissector.local_paths import local
from dissector.native.code import kept_list
from dissector.outputs import new_file, written
from dissector.spark.uris import to_send

PACKAGES: Final = ("dissector", "spark_jobs")
# The folder into which Spark unpacks the archive, inside an executor's folder.
UNPACKED: Final = "dissector-archive"
_NOT_NEEDED: Final = frozenset(("__pycache__", "tests", "include"))
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
_EXTRA: Final = re.compile(r"""\bextra == ["']([\w.-]+)""")
_OF_TASKS: Final = ("objects", "hdfs", "tls")


def settings_of(archive: Path | None) -> dict[str, str]:
    """The Spark settings that make executors use an archive; empty without one."""
    if archive is None:
        return {}
    return {
        "spark.archives": f"{to_send(archive)}#{UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"{UNPACKED}/lib",
        "spark.executorEnv.DISSECTOR_CACHE": f"{UNPACKED}/kernels",
    }


def needed(distribution: str = DISTRIBUTION) -> list[str]:
    """The distributions that one requires, transitively and without itself; installed extras only
    if tasks use them."""
    names: set[str] = set()
    waiting = [distribution]
    while waiting:
        needing = waiting.pop()
        for text in metadata.requires(needing) or ():
            match, extra = _NAME.match(text), _EXTRA.search(text)
            name = re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""
            if not name or name in names:
                continue
            if extra is not None and (needing != distribution or extra[1] not in _OF_TASKS):
                continue
            try:
                metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue  # its marker excludes this system
            names.add(name)
            waiting.append(name)
    return sorted(names)


def _library_files() -> Iterator[tuple[Path, str]]:
    for name in needed():
        for file in metadata.files(name) or ():
            path = Path(str(file.locate()))
            is_inside = not file.is_absolute() and ".." not in file.parts
            if is_inside and path.is_file() and not _NOT_NEEDED.intersection(file.parts):
                yield path, f"lib/{file.as_posix()}"


def _own_files() -> Iterator[tuple[Path, str]]:
    """The files of this program from its package folder: a development install lists none."""
    import dissector

    root = Path(dissector.__file__).resolve().parent.parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, f"lib/{path.relative_to(root).as_posix()}"


def _kernels() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The machine code of the current source; code of older sources, and files that other users
    could have written, are excluded. File modes let a worker trust the unpacked files."""
    folder, names = kept_list(program_digest())
    for name in ("kernels", f"kernels/{folder.name}"):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        yield entry, b""
    for name in (*(f"{name}.kernel" for name in names), f"{program_digest()}.list"):
        data = read_kept(folder / name)
        entry = tarfile.TarInfo(f"kernels/{folder.name}/{name}")
        entry.size, entry.mode = len(data), 0o644
        if data:
            yield entry, data


def write(output: Path, is_compressed: bool | None = None, *, is_forced: bool = False) -> None:
    """Write the archive atomically.

    Args:
        is_compressed: None = if its name ends in gz.
        is_forced: replace an existing file.

    Raises:
        OutputError: the file cannot be written, or exists.
    """
    is_gzip = output.suffix in (".gz", ".tgz") if is_compressed is None else is_compressed
    target = new_file(output, (), is_forced=is_forced)
    version = metadata.version(DISTRIBUTION)
    level: Any = {"compresslevel": 1} if is_gzip else {}
    about = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n".encode()
    with (
        written(target, is_forced=is_forced) as file,
        tarfile.open(fileobj=file, mode="w:gz" if is_gzip else "w", **level) as tar,
    ):
        for path, name in chain(_library_files(), _own_files()):
            tar.add(path, name, recursive=False)
        for kernel, data in _kernels():
            tar.addfile(kernel, io.BytesIO(data))
        entry = tarfile.TarInfo(f"lib/pulsar_dissector-{version}.dist-info/METADATA")
        entry.size = len(about)
        tar.addfile(entry, io.BytesIO(about))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the archive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "-o", "--output", required=True, type=local, metavar="FILE", help="*.tar or *.tar.gz"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    try:
        args = parser.parse_args(argv)
        write(Path(args.output), is_forced=args.force)
        if not kept_list(program_digest()).names:
            print("archive.py: no machine code of this version is here, so workers compile it, for "
                  "minutes each; run: dissector doctor --warm, and pack again with --force",
                  file=sys.stderr)  # fmt: skip
    except DissectorError as error:
        print(f"archive.py: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
