"""The manifest of a capture: its files, input and options. A capture exists if its manifest does.

It contains no clock times or folders, and its text is canonical, so landing the same bytes again
writes the same manifest. It lists every file with size and SHA-256: equal manifests mean equal
captures.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dissector.codecs.readable import plain_letters
from dissector.errors import InputError
from dissector.lake.digest import ChainDigest, Marks, SourceFile
from dissector.schemas import SCHEMA_VERSION, TABLES

MANIFEST_FOLDER: Final = "_manifest"
_COMPRESSION: Final = re.compile(r"\.(gz|gzip|zst|zstd|lz4|xz)$", re.IGNORECASE)
# The id of a tap's rotation; all rotations of a run share the part before the last hyphen.
ROTATION: Final = re.compile(r"(c-.+-\d+)-\d{5}")
_ATTEMPT: Final = re.compile(r"\.[0-9a-f]{12}(?=\.parquet$)")  # suffix of file names in a store
ID_DIGITS: Final = 12  # of the SHA-256, at the end of an id
GROUP_PREFIX: Final = "compact-"  # of the ids of compacted groups

MEND: Final = "land the capture again, or take it out with `dissector lake rm`"


class NewerLake(InputError):
    """A newer program wrote the manifest or log entry."""


class PartFile(NamedTuple):
    """One Parquet file of a table: its name, rows, bytes, and the SHA-256 of the file in hex."""

    table: str
    name: str
    rows: int
    bytes: int
    sha256: str


class Contained(NamedTuple):
    """A capture in a group: identifies its input, to detect that it is landed again.

    landed: SHA-256 of its manifest when it was landed, the key of its cached rows; None if an older
        program compacted it.
    account: input read, kept and lost, from `Account.as_json`; empty for older programs.
    """

    capture_id: str
    base_name: str
    bytes: int
    sha256: str | None
    marks: Marks
    sources: tuple[SourceFile, ...]
    first_ts_ns: int | None
    last_ts_ns: int | None
    landed: str | None = None
    account: Mapping[str, Any] = MappingProxyType({})


class Manifest(NamedTuple):
    """One capture of a lake.

    base_name: of its files, without ring and compression suffixes.
    bytes, sha256, marks, sources: of the uncompressed input (sha256 null and no sources for a tap).
    first_ts_ns, last_ts_ns: span of its packets.
    files: of all tables.
    versions: of the programs that determine the files' bytes.
    options: of decoding.
    settings: of the Parquet writer; empty for older programs.
    replaces: captures of a group.
    landed: as in Contained, for a capture that was rewritten. account: as there.
    """

    capture_id: str
    base_name: str
    schema_version: int
    bytes: int
    sha256: str | None
    marks: Marks
    sources: tuple[SourceFile, ...]
    first_ts_ns: int | None
    last_ts_ns: int | None
    files: tuple[PartFile, ...]
    versions: Mapping[str, str]
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    replaces: tuple[Contained, ...] = ()
    landed: str | None = None
    account: Mapping[str, Any] = MappingProxyType({})

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        counts = dict.fromkeys(TABLES, 0)
        for part in self.files:
            counts[part.table] = counts.get(part.table, 0) + part.rows
        return counts

    def captures(self) -> tuple[Contained, ...]:
        """Return the captures of a group, or the capture itself."""
        return self.replaces or (Contained(*(getattr(self, f) for f in Contained._fields)),)

    def digest(self) -> str:
        """Return the key of cached rows: it changes if the rows change, not if they move."""
        return self.landed or hashlib.sha256(to_json(self.plain()).encode()).hexdigest()

    def plain(self) -> "Manifest":
        """Return the manifest with local file names, which lack the attempt's suffix."""
        if not any(_ATTEMPT.search(part.name) for part in self.files):
            return self
        parts = (part._replace(name=_ATTEMPT.sub("", part.name)) for part in self.files)
        return self._replace(files=tuple(parts))

    def of_attempt(self, unique: str) -> "Manifest":
        """Return the manifest with file names that are unique to an attempt to land it."""
        names = (part.name.replace(".", f".{unique}.") for part in self.files)
        parts = (part._replace(name=name) for part, name in zip(self.files, names, strict=True))
        return self._replace(files=tuple(parts))


