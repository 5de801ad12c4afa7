"""What is compiled beforehand is what captures call; `test_doctor` holds that it is enough."""

import subprocess
from concurrent.futures import Future
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


class Process:
    """A process that compiles when it is told to."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Future[str]]] = []

    def submit(self, _function: Any, _module: str, name: str, _key: Any) -> Future[str]:
        """Take a kernel."""
        future: Future[str] = Future()
        self.taken.append((name, future))
        return future


def test_kernels_with_the_same_functions_go_to_the_same_process() -> None:
    processes = [Process(), Process()]
    workers = warming._Workers(processes)  # type: ignore[arg-type]
    for name, sizes in {
        "large": {"a": 90},
        "other": {"b": 80},
        "of_large": {"a": 90, "c": 5},
        "of_other": {"b": 80, "d": 6},
    }.items():
        workers.add(("module", name, "key"), sizes)
    for process in processes:
        process.taken[0][1].set_result("code")
    assert {tuple(name for name, _ in process.taken) for process in processes} == {
        ("large", "of_large"),
        ("other", "of_other"),
    }
    done = [workers.done.get()[0] for _ in range(2)]
    assert sorted(done) == ["module.large", "module.other"]
