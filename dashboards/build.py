"""Makes the boards of Grafana: python dashboards/build.py writes dashboards/grafana/*.json.

A board is what stands here: its panels in rows, each with what it shows, its unit and its queries.
Grafana's models of boards come from its own library (grafana-foundation-sdk). A test compares what
is made with the files, and asks each query of a server that watched a tap.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueTextMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent / "grafana"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${source}")
# What all queries select, and those of boards about topics and subscriptions.
TAP = 'cluster=~"$cluster", instance=~"$instance"'
TOPIC = f'{TAP}, topic=~"$topic"'
PLACE = f'{TOPIC}, subscription=~"$subscription"'
BY_PLACE = "sum by (topic, subscription)"
TAG = "dissector"
WIDTH = 24  # of a board
SCHEMA = 39  # of boards, that of Grafana 11: newer ones bring it to theirs

PRODUCER, SUBSCRIPTION = "dissector-producer", "dissector-subscription"


class Panel(NamedTuple):
    """A panel. text: what it shows and how to read it; queries: and the legend of each; leads_to:
    the board about the topic of a series."""

    title: str
    text: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 12
    leads_to: str = ""


class Board(NamedTuple):
    """A board. variables: labels that can be chosen, and the metrics that have them."""

    name: str
    title: str
    text: str
    rows: Sequence[Sequence[Panel]]
    variables: Mapping[str, str] = {}


def rate(metric: str, by: str, of: str = TAP) -> str:
    """How much more a second, by some labels."""
    return f"sum by ({by}) (rate(dissector_{metric}{{{of}}}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str, of: str) -> str:
    """A percentile of a histogram, by some labels."""
    labels = f"le, {by}" if by else "le"
    return (
        f"histogram_quantile({share}, sum by ({labels}) "
        f"(rate(dissector_{metric}_seconds_bucket{{{of}}}[$__rate_interval])))"
    )


def number(
    title: str, text: str, unit: str, query: str, width: int, legend: str = "__auto"
) -> Panel:
    """A panel of one number."""
    return Panel(title, text, unit, [(query, legend)], "stat", width)


def spread(title: str, text: str, metric: str, of: str) -> Panel:
    """A panel of a histogram over time."""
    query = f"sum by (le) (increase(dissector_{metric}_seconds_bucket{{{of}}}[$__rate_interval]))"
    return Panel(title, text, "s", [(query, "{{le}}")], "heatmap")


SPREAD = "Each column is an interval of time, each row an octave of durations, the colour how many."
OK = 'outcome="ok"'

OVERVIEW = Board(
    "overview", "Pulsar on the wire: overview",
    "What passes, how fast, and what goes wrong. The other boards say more of one topic.",
    [
        [
            number("Complete", "Whether the tap lost nothing lately; otherwise counts are too low.",
                   "bool_yes_no", f"min(dissector_tap_complete{{{TAP}}})", 4),
            number("Packets", "That the tap took in, a second.", "pps",
                   f"sum (rate(dissector_tap_packets_received_total{{{TAP}}}[$__rate_interval]))",
                   5),
            number("Sends", "That were answered or given up, a second.", "ops",
                   f"sum (rate(dissector_sends_total{{{TAP}}}[$__rate_interval]))", 5),
            number("Send latency p99", "99 % of receipts came within it.", "s",
                   quantile(0.99, "send_latency", "", f"{TAP}, {OK}"), 5),
            number("Damaged frames", "Frames with a wrong checksum in the last hour.", "short",
                   f"sum(increase(dissector_checksum_mismatches_total{{{TAP}}}[1h]))", 5),
        ],
        [
            spread("Send latency", f"From the end of a SEND to the end of its receipt. {SPREAD}",
                   "send_latency", f"{TAP}, {OK}"),
            spread("What applications waited", "From the publish time to the last receipt that "
                   f"confirms the send. {SPREAD}", "application", TAP),
        ],
        [
            Panel("Frames by command", "Frames a second; requests go to the broker.",
                  "ops", [(rate("frames_total", "command, direction"),
                           "{{command}} {{direction}}")]),
            Panel("Bytes of frames", "As they are framed, without what TCP sent again.", "Bps",
                  [(rate("frame_bytes_total", "direction"), "{{direction}}")]),
        ],
        [
            Panel("Sends by outcome", "ok: confirmed as stored. What else became of them says "
                  "`dissector explain`.", "ops", [(rate("sends_total", "outcome"), "{{outcome}}")]),
            Panel("Refused requests", "Answers of the broker that refuse something, by error code.",
                  "ops", [(rate("errors_total", "command, error_code"),
                           "{{command}} {{error_code}}")]),
        ],
        [
            Panel("Busiest topics", "Sends a second of the ten busiest topics.", "ops",
                  [(f"topk(10, {rate('sends_total', 'topic')})", "{{topic}}")], leads_to=PRODUCER),
            Panel("Redeliveries by cause", "Deliveries that repeat an earlier one.", "ops",
                  [(rate("redeliveries_total", "cause"), "{{cause}}")]),
        ],
        [
            Panel("Checksums", "Frames that carry a checksum, by verdict.", "ops",
                  [(rate("checksums_total", "direction, verdict"), "{{verdict}} {{direction}}")]),
            Panel("Incidents found", "What rules of findings found so far; each is also marked in "
                  "all panels. The log of the tap has a line of each.", "short",
                  [(f"sum by (id, code, severity) (dissector_findings_total{{{TAP}}})",
                    "{{id}} {{code}} ({{severity}})")]),
        ],
        [
            Panel("Since a finding was seen last", "What was not seen for long is over.", "s",
                  [("time() - max by (id, code, severity) "
                    f"(dissector_finding_last_seen_timestamp_seconds{{{TAP}}})",
                    "{{id}} {{code}} ({{severity}})")]),
        ],
    ],
)  # fmt: skip

PRODUCERS = Board(
    "producer", "Pulsar on the wire: producers",
    "How sends of a topic fare: as the wire has them and as applications felt them.",
    [
        [
            Panel("Send latency", "From the end of a SEND to the end of its receipt, as captured.",
                  "s", [(quantile(0.5, "send_latency", "topic", f"{TOPIC}, {OK}"), "p50 {{topic}}"),
                        (quantile(0.99, "send_latency", "topic", f"{TOPIC}, {OK}"),
                         "p99 {{topic}}")]),
            Panel("What applications waited", "From the publish time to the last receipt that "
                  "confirms the send: time in the client and repeated attempts are in it.",
                  "s", [(quantile(0.5, "application", "topic", TOPIC), "p50 {{topic}}"),
                        (quantile(0.99, "application", "topic", TOPIC), "p99 {{topic}}")]),
        ],
        [
            spread("Send latency, all of it", f"Of the topics that are chosen. {SPREAD}",
                   "send_latency", f"{TOPIC}, {OK}"),
            spread("What applications waited, all of it", f"Of what is chosen. {SPREAD}",
                   "application", TOPIC),
        ],
        [
            Panel("Mean send latency", "All time that sends took, by their number.", "s",
                  [(f"{rate('send_latency_seconds_sum', 'topic', f'{TOPIC}, {OK}')} / "
                    f"{rate('send_latency_seconds_count', 'topic', f'{TOPIC}, {OK}')}",
                    "{{topic}}")]),
            Panel("Sends by outcome", "ok: confirmed as stored.", "ops",
                  [(rate("sends_total", "topic, outcome", TOPIC), "{{topic}} {{outcome}}")]),
        ],
        [
            Panel("Messages", "In these sends; a batch holds several.", "ops",
                  [(rate("sent_messages_total", "topic", TOPIC), "{{topic}}")]),
            Panel("Bytes", "Of the frames of these sends.", "Bps",
                  [(rate("sent_bytes_total", "topic", TOPIC), "{{topic}}")]),
        ],
        [
            Panel("Sends repeated", "That repeat an earlier one, as after a reconnect.", "ops",
                  [(rate("sends_resent_total", "topic", TOPIC), "{{topic}}")]),
            Panel("Wrong checksums", "Frames that arrive damaged.", "ops",
                  [(rate("checksum_mismatches_total", "topic, direction", TOPIC),
                    "{{topic}} {{direction}}")]),
        ],
        [
            Panel("Publish to delivery p99", "From the end of a SEND to the end of the MESSAGE "
                  "that delivers it first.", "s",
                  [(quantile(0.99, "publish_to_delivery", "topic, subscription", TOPIC),
                    "{{topic}} {{subscription}}")], leads_to=SUBSCRIPTION),
        ],
    ],
    {"topic": "dissector_sends_total"},
)  # fmt: skip

SUBSCRIPTIONS = Board(
    "subscription", "Pulsar on the wire: subscriptions",
    "Whether consumers keep up: permits, deliveries, acknowledgements, repeats.",
    [
        [
            Panel("Permits available", "Messages that brokers may still send to these consumers.",
                  "short", [(f"{BY_PLACE} (dissector_permits_available{{{PLACE}}})",
                             "{{topic}} {{subscription}}")]),
            Panel("Share of time without permits", "Of consumers whose balance is known: how long "
                  "brokers had to wait for them.", "percentunit",
                  [(f"{rate('permits_exhausted_seconds_total', 'topic, subscription', PLACE)} / "
                    f"{BY_PLACE} (dissector_consumers{{{PLACE}}})", "{{topic}} {{subscription}}")]),
        ],
        [
            Panel("Permits granted and used", "Granted by FLOW, used by deliveries.", "ops",
                  [(rate("permits_granted_total", "topic, subscription", PLACE),
                    "granted {{topic}} {{subscription}}"),
                   (rate("permits_used_total", "topic, subscription", PLACE),
                    "used {{topic}} {{subscription}}")]),
            Panel("Stalls", "Consumers without permits for a second or longer. Confirmed: messages "
                  "waited.", "short",
                  [(f"{BY_PLACE} (dissector_consumers_stalled{{{PLACE}}})",
                    "stalled now {{topic}} {{subscription}}"),
                   ("sum by (topic, subscription, confirmed) "
                    f"(increase(dissector_permit_stalls_total{{{PLACE}}}[10m]))",
                    "in 10 min {{topic}} {{subscription}} confirmed {{confirmed}}")]),
        ],
        [
            Panel("Deliveries", "Whose fate is known: acknowledged, given back or closed.", "ops",
                  [(rate("deliveries_total", "topic, subscription", PLACE),
                    "{{topic}} {{subscription}}")], leads_to=PRODUCER),
            Panel("Redeliveries by cause", "Deliveries that repeat an earlier one, and what the "
                  "broker itself counts, at once.", "ops",
                  [(rate("redeliveries_total", "topic, subscription, cause", PLACE),
                    "{{topic}} {{subscription}} {{cause}}"),
                   (rate("redelivered_frames_total", "topic, subscription", PLACE),
                    "counted by the broker {{topic}} {{subscription}}")]),
        ],
        [
            Panel("Acknowledged and asked for again", "Ids a second.", "ops",
                  [(rate("acks_total", "topic, subscription, action", PLACE),
                    "{{topic}} {{subscription}} {{action}}")]),
            Panel("Publish to delivery p99", "From the end of a SEND to the end of the MESSAGE "
                  "that delivers it first.", "s",
                  [(quantile(0.99, "publish_to_delivery", "topic, subscription", PLACE),
                    "{{topic}} {{subscription}}")]),
        ],
        [
            spread("Publish to delivery, all of it", f"Of what is chosen. {SPREAD}",
                   "publish_to_delivery", PLACE),
        ],
    ],
    {"topic": "dissector_sends_total", "subscription": "dissector_permits_granted_total"},
)  # fmt: skip

HEALTH = Board(
    "tap", "Pulsar on the wire: health of the tap",
    "Whether the numbers of the other boards can be believed: losses, lag, memory, rotations.",
    [
        [
            number("Flowing", "Whether packets came in the last minute.", "bool_yes_no",
                   f"min(dissector_tap_flowing{{{TAP}}})", 5),
            number("Complete", "Whether nothing was lost in the last five minutes.", "bool_yes_no",
                   f"min(dissector_tap_complete{{{TAP}}})", 5),
            number("Landing", "Whether rotations get into the lake. No where no --lake was given.",
                   "bool_yes_no", f"min(dissector_tap_landing{{{TAP}}})", 5),
            number("Version", "Of the program.", "none", f"dissector_tap_info{{{TAP}}}", 4,
                   "{{version}}"),
            number("Running for", "Since the last start of the tap.", "s",
                   f"time() - min(dissector_tap_started_timestamp_seconds{{{TAP}}})", 5),
        ],
        [
            Panel("Packets", "Taken in, used, and lost: by the kernel where the ring was full, "
                  "by the queue where a rotation was given up.", "pps",
                  [(rate("tap_packets_received_total", "instance"), "received"),
                   (rate("tap_packets_tcp_total", "instance"), "of TCP"),
                   (rate("tap_packets_dropped_total", "by"), "dropped by {{by}}")]),
            Panel("Packets that are not used", "By reason; `dissector explain` knows each.", "pps",
                  [(rate("tap_packets_ignored_total", "reason"), "{{reason}}")]),
        ],
        [
            Panel("Bytes", "Captured, on the wire, and missing as the mirror lost them.", "Bps",
                  [(rate("tap_captured_bytes_total", "instance"), "captured"),
                   (rate("tap_wire_bytes_total", "instance"), "on the wire"),
                   (rate("gap_bytes_total", "instance"), "missing in streams")]),
            Panel("Holes and repeats", "Holes in streams, packets that TCP sent again, and frames "
                  "that are not whole.", "ops",
                  [(rate("gaps_total", "instance"), "holes"),
                   (rate("retransmitted_packets_total", "instance"), "sent again"),
                   (rate("damaged_frames_total", "status"), "frames {{status}}")]),
        ],
        [
            Panel("Behind the wire, silent", "How old packets are when their rows are there; how "
                  "long no packet came.", "s",
                  [(f"dissector_tap_lag_seconds{{{TAP}}}", "behind"),
                   (f"dissector_tap_silent_seconds{{{TAP}}}", "silent")]),
            Panel("Memory", "Of the process, of what waits for the lake, and how often state was "
                  "given up for want of it.", "bytes",
                  [(f"dissector_tap_memory_bytes{{{TAP}}}", "resident"),
                   (f"dissector_tap_queued_bytes{{{TAP}}}", "waits for the lake"),
                   (f"increase(dissector_tap_memory_restarts_total{{{TAP}}}[1h])", "restarts")]),
        ],
        [
            Panel("Rotations and recordings", "Of the last ten minutes: landed in the lake or "
                  "lost, kept by the flight recorder or not; and those that wait on disk for a "
                  "store.", "short",
                  [("sum by (outcome) "
                    f"(increase(dissector_tap_rotations_total{{{TAP}}}[10m]))",
                    "rotations {{outcome}}"),
                   (f"dissector_tap_waiting_rotations{{{TAP}}}", "rotations that wait"),
                   (f"sum by (outcome) (increase(dissector_tap_records_total{{{TAP}}}[10m]))",
                    "recordings {{outcome}}")]),
            Panel("Connections", "Begun and ended, by protocol.", "ops",
                  [(rate("connections_total", "instance"), "begun"),
                   (rate("connections_closed_total", "protocol, ended"),
                    "{{protocol}} ended by {{ended}}")]),
        ],
        [
            Panel("Notices", "What was odd, lost or limited, counted at each rotation; `dissector "
                  "explain` knows each.", "ops", [(rate("notices_total", "code"), "{{code}}")]),
            Panel("Interfaces, label sets left out", "1 while an interface is up; series beyond "
                  "--max-series, which are counted as `other`.", "short",
                  [(f"dissector_tap_interface_up{{{TAP}}}", "{{interface}} is up"),
                   (rate("label_sets_left_out_total", "metric"), "left out of {{metric}}")]),
        ],
        [
            Panel("Requests", "Other than sends, by command and outcome.", "ops",
                  [(rate("requests_total", "command, outcome"), "{{command}} {{outcome}}")]),
            Panel("Windows looked at for findings", "Of the last ten minutes. Skipped: more rows "
                  "than rules keep up with.", "short",
                  [(f"sum by (outcome) (increase(dissector_tap_windows_total{{{TAP}}}[10m]))",
                    "{{outcome}}")]),
        ],
    ],
)  # fmt: skip

BOARDS = (OVERVIEW, PRODUCERS, SUBSCRIPTIONS, HEALTH)


class _Findings(dashboard.AnnotationQuery):
    """Marks of findings, at the time of their packets: a value of the metric is a time.

    Prometheus' fields of a mark are none of the model, which is the one of all sources.
    """

    def build(self) -> Any:
        mark = super().build()
        fields = mark.to_json() | {
            "titleFormat": "{{id}} {{code}}",
            "textFormat": "{{severity}} on {{instance}}: dissector explain {{id}}",
            "tagKeys": "severity,id",
            "useValueForTime": True,
        }
        return _Fields(fields)


class _Fields:
    """What a model is as JSON."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def to_json(self) -> Mapping[str, Any]:
        return self.fields


