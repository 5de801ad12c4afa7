"""A comparison as one self-contained HTML file, in the style of the report's page."""

from typing import Any, Final

from dissector.compare.wording import HEADINGS, headline, left_out, lines, repeats
from dissector.schemas.wire_names import name_text, sentence_text

Row = dict[str, Any]
_TEMPLATE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Comparison of two runs</title>
<style>{{ style }}</style>
</head>
<body>
<main>
<h1>Comparison of two runs</h1>
<p><strong>{{ headline }}</strong></p>
<ul>
{% for word in ("before", "after") %}
<li>{{ word }}: {{ comparison[word].sentence | text }}</li>
{% endfor %}
{% for text in comparison.coverage_differences %}
<li>{{ text | text }}</li>
{% endfor %}
</ul>
{% if lines %}
<table>
<thead><tr>
{% for heading in headings %}
<th>{{ heading }}</th>
{% endfor %}
<th>topic</th>
</tr></thead>
<tbody>
{% for line in lines %}
<tr class="{{ marks[line.verdict] }}">
{% for cell in line.cells %}
<td>{{ cell | name }}</td>
{% endfor %}
<td>{{ line.topic | name }}</td>
</tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% if repeats %}
<ul>
{% for text in repeats %}
<li>{{ text | text }}</li>
{% endfor %}
</ul>
{% endif %}
{% if left_out %}
<h2>Not comparable</h2>
<ul>
{% for reason, names in left_out %}
<li>{{ reason | text }}: {% for one in names %}{{ one | name }}{% if not loop.last %}, {% endif %}
{% endfor %}</li>
{% endfor %}
</ul>
{% endif %}
<p>An interval holds what the change may be, all intervals of this page at once with
{{ "%g" | format(comparison.confidence * 100) }} % confidence.</p>
</main>
</body>
</html>
"""
_STYLE: Final = """
main { max-width: 80rem; margin: 0 auto; padding: 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--rule); text-align: left; }
td:nth-child(n+3):nth-child(-n+6) { text-align: right; white-space: nowrap; }
tr.worse td:first-child { color: var(--bad); font-weight: 600; }
tr.better td:first-child { color: var(--good); font-weight: 600; }
"""


def page(comparison: Row) -> str:
    """The page. comparison: with the sentences of its runs.

    Raises:
        ImportError: Jinja is missing.
    """
    from importlib import resources

    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from dissector.report.page import policy

    style = resources.files("dissector.data").joinpath("report.css").read_text("utf-8") + _STYLE
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["name"] = name_text
    environment.filters["text"] = sentence_text
    return environment.from_string(_TEMPLATE).render(
        comparison=comparison,
        headline=headline(comparison),
        headings=HEADINGS,
        lines=list(lines(comparison)),
        left_out=list(left_out(comparison)),
        repeats=list(repeats(comparison)),
        marks={"worse": "worse", "better": "better", "no evidence": "same"},
        policy=policy(style, ""),
        style=Markup(style),
    )
