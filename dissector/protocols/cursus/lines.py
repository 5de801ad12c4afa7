"""Text commands: the envelope around them, their words, arguments and payloads.

A body is the bare line, or a topic (u16 length) and the line; brokers ignore that topic. A line is
a word and arguments `name=value` between blanks; the value of `message=` or `payload=` extends to
the end of the line, blanks included. A published document has another grammar, arguments by
position, which no broker understands: it is parsed if the second word has no `=`.
"""

import json
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dissector.codecs.redaction import cleaned, hidden
from dissector.codecs.secret_forms import credentials
from dissector.codecs.secret_keys import is_secret
from dissector.limits import MAX_DETAIL_TEXT
from dissector.protocols.cursus import commands

KEY_VALUE: Final = "key_value"
POSITIONAL: Final = "positional"
MAX_ENVELOPE_BYTES: Final = 249

_BLANKS: Final = b" \t\r\n"
_TRIMMED: Final = b"\0 \r\n"
_TO_LINE_END: Final = (b"message=", b"payload=")
_COMMIT_LISTS: Final = frozenset(
    commands.NUMBER[name] for name in ("BATCH_COMMIT", "SEND_OFFSETS_TO_TXN")
)
_DISCOVERY_VERBS: Final = frozenset(
    commands.NUMBER[name]
    for name in ("JOIN_CLUSTER", "LEAVE_CLUSTER", "HEARTBEAT_CLUSTER", "LIST_CLUSTER")
)
_AUTH: Final = commands.NUMBER["AUTH"]
_WORDS: Final = re.compile(rb"\S++")

# Arguments by position, in the order of the published document.
_POSITIONS: Final = {
    commands.NUMBER["CREATE"]: ("topic", "partitions"),
    commands.NUMBER["DELETE"]: ("topic",),
    commands.NUMBER["SUBSCRIBE"]: ("topic", "group"),
    commands.NUMBER["CONSUME"]: ("topic", "partition", "offset", "member"),
    commands.NUMBER["STREAM"]: ("topic", "partition", "offset", "member"),
    commands.NUMBER["JOIN_GROUP"]: ("topic", "group", "member"),
    commands.NUMBER["SYNC_GROUP"]: ("topic", "group", "member", "generation"),
    commands.NUMBER["LEAVE_GROUP"]: ("topic", "group", "member"),
    commands.NUMBER["HEARTBEAT"]: ("topic", "group", "consumer", "member", "generation"),
    commands.NUMBER["COMMIT"]: ("topic", "group", "partition", "offset"),
    commands.NUMBER["COMMIT_OFFSET"]: ("topic", "group", "partition", "offset"),
    commands.NUMBER["BATCH_COMMIT"]: ("topic", "group", "member", "generation"),
    commands.NUMBER["FETCH_OFFSET"]: ("topic", "partition", "group"),
    commands.NUMBER["METADATA"]: ("topic",),
    commands.NUMBER["LIST_OFFSETS"]: ("topic", "partition"),
    commands.NUMBER["PUBLISH"]: ("topic", "message"),
}


class CommandLine(NamedTuple):
    """A command as it was sent.

    command: number, UNKNOWN for a word that is in no list.
    envelope: topic around it, None if bare.
    arguments: values by name, the last of several.
    payload: offset and bytes behind `message=`, or None.
    entries: (partition, next offset) of a commit list, or None.
    """

    command: int
    envelope: bytes | None
    arguments: dict[bytes, bytes]
    payload: tuple[int, bytes] | None
    entries: tuple[tuple[int, int], ...] | None
    grammar: str
    word: bytes

    def number(self, name: bytes) -> int | None:
        """An argument that is a whole number."""
        return whole_number(self.arguments.get(name))


def whole_number(text: bytes | None) -> int | None:
    """A decimal number that fits in 64 bits, None for anything else."""
    if not text or len(text) > 20:
        return None
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit():
        return None
    number = int(text)
    return number if -(1 << 63) < number < 1 << 63 else None  # the lowest is NULL


def first_word(text: bytes) -> bytes:
    """The first word of a text, in upper case."""
    stripped = text.lstrip(_BLANKS)[: commands.MAX_WORD_BYTES + 1]
    parts = stripped.split(None, 1)
    return parts[0].upper() if parts and stripped[:1].strip() else b""


def _verb(text: bytes) -> int:
    return commands.VERB_NUMBER.get(first_word(text), commands.UNKNOWN)


def split_body(body: bytes) -> tuple[bytes | None, int]:
    """The topic of the envelope, None of a bare body, and where the line begins."""
    envelope = None
    start = 0
    if len(body) >= 2 and (body[0] == 0 or _verb(body) == commands.UNKNOWN):
        size = int.from_bytes(body[:2], "big")
        if size <= MAX_ENVELOPE_BYTES and 2 + size <= len(body):
            envelope = body[2 : 2 + size]
            start = 2 + size
    line = body[start:]
    return envelope, start + len(line) - len(line.lstrip(_TRIMMED))


