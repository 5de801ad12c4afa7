"""Packet filters for the kernel, in classic BPF.

An instruction is (code, jump if true, jump if false, constant). This module builds programs that
exclude the tap's own traffic, and plain port filters. Other expressions are compiled by libpcap,
from the system or from a Python package.
"""

import ctypes
import ctypes.util
import importlib.util
import platform
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.errors import DependencyError, UsageError

MAX_BYTES: Final = 0x40000  # of a packet that are captured: all

_LOAD_WORD: Final = 0x20
_LOAD_HALF: Final = 0x28
_LOAD_BYTE: Final = 0x30
_LOAD_HALF_AT_X: Final = 0x48
_TO_X: Final = 0x07
_AND: Final = 0x54
_SHIFT_LEFT: Final = 0x64
_IF_EQUAL: Final = 0x15
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

# Offsets of the kernel's metadata of a packet, and of its network header.
_BESIDE: Final = 0xFFFF_F000
_PROTOCOL: Final = _BESIDE
_PACKET_TYPE: Final = _BESIDE + 4
_TAG_PRESENT: Final = _BESIDE + 48
_NETWORK: Final = 0xFFF0_0000

_TO_HOST: Final = 0
_OUTGOING: Final = 4
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
_TAGGED: Final = (0x8100, 0x88A8, 0x9100)
_TCP: Final = 6
_IPV6_BYTES: Final = 40
_FRAGMENT_OFFSET: Final = 0x1FFF

_PORTS: Final = re.compile(r"tcp port (\d+)(?: or (?:tcp )?(?:port )?(\d+))*")
_LARGEST_PORT: Final = 0xFFFF
_SO_ATTACH_FILTER: Final = 26
_ERROR_BYTES: Final = 256
_BSD_LIBRARY: Final = "_platform/linux/{}/tcpdump/libpcap.so"


class Instruction(NamedTuple):
    """One instruction. Jumps are relative to the next one, in instructions."""

    code: int
    if_true: int
    if_false: int
    constant: int


Program = tuple[Instruction, ...]

ALL: Final[Program] = (Instruction(_RETURN, 0, 0, MAX_BYTES),)
NOTHING: Final[Program] = (Instruction(_RETURN, 0, 0, 0),)


