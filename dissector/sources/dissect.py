"""Dissects the files of a capture to rows of its tables: the driver of all commands."""

from collections.abc import Callable, Iterator
from typing import Any

from dissector.blocks import ByteArray, Column, TableBlock
from dissector.capture.reader import FileFacts
from dissector.dissection import Dissection, Options
from dissector.errors import InputError
from dissector.installed import own_version
from dissector.packet.link import link_type_name
from dissector.packet.reader import PacketCounts
from dissector.schemas import SCHEMA_VERSION
from dissector.sources.files import (
    Buffer,
    ChainReader,
    Digest,
    FileDigest,
    FileEnd,
    FileStart,
    raise_if_nothing,
)
from dissector.sources.key_logs import keys_of
from dissector.sources.rings import Chain

Progress = Callable[[int], None]


def dissect(
    chain: Chain,
    options: Options,
    progress: Progress | None = None,
    *,
    digest: Digest | None = None,
    cluster: str | None = None,
) -> Iterator[TableBlock]:
    """Read the files of a chain as one capture and yield its rows as they close.

    Args:
        progress: called with the stored bytes read so far.
        digest: hashes the uncompressed bytes; by default each file separately.
        cluster: label for the rows of capture_files.

    Raises:
        InputError: no file of the chain could be read.
    """
    dissection = Dissection(options, keys=keys_of(options))
    exact = None if options.max_packets is None else _ExactDigest(digest or FileDigest())
    try:
        yield from _rows(dissection, chain, progress, digest, exact, cluster)
    finally:
        dissection.abandon()


def _rows(
    dissection: Dissection,
    chain: Chain,
    progress: Progress | None,
    digest: Digest | None,
    exact: "_ExactDigest | None",
    cluster: str | None,
) -> Iterator[TableBlock]:
    """As of `dissect`. exact: takes the place of the digest."""
    files: list[dict[str, Any]] = []
    with ChainReader(chain.files, digest if exact is None else None) as reader:
        for event in reader:
            if isinstance(event, FileStart):
                dissection.start_file()
                start = event
                continue
            if isinstance(event, Buffer):
                event.consumed, blocks = dissection.feed(
                    event.data, event.start, event.end, event.is_last, stays=not event.is_early
                )
                event.is_enough = dissection.capture.is_over
                if exact is not None:
                    exact.update(event)
                yield from blocks
                if progress is not None:
                    progress(reader.stored_bytes)
                if not dissection.capture.is_full:
                    continue
            problem = event.problem if isinstance(event, FileEnd) else None
            facts, counts = dissection.end_file(is_damaged=problem is not None)
            end = event if exact is None else exact.end_file(start, problem)
            assert isinstance(end, FileEnd)
            files.append(_file_row(end, facts, counts, cluster))
            if dissection.capture.is_full:
                break
        raise_if_nothing(reader.problems, reader.files_read)
    yield from dissection.finish()
    yield _file_block(files)


def dissect_bytes(data: ByteArray, options: Options) -> Iterator[TableBlock]:
    """Dissect one file in memory, even a damaged one; yields no row of capture_files."""
    dissection = Dissection(options)
    dissection.start_file()
    yield from dissection.feed(data, 0, len(data), True)[1]
    dissection.end_file()
    yield from dissection.finish()


class _ExactDigest:
    """Hashes the bytes up to the last packet of a capture that is cut after some packets.

    The reading thread cannot: it is ahead of the packets, by more or less as files are cut.
    """

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._file_bytes = 0

    def update(self, buffer: Buffer) -> None:
        """Take what the dissection took of a buffer."""
        self._digest.update(buffer.data[buffer.start : buffer.consumed].data)
        self._file_bytes += buffer.consumed - buffer.start

    def end_file(self, start: FileStart, problem: str | None) -> FileEnd:
        """The current file as if it ended here."""
        size, self._file_bytes = self._file_bytes, 0
        return FileEnd(start, size, self._digest.end_file(start.name), problem)


def _file_row(
    end: FileEnd, facts: FileFacts, counts: PacketCounts, cluster: str | None
) -> dict[str, Any]:
    """The row of capture_files of one file."""
    return {
        "file_name": end.start.name,
        "file_index": end.start.file_index,
        "tap_run": None,
        "cluster": cluster,
        "sha256": end.sha256,
        "file_bytes": end.file_bytes,
        "format": facts.format,
        "compressed": end.start.compressed,
        "packets": facts.packets,
        "first_packet": facts.first_packet,
        "link_types": [link_type_name(number) for number in facts.link_types],
        "snaplen": facts.snaplen,
        "first_ts_ns": facts.first_ts_ns,
        "last_ts_ns": facts.last_ts_ns,
        "is_truncated": facts.is_truncated or end.problem is not None,
        "dropped_by_interface": facts.dropped_by_interface,
        "packets_tcp": counts.used,
        "packets_ignored_by_reason": sorted(counts.ignored.items()),
        "clock_steps": facts.clock_steps,
        "dissector_version": own_version(),
        "schema_version": SCHEMA_VERSION,
    }


def _file_block(files: list[dict[str, Any]]) -> TableBlock:
    if not files:
        raise InputError("no file of the capture could be read")
    columns: dict[str, Column] = {name: [file[name] for file in files] for name in files[0]}
    return TableBlock("capture_files", len(files), columns)
