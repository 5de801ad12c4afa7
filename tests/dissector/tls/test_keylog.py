"""Key logs: which lines count, whose secrets they are, and that nothing shows them."""

import pickle
import time

from dissector import limits
from dissector.tls.keylog import MASTER_SECRET, KeyLog

RANDOM = bytes(range(32))
LINE = f"CLIENT_RANDOM {RANDOM.hex()} {'ab' * 48}\n"


def test_secrets_are_found_by_the_random_of_the_client() -> None:
    keys = KeyLog(
        b"# a comment\n\n" + LINE.upper().replace("CLIENT", "CLIENT").encode()
        + b"EXPORTER_SECRET %s %s\n" % (RANDOM.hex().encode(), b"cd" * 32)
        + b"CLIENT_TRAFFIC_SECRET_1 %s %s\r\n" % (RANDOM.hex().encode(), b"cd" * 32)
    )  # fmt: skip
    assert keys.find(RANDOM) == {MASTER_SECRET: b"\xab" * 48}
    assert keys.find(bytes(32)) == {} and len(keys) == 1 and not keys.broken


def test_broken_lines_are_numbered_and_passed_over() -> None:
    broken = ["nonsense", "CLIENT_RANDOM 12 34", f"CLIENT_RANDOM {RANDOM.hex()} abc", LINE[:40]]
    keys = KeyLog(("\n".join(broken) + "\n" + LINE).encode())
    assert keys.broken == [1, 2, 3, 4] and keys.find(RANDOM)
    keys = KeyLog(b"\xff\n" * 100)
    assert keys.broken_lines == 100 and len(keys.broken) == limits.MAX_BROKEN_KEY_LINES


def test_a_log_grows_by_pieces_of_lines() -> None:
    text, keys = (LINE * 2).encode(), KeyLog()
    for at in range(0, len(text), 7):
        keys.add(text[at : at + 7], is_whole=False)
    assert keys.lines == 2 and keys.find(RANDOM) and not keys.broken_lines
    keys.add(b"x" * 10_000_000, is_whole=False)  # a line without an end is not kept
    keys.add(b"\n" + LINE.encode())
    assert keys.broken_lines == 1


def test_a_widened_one_has_its_own_and_what_comes_to_the_other() -> None:
    keys = KeyLog(LINE.encode())
    other = keys.widened()
    other.update(KeyLog(LINE.replace("00", "11").encode()))
    assert len(keys) == 1 and len(other) == 2 and other.total_lines == 2
    assert other.lines_of(RANDOM, RANDOM) == [LINE.strip()]
    keys.add(LINE.replace("00", "22").encode())
    assert len(other) == 3 and other.total_lines == 3


def test_no_text_of_it_holds_a_secret() -> None:
    keys = KeyLog(LINE.encode())
    assert "ab" * 8 not in repr(keys) and "ab" * 8 not in str(keys)
    assert pickle.loads(pickle.dumps(keys)).find(RANDOM)


def test_a_million_lines_are_found_by_their_random_alone() -> None:
    """Of as many as there may be the first are forgotten; a search costs the same."""
    count = 20_000
    lines = b"".join(b"CLIENT_RANDOM %064x %s\n" % (number, b"cd" * 48) for number in range(count))
    keys = KeyLog(lines)
    began = time.process_time()
    for _ in range(1000):
        assert keys.find((count - 1).to_bytes(32, "big"))
    assert time.process_time() - began < 1
