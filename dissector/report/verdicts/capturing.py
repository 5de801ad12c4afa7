"""Verdicts on the capture and its bytes: what was decoded, what is missing, what is damaged."""

from collections.abc import Mapping
from typing import Final

from dissector.limits import MAX_NAME_LENGTH
from dissector.report.commands import Commands
from dissector.report.meanings import NOTICE_SENTENCES, SERIOUS, notice_sentence
from dissector.report.numbers import Row
from dissector.report.verdict import (
    BAD,
    GOOD,
    LOOK,
    PLAIN,
    WHOLE,
    Remark,
    beside,
    both_directions,
    holes,
    parts_text,
    step_text,
    whole_packets,
    without_count,
)
from dissector.report.words import bytes_text, count_text, cut_text, every, listed, many, share_text
from dissector.schemas.words import OTHER_PROTOCOLS

ENOUGH: Final = 0.99  # share of the stream; what is lacking then hardly moves a number
_KINDS: Final = 12  # of packets that are not read, which are named


def coverage(report: Row, commands: Commands) -> list[Remark]:
    """How much was decoded, and what the capture lacks."""
    total = report["coverage"]["total"]
    found = [_seen(total, commands)]
    found += _lost(total, commands)
    one_way = sum(total["one_way_connections"].values())
    if one_way:
        whose = many(total["connections"], "connection")
        if one_way == total["connections"] == 1:
            whose = "the only connection"
        elif one_way < total["connections"]:
            whose = f"{count_text(one_way)} of {whose}"
        text = f"Only one direction of {whose} was captured."
        found.append(Remark(LOOK, "coverage", text, both_directions(commands)))
    if total["tls_opaque_connections"] and not _is_mostly_tls(total):
        found.append(Remark(LOOK, "coverage", f"{_tls(total)}.", _tls_step()))
    limits = dict(total["limits_hit"])
    if long_names := limits.pop("long_names_limit", 0):
        found.append(_long_names(long_names))
    if limits:
        found.append(_limits(limits, commands))
    return found


def _seen(total: Row, commands: Commands) -> Remark:
    """How much was decoded, by the rows of connections, or by the frames of those without one."""
    if _readable(total):
        found = _decoded(total, commands)
        if not total["unfinished_connections"]:
            return found
        return found._replace(text=f"{found.text} Beside it, {_unfinished(total)}")
    if not total["unfinished_connections"]:
        return _nothing(total, commands)
    text = f"{_unfinished(total)} How much of the stream that is, is not known before."
    step = "Ask again when connections have ended, or the tap has."
    return Remark(PLAIN, "coverage", text[0].upper() + text[1:], step)


def _unfinished(total: Row) -> str:
    """That connections have frames and no row."""
    frames = many(total["unfinished_frames"], "frame")
    verb = "is" if total["unfinished_frames"] == 1 else "are"
    of = many(total["unfinished_connections"], "connection")
    return f"{frames} of {of} {verb} decoded whose row comes at the end of the connection."


def _is_mostly_tls(total: Row) -> bool:
    """Whether TLS explains why little was decoded."""
    others = total["gaps"] or total["snaplen_cut_bytes"]
    others = others or total["connections_by_protocol"].get("unknown")
    is_little = total["decoded_share"] is not None and total["decoded_share"] < ENOUGH
    return bool(total["tls_opaque_connections"] and is_little and not others)


def _tls(total: Row) -> str:
    count = total["tls_opaque_connections"]
    verb = "is" if count == 1 else "are"
    return f"{many(count, 'connection')} {verb} encrypted by TLS and cannot be decoded"


def _tls_step() -> str:
    return step_text(
        "Capture where the traffic is plain: behind the proxy that ends TLS, or on a listener "
        "without it",
        WHOLE,
    )


def _lost(total: Row, commands: Commands) -> list[Remark]:
    """What went wrong while the capture was made or copied, and what else is a serious finding."""
    found = []
    if total["truncated_files"]:
        verb = "is" if total["truncated_files"] == 1 else "are"
        count = many(total["truncated_files"], "file")
        text = f"{count} {verb} cut: what came behind is missing."
        step = "Copy it again; if the capture was still running, end it before."
        found.append(Remark(LOOK, "coverage", text, step))
    if total["dropped_by_interface"]:
        dropped = many(total["dropped_by_interface"], "packet")
        text = f"The interface dropped {dropped} while capturing."
        step = (
            "Capture with a larger buffer (tcpdump -B 65536) and a filter for the brokers' ports."
        )
        found.append(Remark(LOOK, "coverage", text, step))
    serious = {code: n for code, n in total["notices_by_code"].items() if code in SERIOUS}
    if serious:
        text = "; ".join(
            f"{notice_sentence(total, code)} ({code}, {many(count, 'time')})"
            for code, count in serious.items()
        )
        text = f"{text[0].upper()}{text[1:]}."
        found.append(Remark(LOOK, "coverage", text, _notice_step(commands)))
    return found


