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
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dissector.errors import DissectorError
from dissector.jit import program_digest, read_kept
from dissector.local_paths import local
from dissector.native.code import kept_list
from dissector.outputs import new_file, written
from dissector.spark.uris import to_send

DISTRIBUTION: Final = "pulsar-dissector"
PACKAGES: Final = ("dissector", "spark_jobs")
# The folder in which Spark unpacks the archive, below an executor's own.
UNPACKED: Final = "dissector-archive"
_NOT_NEEDED: Final = frozenset(("__pycache__", "tests", "include"))
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
_EXTRA: Final = re.compile(r"""\bextra == ["']([\w.-]+)""")
_OF_TASKS: Final = ("objects", "hdfs", "tls")


def settings_of(archive: Path | None) -> dict[str, str]:
    """Spark's settings that make executors use an archive; none without one."""
    if archive is None:
        return {}
    return {
        "spark.archives": f"{to_send(archive)}#{UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"{UNPACKED}/lib",
        "spark.executorEnv.DISSECTOR_CACHE": f"{UNPACKED}/kernels",
    }


def needed(distribution: str = DISTRIBUTION) -> list[str]:
    """The distributions that one needs to run, at any depth, not itself; of its extras those that
    tasks use, where they are installed."""
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
                continue  # not wanted on this system, as its marker says
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
    """This program, as it runs here: a development install names its folder and holds no files."""
    import dissector

    root = Path(dissector.__file__).resolve().parent.parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, f"lib/{path.relative_to(root).as_posix()}"


def _kernels() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Machine code of the text that runs here; that of older texts, and what others could have
    written, stays behind. The modes are such that a worker can trust what it unpacks."""
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
    """Write the archive, at once or not at all.

    Args:
        is_compressed: None = if its name ends in gz.
        is_forced: a file that is there is replaced.

    Raises:
        OutputError: it cannot be written, or is there.
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
