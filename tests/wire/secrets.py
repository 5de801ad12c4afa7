"""Secrets of every kind, planted in every text that a command can carry."""

import base64
import functools
import json
import random
import string
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import FieldDescriptor

from tests.hard.tape import Tape
from tests.wire import cursus, pulsar

Windows = npt.NDArray[np.uint64]
_ENDING = np.uint64((1 << 20) - 1)


class Planted(NamedTuple):
    """A text, and its part that must be hidden."""

    text: str
    secret: str


def _letters(chance: random.Random, size: int, more: str = "") -> str:
    """Random characters, a digit among them."""
    alphabet = string.ascii_letters + string.digits + more
    return "".join(chance.choice(alphabet) for _ in range(size - 1)) + chance.choice("23456789")


def _token(chance: random.Random) -> str:
    parts = ['{"alg":"HS256"}', f'{{"sub":"{_letters(chance, 9)}"}}', _letters(chance, 32)]
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def _keyed(
    key: str, sign: str, end: str = "", more: str = ""
) -> Callable[[random.Random], Planted]:
    def make(chance: random.Random) -> Planted:
        secret = _letters(chance, chance.randint(6, 24), more)
        return Planted(f"no way: {key}{sign}{secret}{end}", secret)

    return make


def _whole(prefix: str, make_secret: Callable[[random.Random], str], end: str = ""):
    def make(chance: random.Random) -> Planted:
        secret = make_secret(chance)
        return Planted(f"{prefix}{secret}{end}", secret)

    return make


def _private_key(chance: random.Random) -> str:
    lines = "\n".join(_letters(chance, 60, "+/") for _ in range(3))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"


KINDS: tuple[Callable[[random.Random], Planted], ...] = (
    *(
        _keyed(key, "=", " x", "!#%")
        for key in (
            *("password", "pwd", "pass", "passphrase", "pin", "secret", "access_token", "api_key"),
            *("apikey", "cookie", "session", "signature", "sig", "authParams", "clientSecret"),
        )
    ),
    *(_keyed(key, ": ") for key in ("Password", "api key", "credentials", "refresh-token")),
    *(_keyed(f'{{"{key}"', ':"', '","x":1}') for key in ("token", "db.passwd", "privateKey")),
    _keyed('{"a":"{\\"id_token\\"', ':\\"', '\\"}"}'),
    _keyed("?access_token", "=", "&x=1"),
    _whole("not with ", _token, " here"),
    _whole("Authorization: Bearer ", lambda chance: _letters(chance, 30, "-._~")),
    _whole(
        "Basic ", lambda chance: base64.b64encode(b"u:" + _letters(chance, 9).encode()).decode()
    ),
    _whole("at pulsar+ssl://bob:", lambda chance: _letters(chance, 10), "@broker:6651/x"),
    _whole("as bob:", lambda chance: _letters(chance, 10, "!$"), "@db.example refused"),
    _whole("key ", _private_key, "\n"),
    _whole("", lambda chance: "AKIA" + "".join(chance.choices(string.ascii_uppercase, k=16))),
    _whole("the token ", lambda chance: _letters(chance, 24), " was refused"),
    _keyed("token", "=\n"),
    _keyed("password check failed for bob", ": "),
    _whole('unknown_command command="AUTH alice ', lambda chance: _letters(chance, 16), '"'),
    # Behind a length that is a letter or a digit.
    _whole("", lambda chance: "ghp_" + _letters(chance, 62)),
    _whole("Bearer ", lambda chance: _letters(chance, 60)),
)


