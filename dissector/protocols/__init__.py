"""The protocols that are decoded: a closed list, in the order in which content is tried.

A protocol is a folder of its name whose module `spec` has a ProtocolSpec. The module is imported on
first use; PROTOCOL_NAMES needs no import.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dissector.protocols.interface import ProtocolSpec, Specs

    PROTOCOLS: Specs

PROTOCOL_NAMES: Final = ("pulsar", "cursus")
# Protocols whose consumers grant permits and whose frames have checksums.
GRANTING: Final = frozenset(("pulsar",))


@cache
def _specs() -> "dict[str, ProtocolSpec]":
    return {name: import_module(f"{__name__}.{name}.spec").SPEC for name in PROTOCOL_NAMES}


def spec_of(name: str | None) -> "ProtocolSpec | None":
    """The protocol of a name; None for an unknown name."""
    return _specs().get(name or "")


def __getattr__(name: str) -> Any:
    """PROTOCOLS, on first use, as it imports all of them."""
    if name == "PROTOCOLS":
        return tuple(_specs().values())
    raise AttributeError(name)
