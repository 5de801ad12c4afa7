"""Escapes names from the wire for sentences and pages."""

import unicodedata

from dissector.limits import MAX_SHOWN_NAME


def sentence_text(text: str) -> str:
    """Escape the unprintable characters of a sentence that may contain names from the wire."""
    return "".join(
        character
        if unicodedata.category(character)[0] not in "CZ" or character == " "
        else f"\\u{ord(character):04x}"
        for character in text
    )


def name_text(name: str) -> str:
    """Escape the unprintable characters of a name from the wire; cut a long name in the middle."""
    shown = sentence_text(name)
    if len(shown) <= MAX_SHOWN_NAME:
        return shown
    half = MAX_SHOWN_NAME // 2 - 1
    return f"{shown[:half]}…{shown[-half:]}"
