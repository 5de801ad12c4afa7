"""Upload ready stages of a lake in a store.

A tap's rotation is ready when all of it is on disk (`install`), even if the store does not answer.
The next command on this machine that opens the lake, or the tap itself, uploads it.
"""

import secrets
from pathlib import Path

from dissector.errors import InputError
from dissector.lake import install, mirror
from dissector.lake.locks import adding_lock, left_behind
from dissector.lake.manifest import Manifest
from dissector.lake.manifests import refuse_newer
from dissector.lake.mirror import Mirror


def deliver(lake: Path) -> list[str]:
    """Upload the ready stages of a lake, in the order of their ids, and commit them.

    Returns:
        Sentences about damaged stages, which cannot be uploaded.

    Raises:
        OSError: of the store; the remaining stages stay.
        InputError: a newer program wrote the lake.
    """
    stored = mirror.of(lake)
    damaged: list[str] = []
    if stored is None:
        return damaged
    for ready in install.ready_stages(lake):
        with left_behind(ready / install.WRITER_LOCK) as is_free:  # else its owner uploads it
            if is_free and ready.is_dir() and not _deliver(stored, ready):
                damaged.append(f"{ready} waits for the store and is damaged: remove it")
    return damaged


def _deliver(stored: Mirror, ready: Path) -> bool:
    """Upload one stage unless the store has it: a killed process may have uploaded it.

    Returns:
        Whether the store has it now; False: the stage is damaged.
    """
    lake = stored.folder
    try:
        manifest = install.manifest_at(ready / install.MANIFEST)
    except FileNotFoundError:  # its deletion was interrupted
        install.delete(ready)
        return True
    except (InputError, UnicodeDecodeError):
        return False
    with adding_lock(lake):
        stored.sync()
        refuse_newer(lake)
        is_there = stored.has(manifest) or install.is_in_group(lake, manifest)
    if not is_there:
        paths = [(ready / part.table / part.name, part.bytes) for part in manifest.files]
        if not all(path.is_file() and path.stat().st_size == size for path, size in paths):
            return False
        _put(stored, ready, manifest.of_attempt(secrets.token_hex(6)))
    install.delete(ready)
    return True


def _put(stored: Mirror, ready: Path, manifest: Manifest) -> None:
    try:
        stored.upload(ready, manifest)
    except OSError:
        stored.remove(stored.names(manifest))
        raise

    def commit() -> bool:
        # The entry of an earlier call may exist although its response was lost.
        if stored.has(manifest):
            return False
        stored.commit(manifest, (), ready.name)
        return True

    with adding_lock(stored.folder):
        is_ours = mirror.retry_overtaken(stored.folder, commit)
    if is_ours:
        stored.keep(ready, manifest)
    else:
        stored.remove(stored.names(manifest))
