"""Cursus' frames with other names and noise for payloads, at equal length.

Words of the protocol and numbers stay, so a frame reads as before. In texts the key says what a
value is; what no rule knows is a name. A compressed frame is noise behind its first bytes: what is
in it cannot keep its length.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from dissector.codecs.pseudonyms import Pseudonyms
from dissector.codecs.sentences import Sentences
from dissector.protocols.cursus.commands import NUMBER
from dissector.protocols.cursus.secrets import PACKED_HEADS

_LENGTH: Final = 4
_MAGIC: Final = b"\xba\x7c"
_SHOWN_BYTES: Final = 10
_LONGEST_TOPIC: Final = 249
_VERBS: Final = frozenset(name.encode() for name in NUMBER)
_PAYLOAD: Final = re.compile(rb"(?:\A|(?<=\s))(?:message|payload|snapshots?)=")
_PAIR: Final = re.compile(
    rb"(?P<key>[A-Za-z_][\w.]*)=(?P<value>\[[^\]]*\]|\"(?:[^\"\\]|\\.)*\"|[^\s]*)|(?P<word>\S+)"
)
_JSON: Final = re.compile(rb'"(?P<text>(?:[^"\\]|\\.)*)"(?P<colon>\s*:)?')
_NUMBERS: Final = re.compile(rb"[-+\d.,:PEsmhk\[\] ]*")
_RANGES: Final = re.compile(rb"(?:P\d+:)?(?:\w+=\d*:?)+(?:,P\d+:(?:\w+=\d*:?)+)*")
_PLAIN: Final = re.compile(rb"[A-Za-z_]+")
# Values that are names, whatever they look like.
_NAMES: Final = frozenset(
    word.encode()
    for word in (
        *("topic", "topics", "group", "groups", "member", "members", "consumer", "producerId"),
        *("producer_id", "producer", "transactional_id", "coordinator_id", "host", "leader"),
        *("leaders", "address", "addr", "broker", "brokers", "key", "principal", "id", "name"),
        *("replicas", "isr", "advertised", "node", "peer", "aggregate_id", "client_id", "username"),
    )
)
_SECRET: Final = frozenset((b"token", b"auth_token", b"internal_token", b"password"))
_ENUMS: Final = frozenset(
    word.encode()
    for word in (
        *("type", "reason", "code", "class", "state", "status", "retryable", "mechanism"),
        *("operation", "command", "cleanup_policy", "partitioner", "auth_policy", "isolation"),
        *("isolation_level", "autoOffsetReset", "coordinator_type", "idempotent", "isIdempotent"),
        *("event_sourcing", "deleted", "left", "resumed", "features", "committed", "exists"),
        *("authenticated", "authentication_required", "enabled", "result", "success", "error_code"),
    )
)
_KEYS: Final = frozenset(
    word.encode()
    for word in (
        *("status", "last_offset", "producer_epoch", "producer_id", "seq_start", "seq_end"),
        *("leader", "error", "topic", "partitions", "partition", "id", "replicas", "isr", "leo"),
        *("hwm", "policy", "topics", "offset", "offsets", "events", "version", "count", "group"),
        *("members", "generation", "assignments", "state", "features", "protocol_version", "code"),
        *("class", "retryable", "reason", "message", "payload", "epoch", "key", "success"),
        *("latest", "earliest", "min", "max", "required", "authenticated", "snapshot"),
    )
)
_OK: Final = (b"OK", b"ERROR", b"PARTIAL")


class CursusDisguise:
    """Treats frames one by one.

    Args:
        names: pseudonyms, None keeps names. hidden: makes noise of bytes, as many.
    """

    def __init__(self, names: Pseudonyms | None, hidden: Callable[[bytes], bytes]) -> None:
        self._names = names
        self._hidden = hidden
        self._sentences = None if names is None else Sentences(names, has_codes=True)

    def frame(self, frame: bytes, size: int, is_packed: bool) -> bytes:
        """A frame, or what there is of it, as long as before.

        Args:
            size: bytes that it has when whole. is_packed: its text is compressed.
        """
        body = frame[_LENGTH:]
        if is_packed or body.startswith(PACKED_HEADS):
            return frame[:_SHOWN_BYTES] + self._hidden(frame[_SHOWN_BYTES:])
        if body.startswith(_MAGIC):
            return frame[:_LENGTH] + self._batch(body)
        if body.startswith((b"{", b"[")):
            return frame[:_LENGTH] + self._json(body)
        return frame[:_LENGTH] + self._text(body)

    def _name(self, text: bytes) -> bytes:
        return text if self._names is None else self._names.name(text)

    # -- batches

    def _batch(self, body: bytes) -> bytes:
        out = bytearray(body)
        end = len(body)
        for start, stop, is_name in _places(body):
            if stop > end:
                out[start:] = self._hidden(body[start:])
                break
            part = body[start:stop]
            out[start:stop] = self._name(part) if is_name else self._hidden(part)
        return bytes(out)

    # -- texts

    def _text(self, body: bytes) -> bytes:
        size = int.from_bytes(body[:2], "big")
        start = 0
        if body[:1] == b"\0" and size <= _LONGEST_TOPIC and 2 + size <= len(body):
            start = 2 + size
        head = body[:2] + self._name(body[2:start]) if start else b""
        line = body[start:]
        found = _PAYLOAD.search(line)
        if found is None:
            return head + self._line(line)
        return head + self._line(line[: found.end()]) + self._hidden(line[found.end() :])

    def _line(self, line: bytes) -> bytes:
        """A line of words and pairs."""
        out = bytearray(line)
        words = 0
        last = b""
        for found in _PAIR.finditer(line):
            if found["word"] is None:
                start, stop = found.span("value")
                out[start:stop] = self._value(found["key"], found["value"])
                continue
            start, stop = found.span("word")
            word = found["word"]
            if last.upper() == b"AUTH" and words == 1:
                out[start:stop] = b"*" * (stop - start)
            elif not self._is_of_protocol(word, last):
                out[start:stop] = self._json(word) if word[:1] == b"{" else self._sentence(word)
            last = word
            words += 1
        return bytes(out)

    def _is_of_protocol(self, word: bytes, last: bytes) -> bool:
        if word.upper() in _VERBS or word.rstrip(b":") in _OK or _NUMBERS.fullmatch(word):
            return True
        return last.rstrip(b":") == b"ERROR" and _PLAIN.fullmatch(word) is not None

    def _sentence(self, text: bytes) -> bytes:
        return text if self._sentences is None else self._sentences.disguised(text)

    def _value(self, key: bytes, value: bytes) -> bytes:
        if key.lower() in _SECRET:
            return b"*" * len(value)
        if self._names is None:
            return value
        if key in _NAMES:
            return self._names.name(value)
        if _NUMBERS.fullmatch(value) or _RANGES.fullmatch(value):
            return value
        if key in _ENUMS and _PLAIN.fullmatch(value):
            return value
        if value[:1] == b'"':
            return value[:1] + self._sentence(value[1:-1]) + value[-1:]
        return value if value in (b"true", b"false") else self._sentence(value)

    def _json(self, text: bytes) -> bytes:
        """Texts of JSON; keys of the protocol stay."""
        if self._names is None:
            return text
        out = bytearray(text)
        key = b""
        for found in _JSON.finditer(text):
            start, stop = found.span("text")
            value = found["text"]
            if found["colon"]:
                key = value
                if value not in _KEYS:
                    out[start:stop] = self._names.name(value)
            elif key in (b"error", b"reason"):
                out[start:stop] = self._line(value)
            elif key in (b"message", b"payload", b"snapshot"):
                out[start:stop] = self._names.words(value)
            elif value not in _OK and not _NUMBERS.fullmatch(value):
                out[start:stop] = self._value(key, value)
        return bytes(out)


def _places(body: bytes) -> Iterator[tuple[int, int, bool]]:
    """Start and end of names (True) and payloads (False) of a batch; the last may be beyond it.

    Topic, partition (4), acknowledgement (1 and that many), flag (1), first and last number (8
    each), count (4); records: offset and number (8 each), producer, key, epoch (8), payload
    (length 4), kind of event, version (4), version of the aggregate (8), metadata.
    """

    def size_at(at: int, width: int) -> int:
        return int.from_bytes(body[at : at + width].ljust(width, b"\xff"), "big")

    at = 2
    topic = size_at(at, 2)
    yield at + 2, at + 2 + topic, True
    at += 2 + topic + 4
    at += 1 + size_at(at, 1) + 1 + 16
    count = size_at(at, 4)
    at += 4
    for _ in range(min(count, len(body))):
        at += 16
        for _ in range(2):
            stop = at + 2 + size_at(at, 2)
            yield at + 2, stop, True
            at = stop
        at += 8
        stop = at + 4 + size_at(at, 4)
        yield at + 4, stop, False
        at = stop
        stop = at + 2 + size_at(at, 2)
        yield at + 2, stop, True
        at = stop + 12
        stop = at + 2 + size_at(at, 2)
        yield at + 2, stop, False
        at = stop
        if at >= len(body):
            break
    if at < len(body):
        yield at, len(body), False
