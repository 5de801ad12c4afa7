"""Secrets in texts and streams: where they are, by their own form and by the key before them.

All works on bytes, so that text which is no UTF-8 hides nothing. Every pass costs time in
proportion to the bytes: expressions begin only where a word begins or never give back what they
took, and the scan goes on behind what a value took. What is found is where the secret's bytes lie;
whoever asks puts `<redacted: N bytes>` there, or as many other bytes as there were.

A value is secret by its form: a JSON web token, what follows `Bearer` and `Basic`, user
information of a URL, `user:password@host`, a private key, keys of well-known services. It is secret
by its key where the key means a secret, in `key=value`, `key: value`, members of JSON (also JSON
inside of JSON), headers, elements, options of a command line and pairs of protobuf.
"""

import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from dissector.codecs.secret_words import HARMLESS, ORDINARY, SECRET, SECRET_ENDS, SECRET_PAIRS

Span = tuple[int, int]

_LONGEST_NAME: Final = 64
_HEADERS: Final = ("authorization", "cookie", "proxy-authorization", "set-cookie", "x-auth-token")
_NOT_USERS: Final = frozenset(
    word.encode()
    for word in (
        *("account", "acct", "author", "by", "cc", "contact", "e-mail", "email", "from", "ftp"),
        *("http", "https", "id", "mail", "mailto", "name", "owner", "principal", "recipient"),
        *("sender", "sip", "sips", "to", "urn", "user", "username", "xmpp"),
    )
)