def read_line(body: bytes) -> CommandLine:
    """Read a command's body, bare or in an envelope."""
    envelope, start = split_body(body)
    line = body[start:].strip(_TRIMMED)
    command = _verb(line)
    if command == _AUTH:
        words = line.split(None, 3)
        if len(words) > 2 and b"=" not in words[1]:
            behind = commands.VERB_NUMBER.get(words[2].upper(), commands.UNKNOWN)
            if behind in _DISCOVERY_VERBS:
                return _discovery(behind, envelope, words[1], words[3] if len(words) > 3 else b"")
        arguments = _who_and_token(line)
        return CommandLine(command, envelope, arguments, None, None, KEY_VALUE, first_word(line))
    elif command in _DISCOVERY_VERBS:
        words = line.split(None, 1)
        return _discovery(command, envelope, None, words[1] if len(words) > 1 else b"")
    return _with_arguments(command, envelope, line, start)


def _discovery(
    command: int, envelope: bytes | None, token: bytes | None, rest: bytes
) -> CommandLine:
    arguments = {b"request": rest} if rest else {}
    if token is not None:
        arguments[b"token"] = token
    return CommandLine(command, envelope, arguments, None, None, KEY_VALUE, first_word(b""))


def _who_and_token(line: bytes) -> dict[bytes, bytes]:
    """The arguments of AUTH, by name or by position."""
    arguments: dict[bytes, bytes] = {}
    spans = credentials(line)
    for word in list(_WORDS.finditer(line))[1:]:
        secret = [line[low:high] for low, high in spans if word.start() <= low < word.end()]
        name, sign, value = word[0].partition(b"=")
        if secret:
            arguments[b"token"] = secret[0]
        elif sign:
            arguments[name] = value
        else:
            arguments[b"principal"] = name
    return arguments


def _with_arguments(command: int, envelope: bytes | None, line: bytes, start: int) -> CommandLine:
    """The arguments after the word; start: offset of the line in the body."""
    head, payload = line, None
    for mark in _TO_LINE_END:
        at = line.find(mark)
        if at > 0 and (payload is None or at < len(head)):
            head = line[:at]
            behind = line[at + len(mark) :]
            skipped = len(behind) - len(behind.lstrip(_TRIMMED))
            payload = (start + at + len(mark) + skipped, behind.strip(_TRIMMED))
    words = head.split()
    word, words = (words[0], words[1:]) if words else (b"", [])
    arguments: dict[bytes, bytes] = {}
    entries = None
    if command in _COMMIT_LISTS and words:
        entries = _commit_list(words[-1])
        if entries is not None:
            words = words[:-1]
    grammar = KEY_VALUE
    if words and b"=" not in words[0] and command in _POSITIONS:
        grammar = POSITIONAL
        for argument, value in zip(_POSITIONS[command], words, strict=False):
            arguments[argument.encode()] = value
    else:
        for each in words:
            name, is_given, value = each.partition(b"=")
            if is_given:
                arguments[name] = value
    return CommandLine(command, envelope, arguments, payload, entries, grammar, word)


def _commit_list(text: bytes) -> tuple[tuple[int, int], ...] | None:
    """`P0:11,P1:21`, with or without the letter, as pairs; None for any other text."""
    entries = []
    for part in text.split(b","):
        label, is_given, offset = part.partition(b":")
        partition = whole_number(label.removeprefix(b"P").removeprefix(b"p"))
        following = whole_number(offset)
        if not is_given or partition is None or following is None:
            return None
        entries.append((partition, following))
    return tuple(entries)


_BRIEF_BYTES: Final = 32
_AS_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

# Arguments that have a column of their own in the table of frames.
_IN_COLUMNS: Final = frozenset(
    (b"topic", b"partition", b"group", b"member", b"producerId", b"seqNum", b"epoch")
)


def shown(text: bytes, redact: bool) -> str:
    """A text for `detail`: no secrets, no endless lines."""
    return _shown_briefly(text, redact) if len(text) <= _BRIEF_BYTES else _shown(text, redact)


def _shown(text: bytes, redact: bool) -> str:
    if redact:
        text = cleaned(text)
    plain = text[:MAX_DETAIL_TEXT].decode("utf-8", "backslashreplace")
    left = len(text) - MAX_DETAIL_TEXT
    return f"{plain}... and {left} bytes more" if left > 0 else plain


# Names of arguments, members and generations come with each commit.
_shown_briefly: Final = lru_cache(1024)(_shown)


def shown_field(name: str, value: bytes, redact: bool) -> str:
    """The value of a named field for `detail`."""
    return hidden(len(value)).decode() if redact and is_secret(name) else shown(value, redact)


def line_detail(line: CommandLine, redact: bool, is_full: bool = False) -> dict[str, Any]:
    """A command's arguments without a column in frames; is_full: all arguments."""
    detail: dict[str, Any] = {}
    if line.command == commands.UNKNOWN:
        detail["word"] = shown(line.word, redact)
    if line.envelope is not None:
        detail["envelope"] = shown(line.envelope, redact)
    if line.grammar == POSITIONAL:
        detail["grammar"] = POSITIONAL
    if line.command in commands.NOT_IMPLEMENTED:
        detail["implemented"] = False
    for name, value in line.arguments.items():
        if is_full or name not in _IN_COLUMNS:
            title = shown(name, redact)
            detail[title] = shown_field(title, value, redact)
    if line.entries is not None:
        detail["offsets"] = {f"P{partition}": offset for partition, offset in line.entries}
    if line.payload is not None:
        detail["message_bytes"] = len(line.payload[1])
    return detail


def as_json(detail: dict[str, Any]) -> str | None:
    """The column `detail`; None if it is empty."""
    if not detail:
        return None
    return _AS_JSON.encode(detail)
