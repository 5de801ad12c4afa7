"""Pulsar's entry in the list of protocols."""

from typing import Final

from dissector.protocols.interface import AnonymizerKeys, ProtocolSpec
from dissector.protocols.pulsar.facts import PulsarDecoder
from dissector.protocols.pulsar.wire import headers
from dissector.protocols.pulsar.wire.anonymize import PulsarAnonymizer
from dissector.protocols.pulsar.wire.commands import COMMANDS, command_name
from dissector.protocols.pulsar.wire.secret_fields import mended, secret_spans, suspicious_frames


def _new_anonymizer(keys: AnonymizerKeys) -> PulsarAnonymizer:
    return PulsarAnonymizer(keys.pseudonyms, keys.noise, keys.keeps_names)


SPEC: Final = ProtocolSpec(
    "pulsar",
    (6650, 6651),
    headers.check_header,
    headers.prove_frame,
    headers.one_way,
    headers.announced_limit,
    PulsarDecoder,
    commands=tuple(command_name(command.number) for command in COMMANDS),
    secret_spans=lambda frame, is_packed: secret_spans(frame),
    suspicious=suspicious_frames,
    mended=mended,
    new_anonymizer=_new_anonymizer,
)
