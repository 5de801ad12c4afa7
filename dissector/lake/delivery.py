"""Landings that are complete on this machine and wait until the store of their lake has them.

A rotation of a tap is ready when all of it is on disk (`install`), whether the store answers or
not. Whoever works on the lake here next puts it there: the tap itself, or any command later.
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
    """Put what waits into the store of a lake, in the order of its ids.

    Returns:
        Sentences about what waits in vain, as it is damaged.

    Raises:
        OSError: of the store; what is left waits on.
        InputError: a newer program wrote the lake.
    """
    stored = mirror.of(lake)
    damaged: list[str] = []
    if stored is None:
        return damaged
    for ready in install.ready_stages(lake):
        with left_behind(ready / install.WRITER_LOCK) as is_free:  # else somebody is at it
            if is_free and ready.is_dir() and not _deliver(stored, ready):
                damaged.append(f"{ready} waits for the store and is damaged: remove it")
    return damaged


def _deliver(stored: Mirror, ready: Path) -> bool:
    """Put one stage into the store, unless it is there: whoever did it may have been killed.

    Returns:
        Whether it is there now; else the stage is damaged.
    """
    lake = stored.folder
    try:
        manifest = install.manifest_at(ready / install.MANIFEST)
    except FileNotFoundError:  # it is being deleted, or that was cut short
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
        # An entry whose answer was lost may have come late.
        if stored.has(manifest):
            return False
        stored.commit(manifest, (), ready.name)
        return True

    with adding_lock(stored.folder):
        is_ours = mirror.settled(stored.folder, commit)
    if is_ours:
        stored.keep(ready, manifest)
    else:
        stored.remove(stored.names(manifest))
