"""Secrets by their own form: tokens, keys of services, URLs, and words of sentences before them.

All works on bytes; what is found is where the secret lies.
"""

import binascii
import re
import string
from collections.abc import Iterator
from typing import Final

from dissector.codecs.secret_keys import WORD, Span, is_ordinary, is_secret
from dissector.codecs.secret_vocabulary import ORDINARY

_NOT_USERS: Final = frozenset(
    word.encode()
    for word in (
        *("account", "acct", "author", "by", "cc", "contact", "e-mail", "email", "from", "ftp"),
        *("http", "https", "id", "mail", "mailto", "name", "owner", "principal", "recipient"),
        *("sender", "sip", "sips", "to", "urn", "user", "username", "xmpp"),
    )
)
# What stands where a text or a name was cut.
_CUT: Final = rb"(?=<\d++ more>|\xe2\x80\xa6\(\d++ bytes)"
CUT_MARKS: Final = (b" more>", b"\xe2\x80\xa6(")
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
_LONGEST_KEY: Final = 16 << 10
_KEY_LETTERS: Final = (string.ascii_letters + string.digits + "+/=\\\r\n").encode()
_SERVICE_KEY: Final = re.compile(
    rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])|(?<![A-Za-z0-9])(?:gh[pousr]_\w{20,}+"
    rb"|github_pat_\w{20,}+|glpat-[\w-]{16,}+|xox[abeoprs]-[\w-]{10,}+|AIza[\w-]{30,}+"
    rb"|[sr]k_(?:live|test)_\w{10,}+|sk-[\w-]{20,}+|npm_\w{30,}+|hvs\.[\w-]{20,}+|ya29\.[\w-]{20,}+"
    rb"|xapp-[\w-]{10,}+|GOCSPX-[\w-]{10,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+|dop_v1_\w{20,}+)"
    rb"|(?<=hooks\.slack\.com/services/)[\w/]{10,}+"
    rb"|(?<!\w)\$(?:2[abxy]\$\d\d|[56]|argon2i?d?)\$[\w./$=,+-]{12,}+"
)
# What each of them begins with: no place where none does is looked at.
_SERVICE_KEY_BEGINS: Final = re.compile(
    rb"A(?:[KSB]IA|CCA)|gh[pousr]_|github_pat_|glpat-|xox|AIza|[sr]k_(?:live|test)_|sk-|npm_|hvs\."
    rb"|ya29\.|xapp-|GOCSPX-|SG\.|dop_v1_|services/|\$[256a]"
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
    rb"(?P<quoted>(?:[^\"'`<\r\n\xe2]|\xe2(?!\x80\xa6\()){4,128}+)(?:(?P=quote)|\Z|"
    + _CUT
    + rb")|(?:[ \t]{0,2}+:)?+[ \t]{1,4}+(?P<value>[^\s\"'`<>,;]{4,128}+))"
)
# A value behind a colon that ends what is said of a secret: password check failed for bob: x.
_SAID: Final = re.compile(
    rb"(?i)(?<![a-z])(?:passwords?|passwd|pwd|passphrase|passcode|secret|token|credentials?)"
    rb"(?P<words>(?:[ \t]{1,4}+[\w.@()'\"-]{1,64}+){1,6}?)[ \t]{0,2}+[:=][ \t]{0,4}+[\"'`]?+"
    rb"(?P<value>(?!//)[^\s\"'`<>,;]{4,128}+)"
)
_WHOSE: Final = re.compile(rb"(?i)[ \t]++(?:of|for|by)[ \t]++(?:user[ \t]++)?+\S++")
_WITH_DIGIT: Final = re.compile(rb"[0-9]")
_WITH_LETTER: Final = re.compile(rb"[A-Za-z]")
_NO_SECRET: Final = re.compile(
    rb"0x[0-9a-fA-F]+|[\d.:/TZ+-]+|(?:[a-zA-Z]\w*\.)+\w+|[a-z-]+[0-9]{1,3}"
)
# The discovery port of Cursus: the token is the second word of the line.
_DISCOVERY: Final = re.compile(
    rb"(?i)AUTH\s++(?P<value>[^\s=\"]++)(?=\s++(?:JOIN|LEAVE|HEARTBEAT|LIST)_CLUSTER\b)"
)
_CLUSTER_VERB: Final = re.compile(rb"(?i)(?:JOIN|LEAVE|HEARTBEAT|LIST)_CLUSTER")
# The client's own command, repeated in quotes or in a sentence.
_REPEATED: Final = re.compile(rb"(?:(?<=[\"'`=])(?i:AUTH)|(?<![^\s])AUTH)\s[^\"'`\r\n]++")
_AUTH_NAMES: Final = frozenset((b"principal", b"username", b"user", b"mechanism", b"version"))
_WORDS: Final = re.compile(rb"\S++")
# Every match of _SAID, or of _SPOKEN, has one of these: they are found faster than a word.
_SAID_PARTS: Final = (b"pass", b"pwd", b"secret", b"token", b"credential")
_SPOKEN_PARTS: Final = (*_SAID_PARTS, b"cookie", b"signature", b"session id", b"key")


