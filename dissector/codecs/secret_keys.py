"""Secrets by the key before them: in pairs, members of JSON, headers, elements, options.

All works on bytes; what is found is where the value lies.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from dissector.codecs.secret_vocabulary import HARMLESS, ORDINARY, SECRET, SECRET_ENDS, SECRET_PAIRS

Span = tuple[int, int]

_LONGEST_NAME: Final = 64
_HEADERS: Final = ("authorization", "cookie", "proxy-authorization", "set-cookie", "x-auth-token")
_ENCODED_QUOTE: Final = rb"%(?:25)*+22|&quot;|&#34;|\\++u0022"
# Behind an end of line a value goes on, unless a pair of its own begins there. A `=` at the end of
# a word, or two of them, are of base64.
_NO_NEW_PAIR: Final = (
    rb"(?=\S)(?!\\*[\"']?[\w.$-]{1,64}+\\*[\"']?[ \t]{0,4}(?:=(?![=\s]|\Z)|:(?=\s|\Z)))"
)
# A key, with all that may stand between it and its value.
_NAMED: Final = re.compile(
    rb"(?<![\w.$\x80-\xff-])(?P<name>[\w.$\x80-\xff-]++)(?P<end>"
    + _ENCODED_QUOTE
    + rb"|\\*+[\"']?+)(?P<blank>[ \t]{0,8}+)(?P<sign>[=-]>|:=|[=:]|%(?:25)*+3[dDaA])"
    rb"(?P<gap>(?:[ \t]|%(?:25)*+20){0,8}+(?:\r?+\n[ \t]{0,8}+" + _NO_NEW_PAIR + rb")?+)"
    rb"(?:" + _ENCODED_QUOTE + rb")?+"
)
_FLAG: Final = re.compile(rb"(?<![\w-])--?(?P<name>[a-zA-Z][\w-]{0,60}+)[ \t]{1,4}+(?=[^\s-])")
_ELEMENT: Final = re.compile(rb"<(?P<name>[\w:.-]{1,64}+)(?:\s[^<>]{0,256}+)?+>(?P<value>[^<]++)")
# A key and a value that are values themselves: {"name": "password", "value": "x"}.
_MEMBERS: Final = re.compile(
    rb"(?i)\b(?:name|key|field|header)\\*+[\"']?+\s{0,4}+[=:]\s{0,4}+\\*+[\"']"
    rb"(?P<name>[\w.$-]{1,64}+)\\*+[\"'][\s,]{0,8}+\\*+[\"']?+value\\*+[\"']?+\s{0,4}+[=:]\s{0,4}+"
)
_PAIR: Final = re.compile(rb"\x0a(?P<size>[\x02-\x40])(?=[\w.$ -]{2})")
_NEXT_PAIR: Final = rb"(?!\s{0,4}\\*[\"']?[\w.$-]{1,64}+\\*[\"']?\s{0,4}[=:])"
# A value without quotes ends at a blank, at a control byte, or where the next pair begins.
_PLAIN: Final = re.compile(
    rb"(?:[^\s\"&,;<\\\x00-\x1f\x7f]|\"(?![\s,;:}\])>\\]|\Z)|[&,;]" + _NEXT_PAIR + rb"|<(?!/)"
    rb"|\\(?!\\*\"))*+"
)
_QUOTE: Final = re.compile(rb"(\\*+)([\"'])")
_QUOTES: Final = {b'"': re.compile(rb"(\\*+)\""), b"'": re.compile(rb"(\\*+)'")}
_BRACKETS: Final = re.compile(rb"[\[\]{}]")
_LINE: Final = re.compile(rb"(?:[^\r\n\\\x00]|\\(?![rn]))*+")
_SCHEME_WORD: Final = re.compile(
    rb"(?i)(?:bearer|basic|digest|negotiate|ntlm|token|apikey)[ \t]++(?=\S)"
)
WORD: Final = re.compile(rb"[A-Z]?[a-z]{1,24}|[A-Z]{1,24}")
_WORD_BEFORE: Final = re.compile(rb"([A-Za-z]{2,16})[ _]\Z")
_SECOND_WORDS: Final = frozenset(second.encode() for _, second in SECRET_PAIRS)
# Of letters in any script; only those of ASCII tell by their case where a word begins.
_PARTS: Final = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+")


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether a key means a secret: password, authToken, x-api-key; not tokenCount, pinned."""
    parts = [part.lower() for part in _PARTS.findall(name[-_LONGEST_NAME:])]
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else ""
        is_pair = (part, following) in SECRET_PAIRS
        if is_pair or part in SECRET or part.endswith(SECRET_ENDS):
            behind = parts[index + 1 + is_pair :]
            if not behind or behind[-1] not in HARMLESS:
                return True
    return False


