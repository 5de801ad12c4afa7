"""Options of a dissection; each one is declared only here.

Fields with a help text become flags of the command line (`dissector/cli/options`); the core reads
the values, and manifests store them. This module does not import numpy.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from dissector import limits
from dissector.native.entropy import random_number

# Commands that have a flag: all that read captures, or only those that write a lake.
READING: Final = "reading"
LANDING: Final = "landing"

OVERLAPS: Final = ("first", "last", "linux", "windows")


def _flag(default: Any, help_text: str, commands: str = READING, **more: Any) -> Any:
    """An option with a flag. more: metavar; bounds of a number; words that may be chosen."""
    return field(default=default, metadata={"help": help_text, "commands": commands, **more})


@dataclass(frozen=True)
class Options:
    """What a user may choose; defaults are in `dissector.limits`.

    decode_as: protocol name by port.
    protocol: `auto`, or the protocol of every connection.
    want_detail: `none`, `rare` or `all` frames get decoded fields as JSON text.
    follow_connection: a connection whose bytes are output as rows.
    max_packets: the capture ends after so many packets.
    want_clients: output blocks `clients` before those of `frames`: the client of each connection.
    hash_key: of hash tables, new for each run (`codecs.keyed_hash`); no row depends on it, and it
        is never written.
    """

    decode_as: Mapping[int, str] = field(
        default_factory=dict,
        metadata={
            "help": "Read this port as PROTOCOL in any case. Repeatable.",
            "commands": READING,
            "metavar": "PORT=PROTOCOL",
        },
    )
    protocol: str = _flag("auto", "Recognise the protocol, or read everything as this one.")
    redact: bool = _flag(True, "Hide tokens and passwords, or show them.")
    max_frame_bytes: int = _flag(
        limits.MAX_FRAME_BYTES, "Treat longer frames as damage.", metavar="SIZE"
    )
    reorder_window_ms: int = _flag(
        limits.REORDER_WINDOW_MS,
        "Wait this long for late packets, capture time.",
        metavar="MS",
        bounds=(0, 3_600_000),
    )
    memory_limit: int | None = _flag(
        None, "Limit state, to stay near this much memory.  [default: none]", metavar="SIZE"
    )
    overlap: str = _flag(
        "first",
        "Choose which of two contradicting bytes wins.",
        words=OVERLAPS,
    )
    verify_checksums: bool = _flag(False, "Drop packets with a wrong IP or TCP checksum.")
    keylog: str | None = _flag(
        None,
        "Decrypt TLS with the secrets of this key log.  [default: $SSLKEYLOGFILE]",
        metavar="FILE",
    )
    properties: bool = _flag(False, "Keep the properties of messages.", LANDING)
    payload_sha256: bool = _flag(False, "Keep a SHA-256 of each payload.", LANDING)
    max_packets: int | None = _flag(
        None,
        "End each capture after N packets; it gets an id of its own.",
        LANDING,
        metavar="N",
        bounds=(1, 1 << 62),
    )
    want_detail: str = "rare"
    follow_connection: int | None = None
    want_clients: bool = False
    hash_key: int = field(
        default_factory=partial(random_number, limits.HASH_KEY_BITS), repr=False, compare=False
    )

    def bounded(self, rows: int) -> int:
        """A bound of `limits` on rows of state, smaller where memory is limited: in proportion.

        It follows from the options alone, so that the same bytes give the same rows.
        """
        if self.memory_limit is None:
            return rows
        left = max(0, self.memory_limit - limits.LEAST_MEMORY_BYTES)
        return max(min(rows, limits.LEAST_STATE_ROWS), min(rows, rows * left // limits.STATE_BYTES))

    def as_json(self) -> dict[str, Any]:
        """The options that decide what the rows are, for a manifest."""
        fields = dataclasses.asdict(self)
        # Secrets say what of the rows can be there; whose file they were in does not.
        del fields["hash_key"], fields["want_clients"], fields["keylog"]
        fields["decode_as"] = {str(port): name for port, name in sorted(self.decode_as.items())}
        return fields


def flags(commands: str) -> list["dataclasses.Field[Any]"]:
    """The options that have a flag in these commands, READING or LANDING, in --help's order."""
    every = dataclasses.fields(Options)
    return [each for each in every if each.metadata.get("commands") == commands]
