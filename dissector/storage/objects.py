"""Object stores (S3, Google Cloud Storage, Azure), by obstore.

Credentials and endpoints come from the environment variables of the provider's own tools; boto3, if
installed, reads the profile of an AWS configuration file.
"""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from obstore import exceptions
from obstore.store import from_url

from dissector import limits
from dissector.errors import UsageError
from dissector.storage.addresses import s3_server
from dissector.storage.store import Entry, other_size

_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Za-z -]{1,40}))?")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_NO_CREDENTIALS: Final = ("169.254.", "metadata.google", "credential")
_RETRY: Final[Any] = {
    "max_retries": limits.STORE_RETRIES,
    "retry_timeout": timedelta(seconds=limits.STORE_RETRY_SECONDS),
}
_CREDENTIALS: Final = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with boto3 installed; "
    "AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_KEY",
}


class ObjectsStore:
    """A bucket or container; `store.Store` documents the methods."""

    def __init__(self, scheme: str, root: str) -> None:
        self._root = root
        self._hint = _CREDENTIALS["az" if scheme == "abfss" else scheme]
        options: dict[str, Any] = {}
        client: Any = {
            "timeout": timedelta(seconds=limits.STORE_TIMEOUT_SECONDS),
            "connect_timeout": timedelta(seconds=limits.STORE_CONNECT_SECONDS),
        }
        if scheme == "s3":
            endpoint, _ = s3_server()
            if endpoint:
                options["endpoint"] = endpoint
                client["allow_http"] = endpoint.startswith("http://")
            if "AWS_ACCESS_KEY_ID" not in os.environ and "AWS_PROFILE" in os.environ:
                options["credential_provider"] = _profile()
        try:
            self._store: Any = from_url(root, retry_config=_RETRY, client_options=client, **options)
        except (exceptions.BaseError, ValueError) as error:
            raise UsageError(f"{root}: no store has such an address ({_brief(error)})") from None

    def entry(self, name: str) -> Entry:
        with self._errors():
            return self._entry(obstore.head(self._store, name))

    def entries(self, folder: str) -> Iterator[Entry]:
        with self._errors():
            for page in obstore.list(self._store, folder or None):
                yield from map(self._entry, page)

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        return self.look(entry, start, end)[1]

    def look(self, entry: Entry, start: int, end: int) -> tuple[Entry, bytes]:
        options: Any = {"range": (start, end)}
        if entry.version is not None:
            options["if_match"] = entry.version
        with self._errors():
            name = entry.path[len(self._root) + 1 :]
            answer = obstore.get(self._store, name, options=options)
            found = self._entry(answer.meta)
            if found.size != entry.size:
                raise other_size()
            data = answer.bytes()
        if len(data) != end - start:
            raise OSError(errno.EIO, "the store gives fewer bytes than it says")
        return found, bytes(data)

    def load(self, name: str) -> bytes:
        with self._errors():
            return bytes(obstore.get(self._store, name).bytes())

    def put_new(self, name: str, data: bytes) -> bool:
        with self._errors():
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                return False
        return True

    def upload(self, name: str, path: str) -> None:
        with self._errors():
            obstore.put(self._store, name, Path(path), chunk_size=limits.STORE_RANGE_BYTES)

    def delete(self, names: Sequence[str]) -> None:
        with self._errors(), suppress(FileNotFoundError, exceptions.NotFoundError):
            if names:
                obstore.delete(self._store, names)

    def _entry(self, found: Any) -> Entry:
        changed = found["last_modified"].timestamp()
        return Entry(f"{self._root}/{found['path']}", found["size"], changed, found["e_tag"])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the library's exceptions to OSError, without the responses that they quote."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise _no_bucket() from None
            raise FileNotFoundError(errno.ENOENT, "there is no such object") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            reason = f"the store refuses access: {_brief(error)}; {self._hint}"
            raise PermissionError(errno.EACCES, reason) from None
        except exceptions.PreconditionError:
            raise OSError(errno.ESTALE, "it was changed while it was read") from None
        except exceptions.BaseError as error:
            text = str(error).partition("\n\nDebug")[0]
            if "NoSuchBucket" in text:
                raise _no_bucket() from None
            if any(words in text.lower() for words in _NO_CREDENTIALS):
                reason = f"no credentials were found; {self._hint}"
                raise PermissionError(errno.EACCES, reason) from None
            if _status(text) == "416":
                raise other_size() from None
            raise OSError(errno.EIO, f"the store does not answer: {_brief(error)}") from None


def _status(text: str) -> str:
    """Return the HTTP status in a library's error text; empty if there is none."""
    status = _STATUS.search(text)
    return status[1] if status is not None else ""


def _no_bucket() -> OSError:
    """Return the error of a missing bucket, which differs from that of a missing file."""
    return OSError(errno.ENXIO, "there is no such bucket")


def _brief(error: Exception) -> str:
    """Summarize a library's error text, without the response that it quotes."""
    text = str(error).partition("\n\nDebug")[0]
    code, status = _CODE.search(text), _STATUS.search(text)
    if code is not None:
        return code[1]
    if status is not None:
        return f"{status[1]} {status[2] or ''}".strip()
    if "timed out" in text:
        return "time-out"
    return "no connection" if "error sending request" in text else "its answer cannot be read"


def _profile() -> Any:
    """Return a provider of credentials from the AWS configuration files.

    Raises:
        UsageError: boto3, which reads them, is not installed.
    """
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise UsageError(
            "AWS_PROFILE is set, and boto3, which reads profiles, is missing: pip install boto3, "
            "or set AWS_ACCESS_KEY_ID"
        ) from None
    return Boto3CredentialProvider()
