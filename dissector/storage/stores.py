"""Opens the store of an address; fixes the version of each file that a run reads."""

from functools import lru_cache

from dissector.errors import needs
from dissector.limits import MAX_SEEN_FILES
from dissector.storage.addresses import Address, parsed
from dissector.storage.store import Entry, Store

_WITHOUT = "files of this machine are read without"


def store_of(address: Address) -> Store:
    """Return the store of an address.

    Raises:
        DependencyError: the library for it is not installed.
    """
    return _store(address.scheme, address.root)


@lru_cache(maxsize=64)
def _store(scheme: str, root: str) -> Store:
    if scheme == "hdfs":
        with needs("hdfs", _WITHOUT):
            from dissector.storage.hadoop import HadoopStore
        return HadoopStore(root)
    with needs("objects", _WITHOUT):
        from dissector.storage.objects import ObjectsStore
    return ObjectsStore(scheme, root)


# Entries by address: a process reads each file in the version it saw first. Beyond MAX_SEEN_FILES
# all are discarded and requested again.
_seen: dict[str, Entry] = {}


def entry_of(path: str, is_fresh: bool = False) -> Entry:
    """Return the entry of a file, with the version that this process saw first.

    Args:
        is_fresh: request the current version instead.

    Raises:
        OSError: the file is missing, or the store does not answer.
        DependencyError: the library for it is not installed.
    """
    known = None if is_fresh else _seen.get(path)
    if known is not None:
        return known
    address = parsed(path)
    entry = store_of(address).entry(address.name)
    _remember([entry])
    return entry


def entries_below(path: str) -> list[Entry]:
    """Return the current entries of the files below a folder's address, ordered by path.

    Raises:
        OSError: the store does not answer.
        DependencyError: the library for it is not installed.
    """
    address = parsed(path)
    entries = sorted(store_of(address).entries(address.name.rstrip("/")))
    _remember(entries)
    return entries


def _remember(entries: list[Entry]) -> None:
    if len(_seen) > MAX_SEEN_FILES:
        _seen.clear()
    _seen.update((entry.path, entry) for entry in entries)
