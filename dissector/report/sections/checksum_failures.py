"""Checksum failures: frames whose CRC32C does not match, and what their peers said about them."""

from typing import Any, Final

from dissector.report.names import is_without_pulsar, legs_of
from dissector.report.numbers import Row, applicable, instant, known, nulls_last, share
from dissector.report.parts import MAX_FAILURES, Parts
from dissector.report.syndromes import Difference, difference, of_checksum_field
from dissector.report.tallies import CHECKSUMS, rows

CONFIRMED: Final = "confirmed_by_peer"
ARTEFACT: Final = "capture_artefact"
UNCONFIRMED: Final = "unconfirmed"
_NOT_APPLICABLE: Final = "frames of Cursus carry no checksum"
_CONNECTION: Final = ("capture", "connection_id")
_ENDS: Final = ("client_ip", "client_port", "broker_ip", "broker_port")


def verdict(row: Row) -> str:
    """What a mismatch is worth.

    A broker verifies a SEND before it answers: SEND_ERROR ChecksumError confirms the mismatch, a
    normal receipt proves that the bytes were good on the wire and the capture is wrong. A receipt
    without an id proves nothing (drops are answered before the check). A consumer confirms by an
    ACK with a validation error; a normal ACK proves nothing, since some clients do not verify.
    """
    if row["is_refused"]:
        return CONFIRMED
    if row["send_outcome"] == "error" and row["send_error_code"] == "ChecksumError":
        return CONFIRMED
    return ARTEFACT if row["send_outcome"] == "ok" else UNCONFIRMED


def _evidence(row: Row) -> int | None:
    frame_no: int | None = row["refused_frame_no"]
    if frame_no is None:
        frame_no = row["answer_frame_no"]
    return frame_no


def _group(frames: list[Row], failures: list[Row]) -> Row:
    """The numbers of one group of frames that can carry a checksum."""
    counts: dict[str | None, int] = {}
    notes: dict[str | None, int] = {}
    for row in frames:
        counts[row["checksum"]] = counts.get(row["checksum"], 0) + row["frames"]
        if row["checksum"] == "not_evaluated":
            notes[row["checksum_note"]] = notes.get(row["checksum_note"], 0) + row["frames"]
    ok, mismatch = counts.get("ok", 0), counts.get("mismatch", 0)
    verdicts = [row["verdict"] for row in failures]
    found = {name: verdicts.count(name) for name in (CONFIRMED, ARTEFACT, UNCONFIRMED)}
    # Beyond the bound on single failures nobody looked for what the peer said.
    found[UNCONFIRMED] += mismatch - len(failures)
    return {
        "evaluated": ok + mismatch,
        "ok": ok,
        "mismatch": mismatch,
        "absent": counts.get("absent", 0),
        "not_evaluated": counts.get("not_evaluated", 0),
        "not_evaluated_by_reason": known(notes),
        **found,
        "rate": share(mismatch, ok + mismatch),
    }


def _listed(frames: list[Row], failures: list[Row], keys: tuple[str, ...]) -> list[Row]:
    groups: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = {}
    for row in frames:
        groups.setdefault(tuple(row[key] for key in keys), ([], []))[0].append(row)
    for row in failures:
        groups.setdefault(tuple(row[key] for key in keys), ([], []))[1].append(row)
    listed = [
        {**dict(zip(keys, key, strict=True)), **_group(*found)} for key, found in groups.items()
    ]
    listed.sort(
        key=lambda row: (-row["mismatch"], -row["evaluated"], nulls_last(*(row[k] for k in keys)))
    )
    return listed


def _differs(row: Row) -> Row:
    """What is damaged: the least that explains the mismatch, as bytes of the frame from 0.

    It follows from both checksums; another copy of the entry says which of them is the right one.
    """
    nothing = {"differs": None, "differs_at": None, "differs_masks": None}
    sizes = (row["metadata_bytes"], row["payload_bytes"])
    stored, computed = row["crc32c_stored"], row["crc32c_computed"]
    if None in (*sizes, stored, computed):
        return nothing
    size = 4 + sum(sizes)
    if row["copy_crc32c"] is not None and row["copy_crc32c"] != stored:
        found: Difference | None = of_checksum_field(stored, row["copy_crc32c"], size)
    else:
        found = difference(stored, computed, size)
    if found is None:
        return nothing
    return {
        "differs": found.kind,
        "differs_at": [row["frame_bytes"] - place for place in found.places],
        "differs_masks": list(found.masks),
    }


def _failures(parts: Parts) -> list[Row]:
    """Every mismatch that was looked at, with its verdict, in order of time."""
    found: list[Row] = parts.tables["mismatches"].to_pylist()
    found.sort(key=lambda row: (row["at_ns"], nulls_last(row["capture"], row["frame_no"])))
    for row in found:
        row["ts"] = instant(row.pop("at_ns"))
        row["verdict"] = verdict(row)
        row["evidence_frame_no"] = _evidence(row)
        row.update(_differs(row))
    return found


def _joined(found: list[Row], parts: Parts) -> list[Row]:
    """Rows under the connections that they count for, where captures were joined."""
    if not parts.heads:
        return found
    places = [(row["capture"], row["connection_id"]) for row in found]
    heads = [parts.heads.get(place, place) for place in places]
    return [
        {**row, "capture": capture, "connection_id": connection}
        for row, (capture, connection) in zip(found, heads, strict=True)
    ]


def checksum_failures(parts: Parts) -> dict[str, Any]:
    """The section `checksum_failures`: total, by_direction, by_topic, by_connection, failures."""
    frames = rows(
        parts.tables["checksums"],
        CHECKSUMS,
        [*_CONNECTION, "direction", "topic", "checksum", "checksum_note"],
    )
    failures = _failures(parts)
    listed = _listed(_joined(frames, parts), _joined(failures, parts), _CONNECTION)
    places = [(row["capture"], row["connection_id"]) for row in listed]
    endpoints = legs_of(parts.names, places, *_ENDS)
    nobody = dict.fromkeys(_ENDS)
    by_connection = [
        {**row, **endpoints.get(place, nobody)} for place, row in zip(places, listed, strict=True)
    ]
    reason = _NOT_APPLICABLE if is_without_pulsar(parts.names) else None
    hidden = ("is_refused", "refused_frame_no", "answer_frame_no", "copy_crc32c")
    return {
        "total": applicable(_group(frames, failures), reason),
        "by_direction": _listed(frames, failures, ("direction",)),
        "by_topic": _listed(frames, failures, ("topic",)),
        "by_connection": by_connection,
        "failures": [
            {name: value for name, value in row.items() if name not in hidden}
            for row in failures[:MAX_FAILURES]
        ],
    }
