"""Names in plain letters: ASCII as ever, other scripts readable, all of bounded length."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.readable import LONGEST_NAME, readable

NAMES = {
    "Night 1.pcap": "night-1-pcap",
    "a..b  c_-": "a--b--c_-",
    "\u00fcber.pcap": "uber-pcap",
    "u\u0308ber.pcap": "uber-pcap",
    "\u0141\u00f3d\u017a \u00df\u00e6\u00f8": "lodz-ssaeo",
    "\u043d\u043e\u0447\u044c-\u0437\u0430\u0445\u0432\u0430\u0442.pcap": "noch-zakhvat-pcap",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac.pcap": "ellinika-pcap",
    "\ud55c\uad6d\uc5b4.pcap": "hangugeo-pcap",
    "\u304b\u306a.pcap": "kana-pcap",
    "\u591c\u95f4.pcap": "u591c-u95f4-pcap",
    "a\u591cb": "a-u591c-b",
    "\u0646\u0633\u062e\u0629": "u646-u633-u62e-u629",
    "\U0001f642.pcap": "u1f642-pcap",
    "a\u2014\u2014b": "a-b",
    "f\udcfcr.pcap": "f-r-pcap",
    "": "",
}


@pytest.mark.parametrize(("name", "wanted"), NAMES.items())
def test_names_can_be_read(name: str, wanted: str) -> None:
    assert readable(name) == wanted


@given(st.text(max_size=300))
def test_any_name_is_plain_and_bounded_and_stays_so(name: str) -> None:
    found = readable(name)
    assert re.fullmatch(r"[a-z0-9_-]*", found) and len(found) <= LONGEST_NAME
    assert readable(found) == found


@given(st.text(st.characters(max_codepoint=127), max_size=LONGEST_NAME))
def test_ascii_is_what_it_always_was(name: str) -> None:
    assert readable(name) == re.sub(r"[^a-z0-9_-]", "-", name.lower())


@given(st.lists(st.sampled_from("\u591c\u95f4\u6293\u5305\u0646\u0633"), max_size=20))
def test_names_that_nobody_here_can_read_stay_apart(letters: list[str]) -> None:
    codes = readable("".join(letters)).split("-")
    assert [chr(int(code[1:], 16)) for code in codes if code] == letters
