"""Texts of any length from the wire, bounded: what was cut off is said where it stood."""

from dissector.limits import MAX_DETAIL_TEXT


def bounded(text: bytes, length: int | None = None) -> bytes:
    """A text, or its beginning and how many bytes more there were.

    Args:
        length: of the whole text, where `text` is only its beginning.
    """
    whole = len(text) if length is None else length
    if whole <= MAX_DETAIL_TEXT:
        return text
    kept = MAX_DETAIL_TEXT
    # Not in the middle of a character.
    while kept > MAX_DETAIL_TEXT - 4 and text[kept - 1 : kept] >= b"\x80":
        kept -= 1
    return text[:kept] + b"<%d more>" % (whole - kept)
