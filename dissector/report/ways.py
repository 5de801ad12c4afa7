"""What of the connections was captured: directions, protocols, and frames that were not read.

Frames that were seen but not read: their command is known, what it was about is not. A count of
deliveries would then say less than happened, or nothing at all.
"""

from collections.abc import Iterable

from dissector.protocols import PROTOCOL_NAMES, PROTOCOLS
from dissector.report.numbers import Row, unseen
from dissector.report.parts import Parts


def blind(parts: Parts) -> dict[str, int]:
    """Connections of a known protocol of which a direction is missing, by that direction."""
    read = [row for row in parts.rows("ways") if row["protocol"] in PROTOCOL_NAMES]
    return {way: sum(row[f"without_{way}"] for row in read) for way in ("to_broker", "to_client")}


def is_blind(parts: Parts, way: str) -> bool:
    """Whether nothing of a direction was captured, of any connection of a known protocol.

    What travels in it was not seen then, which is something else than that there was none.
    """
    read = [row for row in parts.rows("ways") if row["protocol"] in PROTOCOL_NAMES]
    connections: int = sum(row["connections"] for row in read)
    return 0 < connections == blind(parts)[way]


def is_without_permits(parts: Parts) -> bool:
    """Whether all that was read is of protocols that have no permits and no checksums."""
    found = {row["protocol"] for row in parts.rows("ways")}
    read = [spec for spec in PROTOCOLS if spec.name in found]
    return bool(read) and not any(spec.grants_permits for spec in read)


def twin_count(parts: Parts) -> int:
    """How many connections are left out because another one carries the same frames."""
    return sum(row["twins"] for row in parts.rows("ways"))


def unread(parts: Parts, *commands: str) -> int:
    """Frames of some commands without a row in the table that they should be in."""
    return sum(row["unread"] for row in parts.rows("unread") if row["command"] in commands)


def with_unread(section: Row, reason: str, count: int, counted: str, keys: Iterable[str]) -> Row:
    """A section whose total tells the frames that were not read; None where none could be.

    Args:
        section: with `total` and lists of the same keys.
        reason: of `count` in not_judged. counted: the number of those that were read.
        keys: what is counted in such frames.
    """
    if not count:
        return section
    total = section["total"]
    total["not_judged"] = dict(sorted((total["not_judged"] | {reason: count}).items()))
    if total[counted]:
        return section
    return section | {"total": unseen(total, *keys)}
