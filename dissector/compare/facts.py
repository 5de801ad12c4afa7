"""Describes two runs, and differences of the captures that may look like changes of the traffic."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dissector.compare.runs import Run
from dissector.errors import InputError
from dissector.protocols import PROTOCOL_NAMES
from dissector.report.formatting import (
    bytes_text,
    count_text,
    cut_text,
    duration_text,
    listed,
    many,
    share_text,
)

Row = dict[str, Any]
_LONGER: Final = 1.25  # ratio of durations above which a sentence says so
_KEPT: Final = (
    "captures", "files", "packets", "first_ts", "last_ts", "span_ns", "connections",
    "connections_by_protocol", "connections_by_start", "frames", "gaps", "gap_bytes",
    "snaplen_cut_bytes", "dropped_by_interface", "truncated_files", "decoded_share", "limits_hit",
    "one_way_connections",
)  # fmt: skip
_LISTED: Final = 3
_WORDS: Final = ("before", "after")


def facts(run: Run) -> Row:
    """The description of a run, as JSON."""
    return {"name": run.name, **{key: run.coverage[key] for key in _KEPT}}


def sentence(run: Run) -> str:
    """The description of a run, as a sentence."""
    counts = run.coverage
    return (
        f"{run.name}: {duration_text((counts['span_ns'] or 0) / 1e6)}, "
        f"{many(counts['connections'], 'connection')}, {many(counts['frames'], 'frame')}"
    )


def must_be_comparable(before: Run, after: Run) -> None:
    """Refuse runs of different protocols.

    Raises:
        InputError: they have no protocol in common.
    """
    in_protocol_words = [
        [name for name in PROTOCOL_NAMES if run.coverage["connections_by_protocol"].get(name)]
        for run in (before, after)
    ]
    if not set(in_protocol_words[0]) & set(in_protocol_words[1]):
        what = [" and ".join(names) or "no known protocol" for names in in_protocol_words]
        raise InputError(
            f"different protocols: {before.name} is {what[0]}, {after.name} is {what[1]}"
        )


def differences(before: Run, after: Run, topics: Mapping[str, Any]) -> list[str]:
    """Sentences on what differs or is missing in the captures.

    Args:
        topics: as `dissector.compare.comparing.compared` gives them.
    """
    runs = before, after
    sentences = []
    if before.digests & after.digests:
        is_all = before.digests == after.digests
        what = "are the same files" if is_all else "have files in common"
        sentences.append(f"Both runs {what}: what differs is nothing that happened.")
    spans = [run.coverage["span_ns"] or 0 for run in runs]
    if max(spans) > _LONGER * min(spans):
        texts = [duration_text(span / 1e6) for span in spans]
        sentences.append(
            f"The runs are not equally long: {texts[0]} before, {texts[1]} after. What belongs to "
            "a run's begin or end weighs more in the shorter one."
        )
    sentences += [
        text for run, word in zip(runs, _WORDS, strict=True) for text in _lacks(run, word)
    ]
    for word, names in (("before", topics["only_before"]), ("after", topics["only_after"])):
        if names:
            sentences.append(
                f"Only {word}: {many(len(names), 'topic')}, compared with all others together "
                f"and not alone: {listed(names, _LISTED)}"
            )
    if topics["not_listed"]:
        rest = many(topics["not_listed"], "topic")
        sentences.append(f"Not compared one by one: {rest} with few events; --topic names one.")
    return sentences


def _lacks(run: Run, word: str) -> Iterator[str]:
    """Sentences on what is missing in one run's capture."""
    has = run.coverage
    if has["gap_bytes"]:
        yield (
            f"Lost {word}: {bytes_text(has['gap_bytes'])} in {many(has['gaps'], 'gap')}; what was "
            "in them is in no number."
        )
    if has["dropped_by_interface"]:
        yield (
            f"Dropped {word} by the capturing machine: "
            f"{many(has['dropped_by_interface'], 'packet')}."
        )
    if has["snaplen_cut_bytes"]:
        yield f"Not captured whole {word}: {cut_text(has)}."
    midstream = has["connections_by_start"].get("midstream", 0)
    if midstream:
        yield (
            f"Older than the capture {word}: {many(midstream, 'connection')} of "
            f"{count_text(has['connections'])}; their topics and balances may be unknown."
        )
    share = has["decoded_share"]
    if share is not None and share < 0.99:
        yield f"Decoded {word}: {share_text(share)} of the stream."
    for direction, count in has["one_way_connections"].items():
        yield (
            f"Not captured {word}: the direction {direction.replace('_', ' ')} of "
            f"{many(count, 'connection')}."
        )
    if has["truncated_files"]:
        yield f"Cut {word}: {many(has['truncated_files'], 'file')} without an end."
    if has["limits_hit"]:
        yield f"Bounds that were hit {word}: {', '.join(sorted(has['limits_hit']))}."
