"""Paths as Spark takes them: of files here, whatever the default file system of the cluster is.

A bare path means `hdfs:` where the cluster says so. Folders that Spark writes go by Hadoop's rules:
everything behind the scheme is the name as it is, nothing is percent-encoded. Files that it sends
to its workers go by those of URIs.
"""

import os
from pathlib import Path

from dissector.sources import locations
from dissector.sources.rings import Chain


def to_write(path: Path | str) -> str:
    """A folder for settings that name one."""
    return f"file://{os.path.abspath(path)}"


def to_send(path: Path | str) -> str:
    """A file for settings that hold URIs, such as spark.archives."""
    return Path(path).absolute().as_uri()


def absolute(chain: Chain) -> Chain:
    """The chain with the full names of its files: a worker runs in a folder of its own."""
    return chain._replace(files=tuple(locations.absolute(name) for name in chain.files))
