"""Which store an address lies in, and which version of a file a run reads."""

from functools import lru_cache

from dissector.errors import needs
from dissector.limits import MAX_SEEN_FILES
from dissector.storage.addresses import Address, parsed
from dissector.storage.store import Entry, Store

_WITHOUT = "files of this machine are read without"


def store_of(address: Address) -> Store:
    """The store that an address lies in.

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


# What this process looked at once it reads in that version, however often it opens it; of very many
# files all are forgotten, and asked for again.
_seen: dict[str, Entry] = {}


def entry_of(path: str, is_fresh: bool = False) -> Entry:
    """The file at an address, in the version in which this process first saw it.

    Args:
        is_fresh: ask again, whatever was seen before.

    Raises:
        OSError: it is not there, or the store does not answer.
        DependencyError: the library for it is not installed.
    """
    known = None if is_fresh else _seen.get(path)
    if known is not None:
        return known
    address = parsed(path)
    found = store_of(address).entry(address.name)
    _remember([found])
    return found


def entries_below(path: str) -> list[Entry]:
    """The files below the address of a folder, by path; they are seen afresh.

    Raises:
        OSError: the store does not answer.
        DependencyError: the library for it is not installed.
    """
    address = parsed(path)
    found = sorted(store_of(address).entries(address.name.rstrip("/")))
    _remember(found)
    return found


def _remember(found: list[Entry]) -> None:
    if len(_seen) > MAX_SEEN_FILES:
        _seen.clear()
    _seen.update((entry.path, entry) for entry in found)