class _AsRead(Manifest):
    """A parsed manifest that keeps the digest of its text, as encoding it again costs more than
    parsing. Copies by `_replace` lose the digest."""

    text_sha256 = ""

    def digest(self) -> str:
        return self.landed or self.text_sha256 or super().digest()


def clean_base_name(file_name: str) -> str:
    """Return the part of a capture's id that derives from its name, without compression suffix."""
    return plain_letters(_COMPRESSION.sub("", file_name))


def cut_base_name(base_name: str, packets: int) -> str:
    """Return the base name of a capture limited to some packets; no file can have such a name."""
    return f"first-{packets}/{base_name}"


def capture_id(base_name: str, sha256: str) -> str:
    """Return the id of a capture of files.

    Args:
        base_name: name of the files without folder and ring suffix, or `stdin`.
        sha256: of the uncompressed bytes of the chain, in hex.
    """
    return f"c-{clean_base_name(base_name)}-{sha256[:ID_DIGITS]}"


def tap_capture_id(interface: str, first_ts_ns: int, rotation: int) -> str:
    """Return the id of one rotation of a live tap."""
    return f"c-{clean_base_name(interface)}-{first_ts_ns}-{rotation:05d}"


def is_plain_name(name: object) -> bool:
    """Whether a value is a valid file name that leads to no other folder."""
    is_text = isinstance(name, str) and name not in ("", ".", "..")
    return is_text and "/" not in str(name) and "\0" not in str(name)


def tap_run_of(capture_id: str) -> str:
    """Return the prefix that the ids of a tap run's rotations share. Other ids, which end in more
    digits of a digest, are returned unchanged."""
    match = ROTATION.fullmatch(capture_id)
    return match[1] if match else capture_id


def to_json(manifest: Manifest) -> str:
    """Return the canonical text of a manifest."""
    content: dict[str, Any] = {
        "capture_id": manifest.capture_id,
        "base_name": manifest.base_name,
        "schema_version": manifest.schema_version,
        **_identity(manifest),
        "rows": manifest.rows(),
        "files": [part._asdict() for part in manifest.files],
        "versions": dict(manifest.versions),
        "options": dict(manifest.options),
        "settings": dict(manifest.settings),
        "replaces": [
            {"capture_id": c.capture_id, "base_name": c.base_name, **_identity(c)}
            for c in manifest.replaces
        ],
    }
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str, where: str) -> Manifest:
    """Parse a manifest.

    Args:
        where: the file, for messages.

    Raises:
        InputError: the text is damaged, or a newer program wrote it.
    """
    try:
        content = json.loads(text)
        version = int(content["schema_version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{where} is not a readable manifest: {error}; {MEND}") from None
    if version > SCHEMA_VERSION:
        raise NewerLake(
            f"{where} has schema version {version}, this program reads up to {SCHEMA_VERSION}: "
            "use the version of dissector that wrote the lake, or a newer one"
        )
    try:
        manifest = _read(content, version)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where} is not a readable manifest: {error!r}; {MEND}") from None
    if not _is_sound(manifest):
        raise InputError(f"{where} is not a readable manifest: it holds odd values; {MEND}")
    names = {manifest.capture_id}
    for part in manifest.files:
        names.add(part.table)
        names.add(part.name)
    if not all(map(is_plain_name, names)):
        raise InputError(f"{where} is not a readable manifest: it names other folders; {MEND}")
    if manifest.plain() is manifest:
        manifest.text_sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return manifest


