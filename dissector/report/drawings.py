"""What a figure of the page is, whoever draws it."""

from typing import NamedTuple


class Hint(NamedTuple):
    """What the page's script shows near a place of a plot, in units of the drawing."""

    x: float
    y: float
    text: str


class Plot(NamedTuple):
    """A drawing. svg: the element; hints: for the script, empty if there is nothing to say."""

    svg: str
    hints: list[Hint]


class Pair(NamedTuple):
    """The same plot for wide and narrow screens, and what it shows in a sentence."""

    wide: Plot
    narrow: Plot
    caption: str
