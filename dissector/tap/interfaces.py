"""Properties of Linux network interfaces: number, link type, state, receive offload."""

import contextlib
import errno
import fcntl
import re
import socket
import struct
from collections.abc import Sequence
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
_NAME_BYTES: Final = 16  # with the terminating zero
_REQUEST_BYTES: Final = 40

_HARDWARE_ETHERNET: Final = 1
_HARDWARE_LOOPBACK: Final = 772
# Types of interfaces without a link header (tunnels, cellular): packets begin with IP.
_HARDWARE_RAW: Final = (519, 65534)

ANY: Final = "any"  # the user's name for all interfaces

_INTERFACES: Final = Path("/sys/class/net")
_SEE_THEIR_PORTS: Final = ("bridge", "bond")
_LIE_ON_OTHERS: Final = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "vxlan")


class Interface(NamedTuple):
    """One interface.

    number: the kernel's index.
    link_type: the LINKTYPE value of capture files.
    """

    name: str
    number: int
    link_type: int
    is_loopback: bool


class Offload(NamedTuple):
    """Whether received segments are merged before capture: in the kernel, in the network card."""

    generic: bool
    large: bool


def _ask(name: str, request: int, body: bytes = b"") -> bytes:
    """Run an ioctl on an interface; returns the kernel's bytes after the name."""
    if len(name.encode()) >= _NAME_BYTES:
        raise OSError(errno.ENODEV, "no such device")
    packed = struct.pack(f"{_NAME_BYTES}s", name.encode()) + body
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, request, packed.ljust(_REQUEST_BYTES, b"\0"))
    return bytes(answer[_NAME_BYTES:])


def interface_names() -> list[str]:
    """The names of all interfaces."""
    return sorted(name for _, name in socket.if_nameindex())


def find_interface(name: str) -> Interface:
    """Look an interface up.

    Raises:
        UsageError: no interface has this name, or its link type is not supported.
    """
    try:
        index = socket.if_nametoindex(name)
        (hardware,) = struct.unpack_from("H", _ask(name, _SIOCGIFHWADDR))
    except OSError:
        known = ", ".join(interface_names())
        raise UsageError(f"-i {name}: there is no such interface; there are {known}") from None
    if hardware in (_HARDWARE_ETHERNET, _HARDWARE_LOOPBACK):
        return Interface(name, index, ETHERNET, hardware == _HARDWARE_LOOPBACK)
    if hardware in _HARDWARE_RAW:
        return Interface(name, index, RAW, False)
    raise UsageError(f"{name}: packets of hardware type {hardware} are not read")


def chosen(names: Sequence[str]) -> list[Interface]:
    """The interfaces that a user names, each once. `any` means all that are up now, without
    loopback and without those whose packets another one also passes.

    Raises:
        UsageError: a name is unknown, or `any` matches none.
    """
    interfaces: dict[str, Interface] = {}
    for name in names:
        if name != ANY:
            interfaces[name] = find_interface(name)
            continue
        for each in interface_names():
            with contextlib.suppress(UsageError):
                interface = find_interface(each)
                if not interface.is_loopback and is_up(each) and not is_seen_elsewhere(each):
                    interfaces[each] = interface
    if not interfaces:
        known = ", ".join(interface_names())
        raise UsageError(f"-i any: no interface is up; there are {known}")
    return list(interfaces.values())


def is_seen_elsewhere(name: str, folder: Path = _INTERFACES) -> bool:
    """Whether each packet of an interface also passes another one.

    The packets of a bridge or bond also pass its ports; those of a VLAN's interface also pass the
    interface below it, with their tags.

    Args:
        folder: the kernel's description of its interfaces.
    """
    master = folder / name / "master"
    if master.exists() and is_up(master.resolve().name) and _kind(master) in _SEE_THEIR_PORTS:
        return True
    return _kind(folder / name) in _LIE_ON_OTHERS and any((folder / name).glob("lower_*"))


def _kind(interface: Path) -> str:
    """The kernel's type name of an interface; empty for plain ones."""
    try:
        text = (interface / "uevent").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    match = re.search(r"^DEVTYPE=(.*)$", text, re.MULTILINE)
    return match[1] if match else ""


def is_up(name: str) -> bool:
    """Whether an interface exists and can pass packets."""
    try:
        (flags,) = struct.unpack_from("H", _ask(name, _SIOCGIFFLAGS))
    except OSError:
        return False
    return bool(flags & _IFF_UP and flags & _IFF_RUNNING)


def _ethtool(name: str, command: int) -> int:
    """A value from the driver; 0 if it does not support the command."""
    import ctypes

    value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
    try:
        _ask(name, _SIOCETHTOOL, struct.pack("P", ctypes.addressof(value)))
    except OSError:
        return 0
    return int(struct.unpack("II", value.raw)[1])


def receive_offload(name: str) -> Offload:
    """Whether an interface delivers segments larger than the wire's, by kind of offload."""
    generic = _ethtool(name, _ETHTOOL_GGRO) != 0
    return Offload(generic, bool(_ethtool(name, _ETHTOOL_GFLAGS) & _FLAG_LRO))
