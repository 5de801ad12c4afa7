"""Paths as Spark takes them: of files here, whatever the default file system of the cluster is.

A bare path means `hdfs:` where the cluster says so. What Spark reads and writes goes by Hadoop's
rules: everything behind the scheme is the name as it is, nothing is percent-encoded, and names to
read are patterns. Files that Spark sends to its workers go by those of URIs.
"""

import os
import re
from pathlib import Path
from typing import Final

from dissector.sources.rings import Chain

_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")


def to_write(path: Path | str) -> str:
    """A folder for `write`, or for settings and options that name one."""
    return f"file://{os.path.abspath(path)}"


def to_read(path: Path | str) -> str:
    """A file or folder for `read`: its very name, not what it would match as a pattern."""
    return _PATTERN.sub(r"\\\g<0>", to_write(path))


def to_send(path: Path | str) -> str:
    """A file for settings that hold URIs, such as spark.archives."""
    return Path(path).absolute().as_uri()


def absolute(chain: Chain) -> Chain:
    """The chain with the full names of its files: a worker runs in a folder of its own."""
    return chain._replace(files=tuple(os.path.abspath(name) for name in chain.files))
