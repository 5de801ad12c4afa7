"""Which modules are jobs: each says what it is for, and the docs list them all."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    path.stem: ast.parse(path.read_text("utf-8"))
    for path in (ROOT / "spark_jobs").glob("*.py")
    if path.stem != "__init__"
}


def is_run(module: ast.Module) -> bool:
    """Whether it does something when it is run as a file."""
    return any(
        isinstance(node, ast.If) and "__name__ == '__main__'" in ast.unparse(node.test)
        for node in module.body
    )


JOBS = [name for name, module in MODULES.items() if is_run(module)]


@pytest.mark.parametrize("job", JOBS)
def test_each_says_what_it_is_for(
    job: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As spark-submit runs it: by its file."""
    path = ROOT / "spark_jobs" / f"{job}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert f"{job}.py" in shown
    words = (ast.get_docstring(MODULES[job]) or "").split()[:2]
    assert job == "land" or " ".join(words) in shown


def test_the_docs_list_them() -> None:
    text = (ROOT / "docs" / "spark.md").read_text("utf-8")
    assert set(re.findall(r"^\| `spark_jobs/(\w+)\.py` \|", text, re.MULTILINE)) == set(JOBS)


def test_examples_for_clusters_do_not_log_every_step() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "spark_jobs").glob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in pages)
    examples = re.findall(r"spark-submit (?:-|\w*/)[^\n]*", text)
    assert len(examples) > 10
    assert all("--conf spark.log.level=WARN" in each for each in examples), examples
