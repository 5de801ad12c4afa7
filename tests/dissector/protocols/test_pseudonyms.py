"""Names in the place of names: of equal length, never two for one, and legible as what they are."""

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols import pseudonyms
from dissector.protocols.pseudonyms import Pseudonyms

NAMES = Pseudonyms(bytes(range(16)))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (
            "persistent://public/default/orders-partition-3",
            r"persistent://[a-z]{6}/[a-z]{7}/[a-z]{6}-partition-3",
        ),
        ("non-persistent://a/b/c-sub-DLQ", r"non-persistent://[a-z]/[a-z]/[a-z]-[a-z]{3}-DLQ"),
        ("orders-RETRY-partition-12", r"[a-z]{6}-RETRY-partition-12"),
        ("pulsar.repl.eu-->us", r"pulsar\.repl\.[a-z]{2}-->[a-z]{2}"),
        ("pulsar://broker-1.acme:6650", r"pulsar://[a-z]{6}-\d\.[a-z]{4}:6650"),
        ("pulsar+ssl://a.b:6651,c.d:6651/x", r"pulsar\+ssl://[a-z]\.[a-z]:6651,.*"),
        ("Standalone_0-44", r"[A-Z][a-z]{9}_\d-\d\d"),
        ("-partition-3", r"-[a-z]{9}-\d"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_a_name_is_stays_and_what_it_names_does_not(name: str, pattern: str) -> None:
    made = NAMES.name(name.encode()).decode()
    assert re.fullmatch(pattern, made) and len(made) == len(name)
    assert not name or made != name


@given(st.text(max_size=60))
def test_text_stays_text_of_equal_length(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    made = NAMES.words(data)
    assert len(made) == len(data)
    if max(text, default=" ") < "\ud800" or min(text, default=" ") > "\udfff":
        assert len(made.decode()) == len(text)


@given(st.binary(max_size=300))
def test_any_bytes_are_taken(data: bytes) -> None:
    assert len(NAMES.name(data)) == len(NAMES.words(data)) == len(data)


@pytest.mark.parametrize("alphabet", ["0123456789", "abcdefghijklmnopqrstuvwxyz", "aZ3é注"])
def test_different_words_stay_different(alphabet: str) -> None:
    words = {
        f"{one}{other}{third}".encode() for one in alphabet for other in alphabet for third in "abc"
    }
    assert len({NAMES.words(word) for word in words}) == len(words)


@pytest.mark.parametrize("kinds", ["0", "a", "Z", "00", "aZ", "\x80", "a0", "000"])
def test_words_of_which_there_are_few_share_no_pseudonym(kinds: str) -> None:
    """All words of a kind: each stands for one, and for itself only where no other is left."""
    alphabet = {"0": "0123456789", "a": "abcdefghijklmnopqrstuvwxyz"}
    alphabet["Z"] = alphabet["a"].upper()
    alphabet["\x80"] = [bytes([value]) for value in range(0x80, 0xA0)]
    names = Pseudonyms(bytes(range(16)))
    letters = ([each if isinstance(each, bytes) else each.encode() for each in alphabet[kind]]
               for kind in kinds)  # fmt: skip
    words = [b"".join(each) for each in itertools.product(*letters)]
    random.Random(1).shuffle(words)
    made = [names.words(word) for word in words]
    assert len(set(made)) == len(words)
    assert sum(one == other for one, other in zip(words, made, strict=True)) <= 1
    names.words.cache_clear()
    assert made == [names.words(word) for word in words]


def test_a_pseudonym_follows_from_the_key_and_from_what_came_before() -> None:
    words = [f"p{number}".encode() for number in range(200)]
    key = bytes(range(16))
    one, other = Pseudonyms(key), Pseudonyms(key)
    assert [one.name(word) for word in words] == [other.name(word) for word in words]
    again = Pseudonyms(key)
    turned = [again.name(word) for word in reversed(words)][::-1]
    assert len(set(turned)) == len(words)
    # Most find the word that the key alone gives them.
    equal = sum(a == one.name(word) for a, word in zip(turned, words, strict=True))
    assert len(words) // 2 < equal < len(words)


def test_beyond_the_bound_words_are_replaced_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudonyms, "MAX_PSEUDONYMS", 2)
    names = Pseudonyms(bytes(range(16)))
    assert not names.is_full and names.name(b"orders-of-all") != b"orders-of-all"
    assert names.is_full
    made = [names.name(f"key-{number}".encode()) for number in range(10_000, 12_000)]
    assert 1000 < len(set(made)) < 2000


def test_a_word_is_the_same_in_every_name_and_other_under_another_key() -> None:
    whole = NAMES.name(b"persistent://acme/billing/orders")
    assert NAMES.words(b"orders") == whole.rsplit(b"/", 1)[1]
    others = Pseudonyms(bytes(range(1, 17)))
    assert others.words(b"orders-of-a-day") != NAMES.words(b"orders-of-a-day")


def test_words_longer_than_the_room_are_several() -> None:
    chance = random.Random(1)
    word = bytes(chance.choices(b"abcdefghij0123456789", k=1000))
    made = NAMES.words(word)
    assert len(made) == 1000 and sum(a == b for a, b in zip(word, made, strict=True)) < 120
