"""Who listens to the compiler is told of each kernel, also of one that fails."""

import pytest

from dissector.native import progress


def test_a_listener_hears_the_name_and_the_end() -> None:
    heard: list[str | None] = []
    before = progress._listeners[:]
    try:
        progress.listen(heard.append)
        with progress.compiling("one"):
            assert heard == ["one"]
        with pytest.raises(ZeroDivisionError), progress.compiling("two"):
            raise ZeroDivisionError
        progress.listen(None)
        with progress.compiling("three"):
            pass
    finally:
        progress._listeners[:] = before
    assert heard == ["one", None, "two", None]
