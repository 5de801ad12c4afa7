"""Expands a user's inputs (files, directories, patterns, standard input) to a list of files."""

import os
import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from dissector.sources import locations
from dissector.sources.decompress import STDIN
from dissector.sources.files import FileProblem, unreadable

# What a capture file in a directory is called; anything else there is passed over in silence.
_CAPTURE_NAME: Final = re.compile(
    r"\.(?:pcap|pcapng|cap|dmp|ntar|tcpdump)\d*(?:\.(?:gz|zst|zstd|lz4|xz))?$", re.IGNORECASE
)


LAKE_MARK: Final = "_manifest"  # a folder of every lake
_LOG_MARK: Final = "_log/0/000000000000.zst"  # a file of every lake in a store
REPORT_MARK: Final = "report.json"


class Named(NamedTuple):
    """A candidate file. is_in_folder: the user named its folder, not the file."""

    path: str
    is_in_folder: bool


def looks_like_a_capture(path: str) -> bool:
    """Whether the file's name is that of a capture."""
    return _CAPTURE_NAME.search(os.path.basename(path)) is not None


def no_capture_in(folder: str, paths: Collection[str]) -> FileProblem:
    """Return the message about a folder that has files but no capture, with a remedy.

    Args:
        paths: of the files that were checked.
    """
    is_stored_lake = os.path.join(folder, _LOG_MARK) in paths
    if is_stored_lake or os.path.isdir(os.path.join(folder, LAKE_MARK)):
        text = (
            f"{folder}: this is a lake, not a capture; `dissector report --lake {folder} -o report`"
            f" gives its numbers, `dissector lake list {folder}` its captures"
        )
    elif os.path.isfile(os.path.join(folder, REPORT_MARK)):
        text = f"{folder}: this is a report, not a capture; open {folder}/report.html"
    elif os.path.isdir(os.path.join(folder, "lake", LAKE_MARK)):
        text = (
            f"{folder}: this is what `dissector analyze` wrote, not a capture; open "
            f"{folder}/report/report.html"
        )
    else:
        files = (
            "its only file is no capture"
            if len(paths) == 1
            else f"none of its {len(paths):,} files is a capture"
        )
        text = f"{folder}: {files}; give pcap or pcapng files"
    return FileProblem(folder, text, True)


def expand(inputs: Iterable[str]) -> tuple[list[Named], list[FileProblem]]:
    """Expand inputs to files, each once even if it has several names.

    Returns:
        The files in the order given (in directories and patterns by path), and the inputs that
        match nothing.
    """
    files: list[Named] = []
    problems: list[FileProblem] = []
    seen: set[tuple[int, int] | str] = set()

    def add(path: str, is_in_folder: bool) -> None:
        try:
            identity = path if path == STDIN else locations.identity_of(path)
        except OSError as error:
            problems.append(unreadable(path, error))
            return
        if identity not in seen:
            seen.add(identity)
            files.append(Named(path, is_in_folder))

    def missed(error: OSError) -> None:
        problems.append(unreadable(error.filename, error))

    def add_all(text: str) -> None:
        matches = [text] if text == STDIN else locations.matches(text)
        if not matches:
            problems.append(FileProblem(text, f"{text}: no file matches this pattern", True))
        for path in matches:
            problems_before = len(problems)
            inside = None if path == STDIN else locations.files_in(path, missed)
            if inside is None:
                add(path, False)
                continue
            before = len(files)
            for file in inside:
                add(file, True)
            if len(files) == before and len(problems) == problems_before:
                problems.append(
                    FileProblem(path, f"{path}: there is no file in it; name captures", True)
                )

    for text in inputs:
        try:
            add_all(text)
        except OSError as error:  # of a store
            problems.append(unreadable(text, error))
    return files, problems
