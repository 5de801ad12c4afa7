"""What others ask Pulsar for."""

from dissector.protocols import GRANTING, spec_of
from dissector.protocols.pulsar.spec import SPEC


def test_it_is_the_one_in_the_list():
    assert spec_of("pulsar") is SPEC
    assert {"CONNECT", "SEND", "MESSAGE", "ACK"} <= set(SPEC.commands)


def test_nothing_of_it_is_packed_as_a_whole_and_answers_have_ids():
    assert not SPEC.packed_codecs and not SPEC.is_ordered
    assert SPEC.name in GRANTING and not SPEC.words
