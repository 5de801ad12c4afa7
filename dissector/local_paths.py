"""Distinguishes local paths from addresses of stores.

Only captures and lakes may be in stores; all other files are accessed through the file system.
There `s3a://bucket/lake` would silently create a folder `s3a:` in the working directory, so it is
refused.
"""

import os
import re
import shlex
from typing import Final
from urllib.parse import unquote, urlsplit

from dissector.errors import UsageError
from dissector.storage.addresses import has_known_scheme, parsed

# A scheme of RFC 3986, section 3.1, and the slash that tells it from a name with a colon. (One
# slash: two of them are one where a path was made of it.)
_ADDRESS: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):/")


def local(text: str) -> str:
    """A path as the user named it; from the root if it could be taken for an address later on, when
    the `./` at its begin is lost; that of a `file:` address.

    Raises:
        UsageError: it is an address of something else.
    """
    match = _ADDRESS.match(text)
    if match is None:
        is_odd = _ADDRESS.match(os.path.normpath(text)) is not None
        return os.path.abspath(text) if is_odd else text
    parts = urlsplit(text.strip())
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    raise UsageError(
        f"{text} is an address, and what is named here lies on this machine: mount it, or copy it "
        "here"
    )


def located(text: str) -> str:
    """An input: a path as `local` gives it, or the address of a store.

    Raises:
        UsageError: it is an address that is not known, or may hold a secret.
    """
    return str(parsed(text)) if has_known_scheme(text) else local(text)


def is_utf8(text: str) -> bool:
    """Whether a name or argument of the system has no bytes that are not UTF-8."""
    return not any("\udc80" <= one <= "\udcff" for one in text)


def typed(name: str) -> str:
    """The name of a file as an argument in a shell; what is not printable stands as its bytes."""
    if name.startswith("-"):  # else it would be an option
        name = f"./{name}"
    if name.isprintable():
        return shlex.quote(name)
    letters = (one if one.isprintable() and one not in "\\'" else _bytes_of(one) for one in name)
    return f"$'{''.join(letters)}'"


def _bytes_of(letter: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))