_ENCODED_QUOTE: Final = rb"%(?:25)*+22|&quot;|&#34;|\\++u0022"
# What stands where a text or a name was cut.
_CUT: Final = rb"(?=<\d++ more>|\xe2\x80\xa6\(\d++ bytes)"
_CUT_MARKS: Final = (b" more>", b"\xe2\x80\xa6(")
# A key, with all that may stand between it and its value.
_NAMED: Final = re.compile(
    rb"(?<![\w.$\x80-\xff-])(?P<name>[\w.$\x80-\xff-]++)(?P<end>"
    + _ENCODED_QUOTE
    + rb"|\\*+[\"']?+)(?P<blank>[ \t]{0,8}+)(?P<sign>[=-]>|:=|[=:]|%(?:25)*+3[dDaA])"
    rb"(?P<gap>(?:[ \t]|%(?:25)*+20){0,8}+)"
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

_TOKEN: Final = re.compile(
    rb"(?:eyJ|eyA|ewo)[A-Za-z0-9_+/=-]*+(?P<more>(?:(?:\.|%2[eE])[A-Za-z0-9_+/=-]*+)*+)"
)
# What the header of a token begins with: {"alg {"typ {"kid {"enc {"cty {"zip {"x5 {"jk {"jw
_TOKEN_HEADS: Final = re.compile(
    rb"eyJ(?:hbGci|0eXAi|raWQi|lbmMi|jdHki|6aXAi|4NX|qa3|qd2)|eyAi(?:YWxn|dHlw|a2lk)"
)
_SHORTEST_TOKEN: Final = 16
_SCHEME: Final = re.compile(
    rb"(?i)(?<![a-z])(?P<scheme>bearer|basic|negotiate|ntlm)(?:[ \t]{1,4}+|%20|\+)"
    rb"(?P<value>[^\s\"'<>,;\\\x00-\x1f\x7f]++)"
)
_URL: Final = re.compile(rb"://(?P<rest>[^\s\"'<>\x00-\x1f\x7f]++)")
_USER: Final = re.compile(
    rb"(?<![\w.+%~/@-])(?P<user>[\w.+%~-]{1,64}+):(?P<password>[^\s:@/\"'<>,;(){}\[\]\x00-\x1f\x7f]"
    rb"{1,128}+)@(?=(?P<host>[\w.-]{1,64}|\[))"
)
# What a bound left of `user:password@host`, of a key: its end is not there to tell.
_USER_CUT: Final = re.compile(
    rb"(?:(?<=://)|(?<![\w.+%~/@-]))(?P<value>[\w.+%~-]{1,64}+:(?!\d++[<\xe2])"
    rb"[^\s:@/\"'<>,;(){}\[\]\x00-\x1f\x7f\xe2]++)@?+" + _CUT
)
_KEY_CUT: Final = re.compile(
    rb"(?<![\w-])(?P<value>(?:A[KSB]IA|ACCA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|AIza"
    rb"|[sr]k_live_|sk-|npm_|hvs\.|ya29\.|GOCSPX-|SG\.)[\w.-]++)" + _CUT
)
_URL_ENCODED: Final = re.compile(
    rb"(?i)%3a%2f%2f(?P<value>(?:[\w.~+-]|%(?!40|2f))*+%40(?:[\w.~!$*-]*+%40)?+)"
)
# curl -u user:password
_OPTION_USER: Final = re.compile(
    rb"(?<![\w-])(?:-u|--user)(?:[ \t]{1,4}+|=)[\"']?+[\w.@-]{1,64}+:(?P<value>[^\s\"']++)"
)
_CLASS: Final = re.compile(rb"(?:[a-z]\w*\.){2,}[\w$]+")
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END: Final = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_SERVICE_KEY: Final = re.compile(
    rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])|(?<![A-Za-z0-9])(?:gh[pousr]_\w{20,}+"
    rb"|github_pat_\w{20,}+|glpat-[\w-]{16,}+|xox[abeoprs]-[\w-]{10,}+|AIza[\w-]{30,}+"
    rb"|[sr]k_(?:live|test)_\w{10,}+|sk-[\w-]{20,}+|npm_\w{30,}+|hvs\.[\w-]{20,}+|ya29\.[\w-]{20,}+"
    rb"|xapp-[\w-]{10,}+|GOCSPX-[\w-]{10,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+|dop_v1_\w{20,}+)"
    rb"|(?<=hooks\.slack\.com/services/)[\w/]{10,}+"
    rb"|(?<!\w)\$(?:2[abxy]\$\d\d|[56]|argon2i?d?)\$[\w./$=,+-]{12,}+"
)
# Words for secrets with a random text directly behind them.
_SPOKEN: Final = re.compile(
    rb"(?i)(?<![a-z])(?:passwords?|passwd|pwd|passphrase|passcode|secrets?|tokens?|credentials?"
    rb"|cookie|signature|session id|(?:api|access|private|secret)[ _-]?key)"
    rb"(?:[ \t](?:is|was|of|value|id|string))?[ \t]{1,4}+[\"'(\[<`]{0,2}+"
    rb"(?P<value>[\w+/=~!#$%^&*.-]{8,}+)"
)
# A password in quotes, or behind a colon that is not directly behind its word.
_SPOKEN_PASSWORD: Final = re.compile(
    rb"(?i)(?<![a-z])(?:passwords?|passwd|pwd|passphrase|passcode)"
    rb"(?:[ \t](?:is|was|(?:of|for)[ \t](?:user[ \t])?[\w.@-]{1,64}+))?+"
    rb"(?:(?:[ \t]{0,2}+:)?+[ \t]{1,4}+(?P<quote>[\"'`])"
    rb"(?P<quoted>(?:[^\"'`<\r\n\xe2]|\xe2(?!\x80\xa6\()){4,128}+)(?:(?P=quote)|"
    + _CUT
    + rb")|(?:[ \t]{0,2}+:)?+[ \t]{1,4}+(?P<value>[^\s\"'`<>,;]{4,128}+))"
)
_WITH_DIGIT: Final = re.compile(rb"[0-9]")
_WITH_LETTER: Final = re.compile(rb"[A-Za-z]")
_NO_SECRET: Final = re.compile(
    rb"0x[0-9a-fA-F]+|[\d.:/TZ+-]+|(?:[a-zA-Z]\w*\.)+\w+|[a-z-]+[0-9]{1,3}"
)
# The discovery port of Cursus: the token is the second word of the line.
_DISCOVERY: Final = re.compile(
    rb"(?i)AUTH\s++(?P<value>[^\s=\"]++)(?=\s++(?:JOIN|LEAVE|HEARTBEAT|LIST)_CLUSTER\b)"
)
_WORD: Final = re.compile(rb"[A-Z]?[a-z]{1,24}|[A-Z]{1,24}")
_WORD_BEFORE: Final = re.compile(rb"([A-Za-z]{2,16})[ _]\Z")
_SECOND_WORDS: Final = frozenset(second.encode() for _, second in SECRET_PAIRS)
# Of letters in any script; only those of ASCII tell by their case where a word begins.
_PARTS: Final = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+")

