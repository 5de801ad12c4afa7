"""Names from the wire, as sentences and pages show them."""

import unicodedata

from dissector.limits import MAX_SHOWN_NAME


def sentence_text(text: str) -> str:
    """A sentence that may hold names from the wire: what does not print is escaped."""
    return "".join(
        character
        if unicodedata.category(character)[0] not in "CZ" or character == " "
        else f"\\u{ord(character):04x}"
        for character in text
    )


def name_text(name: str) -> str:
    """A name from the wire: what does not print is escaped, what is long is cut in the middle."""
    shown = sentence_text(name)
    if len(shown) <= MAX_SHOWN_NAME:
        return shown
    half = MAX_SHOWN_NAME // 2 - 1
    return f"{shown[:half]}…{shown[-half:]}"
