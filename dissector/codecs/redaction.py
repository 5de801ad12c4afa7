"""Secrets in texts and streams: where they are, by their own form and by the key before them.

All functions work on bytes, so that invalid UTF-8 hides nothing. Every pass is linear in the bytes:
expressions begin only at the beginning of a word or do not backtrack, and the scan continues after
a matched value. The result is the position of the secret's bytes; the caller replaces them by
`<redacted: N bytes>`, or by as many other bytes.

A value is secret by its form: a JSON web token, the word after `Bearer` and `Basic`, user
information of a URL, `user:password@host`, a private key, keys of well-known services. It is secret
by its key if the key means a secret, in `key=value`, `key: value`, members of JSON (also nested in
JSON texts), headers, elements, options of a command line and pairs of protobuf.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from dissector.codecs.secret_forms import BY_FORM, CUT_MARKS
from dissector.codecs.secret_keys import BY_KEY, Span

KEY_HINTS: Final[tuple[bytes, ...]] = (
    *(b"pass", b"pw", b"psw", b"secret", b"token", b"cred", b"cookie", b"sess", b"sig", b"auth"),
    *(b"jwt", b"pin", b"key", b"otp", b"bearer", b"sid", b"private", b"cvv", b"jaas", b"srf"),
    *(b"hmac", b"saml", b"verifier", b"mfa"),
    *(b"mdp", b"contrase", b"senha", b"parol", b"wort", b"woord", b"heslo", b"haslo"),
    *(b"salasana", b"senord"),
    *(word.encode() for word in ("hasło", "арол", "АРОЛ", "密")),
)
_MANY_BYTES: Final = 4096  # from here on it pays to look first which bytes are there
_SIGNS: Final = (b"=", b":", b" ", b"%3", b"%25", b">", b"\t", b"\n")
FORM_HINTS: Final[tuple[bytes, ...]] = (
    *(b"eyj", b"eya", b"ewo", b"akia", b"asia", b"abia", b"acca", b"-----begin", b"gh"),
    *(b"github_pat_", b"glpat-", b"xox", b"aiza", b"k_live_", b"sk-", b"npm_", b"hvs.", b"ya29."),
    *(b"bearer", b"basic", b"negotiate", b"ntlm", b"xapp-", b"gocspx-", b"sg.", b"dop_v1_"),
    *(b"k_test_", b"hooks.slack.com", b"$2", b"$5$", b"$6$", b"$argon2", b"%2f%2f"),
    *(b"-u ", b"--user"),
    *CUT_MARKS,
)
_HINT_BYTES: Final = frozenset(b"".join((*KEY_HINTS, *FORM_HINTS)))
# In few bytes one expression finds any hint in a fraction of the time that looking for each takes.
_FEW_BYTES: Final = 256
_ANY_HINT: Final = re.compile(b"|".join(map(re.escape, (*KEY_HINTS, *FORM_HINTS))))

# What tells bytes from text, and a letter or a digit in them that can be the length of the text
# behind it: behind a tag of protobuf, behind a byte of zero, behind a length's first byte.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_LENGTH: Final = re.compile(rb"(?<=[\x00-\x1f\x80-\xff\"*2:BJRZbjrz])[0-9A-Za-z]")

_SEARCHES: Final = (*BY_KEY, *BY_FORM)
_MARK: Final = b"<redacted: "  # what is hidden already stays as it is


def hidden(size: int) -> bytes:
    """Return the replacement of a secret of so many bytes."""
    return b"<redacted: %d bytes>" % size


def may_hold(data: bytes) -> bool:
    """Whether there can be a secret: cheap, for masses of texts that hold none. data may be many
    texts behind each other."""
    lowered = data.lower()
    if len(data) <= _FEW_BYTES and _ANY_HINT.search(lowered) is None:
        return b"@" in data and b":" in data
    keys, forms = KEY_HINTS, FORM_HINTS
    if len(data) >= _MANY_BYTES:
        # Masses of texts are made of few different bytes, and few hints of these alone.
        there = {byte for byte in _HINT_BYTES if byte in lowered}
        keys = tuple(hint for hint in keys if there.issuperset(hint))
        forms = tuple(hint for hint in forms if there.issuperset(hint))
    if any(sign in data for sign in _SIGNS) and any(hint in lowered for hint in keys):
        return True
    return (b"@" in data and b":" in data) or any(hint in lowered for hint in forms)


def secrets(data: bytes) -> list[Span]:
    """Return the spans of secrets: start and end offsets, ascending, not adjacent."""
    return places_in(data, without_lengths(data)) if may_hold(data) else []


def places_in(data: bytes, bare: bytes) -> list[Span]:
    """Where secrets are in the bytes, and in what is left of them without lengths."""
    spans = [span for search in _SEARCHES for span in search(data)]
    if bare != data:
        spans += [span for search in _SEARCHES for span in search(bare)]
    if _MARK in data:
        spans = [span for span in spans if not data.startswith(_MARK, span[0])]
    return merged(spans)


def without_lengths(data: bytes) -> bytes:
    """The bytes with zeros in the place of letters and digits that can be the length of a text: a
    word that begins behind one would not begin there else. The same object where there is none."""
    if _BINARY.search(data) is not None:
        return _LENGTH.sub(
            lambda match: b"\0" if match.end() + match[0][0] <= len(data) else match[0], data
        )
    if len(data) > 2 and data[0] & 7 == 2 and _LENGTH.match(data, 1) and 2 + data[1] <= len(data):
        return data[:1] + b"\0" + data[2:]
    return data


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sort spans; merge overlapping and adjacent ones, and drop empty ones."""
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
    """Replace each secret of a text by its size; return the same object if there is none."""
    return with_sizes(data, secrets(data))


def with_sizes(data: bytes, spans: Sequence[Span]) -> bytes:
    """Replace ascending spans by their sizes; return the same object if there are none."""
    if not spans:
        return data
    out, at = [], 0
    for start, end in spans:
        out += [data[at:start], hidden(end - start)]
        at = end
    return b"".join([*out, data[at:]])


def cleaned_text(text: str) -> str:
    """Apply `cleaned` to a str; return the same object if there is no secret."""
    data = text.encode("utf-8", "surrogatepass")
    shown = cleaned(data)
    return text if shown is data else shown.decode("utf-8", "backslashreplace")


_REST: Final = re.compile(rb"[^\n]*+(?:\n[A-Za-z0-9+/=]{16,}+(?=[\r\n]|\Z))*+")
_BETWEEN_WORDS: Final = re.compile(rb"[\s\x00-\x1f\x7f]")


def behind_hole(data: bytes) -> int:
    """Return the end of the possible rest of a secret after a gap: the end of the line, or of the
    lines of a private key."""
    rest = _REST.match(data)
    assert rest is not None, "it may be empty"
    return rest.end()


def last_word(data: bytes, at: int) -> int:
    """Return the start of the unfinished last word of the data, at least `at`."""
    for match in _BETWEEN_WORDS.finditer(data, at):
        at = match.end()
    return at


def masked(data: bytes, spans: Sequence[Span], fill: bytes = b"*") -> bytes:
    """Return the bytes with `fill` in the spans, at equal length."""
    out = bytearray(data)
    for start, end in spans:
        out[start:end] = fill * (end - start)
    return bytes(out)
