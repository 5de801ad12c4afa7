"""A first command over a small capture does not wait for a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.cli.uncompiled import size_of
from dissector.limits import MAX_UNCOMPILED_BYTES
from tests.dissector.cli.conftest import Command
from tests.dissector.observed import CAPTURES

SMALL = CAPTURES / "pulsar-apache" / "java-j12_nack.pcap"


def told(
    cache: Path, *arguments: str, piped: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "DISSECTOR_CACHE": str(cache)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    return subprocess.run(
        [sys.executable, "-m", "dissector", *arguments],
        env=environment, input=piped, capture_output=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["summary", "frames", "connections", "findings"])
def test_with_an_empty_cache_the_answer_is_the_same_and_nothing_is_compiled(
    command: Command, name: str, tmp_path: Path
) -> None:
    before = os.times()
    cold = told(tmp_path / "cache", name, str(SMALL))
    after = os.times()
    assert cold.returncode == 0 and cold.stderr.count(b"no compiled kernels yet") == 1
    assert b"compiling" not in cold.stderr
    assert not list(tmp_path.glob("cache/*/*.kernel"))
    # Compiling takes half a minute of a processor; other processes do not count here.
    assert after.children_user - before.children_user < 5
    warm = command(name, "-q", SMALL)
    assert (warm.code, warm.out) == (0, cold.stdout.decode())


def test_a_pipe_whose_writer_is_through_is_as_small_as_what_waits_in_it(tmp_path: Path) -> None:
    cold = told(tmp_path / "cache", "frames", "-", piped=SMALL.read_bytes())
    assert cold.returncode == 0 and b"no compiled kernels yet" in cold.stderr
    assert not list(tmp_path.glob("cache/*/*.kernel"))
    assert len(cold.stdout.splitlines()) > 50


def test_a_pipe_into_which_somebody_may_write_has_no_size() -> None:
    measure = "from dissector.cli.uncompiled import size_of; print(size_of(['-']))"
    reader, writer = os.pipe()
    for is_open, size in ((True, b"None"), (False, b"3")):
        if is_open:
            os.write(writer, b"abc")
        else:
            os.close(writer)
        asked = subprocess.run(
            [sys.executable, "-c", measure], stdin=reader, capture_output=True, check=True
        )
        assert asked.stdout.strip() == size
    os.close(reader)


def test_what_is_large_or_of_unknown_size_is_compiled_for(tmp_path: Path) -> None:
    large, packed = tmp_path / "large.pcap", tmp_path / "x.pcap.gz"
    large.write_bytes(bytes(MAX_UNCOMPILED_BYTES + 1))
    packed.write_bytes(b"\x1f\x8b" + bytes(MAX_UNCOMPILED_BYTES // 10))
    assert size_of([str(SMALL)]) == SMALL.stat().st_size
    assert size_of([str(tmp_path)]) == size_of([str(tmp_path / "*")])
    assert (size_of([str(large)]) or 0) > MAX_UNCOMPILED_BYTES < (size_of([str(packed)]) or 0)
    os.mkfifo(tmp_path / "pipe")
    assert size_of([str(tmp_path / "pipe")]) is None
    assert size_of(["no such file"]) is None
