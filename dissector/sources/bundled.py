"""Reads the packets of evidence bundles (zip archives) as inputs, without unpacking.

Refuses archives that this program would not write: names with folders, duplicate names, more or
larger members than a bundle has.
"""

import contextlib
import errno
import json
import zipfile
import zlib
from typing import IO, Any, Final

from dissector.errors import InputError
from dissector.limits import MAX_BUNDLE_MEMBERS, MAX_BUNDLE_PART_BYTES
from dissector.sources.locations import open_raw, open_seekable
from dissector.storage.addresses import is_stored

ZIP_HEAD: Final = b"PK\x03\x04"
_LOCAL_HEAD: Final = 30  # bytes before the name of a part
FORMAT: Final = "pulsar-dissector-evidence"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
PACKETS: Final = "packets.pcapng"
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class _Member:
    """A member as a file; damage raises OSError."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive = archive
        self._file: Any = archive.open(name)

    def readinto(self, view: memoryview) -> int:
        """Fill some of view.

        Raises:
            OSError: the archive is damaged.
        """
        try:
            return int(self._file.readinto(view))
        except _BROKEN:
            raise OSError(errno.EIO, "the bundle is damaged") from None

    def close(self) -> None:
        """Close the archive."""
        self._file.close()
        self._archive.close()


def open_packets(path: str) -> IO[bytes] | None:
    """Open the packets of a bundle; None for another archive.

    Raises:
        InputError: the bundle is damaged, or of a newer program.
    """
    try:
        archive = zipfile.ZipFile(open_seekable(path) if is_stored(path) else path)
    except _BROKEN:
        if _begins_as_ours(path):
            raise InputError("the bundle is damaged") from None
        return None
    try:
        if MANIFEST not in archive.namelist():
            archive.close()
            return None
        read_manifest(archive)
        member: Any = _Member(archive, PACKETS)
    except (*_BROKEN, KeyError):
        raise InputError("the bundle is damaged") from None
    return member  # type: ignore[no-any-return]


def _begins_as_ours(path: str) -> bool:
    """Whether the first member of an archive is a manifest, as in a bundle."""
    with open_raw(path) as file:
        return file.read(_LOCAL_HEAD + len(MANIFEST))[_LOCAL_HEAD:] == MANIFEST.encode()


def read_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Read the manifest of a bundle.

    Raises:
        InputError: it is no bundle, is damaged, or of a newer program.
    """
    names = archive.namelist()
    if len(names) > MAX_BUNDLE_MEMBERS or len(set(names)) < len(names):
        raise InputError("the bundle is damaged: it has too many parts, or one twice")
    odd = [name for name in names if "/" in name or "\\" in name or name.startswith(".")]
    if odd:
        raise InputError("the bundle is damaged: parts of it name folders")
    manifest: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        manifest = json.loads(read_part(archive, MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"the bundle is damaged: its {MANIFEST} cannot be read")
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"the bundle is of a newer program (format {version!s:.9}): update this one"
        )
    return manifest


def read_part(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a part of a bundle.

    Raises:
        InputError: it is missing, damaged or too large.
    """
    try:
        if archive.getinfo(name).file_size > MAX_BUNDLE_PART_BYTES:
            raise InputError(f"the bundle is damaged: {name} is too large")
        with archive.open(name) as file:
            data = file.read(MAX_BUNDLE_PART_BYTES + 1)
    except KeyError:
        raise InputError(f"the bundle is damaged: {name} is missing") from None
    except _BROKEN:
        raise InputError(f"the bundle is damaged: {name} cannot be read") from None
    if len(data) > MAX_BUNDLE_PART_BYTES:
        raise InputError(f"the bundle is damaged: {name} is too large")
    return data
