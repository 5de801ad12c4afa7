"""Fixtures of the hard cases: commands in this process, files with given bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dissector.cli.conftest import command

__all__ = ["command", "written"]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Puts bytes into a file."""

    def write(data: bytes, name: str = "night.pcap") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    return write
