"""Network interfaces as Linux tells of them: number, link type, state, receive offload."""

import errno
import fcntl
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

from dissector.errors import UsageError
from dissector.packet.link import ETHERNET, RAW

_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFHWADDR: Final = 0x8927
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_GGRO: Final = 0x2B
_ETHTOOL_GFLAGS: Final = 0x25
_FLAG_LRO: Final = 1 << 15
_IFF_UP: Final = 1
_IFF_RUNNING: Final = 1 << 6
_NAME_BYTES: Final = 16  # with the zero at the end
_REQUEST_BYTES: Final = 40

_HARDWARE_ETHERNET: Final = 1
_HARDWARE_LOOPBACK: Final = 772
# Interfaces whose packets begin with IP: tunnels, cellular.
_HARDWARE_RAW: Final = (519, 65534)


class Interface(NamedTuple):
    """One interface. number: the kernel's; link_type: as in captures."""

    name: str
    number: int
    link_type: int
    is_loopback: bool


class Offload(NamedTuple):
    """What joins received segments before anyone sees them: in the kernel, in the card."""

    generic: bool
    large: bool


def _ask(name: str, request: int, body: bytes = b"") -> bytes:
    """One ioctl about an interface; gives what the kernel wrote behind the name."""
    if len(name.encode()) >= _NAME_BYTES:
        raise OSError(errno.ENODEV, "no such device")
    packed = struct.pack(f"{_NAME_BYTES}s", name.encode()) + body
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, request, packed.ljust(_REQUEST_BYTES, b"\0"))
    return bytes(answer[_NAME_BYTES:])


def interface_names() -> list[str]:
    """The interfaces that there are."""
    return sorted(name for _, name in socket.if_nameindex())


def find_interface(name: str) -> Interface:
    """Look an interface up.

    Raises:
        UsageError: there is none of this name, or its packets are of a kind that is not read.
    """
    if name == "any":
        known = " ".join(f"-i {each}" for each in interface_names() if is_up(each))
        raise UsageError(
            f"any: a tap reads the interfaces that it is told, each with an -i of its own: {known}"
        )
    try:
        index = socket.if_nametoindex(name)
        (hardware,) = struct.unpack_from("H", _ask(name, _SIOCGIFHWADDR))
    except OSError:
        known = ", ".join(interface_names())
        raise UsageError(f"{name}: there is no such interface; there are {known}") from None
    if hardware in (_HARDWARE_ETHERNET, _HARDWARE_LOOPBACK):
        return Interface(name, index, ETHERNET, hardware == _HARDWARE_LOOPBACK)
    if hardware in _HARDWARE_RAW:
        return Interface(name, index, RAW, False)
    raise UsageError(f"{name}: packets of hardware type {hardware} are not read")


def is_up(name: str) -> bool:
    """Whether an interface is there and can pass packets."""
    try:
        (flags,) = struct.unpack_from("H", _ask(name, _SIOCGIFFLAGS))
    except OSError:
        return False
    return bool(flags & _IFF_UP and flags & _IFF_RUNNING)


def _ethtool(name: str, command: int) -> int:
    """One number that the driver tells; 0 where it cannot say."""
    import ctypes

    value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
    try:
        _ask(name, _SIOCETHTOOL, struct.pack("P", ctypes.addressof(value)))
    except OSError:
        return 0
    return int(struct.unpack("II", value.raw)[1])


def receive_offload(name: str) -> Offload:
    """Whether an interface hands up segments larger than what was on the wire."""
    generic = _ethtool(name, _ETHTOOL_GGRO) != 0
    return Offload(generic, bool(_ethtool(name, _ETHTOOL_GFLAGS) & _FLAG_LRO))


def mtu_of(name: str) -> int | None:
    """The largest packet of an interface, None where the system does not say."""
    try:
        return int(Path(f"/sys/class/net/{name}/mtu").read_text())
    except (OSError, ValueError):
        return None