def _is_sound(manifest: Manifest) -> bool:
    """Whether counts and times are numbers, names are texts, and options are mappings."""
    counts = [n for part in manifest.files for n in (part.rows, part.bytes)]
    texts = [text for part in manifest.files for text in (part.table, part.name)]
    stamps: list[object] = []
    captures: tuple[Manifest | Contained, ...] = (manifest, *manifest.replaces)
    for each in captures:
        counts.append(each.bytes)
        stamps += [each.first_ts_ns, each.last_ts_ns]
    mappings = (manifest.versions, manifest.options, manifest.settings)
    return (
        manifest.schema_version >= 1
        and all([isinstance(count, int) and count >= 0 for count in counts])
        and all([isinstance(text, str) for text in (manifest.capture_id, *texts)])
        and all(stamp is None or isinstance(stamp, int) for stamp in stamps)
        and all(isinstance(each.marks.text, str) for each in captures)
        and all(isinstance(each.landed, str | None) for each in captures)
        and all(isinstance(mapping, dict) for mapping in mappings)
        and all(isinstance(each.account, dict) for each in captures)
        and all(isinstance(inside.capture_id, str) for inside in manifest.replaces)
    )


def _identity(capture: Manifest | Contained) -> dict[str, Any]:
    return ({} if capture.landed is None else {"landed": capture.landed}) | {
        "bytes": capture.bytes,
        "sha256": capture.sha256,
        "marks": {"step": capture.marks.step, "digests": capture.marks.text},
        "sources": [source._asdict() for source in capture.sources],
        "first_ts_ns": capture.first_ts_ns,
        "last_ts_ns": capture.last_ts_ns,
        "account": dict(capture.account),
    }


def _contained(content: dict[str, Any]) -> Contained:
    marks = content["marks"]
    return Contained(
        content["capture_id"],
        content["base_name"],
        content["bytes"],
        content["sha256"],
        Marks(marks["step"], marks["digests"]),
        tuple(SourceFile(**source) for source in content["sources"]),
        content["first_ts_ns"],
        content["last_ts_ns"],
        content.get("landed"),
        content.get("account", {}),
    )


def _read(content: dict[str, Any], version: int) -> _AsRead:
    own = _contained(content)
    return _AsRead(
        schema_version=version,
        files=tuple(PartFile(**part) for part in content["files"]),
        versions=content["versions"],
        options=content["options"],
        settings=content.get("settings", {}),
        replaces=tuple(map(_contained, content["replaces"])),
        **own._asdict(),
    )


def relation(new: ChainDigest, there: Contained) -> str:
    """Compare an input that was read with a landed capture of the same base name.

    Returns:
        `same`: equal bytes; `grown`: the capture is a prefix of the input; `shorter`: the input is
        a prefix of the capture; `other`.
    """
    if there.sha256 is None:
        return "other"
    if there.bytes == new.bytes:
        return "same" if there.sha256 == new.sha256() else "other"
    if there.bytes < new.bytes:
        known = new.at(there.bytes)
        return "grown" if known == there.sha256 else "other"
    end = 0
    for source in there.sources:
        end += source.bytes
        if end == new.bytes:
            return "shorter" if source.chain_sha256 == new.sha256() else "other"
    # The capture's bytes are not available. Its marks decide for all bytes up to the input's size
    # but the last step, a thousandth of the capture.
    return "shorter" if new.bytes and _marks_until(new.bytes, new, there) else "other"


def may_be_prefix(new: ChainDigest, there: Contained) -> bool:
    """Whether a capture may be a prefix of an input: undecided, as the capture's size was not known
    when the input was read."""
    is_shorter = there.sha256 is not None and there.bytes < new.bytes
    if not is_shorter or new.at(there.bytes) is not None:
        return False
    return _marks_until(there.bytes, new, there) is not False


def _marks_until(size: int, new: ChainDigest, there: Contained) -> bool | None:
    """Whether two inputs have equal marks up to a size; None if there are no marks."""
    marks = new.marks()
    step = max(marks.step, there.marks.step)
    count = size // step
    ours, theirs = marks.coarser(step)[:count], there.marks.coarser(step)[:count]
    return ours == theirs if ours else None
