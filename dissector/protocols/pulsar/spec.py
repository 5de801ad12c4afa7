"""Pulsar, as everything outside of this folder sees it."""

from typing import Final

from dissector.codecs.sentences import Sentences
from dissector.protocols.interface import DisguiseKeys, ProtocolSpec
from dissector.protocols.pulsar.facts import PulsarFacts
from dissector.protocols.pulsar.wire.commands import COMMANDS
from dissector.protocols.pulsar.wire.disguised import PulsarDisguise
from dissector.protocols.pulsar.wire.headers import (
    announced_limit,
    check_header,
    one_way,
    prove_frame,
)
from dissector.protocols.pulsar.wire.secret_fields import mended, secret_spans


def _new_disguise(keys: DisguiseKeys) -> PulsarDisguise:
    sentences = None if keys.pseudonyms is None else Sentences(keys.pseudonyms)
    return PulsarDisguise(keys.names, keys.noise, sentences)


SPEC: Final = ProtocolSpec(
    "pulsar",
    (6650, 6651),
    check_header,
    prove_frame,
    one_way,
    announced_limit,
    PulsarFacts,
    commands=tuple(command.name for command in COMMANDS),
    secret_spans=lambda frame, is_packed: secret_spans(frame),
    mended=mended,
    new_disguise=_new_disguise,
    grants_permits=True,
)
