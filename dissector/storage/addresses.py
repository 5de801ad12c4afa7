"""Parses addresses of files in stores, such as s3://bucket/folder/name; names are not decoded.

Environment variables name the server of an address, as for the provider's own tools.
"""

import os
import re
from typing import Final, NamedTuple

from dissector.errors import UsageError

# Schemes that users and other tools write, and our name of each.
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
# Schemes whose authority is a bucket or container, without port or user.
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
    """scheme: one of our names. authority: bucket, container, or host and port.

    name: of the object, or the path on the file system without its first slash.
    """

    scheme: str
    authority: str
    name: str

    @property
    def root(self) -> str:
        """Address of the store, without the name."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.root}/{self.name}"


def is_stored(path: str) -> bool:
    """Whether an input path of the command line is an address in a store."""
    return path.startswith(_STORED)


def has_known_scheme(text: str) -> bool:
    """Whether a text begins with the scheme of a supported store."""
    match = _ADDRESS.match(text)
    return match is not None and match[1].lower() in _SCHEMES


def parsed(text: str) -> Address:
    """Parse an address with a supported scheme.

    Raises:
        UsageError: the address lacks a bucket, or may contain a secret.
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
    """Return the environment's settings of the server of an address, without secrets: with other
    settings the same address may name another bucket."""
    names = _SERVERS[address.scheme]
    return "\n".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))


def s3_server() -> tuple[str | None, str | None]:
    """Return endpoint and region of S3 from the environment; None: AWS's own endpoint, and the
    region that the library detects."""
    endpoint = next(filter(None, map(os.environ.get, _SERVERS["s3"])), None)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return endpoint, region or ("us-east-1" if endpoint else None)
