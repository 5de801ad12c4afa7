"""A broker's answers: `OK` lines, errors, JSON, stream control, and free text of old versions.

No answer names its request. Values may be quoted with escapes and hold blanks, lists stand in
square brackets, and a few values (a snapshot, a cluster's state) take the rest of the line.
"""

import json
import re
from typing import Any, Final, NamedTuple

from dissector.codecs.redaction import hidden, secrets
from dissector.codecs.secret_keys import is_secret
from dissector.limits import MAX_ANSWER_DEPTH, MAX_ANSWER_JSON_BYTES, MAX_DETAIL_ITEMS
from dissector.protocols.cursus import commands
from dissector.protocols.cursus.lines import shown, shown_field, whole_number

_PAIR: Final = re.compile(
    rb"([A-Za-z_][\w.]*)=(\[[^\]]*\]|\"(?:[^\"\\]|\\.)*\"|[^\s]*)|(\S+)", re.DOTALL
)
_REST_OF_LINE: Final = re.compile(rb"(?:\A|\s)(snapshots?|cluster|brokers)=(.*)\Z", re.DOTALL)
_CODE: Final = re.compile(rb"\A[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\Z")
_BLANKS: Final = b" \t\r\n\0"
# Codes that clients search in any answer, even without the word ERROR before them.
_BARE_REFUSALS: Final = (b"NOT_LEADER", b"REBALANCE_REQUIRED", b"GEN_MISMATCH")
_INFINITE: Final = (float("inf"), float("-inf"))
# The compact acknowledgement, keys in the order in which brokers write them.
_ACK: Final = re.compile(
    rb'\A\{"status":"(\w+)","last_offset":(\d{1,19}),"producer_epoch":(-?\d{1,19}),'
    rb'"producer_id":"([^"\\]*)","seq_start":(\d{1,19}),"seq_end":(\d{1,19})'
    rb'(?:,"leader":"([^"\\]*)")?(?:,"error":"([^"\\]*)")?\}\s*\Z'
)
_ACK_KEYS: Final = frozenset(
    ("last_offset", "producer_epoch", "producer_id", "seq_start", "seq_end")
)


class Ack(NamedTuple):
    """An acknowledgement: the fields of its batch, and the offset at which it was stored."""

    last_offset: int
    producer_epoch: int
    producer_id: bytes
    seq_start: int
    seq_end: int


