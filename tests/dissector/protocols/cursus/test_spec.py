"""What others ask Cursus for."""

from dissector.protocols import GRANTING, PROTOCOLS, spec_of
from dissector.protocols.cursus.spec import SPEC
from tests.wire import cursus


def test_it_is_the_one_in_the_list():
    assert spec_of("cursus") is SPEC and SPEC in PROTOCOLS
    assert spec_of("tls") is None and spec_of(None) is None


def test_only_texts_that_are_packed_as_a_whole_are_hidden_as_a_whole():
    assert SPEC.packed_codecs == {"GZIP", "LZ4", "SNAPPY"}
    frame = cursus.enveloped("AUTH principal=me token=FAKE-secret")
    assert b"FAKE" in frame and b"FAKE" not in SPEC.hide_secrets(frame, False)


def test_its_words_stand_for_phrases_of_pulsar():
    assert SPEC.words["a receipt"] == "an answer" and SPEC.name not in GRANTING
    assert {"JOIN_GROUP", "BATCH"} <= set(SPEC.commands)
