"""Cursus, as everything outside of this folder sees it."""

from typing import Final

from dissector.protocols.cursus import headers
from dissector.protocols.cursus.anonymize import CursusAnonymizer
from dissector.protocols.cursus.commands import NAMES
from dissector.protocols.cursus.compressed import CODEC_NAMES, NONE_CODEC
from dissector.protocols.cursus.facts import CursusDecoder
from dissector.protocols.cursus.secrets import secret_spans
from dissector.protocols.interface import AnonymizerKeys, ProtocolSpec

# What its users call it, where a text has Pulsar's words; longer phrases first.
_WORDS: Final = {
    "a receipt": "an answer",
    "an acknowledgement": "a commit",
    "confirmed as stored": "confirmed",
    "SEND": "publish",
    "receipt": "answer",
    "receipts": "answers",
    "MESSAGE": "BATCH",
    "ACK": "commit",
    "ack": "commit",
    "acks": "commits",
    "acknowledged": "committed",
    "entry": "records",
    "Pulsar": "Cursus",
}


def _new_anonymizer(keys: AnonymizerKeys) -> CursusAnonymizer:
    return CursusAnonymizer(None if keys.keeps_names else keys.pseudonyms, keys.hidden)


SPEC: Final = ProtocolSpec(
    "cursus",
    (9000,),
    headers.check_header,
    headers.prove_frame,
    headers.one_way,
    headers.announced_limit,
    CursusDecoder,
    commands=NAMES,
    secret_spans=secret_spans,
    new_anonymizer=_new_anonymizer,
    packed_codecs=frozenset(name for code, name in enumerate(CODEC_NAMES) if code != NONE_CODEC),
    is_ordered=True,
    words=_WORDS,
)