class Answer(NamedTuple):
    """One answer.

    command: number.
    fields: values by name.
    error_code, error_text: None unless it is a refusal (the code may be None even then).
    is_error: it is a refusal.
    ack: of a produce.
    is_legacy: free text of an older version.
    """

    command: int
    fields: dict[str, Any]
    is_error: bool = False
    error_code: str | None = None
    error_text: bytes | None = None
    ack: Ack | None = None
    is_legacy: bool = False

    def number(self, name: str) -> int | None:
        """A field that is a whole number."""
        value = self.fields.get(name)
        if isinstance(value, bytes):
            return whole_number(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return value if -(1 << 63) < value < 1 << 63 else None


def read_answer(body: bytes) -> Answer:
    """Read the body of a broker's frame that is no batch and not empty."""
    if body[:1] in (b"{", b"["):
        return _json_answer(body)
    text = body.strip(_BLANKS)
    if text == b"OK" or text.startswith(b"OK "):
        return Answer(commands.RESPONSE_OK, _fields(text[3:]))
    if text.startswith((b"ERROR:", b"ERROR ")):
        return _error(text[6:].strip(_BLANKS))
    if text.startswith(b"STREAM_CONTROL "):
        return Answer(commands.STREAM_CONTROL, _fields(text[15:]))
    if text.startswith(_BARE_REFUSALS):
        return _error(text)
    return Answer(commands.RESPONSE_OK, {"text": body}, is_legacy=True)


def _fields(text: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    rest = _REST_OF_LINE.search(text)
    if rest:
        fields[rest[1].decode()] = rest[2]
        text = text[: rest.start()]
    for name, value, word in _PAIR.findall(text):
        if word:
            fields.setdefault("words", []).append(word)
        else:
            fields[name.decode()] = _unquoted(value)
    return fields


def _unquoted(value: bytes) -> bytes:
    if len(value) < 2 or value[:1] != b'"' or value[-1:] != b'"':
        return value
    return value[1:-1].replace(b'\\"', b'"').replace(b"\\\\", b"\\")


def _error(text: bytes) -> Answer:
    """A refusal: its first word is the code if it looks like one; older texts have none."""
    word, _, rest = text.partition(b" ")
    if not _CODE.match(word):
        return Answer(commands.RESPONSE_ERROR, {}, True, None, text or None)
    rest = rest.strip(_BLANKS)
    return Answer(commands.RESPONSE_ERROR, _fields(rest), True, word.decode(), rest or None)


def log_ends(answer: Answer) -> list[tuple[int, int]]:
    """Answers of LIST_OFFSETS and DESCRIBE as (partition, offset of the next readable record)."""
    ends = []
    offsets = answer.fields.get("offsets")
    if isinstance(offsets, bytes):
        for part in offsets.split(b","):
            label, _, rest = part.partition(b":")
            values = dict(each.partition(b"=")[::2] for each in rest.split(b":"))
            numbers = (whole_number(label.removeprefix(b"P")), whole_number(values.get(b"latest")))
            if numbers[0] is not None and numbers[1] is not None:
                ends.append((numbers[0], numbers[1]))
    partitions = answer.fields.get("partitions")
    if isinstance(partitions, list):
        for each in partitions:
            numbers = (each.get("id"), each.get("hwm")) if isinstance(each, dict) else (None, None)
            if all(isinstance(value, int) and 0 <= value < 1 << 62 for value in numbers):
                ends.append((int(numbers[0] or 0), int(numbers[1] or 0)))
    return ends


def _json_answer(body: bytes) -> Answer:
    quick = _ACK.match(body)
    if quick:
        status, last, epoch, producer, start, end, leader, error = quick.groups()
        fields: dict[str, Any] = {"status": status} if status != b"OK" else {}
        if leader is not None:
            fields["leader"] = leader
        numbers = [_signed(int(each)) for each in (last, epoch, start, end)]
        ack = Ack(numbers[0], numbers[1], producer, *numbers[2:])
        if status == b"OK":
            return Answer(commands.RESPONSE_JSON, fields, ack=ack)
        return _refused(fields, ack, error or b"")
    if len(body) > MAX_ANSWER_JSON_BYTES:
        return Answer(commands.RESPONSE_JSON, {})
    try:
        parsed = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Answer(commands.RESPONSE_JSON, {"text": body})
    if not isinstance(parsed, dict):
        return Answer(commands.RESPONSE_JSON, {"value": parsed})
    ack_of = _ack_of(parsed)
    if ack_of is not None:
        parsed = {key: value for key, value in parsed.items() if key not in _ACK_KEYS}
    is_refusal = parsed.get("status") not in (None, "OK") or parsed.get("success") is False
    if parsed.get("status") == "OK":
        del parsed["status"]
    if is_refusal:
        text = parsed.get("error")
        return _refused(parsed, ack_of, text.encode() if isinstance(text, str) else b"")
    return Answer(commands.RESPONSE_JSON, parsed, ack=ack_of)


def _refused(fields: dict[str, Any], ack: Ack | None, text: bytes) -> Answer:
    status = fields.get("status")
    if not text and status in (b"PARTIAL", "PARTIAL"):
        text = b"PARTIAL"
    inner = _error(text.removeprefix(b"ERROR:").strip(_BLANKS))
    return Answer(commands.RESPONSE_JSON, fields, True, inner.error_code, inner.error_text, ack)


def _ack_of(parsed: dict[str, Any]) -> Ack | None:
    producer = parsed.get("producer_id")
    if not isinstance(producer, str):
        return None
    numbers = [
        parsed.get(key, 0) for key in ("last_offset", "producer_epoch", "seq_start", "seq_end")
    ]
    if not all(isinstance(each, int) and -(1 << 63) <= each < 1 << 64 for each in numbers):
        return None
    last, epoch, start, end = (_signed(each) for each in numbers)
    return Ack(last, epoch, producer.encode(), start, end)


def _signed(number: int) -> int:
    """An unsigned 64-bit number as a signed one; longer numbers are cut to 64 bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number


_IN_COLUMNS: Final = frozenset(("topic", "partition", "group", "member", "producerId", "epoch"))


def answer_detail(answer: Answer, redact: bool, is_full: bool = False) -> dict[str, Any]:
    """An answer's fields without a column in frames; is_full: all fields."""
    detail: dict[str, Any] = {}
    if answer.is_legacy:
        detail["grammar"] = "legacy_text"
    for name, value in answer.fields.items():
        if is_full or name not in _IN_COLUMNS or answer.is_error:
            title = shown(name.encode("utf-8", "replace"), redact)
            detail[title] = shown_value(title, value, redact)
    if is_full and answer.ack is not None:
        detail.update(answer.ack._asdict(), producer_id=shown(answer.ack.producer_id, redact))
    return detail


def _words(words: list[str | bytes], redact: bool) -> list[bytes]:
    """Words of a text, without those that are secret by the words before them."""
    plain = [each.encode("utf-8", "replace") if isinstance(each, str) else each for each in words]
    secret_spans = secrets(b" ".join(plain)) if redact else []
    shown, at = [], 0
    for each in plain:
        end = at + len(each)
        is_secret_word = any(low < end and at < high for low, high in secret_spans)
        shown.append(hidden(len(each)) if is_secret_word else each)
        at = end + 1
    return shown


def shown_value(name: str, value: Any, redact: bool, depth: int = 0) -> Any:
    """A value for `detail`; name: its key, for a list's value the list's key."""
    if isinstance(value, bytes):
        return shown_field(name, value, redact)
    if isinstance(value, str):
        return shown_field(name, value.encode("utf-8", "replace"), redact)
    if isinstance(value, list | dict) and depth >= MAX_ANSWER_DEPTH:
        return "..."
    if isinstance(value, list) and value and all(isinstance(each, str | bytes) for each in value):
        return [
            shown_field(name, each, redact) for each in _words(value[:MAX_DETAIL_ITEMS], redact)
        ]
    if isinstance(value, list):
        return [shown_value(name, each, redact, depth + 1) for each in value[:MAX_DETAIL_ITEMS]]
    if isinstance(value, dict):
        pairs = list(value.items())[:MAX_DETAIL_ITEMS]
        return {
            shown(key.encode("utf-8", "replace"), redact): shown_value(key, each, redact, depth + 1)
            for key, each in pairs
        }
    if isinstance(value, int | float) and not isinstance(value, bool) and is_secret(name):
        return hidden(len(str(value))).decode() if redact else value
    return value if value == value and value not in _INFINITE else str(value)