def _has_any(data: bytes, parts: tuple[bytes, ...]) -> bool:
    """Whether one of some texts in small letters occurs, in letters of any size."""
    lowered = data.lower()
    return any(part in lowered for part in parts)


def _spoken(data: bytes) -> Iterator[Span]:
    if not _has_any(data, _SPOKEN_PARTS):
        return
    for match in _SPOKEN.finditer(data):
        value = match["value"].rstrip(b".,-")
        if (
            _WITH_DIGIT.search(value)
            and _WITH_LETTER.search(value)
            and not _NO_SECRET.fullmatch(value)
        ):
            yield match.span("value")


def _said(data: bytes) -> Iterator[Span]:
    if (b":" not in data and b"=" not in data) or not _has_any(data, _SAID_PARTS):
        return
    for match in _SAID.finditer(data):
        start, end = match.span("value")
        value = match["value"].rstrip(b".,-)")
        is_mixed = _WITH_DIGIT.search(value) and _WITH_LETTER.search(value)
        if _NO_SECRET.fullmatch(value):
            continue
        if is_mixed or (_WHOSE.fullmatch(match["words"]) and not is_ordinary(data, start, end)):
            yield start, end


def credentials(line: bytes, is_cut: bool = False) -> list[Span]:
    """What authenticates in an AUTH command of Cursus: all but who it is, where that is said first
    or by name, and but what the discovery port is asked behind the token. Nothing in other lines.

    Args:
        is_cut: the line goes on; who it is may be the token then.
    """
    words = list(_WORDS.finditer(line))
    if not words or words[0][0].upper() != b"AUTH":
        return []
    if len(words) > 2 and _CLUSTER_VERB.fullmatch(words[2][0]):
        return [words[1].span()]
    spans: list[Span] = []
    positional: list[Span] = []
    is_named = False
    for word in words[1:]:
        name, sign, value = word[0].partition(b"=")
        if sign and name.lower() in _AUTH_NAMES:
            is_named |= name.lower() == b"principal"
        elif sign and value.strip(b"=") and is_secret(name.decode("latin-1")):
            spans.append((word.end() - len(value), word.end()))
        else:
            positional.append(word.span())
    if not is_named and not spans and len(positional) > 1 and not is_cut:
        del positional[0]
    return spans + positional


def _repeated(data: bytes) -> Iterator[Span]:
    if not _has_any(data, (b"auth",)):
        return
    for match in _REPEATED.finditer(data):
        is_quoted = data[match.start() - 1 : match.start()] in (b'"', b"'", b"`", b"=")
        for low, high in credentials(match[0]):
            value = match[0][low:high]
            if is_quoted or (_WITH_DIGIT.search(value) and _WITH_LETTER.search(value)):
                yield match.start() + low, match.start() + high


