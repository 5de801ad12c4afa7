"""Secrets in streams: however the stream is cut, and with holes."""

import random

import pytest

from dissector import stream_secrets
from dissector.codecs.redaction import masked
from dissector.stream_secrets import StreamSecrets
from tests.wire.secrets import Garden


def hidden(data: bytes, cuts: list[int]) -> bytes:
    search = StreamSecrets()
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        search.add(start, data[start:end])
    return masked(data, search.finish())


@pytest.mark.parametrize("seed", range(4))
def test_secrets_are_found_however_the_stream_is_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_secrets, "SECRET_WINDOW_BYTES", 4096)
    monkeypatch.setattr(stream_secrets, "SECRET_REACH_BYTES", 1024)
    garden = Garden(seed)
    filler = "plain words, nothing more\n" * 3
    data = "".join(f"{filler}{garden.text()}\n" for _ in range(60)).encode()
    chance = random.Random(seed)
    whole = hidden(data, [])
    for cuts in ([], list(range(1, len(data), 7)), sorted(chance.sample(range(len(data)), 40))):
        shown = hidden(data, cuts)
        assert shown.count(b"plain words, nothing more") == 180
        assert not [each for each in garden.planted if each.secret.encode() in shown]
    assert len(whole) == len(data)


def test_the_rest_of_a_secret_behind_a_hole_goes_too() -> None:
    search = StreamSecrets()
    search.add(0, b"x token=abc")
    search.add(20, b"def y=1")
    assert search.finish() == [(8, 11), (20, 23)]


def test_what_no_frame_holds_is_named_but_for_a_proxy_header() -> None:
    search = StreamSecrets()
    search.add(0, b"rest" + bytes(10))
    search.add(20, bytes(10))
    search.finish()
    assert search.outside([(4, 9), (9, 14), (22, 40)]) == [(0, 4), (20, 22)]
    assert search.outside([]) == [(0, 14), (20, 30)]
    proxied = StreamSecrets()
    proxied.add(0, b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + bytes(8))
    assert proxied.outside([(32, 38)]) == [(38, 40)]


@pytest.mark.parametrize("step", [1, 4, 100])
def test_the_word_that_a_stream_begins_with_is_known(step: int) -> None:
    data = b"J9.eyJz.c2ln x y"
    search = StreamSecrets()
    for at in range(0, len(data), step):
        search.add(5 + at, data[at : at + step])
    search.add(90, b"other")
    assert search.opening == (5, 17)
