"""What names a place on this machine, and what is the address of one elsewhere.

Everything is read and written through the file system. `s3a://bucket/lake` would be a folder `s3a:`
there, made without a word in the folder of the run; so it is refused wherever a file is named.
"""

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from dissector.errors import UsageError

# A scheme of RFC 3986, section 3.1, and the slash that tells it from a name with a colon. (One
# slash: two of them are one where a path was made of it.)
_ADDRESS: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):/")


def local(text: str) -> str:
    """A path as the user named it; from the root if it could be taken for an address later on, when
    the `./` at its begin is lost.

    Raises:
        UsageError: it is an address.
    """
    match = _ADDRESS.match(text)
    if match is None:
        is_odd = _ADDRESS.match(os.path.normpath(text)) is not None
        return os.path.abspath(text) if is_odd else text
    instead = "mount it, or copy it here"
    if match[1].lower() == "file":
        instead = f"write {unquote(urlsplit(text.strip()).path)}"
    raise UsageError(
        f"{text} is an address, only paths of this machine are read and written: {instead}"
    )
