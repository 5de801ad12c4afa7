"""Spark as what runs tasks."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import InputError
from dissector.spark.engine import SparkEngine


def test_tasks_run_a_function_each(spark: Any) -> None:
    each = SparkEngine(spark).each
    assert each(len, ["a", "bb", ""]) == [1, 2, 0]
    assert each(len, []) == []


def test_what_is_wrong_with_a_file_of_a_task_is_an_error_of_input(spark: Any) -> None:
    with pytest.raises(InputError, match=r"^capture 2 cannot be read$"):
        SparkEngine(spark).each(unreadable, [1, 2, 3])


def unreadable(number: int) -> int:
    if number == 2:
        raise InputError("capture 2 cannot be read")
    return number
