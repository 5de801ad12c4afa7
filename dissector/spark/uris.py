"""Formats local paths for Spark, independent of the cluster's default file system.

A bare path may mean `hdfs:`, as the cluster is configured. Folders that Spark writes follow
Hadoop's
rules: everything after the scheme is the literal name, without percent-encoding. Files that Spark
sends to workers are URIs.
"""

import os
from pathlib import Path

from dissector.sources import locations
from dissector.sources.rings import Chain


def to_write(path: Path | str) -> str:
    """The value of a setting that names a folder."""
    return f"file://{os.path.abspath(path)}"


def to_send(path: Path | str) -> str:
    """The value of a setting that contains URIs, such as spark.archives."""
    return Path(path).absolute().as_uri()


def absolute(chain: Chain) -> Chain:
    """The chain with absolute paths, because a worker runs in another folder."""
    return chain._replace(files=tuple(locations.absolute(name) for name in chain.files))
