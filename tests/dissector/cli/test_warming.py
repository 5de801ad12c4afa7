"""What is compiled beforehand is what captures call; `test_doctor` holds that it is enough."""

import subprocess
from typing import Any

import pytest

from dissector.cli import warming


def test_the_recorder_says_each_call_once_and_ends_well() -> None:
    calls: list[Any] = list(warming._calls())
    names = {f"{module}.{name}" for module, name, _ in calls}
    assert {"dissector.packet.decode.read_packets", "dissector.capture.tpacket.walk_block"} <= names
    assert len(set(calls)) == len(calls) >= 60
    assert any(isinstance(key, str) for _, _, key in calls), "functions that kernels take as values"


def test_a_recorder_that_fails_is_not_taken_for_one_that_is_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warming.sys, "executable", "false")
    with pytest.raises(subprocess.CalledProcessError):
        list(warming._calls())
