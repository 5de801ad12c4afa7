"""Finds the source files of a lake's captures by their SHA-256."""

import os
from collections.abc import Iterator, Sequence

from dissector.lake.reader import Lake
from dissector.sources.files import Buffer, ChainReader, FileEnd
from dissector.sources.inputs import expand
from dissector.sources.rings import Chain


def chains_of(lake: Lake, inputs: Sequence[str]) -> dict[str, Chain]:
    """Return the files of each capture; a capture is left out if one of its files is missing.

    Args:
        inputs: files or folders to search. By default files with the manifest's names are searched
            for in the working folder, the lake's folder and its parent.
    """
    chains = {}
    for capture in lake.captures:
        if not capture.sources:
            continue
        paths = []
        for source in capture.sources:
            for path in _candidates(lake, inputs, source.file_name):
                if _sha256(path) == source.sha256:
                    paths.append(path)
                    break
        if len(paths) == len(capture.sources):
            chains[capture.capture_id] = Chain(tuple(paths), capture.base_name)
    return chains


def _candidates(lake: Lake, inputs: Sequence[str], name: str) -> Iterator[str]:
    if inputs:
        files = [each.path for each in expand(inputs)[0]]
        yield from sorted(files, key=lambda path: os.path.basename(path) != name)
        return
    for folder in (os.curdir, str(lake.folder), os.path.dirname(os.path.realpath(lake.folder))):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            yield path


def _sha256(path: str) -> str | None:
    """Return the digest of a capture's uncompressed bytes, None if it cannot be read."""
    with ChainReader((path,)) as reader:
        for event in reader:
            if isinstance(event, FileEnd):
                return event.sha256
            if isinstance(event, Buffer):
                event.consumed = event.end
    return None