def _notice_step(commands: Commands) -> str:
    words = "The table `notices` of a lake names the connection, packet and byte"
    return step_text(words, commands.notices())


def _nothing(total: Row, commands: Commands) -> Remark:
    """That there was nothing to decode."""
    packets, segments = total["packets"], total["packets_tcp"]
    text = f"Nothing could be decoded: {many(packets, 'packet')}"
    if total["other_protocols_bytes"]:
        text += f" with {_others(total)}, and no other payload"
    elif packets:
        lacks = "without any payload"
        if total["dropped_bytes"]:
            lacks = f"with {bytes_text(total['dropped_bytes'])} of payload that fit no stream"
        text += f", {many(segments, 'TCP packet')} among them, {lacks}"
    unread = total["packets_unread_by_kind"]
    if unread:
        kinds = [f"{kind} ({many(count, 'packet')})" for kind, count in unread.items()]
        text += f". Not read: {listed(kinds, _KINDS)}"
        step = "Capture where the traffic is not wrapped so, or unwrap it before it is read."
        return Remark(LOOK, "coverage", f"{text}.", step)
    words = "Check interface, filter and time of the capture"
    step = step_text(f"{words}; what was seen", commands.connections()) if segments else f"{words}."
    return Remark(LOOK, "coverage", f"{text}.", step)


def _decoded(total: Row, commands: Commands) -> Remark:
    """How much of the stream was decoded, and what of it is missing."""
    share, recognised = total["decoded_share"], total["decoded_share_of_recognised"]
    lost = []
    if total["gaps"]:
        in_all = " in all" if total["gaps"] > 1 else ""
        lost.append(f"{many(total['gaps'], 'gap')} of {bytes_text(total['gap_bytes'])}{in_all}")
    if total["snaplen_cut_bytes"]:
        lost.append(cut_text(total))
    if total["dropped_bytes"]:
        lost.append(f"{bytes_text(total['dropped_bytes'])} outside their streams not used")
    text = (
        f"{share_text(share)} of the TCP stream ({bytes_text(_readable(total))}) is decoded; "
        f"{' and '.join(lost) or 'no gaps'}."
    )
    protocols = total["connections_by_protocol"]
    if total["other_protocols_bytes"]:
        text += f" Left out: {_others(total)}."
    if protocols.get("http"):
        text += f" {many(protocols['http'], 'connection speaks', 'connections speak')} HTTP"
        is_rest = share < ENOUGH <= (recognised or 0)
        text += ", which explains the rest." if is_rest and not protocols.get("unknown") else "."
    if _is_mostly_tls(total):
        return Remark(LOOK, "coverage", f"{text} {_tls(total)}.", _tls_step())
    strange = protocols.get("unknown", 0)
    if share >= ENOUGH or (recognised is not None and recognised >= ENOUGH and not strange):
        if total["dropped_bytes"]:
            return Remark(LOOK, "coverage", text, _unused(commands))
        return Remark(GOOD if recognised else LOOK, "coverage", text)
    if lost:
        text += " What follows counts only what was seen."
    if total["snaplen_cut_bytes"]:
        return Remark(LOOK, "coverage", text, whole_packets(total))
    if total["gaps"]:
        words = "Capture nearer to the traffic or with a larger buffer (tcpdump -B 65536); losses"
        return Remark(LOOK, "coverage", text, step_text(f"{words} by connection", holes(commands)))
    if not strange:
        return Remark(LOOK, "coverage", text, _damage(commands))
    text += f" {many(strange, 'connection speaks', 'connections speak')} an unknown protocol."
    step = step_text(
        "Name the port if it is one of Pulsar (-d 6655=pulsar) or Cursus (-d 9000=cursus)",
        commands.connections('protocol == "unknown"'),
    )
    return Remark(LOOK, "coverage", text, step)


def _unused(commands: Commands) -> str:
    """How to look at connections whose payload fits no stream."""
    return step_text(
        "Payload that came after the end of its connection, or far outside it",
        commands.connections("dropped_bytes_to_broker > 0 or dropped_bytes_to_client > 0"),
    )


def _readable(total: Row) -> int:
    """Bytes of the stream but for those of protocols that are known not to be read."""
    return int(total["stream_bytes"] - total["other_protocols_bytes"])


