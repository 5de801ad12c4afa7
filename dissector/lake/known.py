"""Detect by size and digest that a lake contains a capture already.

Reading and hashing a capture costs much less than dissecting it. This is done only if the lake has
a capture of the same name and, unless the input is compressed, of the same size.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from dissector.dissection import Options
from dissector.errors import OutputError
from dissector.lake.digest import ChainDigest
from dissector.lake.install import (
    delete_abandoned,
    has_all_files,
    ready_ids,
    refuse_links,
)
from dissector.lake.landing import DECRYPTED, UNCHANGED, Landed, kept_in
from dissector.lake.manifest import Contained, Manifest
from dissector.lake.manifests import Manifests
from dissector.lake.partitions import day_of
from dissector.lake.settings import SETTINGS, writer_versions
from dissector.schemas import SCHEMA_VERSION
from dissector.sources.account import Account
from dissector.sources.decompress import InputBytes
from dissector.sources.files import Buffer, ChainReader, file_name, is_file
from dissector.sources.key_logs import path_of
from dissector.sources.locations import state_of
from dissector.sources.rings import Chain

Progress = Callable[[int], None]


def known_capture(
    chain: Chain,
    lake: Path,
    options: Options,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> tuple[Account, Landed] | None:
    """Return the result of landing a capture that the lake has unchanged; None if landing it would
    change the lake, or if only dissecting it can decide.

    Args: as of `land_chain`.

    Raises:
        InputError: a newer program wrote the lake. OutputError: a part of it is a link.
    """
    if options.max_packets is not None or not all(map(is_file, chain.files)):
        return None  # a pipe cannot be read twice
    refuse_links(lake, OutputError)
    with suppress(OSError):  # landing it reports the error
        delete_abandoned(lake)
        if ready_ids(lake):
            return None  # a ready stage may remove the capture
        candidates = [
            (manifest, inside)
            for manifest in _manifests(lake).of_base_name(chain.base_name)
            for inside in manifest.captures()
            if inside.base_name == chain.base_name and inside.sha256 is not None and inside.account
        ]
        sizes = {inside.bytes for _, inside in candidates}
        digest = _digest_of(chain.files, progress) if _may_be(chain.files, sizes) else None
        if digest is None:
            return None
        for manifest, inside in candidates:
            if (digest.bytes, digest.sha256()) != (inside.bytes, inside.sha256):
                continue
            account = Account.from_json(inside.account, chain.base_name, chain.shown_names)
            if account is None or account.tls_decrypted:
                return None  # the keys of this run may decrypt fewer connections
            if account.tls_encrypted and path_of(options) is not None:
                return None  # the key log may decrypt more connections
            decoding = decoding_options(options, cluster, account)
            if manifest.replaces or _is_the_same(manifest, chain, decoding, lake):
                return account, _unchanged(manifest, inside)
    return None


def decoding_options(options: Options, cluster: str | None, account: Account) -> dict[str, Any]:
    """Return a manifest's `options`: those of decoding, and the number of decrypted connections."""
    return {**options.as_json(), "cluster": cluster, DECRYPTED: account.tls_decrypted}


@lru_cache(maxsize=1)
def _manifests(lake: Path) -> Manifests:
    return Manifests(lake)


def _may_be(files: Sequence[str], sizes: Collection[int]) -> bool:
    """Whether the uncompressed size of the files may be one of these sizes."""
    if not sizes or sum(state_of(path).size for path in files) in sizes:
        return bool(sizes)
    return any(map(_is_compressed, files))


def _is_compressed(path: str) -> bool:
    with closing(InputBytes(path)) as source:
        return source.codec is not None


def _digest_of(files: Sequence[str], progress: Progress | None) -> ChainDigest | None:
    """Return the digest of a chain; None if a file of it is no capture, is cut, or is damaged."""
    digest = ChainDigest()
    with ChainReader(files, digest) as reader:
        for event in reader:
            if isinstance(event, Buffer):
                event.consumed = event.end
                if progress is not None:
                    progress(reader.stored_bytes)
        return None if reader.problems else digest


def _is_the_same(manifest: Manifest, chain: Chain, decoding: Mapping[str, Any], lake: Path) -> bool:
    """Whether landing would write the same files and manifest again."""
    written = manifest.schema_version, dict(manifest.versions), dict(manifest.settings)
    return (
        written == (SCHEMA_VERSION, writer_versions(), SETTINGS.as_json())
        and dict(manifest.options) == decoding
        and [source.file_name for source in manifest.sources] == [*map(file_name, chain.files)]
        and has_all_files(lake, manifest)
    )


def _unchanged(manifest: Manifest, inside: Contained) -> Landed:
    size = sum(part.bytes for part in manifest.files)
    sentences = (kept_in(inside, manifest),) if manifest.replaces else ()
    day = day_of(inside.first_ts_ns)
    return Landed(inside.capture_id, UNCHANGED, (), manifest.rows(), size, day, sentences)
