"""Land one capture: write its tables to a stage, decide which captures it replaces, install it.

    with Landing(lake, base_name) as landing:
        for block in dissect(chain, options, digest=landing.digest):
            landing.write(block)
        landed = landing.commit(options={...})

Leaving the block without `commit` does not change the lake.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dissector.blocks import TableBlock
from dissector.errors import OutputError
from dissector.lake import mirror
from dissector.lake.digest import ChainDigest, Marks
from dissector.lake.install import (
    Stage,
    delete_abandoned,
    is_temporary,
    recover,
    refuse_links,
    removes_files,
    writing_to,
)
from dissector.lake.locks import adding_lock, adding_lock_if_free, exclusive_lock
from dissector.lake.manifest import (
    Contained,
    Manifest,
    PartFile,
    capture_id,
    clean_base_name,
    may_be_prefix,
    relation,
)
from dissector.lake.manifests import Manifests, refuse_newer
from dissector.lake.partitions import day_of, partition_of
from dissector.lake.settings import SETTINGS, writer_versions
from dissector.lake.writer import LakeWriter
from dissector.limits import NULL
from dissector.schemas import SCHEMA_VERSION
from dissector.schemas.builders import numbers

INSTALLED: Final = "installed"
UNCHANGED: Final = "unchanged"
SHORTER: Final = "shorter"
# Among the options of a manifest: how many TLS connections a key opened.
DECRYPTED: Final = "tls_decrypted"


class ConcurrentLanding(Exception):
    """Another landing installed a capture of the same name meanwhile, and the digests of this one
    cannot decide whether the other is a prefix of it; landing it again can."""


class Landed(NamedTuple):
    """Result of landing a capture.

    outcome: `installed`; `unchanged`, the lake had the same one; `shorter`, the lake has a longer
        version and this one was discarded.
    replaced: ids of shorter versions that it replaced.
    rows: by table.
    bytes: of its Parquet files.
    day: of its folder, as `partitions.day_of` returns it.
    sentences: for the user, about other captures of the lake.
    """

    capture_id: str
    outcome: str
    replaced: tuple[str, ...]
    rows: Mapping[str, int]
    bytes: int
    day: str
    sentences: tuple[str, ...]


class Landing:
    """One capture that is being written to a lake.

    digest: hashes the uncompressed input; the input's reader calls `update` and `end_file`.

    Args:
        tap_id: the capture's id if it is a rotation of a tap (`tap_capture_id`). A rotation has no
            digest, so it is compared with no other capture and waits for no lock.

    Raises:
        InputError: a newer program wrote the lake.
        OutputError: the lake cannot be written.
    """

    def __init__(self, lake: Path, base_name: str, tap_id: str | None = None) -> None:
        self._lake = lake
        self._base_name = base_name
        self._tap_id = tap_id
        self._first_ts_ns: int | None = None
        self._last_ts_ns: int | None = None
        self._manifests = Manifests(lake)
        there: list[Manifest] = []
        with writing_to(lake):
            lake.mkdir(parents=True, exist_ok=True)
            refuse_links(lake, OutputError)
            refuse_newer(lake)
            if tap_id is None:
                delete_abandoned(lake)
                there = self._manifests.of_base_name(base_name)
            self._stage = Stage(lake, f"c-{clean_base_name(base_name)}")
        self.digest = ChainDigest(
            c.bytes for m in there for c in m.captures() if c.base_name == base_name
        )
        self._writer = LakeWriter(self._stage.folder, is_compressed=not is_temporary(lake))
        self._files: list[PartFile] | None = None

    def __enter__(self) -> "Landing":
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.__exit__(*error)
        self._stage.discard()

    def write(self, block: TableBlock) -> None:
        """Queue a block of rows; the caller must not change it afterwards.

        Raises:
            OutputError: the disk is full or failed.
        """
        if block.table == "capture_files":
            self._note_span(block)
        with writing_to(self._lake):
            self._writer.write(block)

    def seal(self) -> None:
        """Close all files and free the memory after the whole input was read, for callers that
        commit several captures at the end.

        Raises:
            OutputError: the disk is full or failed.
        """
        if self._files is None:
            with writing_to(self._lake):
                self._files = self._writer.close(self._capture_id())

    def _capture_id(self) -> str:
        return self._tap_id or capture_id(self._base_name, self.digest.sha256())

    def commit(
        self,
        options: Mapping[str, Any],
        account: Mapping[str, Any] = MappingProxyType({}),
        *,
        is_last: bool = True,
    ) -> Landed:
        """Finish the files and install the capture.

        Args:
            options: decoding options that determine the rows (JSON values); no folders, no clock.
            account: see `Contained`.
            is_last: the caller cannot read the input again.

        Raises:
            OutputError: the lake cannot be written.
            ConcurrentLanding: not if is_last.
        """
        self.seal()
        assert self._files is not None
        manifest = self._manifest(self._files, options, account)
        with writing_to(self._lake):
            if self._tap_id:
                return self._leave_ready(manifest)
            self._stage.prepare(manifest)
            with adding_lock(self._lake):
                landed = mirror.retry_overtaken(
                    self._lake, lambda: self._install(manifest, is_alone=False, is_last=is_last)
                )
            if landed is None:
                with exclusive_lock(self._lake):
                    landed = self._install(manifest, is_alone=True, is_last=is_last)
        assert landed is not None, "the exclusive lock permits every installation"
        return landed

    def _leave_ready(self, manifest: Manifest) -> Landed:
        """Complete a rotation on disk, and install it unless another process holds the lake's lock:
        then the next writer installs it. For a store, `delivery` uploads it."""
        self._stage.describe(manifest)
        self._stage.make_ready(())
        with adding_lock_if_free(self._lake) as is_ours:
            if is_ours:
                recover(self._lake, is_alone=False)
        return self._landed(manifest, INSTALLED, (), ())

    def _manifest(
        self, files: list[PartFile], options: Mapping[str, Any], account: Mapping[str, Any]
    ) -> Manifest:
        is_tap = self._tap_id is not None
        return Manifest(
            capture_id=self._capture_id(),
            base_name=self._base_name,
            schema_version=SCHEMA_VERSION,
            bytes=self.digest.bytes,
            sha256=None if is_tap else self.digest.sha256(),
            marks=Marks(1) if is_tap else self.digest.marks(),
            sources=() if is_tap else tuple(self.digest.files),
            first_ts_ns=self._first_ts_ns,
            last_ts_ns=self._last_ts_ns,
            files=tuple(files),
            versions=writer_versions(),
            options=options,
            settings=SETTINGS.as_json(),
            account=account,
        )

    def _install(self, manifest: Manifest, *, is_alone: bool, is_last: bool) -> Landed | None:
        """Compare with the lake's captures, then install; the caller holds the lock.

        Returns:
            None if files are to be removed, which needs the exclusive lock, and is_alone is false.
        """
        if not recover(self._lake, is_alone=is_alone):
            return None
        refuse_newer(self._lake)
        replaced: dict[str, str] = {}
        sentences: list[str] = []
        for other in self._manifests.of_base_name(manifest.base_name):
            for contained in other.captures():
                if contained.base_name != manifest.base_name:
                    continue
                how = relation(self.digest, contained)
                compacted = contained.capture_id != other.capture_id
                if how == "same" and not compacted and _decrypted(other) > _decrypted(manifest):
                    return self._not_landed(manifest, UNCHANGED, _better(manifest, other))
                if how == "shorter":
                    return self._not_landed(manifest, SHORTER, _longer(manifest, contained))
                if how == "same" and compacted:
                    return self._not_landed(manifest, UNCHANGED, kept_in(contained, other))
                if how == "grown" and compacted:
                    sentences.append(kept_in(contained, other))
                elif how in ("grown", "same"):
                    if contained.capture_id == manifest.capture_id:
                        sentences.extend(_otherwise(manifest, other))
                    # `same` under another id: an older program derived ids from names differently.
                    replaced[contained.capture_id] = partition_of(other)
                else:
                    if not is_last and may_be_prefix(self.digest, contained):
                        raise ConcurrentLanding
                    sentences.extend(_shared_files(manifest, contained))
        partitions = {*replaced.values()} - {partition_of(manifest)}
        replaced.pop(manifest.capture_id, None)
        if not is_alone and removes_files(
            self._lake, self._stage.folder, manifest.capture_id, partitions
        ):
            return None
        outcome = INSTALLED if self._stage.install(partitions) else UNCHANGED
        return self._landed(manifest, outcome, tuple(sorted(replaced)), tuple(sentences))

    def _not_landed(self, manifest: Manifest, outcome: str, sentence: str) -> Landed:
        self._stage.discard()
        return self._landed(manifest, outcome, (), (sentence,))

    def _landed(
        self,
        manifest: Manifest,
        outcome: str,
        replaced: tuple[str, ...],
        sentences: tuple[str, ...],
    ) -> Landed:
        size = sum(part.bytes for part in manifest.files)
        day = day_of(manifest.first_ts_ns)
        return Landed(manifest.capture_id, outcome, replaced, manifest.rows(), size, day, sentences)

    def _note_span(self, block: TableBlock) -> None:
        """Widen the capture's time span by the rows of capture_files."""
        for name in ("first_ts_ns", "last_ts_ns"):
            if name not in block.columns:
                continue
            stamps = numbers(block.columns[name], 0, block.rows)
            for stamp in stamps[stamps != NULL].tolist():
                if self._first_ts_ns is None or stamp < self._first_ts_ns:
                    self._first_ts_ns = stamp
                if self._last_ts_ns is None or stamp > self._last_ts_ns:
                    self._last_ts_ns = stamp


