"""Addresses of files in stores, such as s3://bucket/folder/name; names are taken as they are.

Which server is behind an address the environment says, as it does to the provider's own tools.
"""

import os
import re
from typing import Final, NamedTuple

from dissector.errors import UsageError

# What users and other tools write, and what it is.
_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "hdfs": "hdfs",
}
# Of these the part in front of the first slash is a bucket or container, never a port or a user.
_BUCKETS: Final = ("s3", "gs", "az")
_STORED: Final = tuple(f"{scheme}://" for scheme in dict.fromkeys(_SCHEMES.values()))
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_SERVERS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": (),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "abfss": (),
    "hdfs": ("HADOOP_CONF_DIR", "HADOOP_HOME"),
}
KNOWN: Final = "s3://, gs://, az://, abfss://, hdfs://"


class Address(NamedTuple):
    """scheme: as `parsed` gives it. authority: bucket, container, or host and port.

    name: of the object, or the path on the file system without its first slash.
    """

    scheme: str
    authority: str
    name: str

    @property
    def root(self) -> str:
        """The store that it lies in."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.root}/{self.name}"


def is_stored(path: str) -> bool:
    """Whether a path of an input, as the command line gives it, is the address of a store."""
    return path.startswith(_STORED)


def has_known_scheme(text: str) -> bool:
    """Whether what a user wrote begins as an address of a store that is known."""
    match = _ADDRESS.match(text)
    return match is not None and match[1].lower() in _SCHEMES


def parsed(text: str) -> Address:
    """An address with a known scheme.

    Raises:
        UsageError: it names no bucket, or holds what may be a secret.
    """
    match = _ADDRESS.fullmatch(text)
    scheme = _SCHEMES.get(match[1].lower()) if match is not None else None
    if match is None or scheme is None:
        raise UsageError(f"{text} is no address of a store; these are known: {KNOWN}")
    authority, name = match[2], match[3]
    has_user = "@" in authority if scheme != "abfss" else authority.count("@") != 1
    if has_user or (scheme in _BUCKETS and ":" in authority) or authority.count(":") > 1:
        if scheme == "abfss" and "@" not in authority:
            raise UsageError(f"{text}: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME")
        raise UsageError(
            f"an address of {scheme}:// has a user or a port in its bucket: credentials and "
            "endpoints come from the environment (docs/storage.md)"
        )
    if not authority and scheme != "hdfs":
        raise UsageError(f"{text} names no bucket: write {scheme}://BUCKET/NAME")
    return Address(scheme, authority, name)


def server_of(address: Address) -> str:
    """What the environment says of the server behind an address, no secret: the same address may
    name another bucket tomorrow."""
    names = _SERVERS[address.scheme]
    return "\n".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))


def s3_server() -> tuple[str | None, str | None]:
    """The address of the server of S3 and its region as the environment names them; None: that of
    AWS, and the one that is found."""
    endpoint = next(filter(None, map(os.environ.get, _SERVERS["s3"])), None)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return endpoint, region or ("us-east-1" if endpoint else None)
