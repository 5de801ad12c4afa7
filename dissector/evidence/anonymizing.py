"""A capture without what may not be shared: two passes over its files, one file of packets out."""

from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from dissector.dissection import Options
from dissector.evidence.anonymizer import Anonymizer
from dissector.evidence.packets import Rewriter
from dissector.evidence.streams import TreatedStreams
from dissector.sources.rings import Chain


class Anonymized(NamedTuple):
    """What was done.

    packets: written.
    frames: treated.
    repacked, noise: compressed batches that can be read as before, and that cannot.
    nameless: of the first those without names.
    emptied: bytes of packets that are no segments.
    problems: of the input.
    """

    packets: int
    frames: int
    repacked: int
    noise: int
    nameless: int
    emptied: int
    problems: tuple[str, ...]


def anonymize(
    chain: Chain,
    options: Options,
    anonymizer: Anonymizer,
    sink: BinaryIO,
    comments: Mapping[int, Sequence[str]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Anonymized:
    """Write the packets of a capture as pcapng, made anonymous.

    Args:
        options: how it is dissected. comments: of packets, by number; without them streams may lie
            on the disk while it runs, else in memory.
        progress: called with the stored bytes read so far, of twice as many.

    Raises:
        InputError: no file of it can be read. OSError: the sink takes no more.
    """
    half = chain.stored_bytes
    behind = None if progress is None else (lambda read: progress(read + half))
    streams = TreatedStreams(anonymizer.treat, in_memory=comments is not None)
    streams.read(chain, options, progress)
    written = Rewriter(anonymizer, streams, sink, comments).run(chain, behind)
    treated = anonymizer.by_protocol.values()
    return Anonymized(
        written.packets,
        streams.treated,
        sum(each.repacked for each in treated),
        sum(each.given_up for each in treated),
        sum(each.nameless for each in treated),
        written.emptied,
        tuple(streams.problems),
    )