_KEY_HINTS: Final[tuple[bytes, ...]] = (
    *(b"pass", b"pw", b"psw", b"secret", b"token", b"cred", b"cookie", b"sess", b"sig", b"auth"),
    *(b"jwt", b"pin", b"key", b"otp", b"bearer", b"sid", b"private", b"cvv", b"jaas", b"srf"),
    *(b"hmac", b"saml", b"verifier", b"mfa"),
    *(b"mdp", b"contrase", b"senha", b"parol", b"wort", b"woord", b"heslo", b"haslo"),
    *(b"salasana", b"senord"),
    *(word.encode() for word in ("hasło", "арол", "АРОЛ", "密")),
)
_MANY_BYTES: Final = 4096  # from here on it pays to look first which bytes are there
_SIGNS: Final = (b"=", b":", b" ", b"%3", b"%25", b">", b"\t", b"\n")
_FORM_HINTS: Final[tuple[bytes, ...]] = (
    *(b"eyj", b"eya", b"ewo", b"akia", b"asia", b"abia", b"acca", b"-----begin", b"gh"),
    *(b"github_pat_", b"glpat-", b"xox", b"aiza", b"k_live_", b"sk-", b"npm_", b"hvs.", b"ya29."),
    *(b"bearer", b"basic", b"negotiate", b"ntlm", b"xapp-", b"gocspx-", b"sg.", b"dop_v1_"),
    *(b"k_test_", b"hooks.slack.com", b"$2", b"$5$", b"$6$", b"$argon2", b"%2f%2f"),
    *(b"-u ", b"--user"),
    *_CUT_MARKS,
)
_HINT_BYTES: Final = frozenset(b"".join((*_KEY_HINTS, *_FORM_HINTS)))
# In few bytes one expression finds any hint in a fraction of the time that looking for each takes.
_FEW_BYTES: Final = 256
_ANY_HINT: Final = re.compile(b"|".join(map(re.escape, (*_KEY_HINTS, *_FORM_HINTS))))

_MARK: Final = b"<redacted: "  # what is hidden already stays as it is


def hidden(size: int) -> bytes:
    """What stands for a secret of so many bytes."""
    return b"<redacted: %d bytes>" % size


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


def may_hold(data: bytes) -> bool:
    """Whether there can be a secret: cheap, for masses of texts that hold none. data may be many
    texts behind each other."""
    lowered = data.lower()
    if len(data) <= _FEW_BYTES and _ANY_HINT.search(lowered) is None:
        return b"@" in data and b":" in data
    keys, forms = _KEY_HINTS, _FORM_HINTS
    if len(data) >= _MANY_BYTES:
        # Masses of texts are made of few different bytes, and few hints of these alone.
        there = {byte for byte in _HINT_BYTES if byte in lowered}
        keys = tuple(hint for hint in keys if there.issuperset(hint))
        forms = tuple(hint for hint in forms if there.issuperset(hint))
    if any(sign in data for sign in _SIGNS) and any(hint in lowered for hint in keys):
        return True
    return (b"@" in data and b":" in data) or any(hint in lowered for hint in forms)


