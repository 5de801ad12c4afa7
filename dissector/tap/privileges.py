"""Drops all capabilities of root except the one to open packet sockets."""

import ctypes
import struct
from typing import Final

CAP_NET_RAW: Final = 13

_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_AMBIENT_CLEAR_ALL: Final = 4
_VERSION_3: Final = 0x20080522
_LAST: Final = 63


def held() -> int:
    """The capabilities in effect, one bit each."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    return 0


def drop_all_but_capturing() -> bool:
    """Drop all capabilities but CAP_NET_RAW for good, also for later threads.

    Call it before threads start, because capabilities belong to threads. Files are then written
    with the plain permissions of the user, even if that is root.

    Returns:
        Whether anything was dropped.
    """
    before = held()
    keep = before & 1 << CAP_NET_RAW
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    library.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    if before == keep:
        return False
    for number in range(_LAST + 1):
        if not keep >> number & 1:
            library.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("Ii", _VERSION_3, 0)
    low, high = keep & 0xFFFF_FFFF, keep >> 32
    sets = struct.pack("6I", low, low, 0, high, high, 0)
    return int(library.capset(header, sets)) == 0
