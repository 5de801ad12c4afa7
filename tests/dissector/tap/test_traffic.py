"""Traffic for long runs: what is mixed stays readable, what is new is new."""

import numpy as np

from captures.make.traffic import MIXES, packets
from tests.dissector.tap.traffic import acknowledgement, mixed, rename, topic_names, with_acks


def made(mix: str, count: int) -> list[bytes]:
    return [packet for _, packet in zip(range(count), packets(MIXES[mix]), strict=False)]


def test_captures_are_mixed_in_proportion_between_hosts_of_their_own():
    small, batch = made("small", 400), made("batch", 200)
    found = mixed([small, batch])
    assert len(found) == 600
    hosts = [(frame[27], frame[31]) for frame in found]
    assert set(hosts) == {(0, 0), (1, 1)} and hosts[:300].count((1, 1)) in range(90, 111)
    assert mixed([small]) == small


def test_every_second_segment_is_acknowledged():
    frames = made("kib", 300)
    found = list(with_acks(frames))
    segments = [frame for frame in frames if len(frame) > 66]
    assert len(segments) // 2 - 16 <= len(found) - len(frames) <= len(segments) // 2
    one = segments[0]
    said = acknowledgement(one)
    assert len(said) == 66 and said[26:30] == one[30:34] and said[34:36] == one[36:38]
    numbers = int.from_bytes(said[42:46], "big") - int.from_bytes(one[38:42], "big")
    assert numbers == len(one) - 66


def test_topics_get_new_names():
    data = np.frombuffer(bytearray(b"".join(made("small", 60))), np.uint8)
    names = topic_names(data)
    rename(data, names, 12)
    assert len(names) == 8 and data.tobytes().count(b"default/b0012-") == 8
    assert len(topic_names(data)) == 0
