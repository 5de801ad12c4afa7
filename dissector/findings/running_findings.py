"""Findings of a running tap, in its lake beside the rows: LAKE/_findings/RUN.jsonl.

A row is written by the rotation in which it closes, so the lake has no rows of open connections,
producers and requests, which rules need. Until they close, the tap writes its findings here: one
line of JSON per incident. When all rows of a run are in the lake, the file is deleted, because the
rules find the incidents in the rows. After a crash it stays: what was open then has no rows.
"""

import contextlib
import json
import os
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dissector.findings.finding import Evidence, Finding, worst_first
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.limits import MAX_NOTED_BYTES, MAX_NOTED_FINDINGS

FOLDER: Final = "_findings"
_SUFFIX: Final = ".jsonl"


class Notes:
    """Writes the findings of a tap's run in a thread, so that packets never wait for the disk.

    problem: why the last write failed, None if it succeeded.
    """

    def __init__(self, lake: Path) -> None:
        self.problem: str | None = None
        self._folder = lake / FOLDER
        self._path: Path | None = None
        self._count = 0
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_tasks, name="tap-notes", daemon=True)
        self._thread.start()

    def begin(self, capture: str, is_landed: bool) -> None:
        """Begin a run: `capture` names its rotations. Ends the earlier run.

        Args:
            is_landed: all earlier rows are in the lake, so the earlier run's file is deleted.
        """
        self._forget(is_landed)
        self._path = self._folder / f"{capture}{_SUFFIX}"
        self._count = 0

    def add(self, one: Finding) -> None:
        """Write an incident; at MAX_NOTED_FINDINGS it is dropped."""
        if self._path is None or self._count >= MAX_NOTED_FINDINGS:
            return
        self._count += 1
        row = one._replace(evidence=())._asdict() | {
            "capture": self._path.name.removesuffix(_SUFFIX),
            "subject": dict(one.subject),
            "measured": dict(one.measured),
            "thresholds": dict(one.thresholds),
            "evidence": [each._asdict() for each in one.evidence],
        }
        self._tasks.put(partial(self._write, self._path, json.dumps(row) + "\n"))

    def close(self, is_landed: bool) -> None:
        """End the run and the thread. is_landed: all its rows are in the lake; deletes its file."""
        self._forget(is_landed)
        self._tasks.put(None)
        self._thread.join()

    def _forget(self, is_landed: bool) -> None:
        if self._path is not None and is_landed:
            self._tasks.put(partial(self._remove, self._path))
        self._path = None

    # -- in the thread

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _write(self, path: Path, line: str) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # The folder is a lake from now on, even before the first rotation ends.
            (self._folder.parent / MANIFEST_FOLDER).mkdir(exist_ok=True)
            with open(path, "a", encoding="utf-8") as file:
                file.write(line)
            self.problem = None
        except OSError as error:
            self.problem = error.strerror

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def noted(lake: Path) -> list[Finding]:
    """The findings that taps wrote for runs whose rows are not all in the lake. Unreadable lines
    are skipped: a line may be half written."""
    findings: list[Finding] = []
    try:
        names = sorted(os.listdir(lake / FOLDER))
    except OSError:
        return []
    for name in names:
        if not name.endswith(_SUFFIX):
            continue
        try:
            with open(lake / FOLDER / name, encoding="utf-8", errors="replace") as file:
                lines = file.read(MAX_NOTED_BYTES).split("\n")[:MAX_NOTED_FINDINGS]
        except OSError:
            continue
        findings += [one for one in map(_finding, lines) if one is not None]
    return findings


def _finding(line: str) -> Finding | None:
    """The finding of a line of JSON, None if the line is malformed."""
    try:
        row: dict[str, Any] = json.loads(line)
        evidence = tuple(Evidence(**each) for each in row.pop("evidence"))
        ruled_out = tuple(map(str, row.pop("ruled_out")))
        spans = tuple((int(first), int(last)) for first, last in row.pop("spans"))
        one = Finding(**row, spans=spans, evidence=evidence, ruled_out=ruled_out)
        is_sound = len(spans) > 0 and all(
            isinstance(value, kind)
            for value, kind in (
                *((one.first_ns, int), (one.last_ns, int), (one.apart_ns, int)),
                *((one.subject, dict), (one.measured, dict), (one.thresholds, dict)),
                *((text, str) for text in (one.number, one.code, one.title, one.text, one.show)),
                *((text, str) for text in (one.severity, one.verdict, one.section, one.capture)),
                *((each.frame_no, int) for each in evidence),
            )
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return one if is_sound else None


def joined(findings: Sequence[Finding], more: Sequence[Finding]) -> list[Finding]:
    """The findings from rows, plus those of `more` that are no repetition of one: with the same
    rule, severity and subject at the same time."""
    known = list(findings)
    for one in more:
        if not any(_is_same(one, other) for other in known):
            known.append(one)
    return worst_first(known)


def _is_same(one: Finding, other: Finding) -> bool:
    return (
        (one.number, one.severity, one.subject) == (other.number, other.severity, other.subject)
        and one.first_ns <= other.last_ns + one.apart_ns
        and other.first_ns <= one.last_ns + one.apart_ns
    )
