"""Key logs from files: found, read once, followed, and named where others can read them."""

import os
from pathlib import Path

import pytest

from dissector.errors import InputError
from dissector.options import Options
from dissector.sources.key_logs import (
    VARIABLE,
    FollowedKeyLog,
    complaints,
    key_lines,
    keys_of,
)
from tests.dissector.tls.seen import SAMPLES, capture
from tests.wire import tls

RANDOM = bytes(range(32))
LINE = f"CLIENT_RANDOM {RANDOM.hex()} {'ab' * 48}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(LINE)
    path.chmod(0o600)
    return path


def test_an_option_names_it_or_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert keys_of(Options()) is None
    keys = keys_of(Options(keylog=str(path)))
    assert keys is not None and keys.find(RANDOM)
    assert keys_of(Options(keylog=str(path))) is keys
    monkeypatch.setenv(VARIABLE, str(path))
    assert keys_of(Options()) is keys
    monkeypatch.setenv(VARIABLE, str(path) + "-none")
    assert keys_of(Options()) is None


def test_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        keys_of(Options(keylog=str(tmp_path / "none")))
    with pytest.raises(InputError, match="cannot be read"):
        FollowedKeyLog(str(tmp_path / "none"))


def test_what_is_wrong_with_it_is_said_in_a_line_each(path: Path) -> None:
    assert complaints(Options(keylog=str(path))) == []
    path.write_text("broken\n" + LINE + "again\n")
    path.chmod(0o644)
    first, second = complaints(Options(keylog=str(path)))
    assert "others can read" in first and "line 1, 3" in second
    path.write_text("")
    assert "no key" in complaints(Options(keylog=str(path)))[-1]
    assert "ab" * 8 not in "".join(complaints(Options(keylog=str(path))))


def test_it_is_followed_as_it_grows_and_begins_anew(path: Path) -> None:
    followed = FollowedKeyLog(str(path))
    with path.open("a") as file:
        file.write(LINE.replace("00", "77")[:50])
        file.flush()
        followed.read()
        assert len(followed.keys) == 1
        file.write(LINE.replace("00", "77")[50:])
    followed.read()
    assert len(followed.keys) == 2
    path.write_text(LINE.replace("00", "88"))
    followed.read()
    assert len(followed.keys) == 3
    os.unlink(path)
    followed.read()
    followed.read()
    followed.close()


def test_lines_of_what_was_opened_alone() -> None:
    plain = tls.conversation_of(SAMPLES / "pulsar-apache" / "java-j12_nack.pcap")[:6]
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    data = bytearray(capture(tls.carried(begun, plain)))
    lines = key_lines(data, Options(), [begun.keys.encode() + LINE.encode()])
    assert sorted(lines.splitlines()) == sorted(begun.keys.splitlines())
