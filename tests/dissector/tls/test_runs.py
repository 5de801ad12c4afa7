"""Ranges that are taken together give the rows that they give one by one."""

import pytest

from dissector.tls import runs
from tests.dissector.tls.seen import CAPTURES, capture, seen
from tests.wire import tls

SIZES = (1, 2, 100, 1400, 5, 16384, 3000, 1, 1, 1427, 20_000)
KINDS = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")


def made(name: str, segment: int) -> tuple[bytes, str]:
    """Records of many sizes, key updates between them, a damaged one."""
    written = (tls.begun_12 if "WITH" in name else tls.begun_13)(name)
    said = list(written.wire)
    for number, size in enumerate(SIZES * 3):
        side = number % 2
        for part in range(0, size, 16384):
            plain = bytes([number]) * min(size - part, 16384)
            said.append((side, written.writers[side].record(plain)))
        if number % 8 == 5 and "WITH" not in name:
            said.append((side, written.writers[side].update()))
        if number == 20:
            said[-1] = side, said[-1][1][:-1] + b"\0"
    return capture(said, segment=segment), written.keys


def both(data: bytes, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for least in (1, 1 << 30):
        monkeypatch.setattr(runs, "LEAST_RANGES", least)
        found.append(seen(data, keys))
    assert found[0].streams == found[1].streams and found[0].streams
    assert found[0].tables == found[1].tables


@pytest.mark.parametrize("segment", [1, 7, 61, 536, 1448, 9000, 1 << 16])
@pytest.mark.parametrize("name", KINDS)
def test_of_any_segments(name: str, segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data, keys = made(name, segment)
    if segment == 1:
        data = data[: len(data) // 20]
    both(data, keys, monkeypatch)


@pytest.mark.parametrize("name", ["go-tls12-resumed", "go-tls13-keyupdates"])
def test_of_a_real_broker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (CAPTURES / f"{name}.keys").read_text()
    both((CAPTURES / f"{name}.pcap").read_bytes(), keys, monkeypatch)
