"""Rows that leave the core hold no secret, whatever form their texts have."""

import numpy as np

from dissector.blocks import Coded, Spans, TableBlock
from dissector.codecs.suspicious_texts import suspicious
from dissector.dissection.redactor import Redactor, hidden_bytes
from dissector.limits import NULL

WORDS = ("ok", "error")


def spans(*texts: bytes | None, is_hex: bool = False) -> Spans:
    lengths = np.array([-1 if text is None else len(text) for text in texts])
    starts = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    data = b"".join(text or b"" for text in texts)
    return Spans(np.frombuffer(data, np.uint8), starts, lengths, is_hex)


def block(**columns: object) -> TableBlock:
    return TableBlock("frames", 3, dict(columns))  # type: ignore[arg-type]


def test_names_are_hidden_and_those_that_look_the_same_are_one() -> None:
    redactor = Redactor()
    names = [b"plain", b"x token=abc", b"x token=xyz"]
    for _ in range(2):
        (out,) = redactor.clean([block(topic=Coded(np.array([0, 1, 2]), names))])
        column = out.columns["topic"]
        assert isinstance(column, Coded)
        assert [column.names[code] for code in column.codes.tolist()] == [
            b"plain",
            b"x token=<redacted: 3 bytes>",
            b"x token=<redacted: 3 bytes>",
        ]
        assert column.codes[1] == column.codes[2]
    assert redactor.drain() == (4, 12) and redactor.drain() == (0, 0)
    names.append(b"pwd=later")
    (out,) = redactor.clean([block(topic=Coded(np.array([3, -1, 0]), names))])
    assert out.columns["topic"].names[3] == b"pwd=<redacted: 5 bytes>"  # type: ignore[union-attr]


def test_one_list_serves_all_blocks_so_that_files_do_not_depend_on_their_cuts() -> None:
    redactor, names = Redactor(), [b"plain"]
    (first,) = redactor.clean([block(topic=Coded(np.array([0]), names))])
    names.append(b"token=abc")
    (second,) = redactor.clean([block(topic=Coded(np.array([1]), names))])
    assert first.columns["topic"].names is second.columns["topic"].names  # type: ignore[union-attr]


def test_texts_of_any_form_are_hidden() -> None:
    redactor = Redactor()
    column = [None, b"a \xff password=abc", "pwd: xyz9"]
    (out,) = redactor.clean(
        [
            block(
                error_text=spans(b"plain", None, b"sig=\xff12"),
                key=spans(b"a", None, b"token=1", is_hex=True),
                texts=column,
                properties=[None, {"a": "plain"}, {"b": "token=abc"}],
                detail=["token=x", None, None],
            )
        ]
    )
    assert out.columns["error_text"] == [b"plain", None, b"sig=<redacted: 3 bytes>"]
    assert out.columns["key"] == [b"a".hex(), None, b"token=<redacted: 1 bytes>".hex()]
    assert out.columns["texts"] == [
        None, b"a \xff password=<redacted: 3 bytes>", "pwd: <redacted: 4 bytes>"
    ]  # fmt: skip
    assert out.columns["properties"] == [None, {"a": "plain"}, {"b": "token=<redacted: 3 bytes>"}]
    assert out.columns["detail"] == ["token=x", None, None]  # painted clean, by key
    assert column[1] == b"a \xff password=abc"


def test_a_key_that_is_hidden_has_no_hash_by_which_it_could_be_guessed() -> None:
    hashes = np.array([1, 2, 3, 4])
    keys, ordering = spans(b"a", b"pwd=abc", b"pwd=xyz", None), spans(None, b"b", None, b"pwd=u")
    (out,) = Redactor().clean([block(partition_key=keys, ordering_key=ordering, key_hash=hashes)])
    assert list(out.columns["key_hash"]) == [1, NULL, NULL, NULL]
    assert hashes.tolist() == [1, 2, 3, 4]
    Redactor().clean([block(partition_key=keys)])  # a table without the hash


def test_plain_texts_and_our_own_words_pass_untouched() -> None:
    redactor = Redactor()
    keys, words = spans(b"key-1", b"user:2", b"x@y"), Coded(np.array([0, 1, 0]), WORDS)
    (out,) = redactor.clean([block(partition_key=keys, outcome=words)])
    assert out.columns["partition_key"] is keys and out.columns["outcome"] is words
    assert redactor.drain() == (0, 0)


def test_a_text_is_not_taken_for_a_part_of_the_one_before() -> None:
    texts = [b"token", b"=abc", b'pwd="open', b"plain", b"token=x", b"password: ", b"word"]
    assert [place for place in suspicious(texts) if hidden_bytes(texts[place])] == [2, 4]
    assert {2, 4}.issubset(suspicious(texts))
