"""How strictly headers are judged, one level above the other."""

from typing import Final

CHAINED: Final = 0  # it follows a frame: any body passes
STRICT: Final = 1  # of a chain that is searched, or the first of a connection: its body dispatches
FIRST: Final = 2  # a chain may begin with it: it says something
OWN: Final = 3  # it says what only its protocol does
INSIDE: Final = 4  # a chain may begin with it inside a packet: no payload says so by chance
ALONE: Final = 5  # it is hard to mistake, and alone tells the protocol
