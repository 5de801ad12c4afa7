"""A bundle shows the finding that it was made for, or says what it cannot show."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dissector.evidence import cutting
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.cli.conftest import SAMPLES, Command, Result
from tests.dissector.cli.test_evidence import changed

Bundles = Callable[[Command, str, str], tuple[Path, Result]]

# A capture and the rules of which its findings are looked at: of all kinds of what they need
# (single frames, whole connections, several connections).
CASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("java-j17_blocked_unacked.pcap", ("D06",)),
    ("java-j24_unload.pcap", ("D15", "D24", "R01")),
    ("java-j74_corrupt.pcap", ("D15", "D38")),
    # Of these nothing is known: the first rule that finds something is looked at.
    ("java-j12_nack.pcap", ()),
    ("../cursus/go-crash_redelivery_streaming.pcap", ()),
)
_MOST = 4  # rules of each capture, at night
_SHOWN_BEFORE = ("java-j74_corrupt.pcap", "D15")  # of this rule one bundle is enough else

pytestmark = pytest.mark.usefixtures("without_numbers")


@pytest.fixture(scope="module")
def bundle_of(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Makes a bundle of a capture and a rule, once, and tells what was said."""
    made: dict[tuple[str, str], tuple[Path, Result]] = {}

    def bundle(command: Command, name: str, rule: str) -> tuple[Path, Result]:
        if (name, rule) not in made:
            path = tmp_path_factory.mktemp("bundles") / "b.zip"
            made[name, rule] = (
                path, command("evidence", SAMPLES / name, "--finding", rule, "-o", path)
            )  # fmt: skip
        return made[name, rule]

    return bundle


def findings(command: Command, path: Path, *options: str) -> list[dict[str, Any]]:
    found = command("findings", path, *options, "--json")
    assert found.code in (0, 3), found.err
    rows: list[dict[str, Any]] = json.loads(found.out)["findings"]
    return rows


def told(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """What findings say, but for names, frames and sums of hidden bytes."""
    return [
        (
            row["title"], row["severity"], row["incidents"],
            {
                name: value
                for name, value in row["measured"].items()
                if not isinstance(value, str) and "crc32c" not in name
            },
        )
        for row in rows
    ]  # fmt: skip


def page_of(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read("README.md").decode()


@pytest.mark.parametrize(("name", "known"), CASES, ids=[Path(name).stem for name, _ in CASES])
def test_findings_of_a_bundle_are_those_that_it_was_made_for(
    command: Command, bundle_of: Bundles, name: str, known: tuple[str, ...]
) -> None:
    asked = () if LOOKS_AT_ALL else [word for rule in known for word in ("--code", rule)]
    rows = findings(command, SAMPLES / name, *asked)
    rules = sorted({row["id"] for row in rows if row["evidence"]})
    assert set(known) <= set(rules)
    for rule in rules[: _MOST if LOOKS_AT_ALL else len(known) or 1]:
        if (name, rule) == _SHOWN_BEFORE and not LOOKS_AT_ALL:
            continue
        bundle, made = bundle_of(command, name, rule)
        assert made.code == 0, made.err
        expected = told([row for row in rows if row["id"] == rule])
        shown = told(findings(command, bundle, "--code", rule))
        verified = command("verify", bundle)
        assert verified.code == 0
        lines = page_of(bundle).split("\n")
        assert lines[0] == f"# {rule}: {expected[0][0]}" and lines[2]
        for start in ("How it is known: ", "What else looks the same: "):
            assert any(line.startswith(start) for line in lines[:12]), start
        for each in expected:
            sentence = f"The packets alone show {rule} ({each[0]}) with the same numbers."
            assert each in shown or rule not in known, (rule, each, shown)
            assert (sentence in verified.err) == (each in shown), rule
            assert sentence in made.err or each not in shown


def test_what_a_bundle_cannot_show_is_said_and_said_again(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is taken beside the packets of the frames.
    monkeypatch.setattr(cutting, "WHOLE", -1)
    monkeypatch.setattr(cutting, "MAX_EVIDENCE_PACKETS", 0)
    capture, bundle = SAMPLES / "java-j24_unload.pcap", tmp_path / "b.zip"
    made = command("evidence", capture, "--finding", "D24", "-o", bundle, "--keep-names")
    assert made.code == 0
    said = command("verify", bundle)
    assert said.code == 0
    (line,) = [each for each in said.err.splitlines() if "D24" in each]
    assert "cannot show D24" in line or "but with other numbers: " in line
    assert line.removeprefix("dissector: ") in page_of(bundle)
    assert line in made.err
    assert "NAME" in page_of(bundle) and page_of(bundle).startswith("# D24: ")


def test_what_a_bundle_says_of_its_finding_is_checked(
    command: Command, bundle_of: Bundles, tmp_path: Path
) -> None:
    bundle, made = bundle_of(command, "java-j74_corrupt.pcap", "D38")
    assert made.code == 0
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    manifest["finding"]["findings"][0]["packets"]["measured"]["frames"] = 7
    other = changed(bundle, tmp_path / "c.zip", "manifest.json", json.dumps(manifest).encode())
    assert "do not say what the finding in manifest.json says" in command("verify", other).err
    for broken in ("x", {"name": "D38"}, {"name": "D99", "findings": []}, {"findings": [3]}):
        manifest["finding"] = broken
        again = changed(bundle, tmp_path / "d.zip", "manifest.json", json.dumps(manifest).encode())
        result = command("verify", again)
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert "its finding cannot be read" in result.err
