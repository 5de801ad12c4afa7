"""Types of the page's figures, independent of the drawing library."""

from typing import NamedTuple


class Hint(NamedTuple):
    """The text that the page's script shows near a point of a plot. x, y: in the SVG's units."""

    x: float
    y: float
    text: str


class Plot(NamedTuple):
    """A drawing. svg: the element; hints: for the script, may be empty."""

    svg: str
    hints: list[Hint]


class Pair(NamedTuple):
    """A plot for wide and for narrow screens, and its caption, a sentence."""

    wide: Plot
    narrow: Plot
    caption: str
