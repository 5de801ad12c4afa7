"""Findings of windows become incidents: a line and a count each, however often they are seen."""

from types import SimpleNamespace

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families as families
from prometheus_client.registry import CollectorRegistry

from dissector.findings.finding import Finding
from dissector.tap import finding_incidents
from dissector.tap.finding_incidents import IncidentLog
from dissector.tap.health import Health
from dissector.tap.metrics import TapCollector, TapNumbers

S = 10**9
APART_S = 60


def finding(number: str, first_s: float, last_s: float, severity: str = "error", **subject: str):
    return Finding(
        number, f"code_{number}", "A title", severity, "proven", "", "c", subject,
        int(first_s * S), int(last_s * S), ((int(first_s * S), int(last_s * S)),), APART_S * S,
        {}, {}, (), (), "It happened.\nHow it is known: so.",
    )  # fmt: skip


class Windows:
    """Windows that find what a test says."""

    judged = skipped = failed = 0
    problem = "no memory"

    def __init__(self) -> None:
        self.next: list[Finding] = []

    def drain(self) -> list[Finding]:
        findings, self.next = self.next, []
        return findings

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def close(self) -> None:
        """Nothing is left."""


@pytest.fixture
def incidents():
    said: list[str] = []
    shown: list[Finding] = []
    made = IncidentLog(Windows(), said.append, shown.append)
    return SimpleNamespace(made=made, windows=made._judging, said=said, shown=shown)


def see(incidents, *findings: Finding) -> None:
    incidents.windows.next = list(findings)
    incidents.made._next = 0.0
    incidents.made.tick(1.0)


def test_an_incident_is_said_once_while_it_goes_on(incidents):
    see(incidents, finding("D01", 100, 110, topic="t"))
    see(incidents, finding("D01", 105, 160, topic="t"))
    see(incidents, finding("D01", 160 + APART_S, 300, topic="t"))
    (shown,) = incidents.shown
    assert (shown.first_ns, shown.last_ns) == (100 * S, 110 * S)
    assert incidents.made.incidents.values == {("D01", "code_D01", "error"): 1}
    assert incidents.made.last_ns == {("D01", "code_D01", "error"): 300 * S}


def test_what_comes_after_a_minute_or_of_another_is_another_incident(incidents):
    see(incidents, finding("D01", 100, 110, topic="t"), finding("D01", 100, 110, topic="u"))
    see(incidents, finding("D01", 111 + APART_S, 180, topic="t"))
    see(incidents, finding("D01", 181, 182, "warning", topic="t"))
    assert len(incidents.shown) == 4 and not incidents.said
    assert incidents.made.by_severity == {"error": 3, "warning": 1}
    assert incidents.made.worst.first_ns == (111 + APART_S) * S


def test_each_incident_of_a_finding_is_counted_once_however_often_it_is_seen(incidents):
    one = finding("D24", 100, 101, topic="t")._replace(apart_ns=0)
    both = one._replace(spans=((100 * S, 101 * S), (102 * S, 103 * S)))
    see(incidents, one)
    see(incidents, both)
    see(incidents, both)
    assert both.incidents == incidents.made.by_severity["error"] == len(incidents.shown) == 2


def test_remembered_subjects_are_bounded(incidents, monkeypatch):
    monkeypatch.setattr(finding_incidents, "MAX_INCIDENT_SUBJECTS", 2)
    see(incidents, *(finding("D01", 1, 2, topic=str(each)) for each in range(3)))
    see(incidents, finding("D01", 1, 2, topic="2"), finding("D01", 1, 2, topic="0"))
    assert incidents.made.by_severity["error"] == 4, "the first was forgotten, the last was not"


def test_windows_that_were_not_judged_are_said(incidents):
    incidents.windows.skipped, incidents.windows.failed = 1, 1
    see(incidents)
    incidents.windows.skipped = 2
    see(incidents)
    assert [line.split(":")[0] for line in incidents.said] == [
        "findings of a window are missing", "more rows than rules keep up with",
    ]  # fmt: skip


def test_metrics_show_incidents_and_windows(incidents):
    see(incidents, finding("D01", 100, 110.5, topic="t"), finding("D01", 100, 110, topic="u"))
    numbers = TapNumbers()
    registry = CollectorRegistry()
    registry.register(TapCollector(Health(is_live=False), numbers))

    def samples() -> dict:
        text = generate_latest(registry).decode()
        return {(one.name, *sorted(one.labels.values())): one.value
                for family in families(text) for one in family.samples}  # fmt: skip

    assert not any(name.startswith("dissector_finding") for name, *_ in samples())
    incidents.windows.judged = 7
    numbers.findings = incidents.made.numbers()
    shown = samples()
    assert shown["dissector_findings_total", "D01", "code_D01", "error"] == 2
    name = "dissector_finding_last_seen_timestamp_seconds"
    assert shown[name, "D01", "code_D01", "error"] == 110.5
    assert shown["dissector_tap_windows_total", "judged"] == 7
    assert shown["dissector_tap_windows_total", "skipped"] == 0