def secrets(data: bytes) -> list[Span]:
    """Where secrets are: first byte and the one behind the last, rising, not touching."""
    if not may_hold(data):
        return []
    found: list[Span] = []
    for search in _SEARCHES:
        found.extend(search(data))
    if _MARK in data:
        found = [span for span in found if not data.startswith(_MARK, span[0])]
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap or touch joined, empty ones left out."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def cleaned(data: bytes) -> bytes:
    """A text with its size in the place of each secret; the same object if there is none."""
    found = secrets(data)
    if not found:
        return data
    out, at = [], 0
    for start, end in found:
        out += [data[at:start], hidden(end - start)]
        at = end
    return b"".join([*out, data[at:]])


def cleaned_text(text: str) -> str:
    """The same for text; the same object if there is no secret."""
    data = text.encode("utf-8", "surrogatepass")
    shown = cleaned(data)
    return text if shown is data else shown.decode("utf-8", "backslashreplace")


def masked(data: bytes, spans: Sequence[Span], fill: bytes = b"*") -> bytes:
    """The bytes, as many as before, with `fill` in the spans."""
    out = bytearray(data)
    for start, end in spans:
        out[start:end] = fill * (end - start)
    return bytes(out)


# -- by the key


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
    for found in _NAMED.finditer(data):
        start, end = found.span("name")
        if start < position or not is_secret(name := _name_of(data, start, end)):
            continue
        is_colon = found["sign"] == b":"
        is_prose = is_colon and not found["end"] and bool(found["gap"])
        for span in _value(data, found.end(), name, is_prose, is_colon):
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
    if is_prose and scheme is None and _is_ordinary(data, *plain.span()):
        return
    if plain[0].lower() not in (b"null", b"true", b"false", b"none", b"nil"):
        yield at if scheme is None else plain.start(), plain.end()


def _end_of_quoted(data: bytes, at: int, depth: int, quote: bytes) -> int:
    """Where a text in quotes ends: at a quote as often escaped as the first one was."""
    for found in _QUOTES[quote].finditer(data, at):
        escapes = len(found[1])
        is_end = escapes < depth or escapes % (2 * depth + 2) == depth
        if is_end and (quote == b'"' or data[found.end() : found.end() + 1] not in _LETTERS):
            return found.start() if depth or not escapes else found.end() - 1
    return len(data)


_LETTERS: Final = frozenset(bytes([letter]) for letter in range(256) if chr(letter).isalnum())


def _end_of_group(data: bytes, at: int) -> int:
    """Where a list or an object ends."""
    depth = 0
    for found in _BRACKETS.finditer(data, at):
        depth += 1 if found[0] in b"[{" else -1
        if depth == 0:
            return found.end()
    return len(data)


def _is_ordinary(data: bytes, start: int, end: int) -> bool:
    """Whether a word behind `token: ` is one of a sentence and no token."""
    value = data[start:end].rstrip(b".,;:!?)]'")
    if value.lower() in ORDINARY:
        return True
    goes_on = re.match(rb" [a-z]{2}", data[end : end + 3]) is not None
    return goes_on and _WORD.fullmatch(value) is not None


def _by_flag(data: bytes) -> Iterator[Span]:
    if b"-" not in data:
        return
    for found in _FLAG.finditer(data):
        if is_secret(found["name"].decode("latin-1")):
            yield from _value(data, found.end(), "", False, False)


def _by_element(data: bytes) -> Iterator[Span]:
    if b"</" not in data:
        return
    for found in _ELEMENT.finditer(data):
        if is_secret(found["name"].decode("latin-1")):
            yield found.span("value")


def _by_members(data: bytes) -> Iterator[Span]:
    if b"value" not in data.lower():
        return
    for found in _MEMBERS.finditer(data):
        if is_secret(found["name"].decode("latin-1")):
            yield from _value(data, found.end(), "", False, False)


def _by_pair(data: bytes) -> Iterator[Span]:
    """A key and a value as two protobuf fields of one message: properties, metadata."""
    for found in _PAIR.finditer(data):
        start = found.end()
        end = start + data[found.start("size")]
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


def _spoken(data: bytes) -> Iterator[Span]:
    for found in _SPOKEN.finditer(data):
        value = found["value"].rstrip(b".,-")
        if (
            _WITH_DIGIT.search(value)
            and _WITH_LETTER.search(value)
            and not _NO_SECRET.fullmatch(value)
        ):
            yield found.span("value")


