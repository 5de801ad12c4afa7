"""Files for those who build, release and run the project name what there is."""

import fnmatch
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", MAKEFILE))
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_make_can(path: Path) -> None:
    text = path.read_text("utf-8")
    asked = re.findall(r"(?:make|\.ci/run) ([a-z][a-z-]*)", text)
    assert set(asked) <= TARGETS and set(re.findall(r"python: \[(.*)\]", text)) <= {
        '"3.11", "3.12", "3.13"'
    }


def test_the_night_runs_the_whole_and_counts_what_it_covers() -> None:
    text = (ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    assert {"nightly", "coverage"} <= set(re.findall(r"\.ci/run ([a-z-]+)", text))
    assert "schedule:" in text


def test_the_image_takes_the_wheel_that_make_builds() -> None:
    (pattern,) = re.findall(r"COPY dist/(\S+) ", DOCKERFILE)
    (python,) = re.findall(r"FROM python:(3\.\d+)-slim", DOCKERFILE)
    (platform,) = re.findall(r"(?m)^PLATFORM := (\S+)", MAKEFILE)
    name = PROJECT["name"].replace("-", "_")
    wheel = f"{name}-{PROJECT['version']}-cp{python.replace('.', '')}-none-{platform}.whl"
    assert fnmatch.fnmatchcase(wheel, pattern) and f"make wheel PYTHON=python{python}" in DOCKERFILE
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    extras = re.findall(r"wheel\[([a-z,]+)\]", DOCKERFILE)
    assert extras and set(extras[0].split(",")) <= set(PROJECT["optional-dependencies"])
    assert set(re.findall(r'ENTRYPOINT \["(\S+)"\]', DOCKERFILE)) <= set(PROJECT["scripts"])
    assert (ROOT / ".dockerignore").read_text("utf-8").split() == ["*", "!dist/*.whl"]


def test_extras_that_texts_name_are_there() -> None:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *(ROOT / "dissector").rglob("*.py")]
    asked = re.compile(r"(?:pulsar-dissector\[|needs\(\")([a-z,]+)")
    named = {
        extra
        for path in texts
        for extras in asked.findall(path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert {"report", "spark", "jvm", "tap"} <= named <= set(PROJECT["optional-dependencies"])


def test_the_changelog_has_versions() -> None:
    """Those that are out with their day, newest first; what is not out stands before them."""
    headings = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in headings[1:])
    days = [each[-10:] for each in headings[1:]]
    assert days == sorted(days, reverse=True)
