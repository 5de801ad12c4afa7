"""HDFS, by hdfs-native, which reads HADOOP_CONF_DIR or HADOOP_HOME from the environment."""

import errno
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from hdfs_native import Client

from dissector.limits import STORE_ATTEMPTS, STORE_RANGE_BYTES
from dissector.storage.store import Entry, other_size

# The default of 15 attempts waits for minutes.
_ATTEMPTS: Final = {
    "dfs.client.failover.max.attempts": str(STORE_ATTEMPTS),
    "dfs.client.failover.sleep.max.millis": "2000",
}


class HadoopStore:
    """The file system of a cluster; `store.Store` documents the methods."""

    def __init__(self, root: str) -> None:
        self._root = root
        with _errors():
            self._client = Client(None if root == "hdfs://" else root, config=_ATTEMPTS)

    def entry(self, name: str) -> Entry:
        with _errors():
            status = self._client.get_file_info(f"/{name}")
        if status.isdir:
            raise FileNotFoundError(errno.ENOENT, "it is a folder")
        return self._entry(status)

    def entries(self, folder: str) -> Iterator[Entry]:
        with _errors():
            try:
                for status in self._client.list_status(f"/{folder}", recursive=True):
                    if not status.isdir:
                        yield self._entry(status)
            except FileNotFoundError:
                return

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        return self.look(entry, start, end)[1]

    def look(self, entry: Entry, start: int, end: int) -> tuple[Entry, bytes]:
        with _errors():
            path = entry.path[len(self._root) :]
            status = self._entry(self._client.get_file_info(path))
            if entry.version is not None and status != entry:
                raise OSError(errno.ESTALE, "it was changed while it was read")
            if status.size != entry.size:
                raise other_size()
            data = self._client.read(path).read_range(start, end - start)
        if len(data) != end - start:
            raise OSError(errno.EIO, "the store gives fewer bytes than it says")
        return status, data

    def load(self, name: str) -> bytes:
        with _errors():
            return bytes(self._client.read(f"/{name}").read())

    def put_new(self, name: str, data: bytes) -> bool:
        """Writes under another name first: HDFS shows partly written files; rename is atomic."""
        folder, _, last = name.rpartition("/")
        written = f"/{folder}/.{last}.{secrets.token_hex(6)}"
        with _errors():
            self._client.mkdirs(f"/{folder}", create_parent=True)
            try:
                with self._client.create(written) as file:
                    file.write(data)
                try:
                    self._client.rename(written, f"/{name}", overwrite=False)
                except (OSError, RuntimeError):
                    with suppress(FileNotFoundError):
                        self._client.get_file_info(f"/{name}")
                        return False
                    raise
            finally:
                with suppress(OSError, RuntimeError):
                    self._client.delete(written)
        return True

    def upload(self, name: str, path: str) -> None:
        with _errors(), open(path, "rb") as source:
            self._client.mkdirs(f"/{name}".rpartition("/")[0], create_parent=True)
            with self._client.create(f"/{name}") as file:
                while data := source.read(STORE_RANGE_BYTES):
                    file.write(data)

    def delete(self, names: Sequence[str]) -> None:
        with _errors():
            for name in names:
                with suppress(FileNotFoundError):
                    self._client.delete(f"/{name}")

    def _entry(self, status: Any) -> Entry:
        changed = status.modification_time / 1000
        path = "/" + status.path.lstrip("/")
        return Entry(f"{self._root}{path}", status.length, changed, str(status.modification_time))


@contextmanager
def _errors() -> Iterator[None]:
    """Convert the library's exceptions to OSError."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such file") from None
    except PermissionError:
        raise PermissionError(errno.EACCES, "the cluster refuses access") from None
    except OSError as error:
        if error.errno is not None:
            raise
        first = str(error).partition("\n")[0][:120]
        raise OSError(errno.EIO, f"the cluster does not answer: {first}") from None
    except RuntimeError as error:
        first = str(error).partition("\n")[0][:120]
        raise OSError(errno.EIO, f"the cluster does not answer: {first}") from None
