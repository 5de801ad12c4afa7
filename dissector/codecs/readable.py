"""Names of files and interfaces in the letters that ids are made of: a to z, 0 to 9, _, -.

Letters and digits of ASCII stay, in lower case; its other characters become hyphens, one each.
Letters of other scripts are written as one reads them where the standard library or a small table
here knows how (Latin with marks, Greek, Cyrillic, kana, Hangul); any other is its code point, which
can be looked up: `u591c`.
"""
# ruff: noqa: RUF001

import re
import unicodedata
from typing import Final

LONGEST_NAME: Final = 160  # folders are named by it, which file systems bound at 255 bytes

_NOT_PLAIN: Final = re.compile(r"[^a-z0-9_-]")
# Names of characters that say how they are read.
_SPOKEN: Final = re.compile(
    r"(?:HANGUL SYLLABLE|(?:HIRAGANA|KATAKANA) LETTER(?: SMALL)?|LATIN SMALL LETTER) ([A-Z]{1,7})"
    r"(?: WITH .*)?"
)
_SIGNS: Final = ("LETTER", "SOFT", "DOTLESS", "TURNED", "REVERSED", "OPEN", "SMALL", "LONG")
# Each letter with how it is written here.
_CYRILLIC: Final = (
    "аa бb вv гg дd еe жzh зz иi йj кk лl мm нn оo пp рr сs тt уu фf хkh цts чch шsh щshch "
    "ъ ыy ь эe юyu яya ёyo ђdj єye ѕdz іi їyi јj љlj њnj ћc ќkj ўu џdz ґg ѓgj "
)
_GREEK: Final = "αa βb γg δd εe ζz ηi θth ιi κk λl μm νn ξx οo πp ρr σs ςs τt υy φf χch ψps ωo "
_KNOWN: Final = {pair[0]: pair[1:] for pair in (_CYRILLIC + _GREEK).split()}
_SEPARATING: Final = "ZPC"  # blanks, punctuation, and what cannot be printed
_APART: Final = "\0"  # behind a code point: a hyphen if a letter or digit follows


def plain_letters(text: str) -> str:
    """A name in plain letters, LONGEST_NAME at most; one that is plain already stays as it is."""
    plain = ""
    for character in unicodedata.normalize("NFKC", text.casefold()):
        if character.isascii():
            # A code point's hyphen is enough before a point or a blank.
            is_apart = plain.endswith(_APART) and not character.isalnum()
            plain = plain.rstrip(_APART) if is_apart else plain.replace(_APART, "-")
            plain += _NOT_PLAIN.sub("-", character)
        elif unicodedata.category(character)[0] != "M":
            plain = _with_foreign(plain, character)
    return plain.rstrip(_APART).replace(_APART, "-")[:LONGEST_NAME]


def _with_foreign(plain: str, character: str) -> str:
    """A name and a character that is not ASCII."""
    if unicodedata.category(character)[0] in _SEPARATING:
        return plain if plain.endswith(("-", _APART)) else plain + "-"
    letters = _letters(character)
    if letters is not None:
        return plain.replace(_APART, "-") + letters
    begun = plain.replace(_APART, "-")
    is_apart = not begun or begun.endswith("-")
    return f"{begun}{'' if is_apart else '-'}u{ord(character):x}{_APART}"


def _letters(character: str) -> str | None:
    """How a character is read, None if nothing here says so."""
    spoken = _SPOKEN.fullmatch(unicodedata.name(character, ""))
    if spoken and spoken[1] not in _SIGNS:
        return spoken[1].lower()
    plain = unicodedata.normalize("NFKD", character)[0]
    return plain if plain.isascii() and plain.isalnum() else _KNOWN.get(plain)
