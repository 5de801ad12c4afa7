"""Secrets in streams: however the stream is cut, and with holes."""

import random
from collections.abc import Callable

import pytest

from dissector import stream_secrets
from dissector.codecs.redaction import masked
from dissector.stream_secrets import (
    DirectionSecrets,
    Frame,
    FrameSecrets,
    StreamSecrets,
    frame_spans,
)
from tests.hard.tape import Tape
from tests.wire import cursus
from tests.wire.secrets import Garden, cursus_tape, fragments_in, pulsar_tape


def hidden(data: bytes, cuts: list[int]) -> bytes:
    search = StreamSecrets()
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        search.add(start, data[start:end])
    return masked(data, search.finish("http", False))


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
    search.add(40, b"and what\nis the next line")
    assert search.finish("http", False) == [(8, 11), (20, 27), (40, 48)]


def test_what_no_frame_holds_is_named_but_for_a_proxy_header() -> None:
    search = StreamSecrets()
    search.add(0, b"rest" + bytes(10))
    search.add(20, bytes(10))
    assert search.finish("pulsar", False, [(4, 9), (9, 14), (22, 40)]) == [(0, 4), (20, 22)]
    assert search.finish("kafka", False, []) == [(0, 14), (20, 30)]
    proxied = StreamSecrets()
    proxied.add(0, b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + bytes(8))
    assert proxied.finish("cursus", True, [(32, 38)]) == [(38, 40)]


@pytest.mark.parametrize("step", [1, 4, 100])
def test_the_line_that_a_stream_begins_with_goes_where_its_start_is_missing(step: int) -> None:
    data = b"J9.eyJz.c2ln x y\nnext"
    search = StreamSecrets()
    for at in range(0, len(data), step):
        search.add(5 + at, data[at : at + step])
    search.add(90, b"other")
    assert search.finish("http", True) == [(5, 21), (22, 26), (90, 95)]
    assert search.finish("http", False) == [(22, 26), (90, 95)]


def conversation_frames(garden: Garden, make: Callable[[Garden], Tape]) -> list[bytes]:
    tape = make(garden)
    return [frame for frames in tape.frames for frame in frames]


@pytest.mark.parametrize(("protocol", "make"), [("pulsar", pulsar_tape), ("cursus", cursus_tape)])
def test_no_cut_of_any_frame_shows_a_part_of_a_secret(
    protocol: str, make: Callable[[Garden], Tape]
) -> None:
    garden = Garden(31)
    for number, data in enumerate(conversation_frames(garden, make)):
        frame = Frame(100, 100 + len(data), protocol, is_packed=False)
        for cut in range(1 + number % 7, len(data) + 1, 7):
            spans = [(a - 100, b - 100) for a, b in frame_spans(frame, 100, data[:cut])]
            before = masked(data[:cut], spans)
            assert not fragments_in(garden, before), (data, cut)
            assert len(before) == cut
            if cut < len(data):
                at = 100 + cut
                assert frame_spans(frame, at, data[cut:]) == [(at, frame.end)]


def test_a_frame_longer_than_what_is_held_goes_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_secrets, "SECRET_HELD_BYTES", 64)
    search = FrameSecrets()
    plain = cursus.bare("LIST")
    search.add(0, plain)
    search.add_frame(Frame(0, len(plain), "cursus", is_packed=False))
    long = cursus.bare("PUBLISH topic=a message=" + "x" * 200)
    for at in range(0, len(long), 10):
        search.add(len(plain) + at, long[at : at + 10])
    end = len(plain) + len(long)
    search.add_frame(Frame(len(plain), end, "cursus", is_packed=False))
    search.finish()
    assert search.secret_spans[0] == (len(plain), end)
    assert search.framed == [(0, len(plain)), (len(plain), end)]


def test_of_a_direction_goes_what_frames_hide_and_what_lies_in_none() -> None:
    frame = cursus.enveloped("AUTH principal=a token=s3cr3t")
    rest = b"the rest of a command"
    direction = DirectionSecrets()
    direction.add_frame(Frame(0, len(frame), "cursus", False))
    direction.add(0, frame + rest)
    direction.finish("cursus", False)
    hidden, size = direction.hidden(0, frame + rest)
    assert hidden == frame.replace(b"s3cr3t", b"*" * 6) + b"*" * len(rest)
    assert size == 6 + len(rest)
    assert direction.hidden(4, frame[4:10]) == (frame[4:10], 0)
