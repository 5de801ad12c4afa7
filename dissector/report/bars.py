"""The page's bar charts of counts: causes of redeliveries, verdicts of checksums."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from dissector.report.drawings import Pair
from dissector.report.formatting import count_text
from dissector.report.numbers import Row
from dissector.report.plots import BAD, FIRST, GOOD, INK, MUTED, WARN, Drawn, pair_of


def _lines(name: str, bars: Sequence[tuple[str, int, str]], counted: str, caption: str) -> Pair:
    """Horizontal bars with their counts; logarithmic if the largest exceeds 200 times the least.
    bars: label, count, colour."""
    counts = [count for _, count, _ in bars if count]
    is_log = max(counts) > 200 * min(counts)

    def draw(figure: Figure) -> Drawn:
        axes = figure.subplots()
        positions = range(len(bars))
        axes.barh(positions, [count for _, count, _ in bars], 0.62,
                  color=[colour for *_, colour in bars])  # fmt: skip
        axes.set_yticks(positions, [label for label, *_ in bars])
        axes.invert_yaxis()
        if is_log:
            axes.set_xscale("symlog", linthresh=1)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        axes.grid(visible=False)
        for index, (_, count, _) in enumerate(bars):
            axes.annotate(count_text(count), (count, index), xytext=(5, 0), va="center",
                          textcoords="offset points", color=INK, fontsize=10.5)  # fmt: skip
        axes.margins(x=0.2)
        axes.set_xlim(left=0)
        return axes, [(count, index, f"{label}: {count_text(count)} {counted}")
                for index, (label, count, _) in enumerate(bars)]  # fmt: skip

    if is_log:
        caption = f"{caption} The scale is logarithmic."
    return pair_of(name, draw, caption, 40 + 30 * len(bars))


def redelivery_causes(total: Row) -> Pair | None:
    """Redelivered entries by cause; None without any."""
    causes = sorted(total["by_cause"].items(), key=lambda item: (-item[1], item[0]))
    if not causes:
        return None
    requested = ("explicit", "txn_abort")
    bars = [
        (cause.replace("_", " "), count, WARN if cause in requested else FIRST)
        for cause, count in causes
    ]
    caption = "Redelivered entries by cause; yellow: the application asked for it."
    return _lines("causes", bars, "entries", caption)


def checksum_verdicts(total: Row) -> Pair | None:
    """Frames by the verdict of their checksum; None without any."""
    shown = (
        ("ok", "ok", GOOD),
        ("confirmed by peer", "confirmed_by_peer", BAD),
        ("unconfirmed", "unconfirmed", BAD),
        ("capture artefact", "capture_artefact", WARN),
        ("absent", "absent", MUTED),
        ("not evaluated", "not_evaluated", MUTED),
    )
    bars = [(label, total[name], colour) for label, name, colour in shown if total[name]]
    if not bars:
        return None
    caption = "Frames that can carry a checksum, by verdict; mismatches by what the peer said."
    return _lines("checksums", bars, "frames", caption)