def _marks() -> dashboard.AnnotationQuery:
    expression = (
        "max by (id, code, severity, instance) "
        f"(dissector_finding_last_seen_timestamp_seconds{{{TAP}}}) * 1000"
    )
    marks = _Findings().name("Findings").datasource(SOURCE).enable(True).hide(False)
    return marks.icon_color("red").expr(expression)


def _variables(board: Board) -> Iterator[Any]:
    yield dashboard.DatasourceVariable("source").type("prometheus").label("Source")
    choices = {
        "cluster": "dissector_tap_info",
        "instance": 'dissector_tap_info{cluster=~"$cluster"}',
        **{name: f"{metric}{{{TAP}}}" for name, metric in board.variables.items()},
    }
    for name, metric in choices.items():
        query = {"query": f"label_values({metric}, {name})", "refId": name}
        variable = dashboard.QueryVariable(name).label(name.capitalize()).datasource(SOURCE)
        # A tap without --cluster has no such label: all of them are any text, also none.
        yield (
            variable.query(query).include_all(True).all_value(".*").multi(True)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .current(models.VariableOption(text=["All"], value=["$__all"]))
        )  # fmt: skip


def _empty(panel: Panel) -> Any:
    """The panel's kind, as Grafana draws it."""
    if panel.kind == "stat":
        shown = BigValueTextMode.NAME if panel.unit == "none" else BigValueTextMode.VALUE
        last = common.ReduceDataOptions().calcs(["lastNotNull"])
        return stat.Panel().text_mode(shown).reduce_options(last)
    if panel.kind == "heatmap":
        scale = common.ScaleDistributionConfig().type(ScaleDistribution.LINEAR)
        colour = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues")
        return (
            heatmap.Panel().calculate(False).color(colour.steps(64).fill("dark-blue").exponent(0.5))
            .y_axis(heatmap.YAxisConfig().unit(panel.unit)).scale_distribution(scale)
            .show_legend().show_tooltip().show_y_histogram()
        )  # fmt: skip
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    drawn = timeseries.Panel().draw_style(GraphDrawStyle.LINE).fill_opacity(5).tooltip(tooltip)
    return drawn.legend(legend.placement(LegendPlacement.BOTTOM).show_legend(True))


