"""Bounds the length of texts from the wire; a cut text ends with the number of bytes removed."""

from dissector.limits import MAX_DETAIL_TEXT


def bounded(text: bytes, length: int | None = None) -> bytes:
    """Return a text, or its beginning and the number of bytes removed.

    Args:
        length: of the whole text, where `text` is only its beginning.
    """
    whole = len(text) if length is None else length
    if whole <= MAX_DETAIL_TEXT:
        return text
    kept = MAX_DETAIL_TEXT - _begun(text[:MAX_DETAIL_TEXT])
    return text[:kept] + b"<%d more>" % (whole - kept)


def _begun(text: bytes) -> int:
    """Bytes at the end of a text that are the beginning of a longer UTF-8 character."""
    for back in range(1, min(4, len(text)) + 1):
        lead = text[-back]
        if lead & 0xC0 != 0x80:  # no continuation
            size = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return back if size > back else 0
    return 0