def _name_of(data: bytes, start: int, end: int) -> str:
    """A key, with the word before it where the two are one: `api key`."""
    name = data[max(start, end - _LONGEST_NAME) : end]
    if name.lower() in _SECOND_WORDS:
        before = _WORD_BEFORE.search(data, max(0, start - 18), start)
        if before is not None:
            name = before[1] + b" " + name
    return name.decode("utf-8", "replace")


def _by_key(data: bytes) -> Iterator[Span]:
    position = 0
    for match in _NAMED.finditer(data):
        start, end = match.span("name")
        if start < position or not is_secret(name := _name_of(data, start, end)):
            continue
        is_colon = match["sign"] == b":"
        is_prose = is_colon and not match["end"] and bool(match["gap"])
        for span in _value(data, match.end(), name, is_prose, is_colon):
            position = max(position, span[1])
            yield span


def _value(data: bytes, at: int, name: str, is_prose: bool, is_colon: bool) -> Iterator[Span]:
    """The value of a key that means a secret."""
    quote = _QUOTE.match(data, at)
    if quote is not None:
        yield quote.end(), _end_of_quoted(data, quote.end(), len(quote[1]), quote[2])
        return
    if data[at : at + 1] in (b"[", b"{"):
        yield at, _end_of_group(data, at)
        return
    if is_colon and name.lower().endswith(_HEADERS):
        line = _LINE.match(data, at)
        assert line is not None, "it may be empty"
        yield line.span()
        return
    scheme = _SCHEME_WORD.match(data, at)
    plain = _PLAIN.match(data, at if scheme is None else scheme.end())
    assert plain is not None, "it may be empty"
    if is_prose and scheme is None and is_ordinary(data, *plain.span()):
        return
    if plain[0].lower() not in (b"null", b"true", b"false", b"none", b"nil"):
        yield at if scheme is None else plain.start(), plain.end()


def _end_of_quoted(data: bytes, at: int, depth: int, quote: bytes) -> int:
    """Where a text in quotes ends: at a quote as often escaped as the first one was."""
    for match in _QUOTES[quote].finditer(data, at):
        escapes = len(match[1])
        is_end = escapes < depth or escapes % (2 * depth + 2) == depth
        if is_end and (quote == b'"' or data[match.end() : match.end() + 1] not in _LETTERS):
            return match.start() if depth or not escapes else match.end() - 1
    return len(data)


_LETTERS: Final = frozenset(bytes([letter]) for letter in range(256) if chr(letter).isalnum())


def _end_of_group(data: bytes, at: int) -> int:
    """Where a list or an object ends."""
    depth = 0
    for match in _BRACKETS.finditer(data, at):
        depth += 1 if match[0] in b"[{" else -1
        if depth == 0:
            return match.end()
    return len(data)


def is_ordinary(data: bytes, start: int, end: int) -> bool:
    """Whether a word behind `token: ` is one of a sentence and no token."""
    value = data[start:end].rstrip(b".,;:!?)]'")
    if value.lower() in ORDINARY:
        return True
    goes_on = re.match(rb" [a-z]{2}", data[end : end + 3]) is not None
    return goes_on and WORD.fullmatch(value) is not None


def _by_flag(data: bytes) -> Iterator[Span]:
    if b"-" not in data:
        return
    for match in _FLAG.finditer(data):
        if is_secret(match["name"].decode("latin-1")):
            yield from _value(data, match.end(), "", False, False)


def _by_element(data: bytes) -> Iterator[Span]:
    if b"</" not in data:
        return
    for match in _ELEMENT.finditer(data):
        if is_secret(match["name"].decode("latin-1")):
            yield match.span("value")


def _by_members(data: bytes) -> Iterator[Span]:
    if b"value" not in data.lower():
        return
    for match in _MEMBERS.finditer(data):
        if is_secret(match["name"].decode("latin-1")):
            yield from _value(data, match.end(), "", False, False)


def _by_pair(data: bytes) -> Iterator[Span]:
    """A key and a value as two protobuf fields of one message: properties, metadata."""
    for match in _PAIR.finditer(data):
        start = match.end()
        end = start + data[match.start("size")]
        size, at = _size(data, end + 1)
        if data[end : end + 1] == b"\x12" and size and is_secret(data[start:end].decode("latin-1")):
            yield at, min(at + size, len(data))


def _size(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most four bytes, and the offset behind it; 0 if there is none."""
    value = 0
    for index, each in enumerate(data[at : at + 4]):
        value |= (each & 0x7F) << 7 * index
        if each < 0x80:
            return value, at + index + 1
    return 0, at


BY_KEY: Final = (_by_key, _by_flag, _by_element, _by_members, _by_pair)
