"""A third protocol in a folder of its own, as docs/adding-a-protocol.md tells to write one.

Its frames are those of tests/wire/toy.py: a length, a mark, a kind and any bytes. Kind 1 asks,
kind 2 answers, first in first out.
"""

from dissector.protocols.interface import ProtocolSpec
from tests.toy_protocol.facts import ToyFacts
from tests.wire.toy import PORT, announced_limit, check, one_way, prove

TOY = ProtocolSpec("toy", (PORT,), check, prove, one_way, announced_limit, ToyFacts)
