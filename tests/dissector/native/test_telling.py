"""Who listens to the compiler is told of each kernel, also of one that fails."""

import pytest

from dissector.native import telling


def test_a_listener_hears_the_name_and_the_end() -> None:
    heard: list[str | None] = []
    before = telling._Told.listener
    try:
        telling.listen(heard.append)
        with telling.compiling("one"):
            assert heard == ["one"]
        with pytest.raises(ZeroDivisionError), telling.compiling("two"):
            raise ZeroDivisionError
        telling.listen(None)
        with telling.compiling("three"):
            pass
    finally:
        telling.listen(before)
    assert heard == ["one", None, "two", None]