def _longer(manifest: Manifest, there: Contained) -> str:
    return (
        f"{manifest.base_name} is the beginning of {there.capture_id}, which is in the lake with "
        f"{there.bytes - manifest.bytes} bytes more: not landed"
    )


def _decrypted(manifest: Manifest) -> int:
    count = manifest.options.get(DECRYPTED, 0)
    return count if isinstance(count, int) else 0


def _better(manifest: Manifest, there: Manifest) -> str:
    return (
        f"{there.capture_id} is in the lake with more TLS connections decrypted "
        f"({_decrypted(there)}, now {_decrypted(manifest)}): not landed; `dissector lake rm` first"
    )


def _otherwise(manifest: Manifest, there: Manifest) -> list[str]:
    """Return the sentence about a capture that other options read differently, if any differs."""
    now, then = manifest.options, there.options
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    differing = [f"{name}: {_option(then, name)}, now {_option(now, name)}" for name in names]
    return [
        f"{manifest.capture_id} was in the lake with other options and is replaced "
        f"({'; '.join(differing)})"
    ] * bool(differing)


def _option(options: Mapping[str, Any], name: str) -> Any:
    return "none" if options.get(name) is None else options[name]


def kept_in(contained: Contained, there: Manifest) -> str:
    """Return the sentence about an input whose capture, or a prefix of it, is in a group."""
    return (
        f"{contained.base_name}, or its beginning, was compacted into {there.capture_id}, which "
        "stays as it is"
    )


def _shared_files(manifest: Manifest, there: Contained) -> list[str]:
    """Return a sentence for each source file that another capture of the same name contains."""
    known = {source.sha256 for source in there.sources if source.bytes}
    return [
        f"{source.file_name} of {manifest.capture_id} is part of {there.capture_id} too"
        for source in manifest.sources
        if source.bytes and source.sha256 in known
    ]
