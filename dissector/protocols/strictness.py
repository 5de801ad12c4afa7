"""Levels of strictness of the header check, in rising order."""

from typing import Final

CHAINED: Final = 0  # follows a frame: any body passes
STRICT: Final = 1  # in a searched chain, or first of a connection: its command and body must match
FIRST: Final = 2  # may begin a chain: its body is neither empty nor free text
OWN: Final = 3  # has content that only its protocol has
INSIDE: Final = 4  # may begin a chain inside a packet: no payload contains it by chance
ALONE: Final = 5  # unmistakable: identifies the protocol alone