def _spoken_passwords(data: bytes) -> Iterator[Span]:
    lowered = data.lower()
    if b"pass" not in lowered and b"pwd" not in lowered:
        return
    for found in _SPOKEN_PASSWORD.finditer(data):
        if found["quoted"] is not None:
            yield found.span("quoted")
        elif _WITH_DIGIT.search(found["value"]) and _WITH_LETTER.search(found["value"]):
            yield found.span("value")


def _by_shape(data: bytes) -> Iterator[Span]:
    shapes = [_DISCOVERY]
    if b"-u" in data:
        shapes.append(_OPTION_USER)
    if any(mark in data for mark in _CUT_MARKS):
        shapes += [_USER_CUT, _KEY_CUT]
    for shape in shapes:
        yield from (found.span("value") for found in shape.finditer(data))


# -- by its own form


def _tokens(data: bytes) -> Iterator[Span]:
    for found in _TOKEN.finditer(data):
        start, end = found.span()
        if found["more"] and end - start >= _SHORTEST_TOKEN:
            yield start, end
            continue
        head = _TOKEN_HEADS.search(data, start, end)
        if head is not None:
            yield head.start(), end


def _schemes(data: bytes) -> Iterator[Span]:
    for found in _SCHEME.finditer(data):
        value = found["value"].rstrip(b".,:)]}")
        if value.lower() in ORDINARY or b"=" in value.rstrip(b"="):
            continue
        if found["scheme"].lower() == b"bearer" or _is_basic(value):
            yield found.span("value")


def _is_basic(value: bytes) -> bool:
    """Whether a word behind `Basic` is base64: with a colon inside, or at least no plain word."""
    try:
        return b":" in binascii.a2b_base64(value, strict_mode=True)
    except binascii.Error:
        return _WORD.fullmatch(value) is None and len(value) > 7 and b":" not in value


def _urls(data: bytes) -> Iterator[Span]:
    """User information of URLs, also of those inside of others."""
    for found in _URL.finditer(data):
        at = found.start("rest")
        for part in found["rest"].split(b"://"):
            yield from _user_information(part, at)
            at += len(part) + 3
    if b"%40" not in data:
        return
    for found in _URL_ENCODED.finditer(data):
        yield found.start("value"), found.end("value") - len(b"%40")


def _user_information(rest: bytes, at: int) -> Iterator[Span]:
    authority = re.match(rb"[^/?#\\]*+", rest)
    assert authority is not None, "it may be empty"
    end = authority[0].rfind(b"@")
    if end < 0:
        # A slash in a password belongs there encoded, but who writes it does not know that.
        _, colon, port = authority[0].rpartition(b":")
        if colon and port and not port.isdigit() and b"]" not in port and b"," not in port:
            end = rest.rfind(b"@")
    if end > 0:
        yield at, at + end


def _users(data: bytes) -> Iterator[Span]:
    """user:password@host without a scheme."""
    if b"@" not in data:
        return
    for found in _USER.finditer(data):
        user, password = found["user"].lower(), found["password"]
        is_time = user.isdigit() and password.isdigit()
        if user not in _NOT_USERS and not is_time and not _CLASS.fullmatch(password):
            yield found.start(), found.end("password")


def _private_keys(data: bytes) -> Iterator[Span]:
    position = 0
    while (found := _PRIVATE_KEY.search(data, position)) is not None:
        end = _PRIVATE_KEY_END.search(data, found.end())
        position = len(data) if end is None else end.end()
        yield found.start(), position


def _service_keys(data: bytes) -> Iterator[Span]:
    yield from (found.span() for found in _SERVICE_KEY.finditer(data))


_SEARCHES: Final = (
    *(_by_key, _by_flag, _by_element, _by_members, _by_pair, _by_shape, _spoken, _spoken_passwords),
    *(_tokens, _schemes, _urls, _users, _private_keys, _service_keys),
)