def _spoken_passwords(data: bytes) -> Iterator[Span]:
    lowered = data.lower()
    if b"pass" not in lowered and b"pwd" not in lowered:
        return
    for match in _SPOKEN_PASSWORD.finditer(data):
        if match["quoted"] is not None:
            yield match.span("quoted")
        elif _WITH_DIGIT.search(match["value"]) and _WITH_LETTER.search(match["value"]):
            yield match.span("value")


def _by_shape(data: bytes) -> Iterator[Span]:
    shapes = [_DISCOVERY]
    if b"-u" in data:
        shapes.append(_OPTION_USER)
    if any(mark in data for mark in CUT_MARKS):
        shapes += [_USER_CUT, _KEY_CUT]
    for shape in shapes:
        yield from (match.span("value") for match in shape.finditer(data))


def _tokens(data: bytes) -> Iterator[Span]:
    for match in _TOKEN.finditer(data):
        start, end = match.span()
        if match["more"] and end - start >= _SHORTEST_TOKEN:
            yield start, end
            continue
        head = _TOKEN_HEADS.search(data, start, end)
        if head is not None:
            yield head.start(), end


def _schemes(data: bytes) -> Iterator[Span]:
    for match in _SCHEME.finditer(data):
        value = match["value"].rstrip(b".,:)]}")
        if value.lower() in ORDINARY or b"=" in value.rstrip(b"="):
            continue
        if match["scheme"].lower() == b"bearer" or _is_basic(value):
            yield match.span("value")


def _is_basic(value: bytes) -> bool:
    """Whether a word behind `Basic` is base64: with a colon inside, or at least no plain word."""
    try:
        return b":" in binascii.a2b_base64(value, strict_mode=True)
    except binascii.Error:
        return WORD.fullmatch(value) is None and len(value) > 7 and b":" not in value


def _urls(data: bytes) -> Iterator[Span]:
    """User information of URLs, also of those inside of others."""
    # Most texts of a capture are URLs of brokers, without anyone's name.
    for match in _URL.finditer(data) if b"@" in data else ():
        at = match.start("rest")
        for part in match["rest"].split(b"://"):
            yield from _user_information(part, at)
            at += len(part) + 3
    if b"%40" not in data:
        return
    for match in _URL_ENCODED.finditer(data):
        yield match.start("value"), match.end("value") - len(b"%40")


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
    for match in _USER.finditer(data):
        user, password = match["user"].lower(), match["password"]
        is_time = user.isdigit() and password.isdigit()
        if user not in _NOT_USERS and not is_time and not _CLASS.fullmatch(password):
            yield match.start(), match.end("password")


def _private_keys(data: bytes) -> Iterator[Span]:
    position = 0
    while (match := _PRIVATE_KEY.search(data, position)) is not None:
        end = _PRIVATE_KEY_END.search(data, match.end())
        position = len(data) if end is None else end.end()
        yield match.start(), position
    # One whose beginning is not there: the lines before its end.
    for match in _PRIVATE_KEY_END.finditer(data):
        lines = data[max(0, match.start() - _LONGEST_KEY) : match.start()]
        yield match.start() - len(lines) + len(lines.rstrip(_KEY_LETTERS)), match.end()


def _service_keys(data: bytes) -> Iterator[Span]:
    at = 0
    while (begins := _SERVICE_KEY_BEGINS.search(data, at)) is not None:
        is_hook = begins[0] == b"services/"
        match = _SERVICE_KEY.match(data, begins.end() if is_hook else begins.start())
        at = begins.start() + 1 if match is None else match.end()
        if match is not None:
            yield match.span()


BY_FORM: Final = (
    *(_by_shape, _spoken, _spoken_passwords, _said, _repeated),
    *(_tokens, _schemes, _urls, _users, _private_keys, _service_keys),
)
