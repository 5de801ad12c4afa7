"""What a missing library says."""

import sys

import pytest

from dissector.errors import DependencyError, needs
from dissector.report.merged_tables import empty_tables
from dissector.report.output import write_report
from dissector.report.result import build


def test_a_missing_library_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(DependencyError) as raised, needs("spark,jvm", "summary works without"):
        raise ImportError("none", name="pyspark")
    text = str(raised.value)
    assert text == (
        "pyspark is missing: pip install 'pulsar-dissector[spark,jvm]'; summary works without"
    )


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), needs("report", "nothing"):
        raise KeyError("name")


def test_a_report_without_the_library_of_its_page_says_what_to_install(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "dissector.report.page", raising=False)
    with pytest.raises(DependencyError, match=r"pulsar-dissector\[report\]"):
        write_report(tmp_path / "report", build(empty_tables()))
