"""Bundles: zip archives of packets and their description, with a manifest of all parts."""

import hashlib
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from dissector.codecs.printable import json_text
from dissector.errors import InputError
from dissector.sources import bundled

_WHEN: Final = (1980, 1, 1, 0, 0, 0)  # constant, so that equal parts give equal bytes
_MODE: Final = 0o600 << 16


def write_bundle(sink: BinaryIO, parts: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
    """Write an archive of these parts.

    Args:
        facts: of the manifest, besides the parts.

    Raises:
        OSError: of the sink.
    """
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in sorted(parts.items())
    }
    manifest = {
        "format": bundled.FORMAT,
        "format_version": bundled.FORMAT_VERSION,
        **facts,
        "parts": listed,
    }
    text = json_text(manifest, indent=1, sort_keys=False) + "\n"
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {bundled.MANIFEST: text.encode(), **parts}.items():
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = _MODE
            archive.writestr(info, data)


class EvidenceBundle:
    """A bundle that was read: its manifest, and its parts, checked against the manifest.

    Raises:
        InputError: it is no bundle, damaged, or of a newer program; a part was changed.
    """

    def __init__(self, path: str) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                self.manifest = bundled.read_manifest(archive)
                self.parts = self._parts(archive)
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such file; check the path") from None
        except (zipfile.BadZipFile, IsADirectoryError):
            raise InputError(f"{path}: this is no bundle: dissector evidence writes one") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def _parts(self, archive: zipfile.ZipFile) -> dict[str, bytes]:
        listed = self.manifest.get("parts")
        if not isinstance(listed, dict) or bundled.PACKETS not in listed:
            raise InputError(f"the bundle is damaged: its {bundled.MANIFEST} names no packets")
        names = set(archive.namelist()) - {bundled.MANIFEST}
        for name in sorted(names ^ set(listed)):
            where = "the manifest" if name in names else "the bundle"
            raise InputError(f"the bundle is not what it was: {name} is not in {where}")
        parts = {}
        for name, entry in listed.items():
            data = bundled.read_part(archive, name)
            is_same = isinstance(entry, dict) and entry.get("sha256") == _digest(data)
            if not is_same:
                raise InputError(f"the bundle is not what it was: {name} has another SHA-256")
            parts[name] = data
        return parts


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
