"""doctor and version: what they find, and what they say about what is missing."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dissector.cli import doctor
from dissector.cli.compiling import KERNELS
from dissector.cli.exits import EXIT_DEPENDENCY, EXIT_OK, EXIT_USAGE
from dissector.jit import compiled, program_digest
from dissector.native.code import kept_list
from dissector.schemas import SCHEMA_VERSION
from tests.dissector.cli.conftest import SAMPLES, Command
from tests.dissector.spark import hide_spark


def test_version_names_everything_that_matters(command: Command) -> None:
    states = dict(line.rsplit(" ", 1) for line in command("version").lines)
    assert states["dissector"] == metadata.version("pulsar-dissector")
    assert states["lake schema"] == str(SCHEMA_VERSION)
    assert states["numba"] == metadata.version("numba")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_an_option_as_in_other_tools(command: Command, option: str) -> None:
    result = command(option)
    assert result.code == EXIT_OK
    assert result.lines == [f"dissector {metadata.version('pulsar-dissector')}"]


def test_a_whole_installation_is_well(command: Command) -> None:
    result = command("doctor")
    assert result.code == EXIT_OK, result.out
    assert not [line for line in result.lines if line.startswith(("missing", "optional"))]
    assert any(line.split()[1] == "java" for line in result.lines)


def test_what_is_missing_is_named_with_the_way_to_get_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.installed_version
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: None if name == "pyspark" else real(name)
    )
    result = command("doctor")
    assert result.code == EXIT_OK and "1 optional part not there" in result.err
    place = next(number for number, line in enumerate(result.lines) if line.startswith("optional"))
    assert "pyspark" in result.lines[place]
    assert "pip install 'pulsar-dissector[spark]'" in result.lines[place + 1]


def test_only_what_every_command_needs_makes_doctor_fail(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.installed_version
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: None if name == "lz4" else real(name)
    )
    result = command("doctor")
    assert result.code == EXIT_DEPENDENCY and "1 missing" in result.err
    assert any(line.startswith("missing  lz4") for line in result.lines)


def test_a_broken_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> object:
        raise RuntimeError(f"{name} is built for another machine")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    states = {check.what: check.state for check in doctor.library_checks()}
    assert states["numpy"] == "missing" and states["pyspark"] == "optional"
    assert set(states.values()) == {"missing", "optional"}


def test_kernels_that_are_not_compiled_are_slow_not_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    check = doctor.kernel_check()
    assert check.state == "slow" and check.text.startswith("not all ")
    assert check.remedy == "dissector doctor --warm"


# Runs the commands that it is given one after the other; says which kernels each compiled.
_LOADS = """
import json, sys
from dissector import jit
from dissector.cli.main import run
loads = []
find = jit.find_code
def recorded(name):
    states = find(name)
    if states is None:
        loads.append(name)
    return states
jit.find_code = recorded
told = []
for command in json.loads(sys.argv[1]):
    del loads[:]
    code = run(command)
    told.append((code, list(loads)))
json.dump(told, open(sys.argv[2], "w"))
"""


@pytest.mark.skipif(not compiled(), reason="nothing is compiled")
def test_warming_leaves_nothing_to_be_compiled_later(tmp_path: Path) -> None:
    """The compiler takes a second to start, and 100 MB for as long as a tap runs."""
    captures = [
        SAMPLES / "java-j40_slow_consumer.pcap", SAMPLES / "cpp-s30_latency_mix-wireloss.pcap.gz",
        SAMPLES.parent / "cursus" / "go-crash_redelivery_streaming.pcap",
        SAMPLES.parent / "cursus" / "py-txn_token_in_payload.pcap",
        SAMPLES.parent / "pulsar" / "fake-f14_batch_index_ack.pcap",
    ]  # fmt: skip
    paths = [str(path) for path in captures]
    commands = [
        ["doctor", "--warm"],
        ["land", *paths, "--lake", str(tmp_path / "lake")],
        ["summary", paths[0]],
        ["frames", "-V", paths[0]],
        ["connections", *paths],
        ["tap", "--replay", paths[0], "--metrics", "0", "--record", str(tmp_path / "kept"),
         "--lake", str(tmp_path / "tapped"), "--speed", "max"],
    ]  # fmt: skip
    told = tmp_path / "told.json"
    subprocess.run(
        [sys.executable, "-c", _LOADS, json.dumps(commands), str(told)],
        check=True,
        capture_output=True,
        timeout=500,
    )
    warming, *others = json.loads(told.read_text())
    assert warming[0] == EXIT_OK
    names = kept_list(program_digest()).names
    assert KERNELS * 0.8 <= len(names) <= KERNELS, "the number that users are told"
    assert others == [[EXIT_OK, []]] * len(others)


def test_java_that_is_missing_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_spark(monkeypatch)
    assert doctor.java_check().state == "optional"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_the_program(command: Command, shell: str) -> None:
    result = command("completion", shell)
    assert result.code == EXIT_OK
    assert "dissector" in result.out and "_DISSECTOR_COMPLETE" in result.out
    assert command("completion", "csh").code == EXIT_USAGE


def test_a_shell_that_asks_is_told_what_could_come_next(process: Command) -> None:
    result = process(
        _DISSECTOR_COMPLETE="bash_complete", COMP_WORDS="dissector sum", COMP_CWORD="1"
    )
    assert (result.code, result.lines) == (EXIT_OK, ["plain,summary"])


def test_doctor_says_whether_packets_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    from dissector.tap import privileges

    monkeypatch.setattr(privileges, "held", lambda: 1 << privileges.CAP_NET_RAW)
    assert doctor.capture_check().state == "ok"
    monkeypatch.setattr(privileges, "held", lambda: 0)
    check = doctor.capture_check()
    assert check.state == "slow" and "CAP_NET_RAW" in check.remedy


def test_doctor_names_interfaces_that_join_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    from dissector.tap import interfaces

    offloads = {"lo": (True, False), "eth0": (True, False), "eth1": (True, True), "eth2": (0, 0)}
    monkeypatch.setattr(interfaces, "interface_names", lambda: list(offloads))
    monkeypatch.setattr(interfaces, "receive_offload", offloads.get)
    check = doctor.offload_check()
    assert check is not None and check.text.endswith(": eth0 (gro), eth1 (gro+lro)")
    monkeypatch.setattr(interfaces, "interface_names", lambda: ["lo", "eth2"])
    assert doctor.offload_check() is None
