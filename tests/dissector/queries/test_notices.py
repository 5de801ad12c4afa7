"""Notices by their sentences: those about a capture, and of others so few that each can be said."""

from dissector.report.descriptions import notice_sentence
from tests.dissector.queries.query_engine import QueryEngine, Row


def test_few_notices_are_said_with_their_numbers_and_many_with_blanks() -> None:
    def notice(code: str, text: str | None, connection: int | None = 0) -> Row:
        return {"code": code, "severity": "info", "text": text, "connection_id": connection}

    engine = QueryEngine(
        {
            "notices": [
                *(notice("gap_lost", f"{size} bytes were never captured") for size in range(4)),
                *(notice("unknown_value", f"value {value} of x") for value in (2, 3)),
                *(notice("checksum_offload", f"{n} packets of a file", None) for n in range(4)),
                notice("desync", None),
            ]
        }
    )
    texts: dict[str, list[str]] = {}
    for row in sorted(engine.rows("capture_notices"), key=lambda row: str(row["text"])):
        texts.setdefault(row["code"], []).append(row["text"])
    assert texts == {
        "unknown_value": ["value 2 of x", "value 3 of x"],
        "checksum_offload": [f"{n} packets of a file" for n in range(4)],
    }
    total = {"notice_texts": texts, "notices_by_code": {"unknown_value": 2, "gap_lost": 4}}
    assert notice_sentence(total, "unknown_value") == "value 2 of x; value 3 of x"
    assert notice_sentence(total, "gap_lost") == "… bytes were never captured"
