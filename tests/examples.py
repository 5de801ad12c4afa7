"""How many examples are drawn for properties of which one example takes a tenth of a second."""

from typing import Final

from hypothesis import settings

SHARE: Final = 3


def slow(most: int) -> settings:
    """All of them where they are new, as in a nightly run; of those that are the same in every run
    a third, since what they can show was seen by the runs before."""
    assert settings.default is not None
    return settings(max_examples=-(-most // SHARE) if settings.default.derandomize else most)
