"""What is not printable never reaches a terminal, in lines, JSON or labels of metrics."""

import json

import pytest

from dissector.codecs.printable import json_text, safe_text

HARMFUL = "\x00\x1b[2J\x7f\x85\x9b\r\n\u202e\u2066\u2028\u200f\ufeff\xad"


@pytest.mark.parametrize("is_ascii", [True, False])
def test_json_is_what_it_was_and_shows_no_control(is_ascii: bool) -> None:
    value = {HARMFUL: [HARMFUL, "ümläut 日本", "\\x7f", 1.5, None]}
    text = json_text(value, ensure_ascii=is_ascii)
    assert json.loads(text) == value
    assert text.isprintable()
    assert ("日本" in text) != is_ascii
    assert json_text([1, 2], indent=1) == "[\n 1,\n 2\n]"


def test_texts_for_lines_are_printable() -> None:
    odd = "".join(
        chr(code)
        for code in range(0x110000)
        if not chr(code).isprintable() and not 0xD800 <= code < 0xE000
    )
    assert safe_text(odd).isprintable() and safe_text(HARMFUL).isprintable()
    assert safe_text("persistent://a/ü/日本") == "persistent://a/ü/日本"
    assert safe_text("a\x7fb\x1b") == "a\\x7fb\\x1b"