class Garden:
    """Plants secrets and remembers them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.planted: list[Planted] = []

    def text(self) -> str:
        """A text with a secret of any kind."""
        self.planted.append(self.chance.choice(KINDS)(self.chance))
        return self.planted[-1].text

    def secret_text(self) -> str:
        """The same, escaped for a JSON string."""
        planted = self.chance.choice(KINDS)(self.chance)
        self.planted.append(planted)
        return json.dumps(planted.text)[1:-1]

    def secret(self) -> str:
        """A secret alone, for fields that are always secret."""
        self.planted.append(Planted("", _letters(self.chance, 20)))
        return self.planted[-1].secret

    def command(self, name: str) -> bytes:
        """A command, every text field of which holds a secret."""
        message = pulsar.classes()["BaseCommand"]()
        kind = message.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_name[name].number
        message.type = kind
        field = message.DESCRIPTOR.fields_by_number[kind]
        self.fill(getattr(message, field.name))
        return pulsar.simple(message.SerializePartialToString())

    def fill(self, message: Any, depth: int = 0) -> Any:
        """Fill all fields of a message."""
        message.SetInParent()
        for field in message.DESCRIPTOR.fields:
            if message.DESCRIPTOR.name == "KeyValue":
                message.key, message.value = "db.password", self.secret()
            elif field.message_type is not None:
                if depth < 4:
                    value = getattr(message, field.name)
                    self.fill(value.add() if field.is_repeated else value, depth + 1)
            elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
                self._fill_text(message, field)
            elif field.is_required:
                setattr(message, field.name, field.default_value or 1)
        return message

    def _fill_text(self, message: Any, field: FieldDescriptor) -> None:
        place = f"{message.DESCRIPTOR.name}.{field.name}"
        is_secret = "auth_data" in field.name or field.name == "original_principal"
        text = self.secret() if is_secret or place == "EncryptionKeys.value" else self.text()
        value: Any = text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


_FROM_BROKER = ("RESPONSE", "SUCCESS", "ERROR", "CONNECTED", "CHALLENGE", "RECEIPT", "CHANGE")


def pulsar_tape(garden: Garden, mss: int = 1448) -> Tape:
    """A conversation in which every command holds secrets."""
    tape = Tape(mss=mss)
    tape.open()
    tape.connect()
    base = pulsar.classes()["BaseCommand"].DESCRIPTOR
    for value in base.fields_by_name["type"].enum_type.values:
        if value.number in base.fields_by_number and value.name not in ("SEND", "MESSAGE"):
            is_of_client = not any(word in value.name for word in _FROM_BROKER)
            tape.frame(is_of_client, garden.command(value.name))
    properties = [
        {"key": "x-api-key", "value": garden.secret()},
        {"key": "n", "value": garden.text()},
    ]
    keys = [{"key": "k", "value": garden.secret().encode(), "metadata": properties}]
    fields = {"properties": properties, "partition_key": garden.text()}
    tape.frame(True, pulsar.send(garden.text().encode(), metadata_fields=fields))
    # A payload that is protobuf of its own.
    text = garden.text().encode()[:127]
    tape.frame(True, pulsar.send(b"\x0a" + bytes([len(text)]) + text, sequence_id=7))
    tape.frame(True, pulsar.send(b"x", metadata_fields={"encryption_keys": keys}, sequence_id=8))
    items = [
        ({"properties": properties, "partition_key": garden.text()}, garden.text().encode())
    ] * 3
    fields = {"num_messages_in_batch": 3}
    tape.frame(True, pulsar.send(pulsar.batch(items), metadata_fields=fields, sequence_id=1))
    tape.publish(2, b"plain")
    tape.close()
    return tape


def cursus_tape(garden: Garden, mss: int = 1448) -> Tape:
    """The same of Cursus."""
    tape = Tape(broker=("10.0.0.2", 9000), mss=mss)
    tape.open()
    for verb in ("METADATA topic=t1", "LIST", "FETCH_OFFSET topic=t1 partition=0", "HELP"):
        line = f"{verb} auth_token={garden.secret()} note={garden.text()}"
        tape.frame(True, cursus.enveloped(line))
        tape.frame(False, cursus.bare(f"ERROR: bad_request {garden.text()}"))
    tape.frame(True, cursus.enveloped(f"AUTH principal=a token={garden.secret()}"))
    tape.frame(False, cursus.bare("OK principal=a authenticated=true"))
    for words in ("AUTH alice", "auth alice", "AUTH", "AUTH principal=alice"):
        tape.frame(True, cursus.enveloped(f"{words} {garden.secret()}"))
        tape.frame(False, cursus.bare("OK principal=alice authenticated=true"))
    tape.frame(True, cursus.enveloped(f"AUTH {garden.secret()} LIST_CLUSTER"))
    tape.frame(False, cursus.bare(f'{{"status":"ERROR","token":"{garden.secret()}"}}'))
    tape.frame(True, cursus.enveloped(f"PUBLISH topic=t1 message=x token={garden.secret()}"))
    tape.frame(False, cursus.bare("OK offset=1"))
    records = cursus.records(2, payload=f"x auth_token={garden.secret()} ".encode())
    tape.frame(True, cursus.batch(records))
    tape.frame(False, cursus.ack(1, 1, 2))
    tape.close()
    return tape


def http_tape(garden: Garden, mss: int = 1448) -> Tape:
    """Requests of HTTP with secrets in their heads, bodies and addresses."""
    tape = Tape(broker=("10.0.0.2", 8080), mss=mss)
    tape.open()
    for name in ("Authorization: Bearer", "X-Api-Key:", "Cookie: session=", "X-Auth-Token:"):
        line = f"GET /admin?token={garden.secret()} HTTP/1.1"
        tape.say(True, f"{line}\r\n{name} {garden.secret()}\r\nHost: h\r\n\r\n".encode())
        body = f'{{"note": "{garden.secret_text()}"}}'
        head = f"HTTP/1.1 200 OK\r\nSet-Cookie: id={garden.secret()}\r\nContent-Length: {len(body)}"
        tape.say(False, f"{head}\r\n\r\n{body}".encode())
    tape.close()
    return tape


TAPES = (pulsar_tape, cursus_tape, http_tape)


def lossy(tape: Tape, chance: random.Random, share: float = 0.2) -> Tape:
    """The tape without some of its segments: holes before secrets, in them and behind them."""
    opened = [packet for packet in tape.packets[:3]]
    kept = [each for each in tape.packets[3:] if not each.payload or chance.random() > share]
    tape.packets = opened + kept
    return tape


def fragments_in(garden: Garden, shown: bytes, size: int = 7) -> list[str]:
    """The planted secrets of which a part of so many characters, 8 at most, is shown. What several
    of them have in common (heads of tokens) is no part of a secret."""
    parts = _parts(tuple(planted.secret for planted in garden.planted), size)
    numbers = _windows(shown, size)
    numbers = numbers[parts.endings[numbers & _ENDING]]  # or all of them would be sorted
    there = {
        int(number).to_bytes(8, "big")[8 - size :]
        for number in np.intersect1d(parts.numbers, numbers)
    }
    there |= {part for part in parts.short if part in shown}
    return sorted({name for part, name in parts.owned.items() if part in there})


class _Parts(NamedTuple):
    """Parts of secrets that one secret alone has.

    owned: of what secret each is. short: those of secrets that are shorter than a part.
    numbers: the others. endings: whether any of them has these last bits.
    """

    owned: dict[bytes, str]
    short: list[bytes]
    numbers: Windows
    endings: npt.NDArray[np.bool_]


@functools.cache
def _parts(secrets: tuple[str, ...], size: int) -> _Parts:
    parts: dict[bytes, list[str]] = {}
    for each in {*secrets}:
        data = each.encode()
        for part in {data[at : at + size] for at in range(max(len(data) - size + 1, 1))}:
            parts.setdefault(part, []).append(each)
    owned = {part: names[0] for part, names in parts.items() if len(names) == 1}
    short = [part for part in owned if len(part) < size]
    whole = b"".join(part for part in owned if len(part) == size)
    numbers = _windows(whole, size)[::size]
    endings = np.zeros(int(_ENDING) + 1, np.bool_)
    endings[numbers & _ENDING] = True
    return _Parts(owned, short, numbers, endings)


def _windows(data: bytes, size: int) -> Windows:
    """All pieces of so many bytes, as numbers."""
    text = np.frombuffer(data, np.uint8)
    count = max(len(text) - size + 1, 0)
    numbers = np.zeros(count, np.uint64)
    for at in range(size):
        numbers <<= np.uint64(8)
        numbers |= text[at : at + count]
    return numbers