class _Writer:
    """Assembles instructions; jump targets are labels until all positions are known."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, str, str, int]] = []
        self._labels: dict[str, int] = {}

    def add(self, code: int, constant: int, if_true: str = "", if_false: str = "") -> None:
        """Append an instruction; an empty target is the next instruction."""
        self._steps.append((code, if_true, if_false, constant))

    def mark(self, name: str) -> None:
        """Set the label of the next instruction."""
        self._labels[name] = len(self._steps)

    def program(self) -> Program:
        """The instructions with resolved jumps."""
        return tuple(
            Instruction(code, self._jump(at, yes), self._jump(at, no), constant)
            for at, (code, yes, no, constant) in enumerate(self._steps)
        )

    def _jump(self, at: int, name: str) -> int:
        return self._labels[name] - at - 1 if name else 0


def _tcp_ports(writer: _Writer, ports: Sequence[int], wanted: str, other: str) -> None:
    """Jump to `wanted` for TCP packets from or to one of these ports, else to `other`.

    Later fragments have no ports; IPv6 extension headers are not parsed.
    """
    writer.add(_LOAD_HALF, _PROTOCOL)
    writer.add(_IF_EQUAL, _IPV4, "ipv4", "")
    writer.add(_IF_EQUAL, _IPV6, "ipv6", other)
    writer.mark("ipv4")
    writer.add(_LOAD_BYTE, _NETWORK + 9)
    writer.add(_IF_EQUAL, _TCP, "", other)
    writer.add(_LOAD_HALF, _NETWORK + 6)
    writer.add(_IF_ANY_BIT, _FRAGMENT_OFFSET, other, "")
    writer.add(_LOAD_BYTE, _NETWORK)
    writer.add(_AND, 0xF)
    writer.add(_SHIFT_LEFT, 2)
    writer.add(_TO_X, 0)
    for offset in (0, 2):
        writer.add(_LOAD_HALF_AT_X, _NETWORK + offset)
        for port in ports:
            writer.add(_IF_EQUAL, port, wanted, "")
    writer.add(_IF_EQUAL, 1 << 16, other, other)  # never equal: an unconditional jump
    writer.mark("ipv6")
    writer.add(_LOAD_BYTE, _NETWORK + 6)
    writer.add(_IF_EQUAL, _TCP, "", other)
    for offset in (0, 2):
        writer.add(_LOAD_HALF, _NETWORK + _IPV6_BYTES + offset)
        for port in ports:
            writer.add(_IF_EQUAL, port, wanted, "")
    writer.add(_IF_EQUAL, 1 << 16, other, other)


def without_own(port: int, program: Program = ALL) -> Program:
    """A program that drops this host's own packets of a TCP port, then runs another program.

    Mirrored packets are neither from nor to this host, so the same port of other hosts passes.
    """
    writer = _Writer()
    writer.add(_LOAD_WORD, _PACKET_TYPE)
    writer.add(_IF_EQUAL, _TO_HOST, "own", "")
    writer.add(_IF_EQUAL, _OUTGOING, "own", "others")
    writer.mark("own")
    _tcp_ports(writer, [port], "drop", "others")
    writer.mark("drop")
    writer.add(_RETURN, 0)
    writer.mark("others")
    for step in program:
        writer.add(step.code, step.constant)
    steps = writer.program()
    return steps[: -len(program)] + program


def of_ports(ports: Sequence[int]) -> Program:
    """A program that passes TCP packets of these ports, also with a VLAN tag.

    The kernel may strip the tag from the packet, so the ports stay visible; a packet with a second
    tag inside passes unchecked.
    """
    writer = _Writer()
    writer.add(_LOAD_HALF, _PROTOCOL)
    for tag in _TAGGED:
        writer.add(_IF_EQUAL, tag, "pass", "")
    _tcp_ports(writer, ports, "pass", "drop")
    writer.mark("pass")
    writer.add(_RETURN, MAX_BYTES)
    writer.mark("drop")
    writer.add(_RETURN, 0)
    return writer.program()


def of_tagged() -> Program:
    """A program that passes packets with a VLAN tag."""
    writer = _Writer()
    writer.add(_LOAD_BYTE, _TAG_PRESENT)
    writer.add(_IF_EQUAL, 0, "", "pass")
    writer.add(_LOAD_HALF, _PROTOCOL)
    for tag in _TAGGED:
        writer.add(_IF_EQUAL, tag, "pass", "")
    writer.add(_RETURN, 0)
    writer.mark("pass")
    writer.add(_RETURN, MAX_BYTES)
    return writer.program()


def attachment(program: Program) -> tuple[int, bytes, Any]:
    """The arguments of setsockopt: option, value, and a buffer that must outlive the call."""
    packed = b"".join(struct.pack("HBBI", *step) for step in program)
    steps = ctypes.create_string_buffer(packed, len(packed))
    return _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(steps)), steps


def compiled(expression: str, interface: str | None, link_type: int) -> Program:
    """Compile an expression of pcap-filter(7).

    Args:
        interface: of a live capture; tells libpcap that the kernel strips VLAN tags.

    Raises:
        UsageError: the expression is invalid.
        DependencyError: libpcap is needed but not installed.
    """
    text = " ".join(expression.split())
    if not text:
        return ALL
    if _PORTS.fullmatch(text):
        ports = [int(port) for port in re.findall(r"\d+", text)]
        if max(ports) > _LARGEST_PORT:
            raise UsageError(f"--bpf {text!r}: there is no port {max(ports)}")
        return of_ports(ports)
    return _Libpcap(_load_libpcap()).compile(text, interface, link_type)


# -- libpcap


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("constant", ctypes.c_uint),
    )


class _Compiled(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("steps", ctypes.POINTER(_Instruction)))


def _candidates() -> Iterator[str]:
    """Paths of libpcap: the system's, or inside the Python package of this name."""
    path = ctypes.util.find_library("pcap")
    if path:
        yield path
    yield "libpcap.so.0.8"
    yield "libpcap.so.1"
    package = importlib.util.find_spec("libpcap")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield str(Path(folder) / _BSD_LIBRARY.format(platform.machine()))


def _load_libpcap() -> ctypes.CDLL:
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise DependencyError(
        "--bpf with more than `tcp port N or N` needs libpcap: pip install 'pulsar-dissector[tap]',"
        " or the package libpcap0.8 of the system"
    )


class _Libpcap:
    """The functions of libpcap that compile an expression."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("pcap_create", "pcap_open_dead"):
            getattr(library, name).restype = ctypes.c_void_p
        library.pcap_geterr.restype = ctypes.c_char_p

    def compile(self, text: str, interface: str | None, link_type: int) -> Program:
        handle = self._live(interface) or self._dead(link_type)
        result = _Compiled()
        call: Callable[..., int] = self._library.pcap_compile
        try:
            failed = call(handle, ctypes.byref(result), text.encode(), 1, ctypes.c_uint(0xFFFFFFFF))
            if failed:
                reason = self._library.pcap_geterr(handle).decode(errors="replace")
                raise UsageError(f"--bpf {text!r}: {reason}")
            steps = tuple(
                Instruction(each.code, each.if_true, each.if_false, each.constant)
                for each in (result.steps[index] for index in range(result.length))
            )
            self._library.pcap_freecode(ctypes.byref(result))
        finally:
            self._library.pcap_close(handle)
        return steps

    def _dead(self, link_type: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._library.pcap_open_dead(link_type, MAX_BYTES))

    def _live(self, interface: str | None) -> ctypes.c_void_p | None:
        """A handle on a live interface; None without the right to open it."""
        if interface is None:
            return None
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        handle = ctypes.c_void_p(self._library.pcap_create(interface.encode(), error))
        if not handle:
            return None
        if self._library.pcap_activate(handle) < 0:
            self._library.pcap_close(handle)
            return None
        return handle
