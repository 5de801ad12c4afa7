"""The protocols that are decoded: a closed list, in the order in which content is tried."""

from typing import Final

from dissector.protocols.cursus import headers as cursus
from dissector.protocols.cursus.facts import CursusFacts
from dissector.protocols.interface import ProtocolSpec, Specs
from dissector.protocols.pulsar.facts import PulsarFacts
from dissector.protocols.pulsar.wire.headers import (
    announced_limit,
    check_header,
    one_way,
    prove_frame,
)

PROTOCOLS: Final[Specs] = (
    ProtocolSpec(
        "pulsar",
        (6650, 6651),
        check_header,
        prove_frame,
        one_way,
        announced_limit,
        PulsarFacts,
    ),
    ProtocolSpec(
        "cursus",
        (9000,),
        cursus.check_header,
        cursus.prove_frame,
        cursus.one_way,
        cursus.announced_limit,
        CursusFacts,
    ),
)
