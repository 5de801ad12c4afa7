"""Spark as an engine, and programs that run where it is not installed."""

import sys

import pytest


def hide_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let imports of pyspark fail."""
    for name in list(sys.modules):
        if name.startswith(("dissector.spark.", "spark_jobs.landing", "spark_jobs.archive")):
            monkeypatch.delitem(sys.modules, name)
        elif name.startswith("pyspark."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
