"""Secrets are found by their form and by the key before them, and plain words stay."""

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.redaction import (
    cleaned,
    cleaned_text,
    hidden,
    masked,
    may_hold,
    merged,
    secrets,
)
from dissector.codecs.secret_keys import is_secret
from dissector.codecs.secret_vocabulary import HARMLESS, ORDINARY, SECRET
from tests.wire.secrets import KINDS

SECRET_KEYS = (
    *(
        "password",
        "db.passwd",
        "PWD",
        "user_pass",
        "passphrase",
        "cardPin",
        "clientSecret",
        "token",
    ),
    *("access_token", "refreshToken", "X-Auth-Token", "auth", "authParams", "auth_data", "Cookie"),
    *("set-cookie", "JSESSIONID", "session", "sig", "X-Amz-Signature", "api_key", "apikey"),
    *("x-api-key", "accessKey", "AWS_SECRET_ACCESS_KEY", "private key", "credentials", "jwt"),
    *("Authorization", "mypassword", "authtoken", "password2", "sasl.jaas.config", "token_value"),
)
PLAIN_KEYS = (
    *("pinned", "tokenCount", "passed", "key", "partition_key", "author", "authority", "compass"),
    *("sessionTimeoutMs", "auth_method_name", "authMethod", "tokenizer", "keyShared", "secretary"),
    *(
        "passwordLength",
        "tokenExpiry",
        "authenticationEnabled",
        "topic",
        "signal",
        "spin",
        "bypass",
    ),
)
PLAIN_TEXTS = (
    "pinned=true tokenCount=5 passed=3 sessionTimeout=30000 authMethod=token",
    "authentication failed: no such user",
    "Failed to authentication token: JWT expired at 2024-01-01T00:00:00Z. Current time: 2024",
    "Failed to authentication token: JWT signature does not match locally computed signature.",
    "Bearer token is missing",
    "Basic authentication failed",
    'WWW-Authenticate: Basic realm="pulsar"',
    "password: must not be empty",
    "Token: null, password=null",
    "org.apache.pulsar.client.api.PulsarClientException$AuthenticationException: refused",
    "KeeperErrorCode = Session expired for /admin/policies",
    "persistent://public/default/a:b@c",
    "pulsar://broker-1.example:6650,broker-2.example:6650/path?x=a@b",
    "user:bob@example.com mailto:bob@example.com at 12:30@noon",
    "secret store unavailable, token of 3 permits, key order-12345678",
    "at pulsar://broker:66<99 more>",
    "persistent://public/default/a:b…(9999 bytes, 01ab)",
    "password for user is missing, password 'x'",
    "enclave=1 parole=2 passed -> 3",
    "java.lang.Foo:org.apache.pulsar.Producer@5a2b3c",
)
HIDDEN = (
    ("password=hunter2 x=1", "password=_7_ x=1"),
    ("password=ab,cd;ef x", "password=_8_ x"),
    ("password=abc,user=bob", "password=_3_,user=bob"),
    ('pwd="a \\"b\\" c" x', 'pwd="_9_" x'),
    ("pwd='x y' z", "pwd='_3_' z"),
    ('{"token":"abc\\"d","x":1}', '{"token":"_6_","x":1}'),
    ('{"pin":1234,"x":2}', '{"pin":_4_,"x":2}'),
    ('{"tokens":["a","b"],"x":1}', '{"tokens":_9_,"x":1}'),
    ('{"e":"{\\"token\\":\\"ab c\\",\\"x\\":1}"}', '{"e":"{\\"token\\":\\"_4_\\",\\"x\\":1}"}'),
    ('"{\\\\\\"pwd\\\\\\":\\\\\\"ab\\\\\\"}"', '"{\\\\\\"pwd\\\\\\":\\\\\\"_2_\\\\\\"}"'),
    ("/?access_token=abc&x=1 HTTP/1.1", "/?access_token=_3_&x=1 HTTP/1.1"),
    ("password%3Dabc x", "password%3D_3_ x"),
    ("<password>abc</password>", "<password>_3_</password>"),
    ("mysql --password hunter2 -h y", "mysql --password _7_ -h y"),
    ("Authorization: Basic dTpw\r\nHost: x", "Authorization: _10_\r\nHost: x"),
    ("Cookie: a=b; c=d\r\nX: y", "Cookie: _8_\r\nX: y"),
    ("got Bearer abc", "got Bearer _3_"),
    ("Basic dXNlcjpwYXNz was", "Basic _12_ was"),
    ("pulsar://bob:s3@host:6650/x", "pulsar://_6_@host:6650/x"),
    ("http://u:p/w@h/x", "http://_5_@h/x"),
    ("see http://x/?next=https://u:p@h", "see http://x/?next=https://_3_@h"),
    ("login bob:s3cret@db.example failed", "login _10_@db.example failed"),
    ("the token 8f2a9c77d1e0 was rejected", "the token _12_ was rejected"),
    ("api key: abc123", "api key: _6_"),
    ("AUTH tok LIST_CLUSTER", "AUTH _3_ LIST_CLUSTER"),
    ("x AKIAIOSFODNN7EXAMPLE.", "x _20_."),
    ("password 'correct horse' is wrong", "password '_13_' is wrong"),
    ("password for bob: hunter2", "password for bob: _7_"),
    ("password was `a b c d`", "password was `_7_`"),
    ("password := hunter2 x", "password := _7_ x"),
    ("password -> hunter2", "password -> _7_"),
    ("mot_de_passe=abc x", "mot_de_passe=_3_ x"),
    ("contraseña: abc1 x", "contraseña: _4_ x"),
    ("Пароль=abc x", "Пароль=_3_ x"),
    ("用户密码=abc x", "用户密码=_3_ x"),
    ("%7B%22password%22%3A%20%22abc%22", "%7B%22password%22%3A%20%22_6_"),
    ("%2522pwd%2522%253A%2522abc", "%2522pwd%2522%253A%2522_3_"),
    ("&quot;pwd&quot;:&quot;abc x", "&quot;pwd&quot;:&quot;_3_ x"),
    ("\\u0022pwd\\u0022:\\u0022abc x", "\\u0022pwd\\u0022:\\u0022_3_ x"),
    ("https%3A%2F%2Fu%3Apw%40host%2F", "https%3A%2F%2F_6_%40host%2F"),
    ('{"name": "password", "value": "abc"}', '{"name": "password", "value": "_3_"}'),
    ('<add key="password" value="abc"/>', '<add key="password" value="_3_"/>'),
    ('<password type="x">abc</password>', '<password type="x">_3_</password>'),
    ("curl -u bob:hunter2 http://x", "curl -u bob:_7_ http://x"),
    ("at hooks.slack.com/services/T00/B00/abcd1234", "at hooks.slack.com/services/_16_"),
    ("hash $2b$12$abcdefghijklmnop", "hash _23_"),
    ("x GOCSPX-abcdefghij12 y", "x _19_ y"),
    ("at pulsar://bob:hunt<99 more>", "at pulsar://_8_<99 more>"),
    ("login bob:hunt…(9999 bytes, 01ab)", "login _8_…(9999 bytes, 01ab)"),
    ("login bob:hunt@…(9999 bytes, 01ab)", "login _8_@…(9999 bytes, 01ab)"),
    ("password 'correct ho…(9999 bytes, 01ab)", "password '_10_…(9999 bytes, 01ab)"),
    ("AKIAIOSF<99 more>", "_8_<99 more>"),
    ("password 'correct ho<99 more>", "password '_10_<99 more>"),
    ("\n\x08password\x12\x06hunter\x18", "\n\x08password\x12\x06_6_\x18"),
)


