"""A comparison as one self-contained HTML file, in the style of the report's page."""

from collections.abc import Sequence
from typing import Any, Final

from dissector.compare.comparing import NO_EVIDENCE
from dissector.compare.wording import HEADINGS, headline, left_out, lines, repeats, rows_in_order
from dissector.report.formatting import many
from dissector.schemas.wire_names import name_text, sentence_text

Row = dict[str, Any]
_STYLE: Final = """
tr.worse td:first-child { color: var(--bad); font-weight: 600; }
tr.better td:first-child { color: var(--good); font-weight: 600; }
@media (min-width: 761px) {
  td:first-child { white-space: nowrap; }
  tr td.name { min-width: 13rem; }
}
h2 { margin: 2rem 0 0; }
main .scroll { margin-top: 0.8rem; }
svg.bar { display: block; width: 11rem; max-width: 100%; height: 14px; }
.plot figcaption { margin: 0; }
main > p, main > ul { max-width: 60rem; overflow-wrap: anywhere; }
"""


def page(comparison: Row, curves: Sequence[Row] = ()) -> str:
    """The page.

    Args:
        comparison: with the sentences of its runs.
        curves: of both runs, see `pictures.curves`.

    Raises:
        ImportError: Jinja is missing.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from dissector.compare.pictures import bars, curve_picture, legend
    from dissector.report.page import asset, labelled, policy

    style = asset("report.css") + _STYLE
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["name"] = name_text
    environment.filters["text"] = sentence_text
    environment.filters["labelled"] = labelled
    rows = [*zip(lines(comparison), bars([*rows_in_order(comparison)]), strict=True)]
    same = [each for each in rows if each[0].verdict == NO_EVIDENCE]
    return environment.from_string(asset("comparison.html")).render(
        comparison=comparison,
        headline=headline(comparison),
        headings=HEADINGS,
        changed=[each for each in rows if each[0].verdict != NO_EVIDENCE],
        same=same,
        same_many=many(len(same), "metric"),
        curves=[curve | {"picture": curve_picture(curve)} for curve in curves],
        legend=legend(),
        left_out=list(left_out(comparison)),
        repeats=list(repeats(comparison)),
        marks={"worse": "worse", "better": "better", "no evidence": "same"},
        policy=policy(style, ""),
        style=Markup(style),
    )
