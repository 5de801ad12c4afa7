"""Cursus' frames with other names and noise for payloads, at equal length.

Words of the protocol and numbers stay, so a frame parses as before. In texts the key determines the
kind of a value; a value without a rule is a name. A compressed frame becomes noise after its first
bytes if it cannot be packed again at the same length.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Budget
from dissector.codecs.redaction import masked
from dissector.codecs.repacking import FRAME_LZ4, FRAME_SNAPPY, GZIP, repacked
from dissector.codecs.secret_forms import credentials
from dissector.protocols.cursus import compressed, secrets
from dissector.protocols.cursus.body_starts import shape_of
from dissector.protocols.cursus.commands import NUMBER
from dissector.protocols.pseudonyms import Pseudonyms
from dissector.protocols.sentences import Sentences

_LENGTH: Final = 4
_FIRST_LETTER: Final = 0x61
_LETTERS: Final = 26
_SHOWN_BYTES: Final = 10
_PACKERS: Final = {
    compressed.GZIP_CODEC: GZIP,
    compressed.LZ4_CODEC: FRAME_LZ4,
    compressed.SNAPPY_CODEC: FRAME_SNAPPY,
}
_FEATURES: Final = re.compile(rb"(?:[a-z]+(?:_[a-z]+)*_v\d+,?)+")
_LONGEST_TOPIC: Final = 249
_VERBS: Final = frozenset(name.encode() for name in NUMBER)
_PAYLOAD: Final = re.compile(rb"(?:\A|(?<=\s))(?:message|payload|snapshots?)=")
_PAIR: Final = re.compile(
    rb"(?P<key>[A-Za-z_][\w.]*)=(?P<value>\[[^\]]*\]|\"(?:[^\"\\]|\\.)*\"|[^\s]*)|(?P<word>\S+)"
)
_JSON: Final = re.compile(rb'"(?P<text>(?:[^"\\]|\\.)*)"(?P<colon>\s*:)?')
_NUMBERS: Final = re.compile(rb"[-+\d.,:PEsmhk\[\] ]*")
_RANGES: Final = re.compile(rb"(?:P\d+:)?(?:\w+=\d*:?)+(?:,P\d+:(?:\w+=\d*:?)+)*")
_REFUSAL: Final = re.compile(
    rb"\s*(?:ERROR:?\s*)?(?:[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+(?=\s|\Z))?"
)
_PLAIN: Final = re.compile(rb"[A-Za-z_]+")
# Keys whose values are always names.
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


class CursusAnonymizer:
    """Anonymizes frames one by one.

    Args:
        names: pseudonyms, None keeps names. hidden: makes noise of bytes, as many.
    """

    def __init__(self, names: Pseudonyms | None, hidden: Callable[[bytes], bytes]) -> None:
        self._names = names
        self._hidden = hidden
        self.repacked = self.given_up = self.nameless = 0
        self._sentences = None if names is None else Sentences(names, has_codes=True)

    def frames(self, data: ByteArray, bounds: Int64Array, packed: Sequence[bool]) -> None:
        """Anonymize frames in place; see protocols.interface.FrameAnonymizer."""
        for start, size, end, is_packed in zip(*bounds.tolist(), packed, strict=True):
            anonymized = self.frame(data[start:end].tobytes(), size, is_packed)
            data[start:end] = np.frombuffer(anonymized, np.uint8)

    def frame(self, frame: bytes, size: int, is_packed: bool) -> bytes:
        """A frame, or what there is of it, as long as before.

        Args:
            size: bytes that it has when whole. is_packed: its body is compressed.
        """
        head, body = frame[:_LENGTH], frame[_LENGTH:]
        if is_packed or body.startswith(secrets.PACKED_HEADS):
            return head + self._packed(body, is_whole=size == len(frame))
        return head + self._body(body)

    def _body(self, body: bytes) -> bytes:
        if body.startswith(secrets.BATCH_MAGIC):
            return self._batch(body)
        if body.startswith((b"{", b"[")):
            return self._json(body)
        return self._text(body)

    def _packed(self, body: bytes, is_whole: bool) -> bytes:
        """A compressed body, opened and packed again; noise where that cannot be done."""
        data = np.frombuffer(bytearray(body), np.uint8)
        opened = compressed.open_body(data, shape_of(data, 0, len(data)), Budget())
        made = None
        if is_whole and opened is not None:
            after = np.frombuffer(bytearray(self._body(opened[1])), np.uint8)
            free = np.zeros(len(after), bool)
            is_batch = opened[1].startswith(secrets.BATCH_MAGIC)
            for start, end, is_name in secrets.text_spans(opened[1]) if is_batch else ():
                free[start:end] = not is_name
            made = repacked(_PACKERS[opened[0]], np.where(free, ~after, after), after, len(body))
        if made is None:
            self.given_up += 1
            return body[: _SHOWN_BYTES - _LENGTH] + self._hidden(body[_SHOWN_BYTES - _LENGTH :])
        self.repacked += 1
        return made

    def _name(self, text: bytes) -> bytes:
        return text if self._names is None else self._names.name(text)

    # -- batches

    def _batch(self, body: bytes) -> bytes:
        out = bytearray(body)
        end = len(body)
        for start, stop, is_name in secrets.text_spans(body):
            if stop > end:
                out[start:] = self._hidden(body[start:])
                break
            part = body[start:stop]
            out[start:stop] = self._name(part) if is_name else self._payload(part)
        return bytes(out)

    def _payload(self, payload: bytes) -> bytes:
        """Noise; that credentials stand in it can be seen, and is a finding."""
        out = bytearray(self._hidden(payload))
        match = secrets.APPENDED.search(payload)
        if match is not None:
            out[match.start() : match.end()] = payload[match.start() : match.end() - 1] + b"*"
        return bytes(out)

    # -- texts

    def _text(self, body: bytes) -> bytes:
        size = int.from_bytes(body[:2], "big")
        start = 0
        if body[:1] == b"\0" and size <= _LONGEST_TOPIC and 2 + size <= len(body):
            start = 2 + size
        head = body[:2] + self._name(body[2:start]) if start else b""
        line = body[start:]
        line = masked(line, credentials(line))
        match = _PAYLOAD.search(line)
        if match is None:
            return head + self._line(line)
        payload = line[match.end() :]
        noise = self._payload(payload)
        # Letters: of other bytes some at the ends would not count.
        letters = bytes(_FIRST_LETTER + sign % _LETTERS for sign in noise)
        kept = secrets.APPENDED.search(payload)
        if kept is not None:
            letters = (
                letters[: kept.start()] + noise[kept.start() : kept.end()] + letters[kept.end() :]
            )
        return head + self._line(line[: match.end()]) + letters

    def _line(self, line: bytes) -> bytes:
        """A line of words and pairs."""
        out = bytearray(line)
        last = b""
        for match in _PAIR.finditer(line):
            if match["word"] is None:
                start, stop = match.span("value")
                out[start:stop] = self._value(match["key"], match["value"])
                continue
            start, stop = match.span("word")
            word = match["word"]
            if not self._is_of_protocol(word, last):
                out[start:stop] = self._json(word) if word[:1] == b"{" else self._sentence(word)
            last = word
        return bytes(out)

    def _is_of_protocol(self, word: bytes, last: bytes) -> bool:
        if word.upper() in _VERBS or word.rstrip(b":") in _OK or _NUMBERS.fullmatch(word):
            return True
        return last.rstrip(b":") == b"ERROR" and _PLAIN.fullmatch(word) is not None

    def _sentence(self, text: bytes) -> bytes:
        return text if self._sentences is None else self._sentences.anonymized(text)

    def _value(self, key: bytes, value: bytes) -> bytes:
        if key.lower() in _SECRET:
            return b"*" * len(value)
        if self._names is None:
            return value
        if key in _NAMES:
            return self._names.name(value)
        if _NUMBERS.fullmatch(value) or _RANGES.fullmatch(value):
            return value
        if key in _ENUMS and (_PLAIN.fullmatch(value) or _FEATURES.fullmatch(value)):
            return value
        if value[:1] == b'"':
            return value[:1] + self._sentence(value[1:-1]) + value[-1:]
        return value if value in (b"true", b"false") else self._sentence(value)

    def _json(self, text: bytes) -> bytes:
        """Anonymize the texts in JSON; keys of the protocol stay."""
        if self._names is None:
            return text
        out = bytearray(text)
        key = b""
        for match in _JSON.finditer(text):
            start, stop = match.span("text")
            value = match["text"]
            if match["colon"]:
                key = value
                if value not in _KEYS:
                    out[start:stop] = self._names.name(value)
            elif key in (b"error", b"reason"):
                refusal = _REFUSAL.match(value)
                code = refusal.end() if refusal is not None else 0
                out[start + code : stop] = self._line(value[code:])
            elif key in (b"message", b"payload", b"snapshot"):
                out[start:stop] = self._names.words(value)
            elif value not in _OK and not _NUMBERS.fullmatch(value):
                out[start:stop] = self._value(key, value)
        return bytes(out)
