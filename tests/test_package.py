"""What is installed: two packages and their data, equal to the sources it was taken from."""

import fnmatch
import tomllib
from importlib import metadata
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_only_our_two_packages_are_installed() -> None:
    patterns = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = [path.name for path in ROOT.iterdir() if path.is_dir()]
    chosen = {name for name in folders for each in patterns if fnmatch.fnmatchcase(name, each)}
    assert {name for name in chosen if not name.endswith(".egg-info")} == {
        "dissector",
        "spark_jobs",
    }


def test_spark_finds_the_format_in_a_module_beside_them() -> None:
    """Spark imports all modules named pyspark_* of the Python path when it looks for formats."""
    (module,) = PROJECT["tool"]["setuptools"]["py-modules"]
    assert module.startswith("pyspark_")
    assert "DefaultSource" in (ROOT / f"{module}.py").read_text("utf-8")


def test_the_command_and_the_extras_are_there() -> None:
    project = metadata.distribution("pulsar-dissector")
    assert set(project.metadata.get_all("Provides-Extra") or ()) >= {"spark", "jvm", "dev"}
    (command,) = (each for each in project.entry_points if each.group == "console_scripts")
    assert (command.name, command.value) == ("dissector", "dissector.cli.main:main")


def test_captures_in_the_package_are_those_of_the_samples() -> None:
    """The package brings a few captures, from which kernels are compiled after installing."""
    samples = {path.name: path for path in (ROOT / "captures").rglob("*.pcap*")}
    brought = list((files("dissector") / "data" / "warm").iterdir())
    assert len(brought) >= 3
    for capture in brought:
        assert capture.read_bytes() == samples[capture.name].read_bytes()


def test_packages_say_that_they_have_types() -> None:
    assert all((ROOT / package / "py.typed").is_file() for package in ("dissector", "spark_jobs"))
