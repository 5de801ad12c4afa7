"""Names from the wire: safe to show, and short."""

from dissector.limits import MAX_SHOWN_NAME
from dissector.schemas.wire_names import name_text


def test_names_are_safe_and_short() -> None:
    assert name_text("a b\n\u202e") == "a b\\u000a\\u202e"
    long = name_text("x" * 500)
    assert len(long) <= MAX_SHOWN_NAME and "…" in long