def shown(text: str) -> str:
    """What is made of a text; `_N_` where N bytes were hidden."""
    return re.sub(r"<redacted: (\d+) bytes>", r"_\1_", cleaned(text.encode()).decode())


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_keys_that_mean_a_secret(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_keys_that_mean_none(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(("text", "expected"), HIDDEN, ids=[text for text, _ in HIDDEN])
def test_a_secret_is_hidden_and_what_is_around_it_stays(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_plain_texts_stay(text: str) -> None:
    assert cleaned_text(text) is text


@given(st.integers(0, 10**9), st.binary(max_size=9), st.binary(max_size=9))
@settings(max_examples=200)
def test_every_kind_of_secret_is_found_whatever_is_around_it(
    seed: int, before: bytes, after: bytes
) -> None:
    chance = random.Random(seed)
    planted = chance.choice(KINDS)(chance)
    # Neither a quote nor a sign that the text itself would go on with.
    whole = before + b" \xff\n" + planted.text.encode() + b"\n" + after
    assert planted.secret.encode() not in cleaned(whole)


@given(st.binary(max_size=120) | st.text("=:\"'\\{}[]@/ tokenAUTH.eyJ&;,<>-%3", max_size=80))
@settings(max_examples=200)
def test_spans_lie_inside_in_order_and_hiding_twice_changes_nothing(data: bytes | str) -> None:
    whole = data if isinstance(data, bytes) else data.encode()
    found = secrets(whole)
    assert found == merged(found) and all(0 <= a < b <= len(whole) for a, b in found)
    assert len(masked(whole, found)) == len(whole)
    assert may_hold(whole) or not found
    assert may_hold(whole + b"\xff" * 5000) == may_hold(whole), "many bytes are judged alike"


@given(st.binary(max_size=300) | st.text("=:@ \t%3>-.$_passwordkeygheyjsid2AKIA", max_size=300))
@settings(max_examples=300)
def test_few_bytes_are_judged_as_many_are(data: bytes | str) -> None:
    """Texts of each length have a way of their own to look for what hints at a secret."""
    whole = data if isinstance(data, bytes) else data.encode()
    assert may_hold(whole + b"\xff" * 300) == may_hold(whole)
    assert may_hold(whole + b"\xff" * 5000) == may_hold(whole)


@pytest.mark.parametrize("text", [text for text, _ in HIDDEN])
def test_a_secret_is_suspected_in_few_bytes_and_in_many(text: str) -> None:
    for more in (0, 300, 5000):
        assert may_hold(text.encode() + b"\xff" * more)


def test_what_is_hidden_already_stays_as_it_is() -> None:
    once = cleaned(b"token=abc x password: def9 {'pin': 7}")
    assert cleaned(once) == once and once.count(hidden(3)) == 1


@pytest.mark.parametrize("word", sorted(SECRET))
def test_every_word_for_a_secret_is_found_in_a_text(word: str) -> None:
    assert shown(f"{word}=abc x") == f"{word}=_3_ x"


def test_lists_of_words_do_not_contradict_each_other() -> None:
    assert not SECRET & HARMLESS
    assert all(word == word.lower() for word in ORDINARY)


HOSTILE = (
    *("token=", "eyJ", "a:b@", "://", '"token":[', "Bearer ", "\n\x05token\x12\x01", "AUTH x "),
    *("-----BEGIN PRIVATE KEY-----", "a", "\\", 'token="', "x=", "--token ", "<token>", "cookie: "),
    *("eyJhbGci", "'", "password 1a", "%3D", "a.", "token='", ":@", "AKIA", "key ", "token: ["),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_bytes_and_no_faster(piece: str) -> None:
    def seconds(size: int) -> float:
        data = (piece.encode() * (size // len(piece) + 1))[:size] + b" token="
        start = time.process_time()
        secrets(data)
        return time.process_time() - start

    # Eight times the bytes: eight times the time, sixty-four if it were squared.
    small = min(seconds(1 << 14) for _ in range(3))
    assert seconds(1 << 17) < 24 * small + 0.05
