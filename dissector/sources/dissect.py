"""A capture from its files to rows of its tables: the driver that every command shares."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from typing import Any, Final

from dissector.blocks import Column, TableBlock
from dissector.capture.reader import FileFacts
from dissector.dissection import Dissection, Options
from dissector.errors import InputError
from dissector.packet.link import link_type_name
from dissector.packet.reader import PacketCounts
from dissector.schemas import SCHEMA_VERSION
from dissector.sources.files import (
    Buffer,
    ChainReader,
    Digest,
    FileEnd,
    FileStart,
    raise_if_nothing,
)
from dissector.sources.rings import Chain

Progress = Callable[[int], None]

_DISTRIBUTION: Final = "pulsar-dissector"


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
        progress: told the stored bytes read so far.
        digest: hashes the uncompressed bytes on their way; by default only each file's own.
        cluster: label for the rows of capture_files.

    Raises:
        InputError: no file of the chain could be read.
    """
    dissection = Dissection(options)
    files: list[dict[str, Any]] = []
    with ChainReader(chain.files, digest) as reader:
        for event in reader:
            if isinstance(event, FileStart):
                dissection.start_file()
            elif isinstance(event, Buffer):
                event.consumed, blocks = dissection.feed(
                    event.data, event.start, event.end, event.is_last
                )
                event.is_enough = dissection.capture.is_over
                yield from blocks
                if progress is not None:
                    progress(reader.stored_bytes)
            else:
                facts, counts = dissection.end_file(is_damaged=event.problem is not None)
                files.append(_file_row(event, facts, counts, cluster))
        raise_if_nothing(reader.problems, reader.files_read)
    yield from dissection.finish()
    yield _file_block(files)


@cache
def _version() -> str:
    """The program's version, which is read from a file."""
    return metadata.version(_DISTRIBUTION)


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
        "dissector_version": _version(),
        "schema_version": SCHEMA_VERSION,
    }


def _file_block(files: list[dict[str, Any]]) -> TableBlock:
    if not files:
        raise InputError("no file of the capture could be read")
    columns: dict[str, Column] = {name: [file[name] for file in files] for name in files[0]}
    return TableBlock("capture_files", len(files), columns)
