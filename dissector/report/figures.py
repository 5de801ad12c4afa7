"""The figures of a page: read from the cache if their numbers were drawn before, else drawn.

A figure depends on its numbers and on the program alone. So the cache (`kept_reports`) has the
figures of this program by a digest of their numbers. The drawing library is loaded only if a
figure must be drawn.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from dissector.errors import needs
from dissector.joining.files import digest_of
from dissector.report.drawings import Hint, Pair, Plot
from dissector.report.numbers import Row


def _nothing() -> Mapping[str, bytes]:
    return {}


_LATENCIES: Final = ("latency_histogram", "latency_ms")
_VERDICTS: Final = (
    "ok", "confirmed_by_peer", "unconfirmed", "capture_artefact", "absent", "not_evaluated",
)  # fmt: skip


def _shown(report: Row) -> Iterator[tuple[str, str, Any]]:
    """Each figure's name on the page, its drawing function's name, and that function's argument."""
    latency, checksums = report["send_latency"]["total"], report["checksum_failures"]["total"]
    latencies = {name: latency[name] for name in _LATENCIES}
    yield "distribution", "latency_distribution", latencies
    yield "percentiles", "latency_percentiles", latencies
    yield "time", "over_time", {"over_time": latency["over_time"]}
    yield "permits", "permit_balance", report["permit_utilization"]["balance_over_time"]
    yield "backlog", "backlog", report["publish_to_delivery"]["backlog"]
    yield "causes", "redelivery_causes", {"by_cause": report["redelivery"]["total"]["by_cause"]}
    yield "checksums", "checksum_verdicts", {name: checksums[name] for name in _VERDICTS}


class Figures:
    """Figures of one report.

    Args:
        kept: returns the figures that this program drew before, by digests of their numbers.

    used: the figures of this page in the form that is cached, by digest.
    """

    def __init__(self, kept: Callable[[], Mapping[str, bytes]] = _nothing) -> None:
        self._find = kept
        self.used: dict[str, bytes] = {}

    @cached_property
    def _kept(self) -> Mapping[str, bytes]:
        return self._find()

    def of(self, report: Row) -> dict[str, Pair | None]:
        """The figures of a report by name, None where there is nothing to draw.

        Raises:
            DependencyError: the drawing library is not installed.
        """
        return {name: self._pair(by, numbers) for name, by, numbers in _shown(report)}

    def _pair(self, drawn_by: str, numbers: Any) -> Pair | None:
        digest = digest_of([drawn_by, numbers])
        content = self._kept.get(digest)
        try:
            pair = None if content is None else _read(content)
        except (ValueError, TypeError):
            content = None
        if content is None:
            pair = _drawn(drawn_by, numbers)
            content = json.dumps(pair).encode()
        self.used[digest] = content
        return pair


def _drawn(drawn_by: str, numbers: Any) -> Pair | None:
    with needs("report", "`dissector summary` shows the numbers without a page"):
        from dissector.report import bars, plots
    draw: Callable[[Any], Pair | None] = getattr(plots, drawn_by, None) or getattr(bars, drawn_by)
    return draw(numbers)


def _read(content: bytes) -> Pair | None:
    """Parse a cached figure.

    Raises:
        ValueError, TypeError: the content is no figure.
    """
    pair = json.loads(content)
    if pair is None:
        return None
    *plots, caption = pair
    wide, narrow = (Plot(str(svg), [Hint(*hint) for hint in hints]) for svg, hints in plots)
    return Pair(wide, narrow, str(caption))