def _panel(panel: Panel, number: int, x: int, y: int) -> Any:
    made = _empty(panel).id(number).title(panel.title).description(panel.text).unit(panel.unit)
    height = 4 if panel.kind == "stat" else 8
    made = made.datasource(SOURCE).grid_pos(models.GridPos(height, panel.width, x, y))
    for letter, (expression, legend) in zip("ABCDEFGH", panel.queries, strict=False):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(letter)
        if panel.kind == "heatmap":
            query = query.format(PromQueryFormat.HEATMAP)
        made = made.with_target(query.datasource(SOURCE))
    if panel.leads_to:
        address = (
            f"/d/{panel.leads_to}?${{source:queryparam}}&${{cluster:queryparam}}"
            "&${instance:queryparam}&var-topic=${__field.labels.topic}&${__url_time_range}"
        )
        link = dashboard.DashboardLink("This topic").type(models.DashboardLinkType.LINK)
        made = made.data_links([link.url(address)])
    return made


def board_of(board: Board) -> str:
    """The file of a board."""
    links = dashboard.DashboardLink("Boards of the tap").type(models.DashboardLinkType.DASHBOARDS)
    made = (
        dashboard.Dashboard(board.title).uid(f"dissector-{board.name}").description(board.text)
        .tags(["pulsar", TAG]).editable().refresh("10s").time("now-1h", "now").timezone("")
        .tooltip(models.DashboardCursorSync.CROSSHAIR).variables([*_variables(board)])
        .annotations([_marks()]).version(1)
        .link(links.tags([TAG]).as_dropdown(False).include_vars(True).keep_time(True))
    )  # fmt: skip
    y, number = 0, 0
    for row in board.rows:
        x = 0
        for panel in row:
            number += 1
            made = made.with_panel(_panel(panel, number, x, y))
            x += panel.width
        assert x <= WIDTH, f"{board.name}: a row is too wide"
        y += 4 if row[0].kind == "stat" else 8
    model = made.build()
    model.schema_version = SCHEMA
    return json.dumps(model, cls=JSONEncoder, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all boards."""
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(board_of(board), "utf-8")


if __name__ == "__main__":
    main()
