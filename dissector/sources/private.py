"""Files that only their owner may read: packets hold what was on the wire, secrets too."""

import os


def private(path: str, flags: int) -> int:
    """An opener for `open`: mode 0600, and never through a link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
