"""The rules of the program as queries of reports: their rows are made, kept and found like others.

A rule sees the rows of each capture as it landed, also where captures go over into each other: what
it names as evidence are frames of that capture.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from dissector.findings.loading import Rule, incidents_query, load_rules
from dissector.queries.catalogue import MAY_FAIL, used_views
from dissector.schemas import SCHEMA_VERSION

# It steps when rows of rules are kept in another form.
_FORM: Final = 1


class RuleQuery(NamedTuple):
    """A rule, its query over the tables of a lake, and a digest of all that it depends on."""

    rule: Rule
    text: str
    digest: str


@cache
def rule_queries() -> Mapping[str, RuleQuery]:
    """The rules of the program by the names of their queries."""
    found = {}
    for rule in load_rules()[0]:
        text = incidents_query(rule)
        views = "\n".join(view.query for view in used_views(text))
        whole = f"{_FORM}\n{SCHEMA_VERSION}\n{text}\n{views}"
        digest = hashlib.sha256(whole.encode()).hexdigest()
        found[f"{MAY_FAIL}{rule.number.lower()}"] = RuleQuery(rule, text, digest)
    return found
