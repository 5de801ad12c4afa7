"""Names in the place of names: of equal length, one to one, and legible as what they are."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.pseudonyms import Pseudonyms, key_of

NAMES = Pseudonyms(key_of(bytes(range(16))))


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


def test_a_word_is_the_same_in_every_name_and_other_under_another_key() -> None:
    whole = NAMES.name(b"persistent://acme/billing/orders")
    assert NAMES.words(b"orders") == whole.rsplit(b"/", 1)[1]
    others = Pseudonyms(key_of(bytes(range(1, 17))))
    assert others.words(b"orders-of-a-day") != NAMES.words(b"orders-of-a-day")


def test_words_longer_than_the_room_are_several() -> None:
    chance = random.Random(1)
    word = bytes(chance.choices(b"abcdefghij0123456789", k=1000))
    made = NAMES.words(word)
    assert len(made) == 1000 and sum(a == b for a, b in zip(word, made, strict=True)) < 120
