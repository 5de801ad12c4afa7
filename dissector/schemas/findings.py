"""The table findings of reports; a lake has none, since landing judges nothing."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Column, Table, integers, name, names, number, text

TABLE: Final = Table(
    "findings",
    "one finding of a report, REPORT/tables/findings_findings",
    (
        name("id", "Number of the rule in the catalogue: D06."),
        name("code", "Name of the rule, which stays."),
        name("title", "What was found, in short."),
        name("severity", "error, warning or info."),
        name("verdict", "proven: the wire alone decides; pattern: it fits, as its rival does."),
        name("section", "Section of the report that it judges.", "the rule names none"),
        shared.CAPTURE._replace(meaning="Capture of the worst incident, where its frames lie."),
        Column("subject", "map<string,string>", "", "Whom: topic, names, addresses.", "never"),
        number("first_ns", "ns", "Begin of the first incident, since 1970."),
        number("last_ns", "ns", "End of the last incident, since 1970."),
        number("incidents", "", "Times that it happened; within a minute is the same time."),
        Column("measured", "map<string,string>", "", "What was measured at the worst.", "never"),
        Column("thresholds", "map<string,string>", "", "The numbers that decide.", "never"),
        names("ruled_out", "What is ruled out, in words."),
        integers("frame_nos", "Frames that show it."),
        integers("packets", "Packets that completed these frames."),
        names("roles", "What each frame shows."),
        text("text", "What happened, how it is known, what else looks the same, what to do."),
    ),
)