def _others(total: Row) -> str:
    """What is known to be another protocol's, which nobody has to name."""
    counts = {
        name: total["connections_by_protocol"][protocol]
        for protocol, name in OTHER_PROTOCOLS.items()
        if protocol in total["connections_by_protocol"]
    }
    count = sum(counts.values())
    spoken = listed([f"{count_text(n)} {name}" for name, n in counts.items()], len(counts))
    if len(counts) == 1:
        spoken = next(iter(counts))
    size = bytes_text(total["other_protocols_bytes"])
    return f"{many(count, 'connection')} of other protocols ({spoken}), {size}"


def _damage(commands: Commands) -> str:
    """How to look at frames that are not whole."""
    return step_text("Frames that are not whole", commands.frames('status != "complete"'))


def _long_names(times: int) -> Remark:
    """Names that were cut: the numbers are whole."""
    text = (
        f"Names of more than {MAX_NAME_LENGTH:,} bytes were cut (long_names_limit, "
        f"{many(times, 'time')}); their beginning, length and digest stand for them."
    )
    return Remark(LOOK, "coverage", text, "Find out which client gives names of that length.")


def _limits(limits: Mapping[str, int], commands: Commands) -> Remark:
    """Bounds that were hit: what each leaves out."""
    reasons = "; ".join(
        f"{NOTICE_SENTENCES.get(code, 'a bound on memory')} ({code}, {many(count, 'time')})"
        for code, count in limits.items()
    )
    text = f"Some numbers are incomplete: {reasons}."
    step = step_text("Read fewer files at once, one by one", commands.other("dissector summary {}"))
    return Remark(BAD, "coverage", text, step)


def checksums(report: Row, commands: Commands) -> Remark:
    total = report["checksum_failures"]["total"]
    if total["not_applicable"]:
        text = f"Checksums: not applicable, {total['not_applicable']}."
        return Remark(PLAIN, "checksum_failures", text)
    if not total["evaluated"]:
        absent = many(total["absent"], "entry carries none", "entries carry none")
        why = f": {absent}" if total["absent"] else ""
        return Remark(PLAIN, "checksum_failures", f"No checksum could be evaluated{why}.")
    if not total["mismatch"]:
        text = every(total["evaluated"], "checksum that could be evaluated", "matches", "match",
                     "checksums that could be evaluated")  # fmt: skip
        if total["not_evaluated"]:
            text += f"; {count_text(total['not_evaluated'])} could not"
        mark = PLAIN if total["not_evaluated"] > total["evaluated"] else GOOD
        return Remark(mark, "checksum_failures", f"{text}.{beside(report)}")
    kinds = {
        "confirmed_by_peer": "confirmed by the receiver",
        "capture_artefact": "in the capture only, the receiver took the frame",
        "unconfirmed": "not confirmed by the receiver",
    }
    _, reasons = parts_text(total, kinds)
    reasons = without_count({name: total[name] for name in kinds if total[name]}, reasons)
    text = (
        f"{count_text(total['mismatch'])} of {many(total['evaluated'], 'checksum')} "
        f"{'does' if total['mismatch'] == 1 else 'do'} not match: {reasons}.{beside(report)}"
    )
    is_real = total["confirmed_by_peer"] or total["unconfirmed"]
    step = (
        "Suspect memory or network card of the sender, or a device between; the damaged frames"
        if is_real
        else "Suspect the capture, not the traffic; the frames"
    )
    command = commands.frames('checksum == "mismatch"')
    return Remark(PLAIN, "checksum_failures", text, step_text(step, command))


def joined(report: Row, commands: Commands) -> Remark | None:
    """What was lost where captures go over into each other, and what is there twice."""
    if "closing" not in report:
        return None
    total, copies = report["closing"]["total"], report["closing"]["copies"]
    sentences = []
    if total["frames_lost"]:
        verb = "is" if total["frames_lost"] == 1 else "are"
        lost = many(total["frames_lost"], "frame")
        sentences.append(f"{lost} at the border of two captures {verb} lost")
    if copies:
        verb = "shows" if len(copies) == 1 else "show"
        again = many(len(copies), "capture")
        sentences.append(f"{again} {verb} the same traffic as another one, which counts once")
    if not sentences:
        return None
    step = "Let dumpcap or `dissector tap` rotate the files: they lose nothing between two of them."
    if not total["frames_lost"]:
        step = "Land only one of captures that show the same traffic."
    return Remark(LOOK, "closing", f"{'; '.join(sentences)}.", step)
