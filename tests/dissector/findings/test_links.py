"""Rules about connections: made captures on which they fire, and harmless twins."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector.cli.main import run
from dissector.findings.finding import findings_of
from dissector.findings.loading import load_rules
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import sandbox_over
from tests.dissector.findings import (
    cursus_captures,
    links_captures,
    order_captures,
    topics_captures,
)
from tests.dissector.findings.asking import findings_by_capture

ROOT = Path(__file__).resolve().parents[3]
MADE = {
    "C05",
    "C06",
    "D18",
    "D19",
    "D20",
    "D21",
    "D22",
    "D23",
    "D24",
    "D25",
    "D26",
    "D28",
    "D29",
    "D30",
    "D31",
}
RULES = {rule.number: rule for rule in load_rules()[0] if rule.number in MADE}


class Fires(NamedTuple):
    """A made capture, and what a variant of a rule must measure on it."""

    maker: str
    number: str
    variant: str
    values: dict[str, Any]


FIRES = [
    Fires("tls_on_plain_port", "D18", "", {"spoken": "TLS", "connections": 2}),
    Fires("tls_on_plain_port", "D18", "", {"spoken": "HTTP", "connections": 1}),
    *(
        Fires("others_on_plain_port", "D18", "", {"spoken": spoken, "connections": 1})
        for spoken in ("Kafka", "MQTT", "AMQP")
    ),
    Fires(
        "others_on_plain_port", "D18", "proxy_header",
        {"connections": 2, "proxied_ip": "203.0.113.9"},
    ),
    Fires("plain_on_tls_port", "D18", "plain_on_tls", {"broker_port": "6651", "connections": 1}),
    Fires("plain_on_tls_port", "D18", "pulsar_alert", {"broker_port": "6652", "connections": 1}),
    Fires("tls_refused", "D18", "alert", {"connections": 2}),
    Fires("tls_on_default_port", "D18", "default_port", {"connections": 1}),
    Fires(
        "stopped_broker", "D20", "peer_tcp_alive",
        {"unanswered_s": 30.001, "pings_sent": 3, "pings_answered": 2, "max_pong_ms": 4.0},
    ),
    Fires(
        "client_without_pongs", "D20", "ping_but_no_pong",
        {"giver_up": "broker", "pings_sent": 1, "pings_answered": 0, "pings_behind": 1},
    ),
    Fires(
        "stopped_client", "D20", "answered_too_late",
        {"giver_up": "broker", "unanswered_s": 60.0, "pings_sent": 2, "pings_answered": 2},
    ),
    Fires("vanished_client", "D20", "peer_gone", {"giver_up": "broker", "retransmitted": 3}),
    Fires(
        "moved_often", "D24", "unload_churn",
        {"moves_seen": 4, "closest_s": 200.0, "swallowed": 4, "resent": 4, "wait_s": 4 * 0.502},
    ),
    Fires("closed_topics", "D24", "loaded_anew", {"producers": 1, "consumers": 1}),
    Fires(
        "closed_topics", "D24", "moved",
        {"broker_from": "10.0.0.2:6650", "broker_to": "10.0.0.3:6650", "wait_s": 0.502},
    ),
    Fires(
        "closed_topics", "D24", "migrated",
        {"migrated_to": "pulsar://10.0.0.3:6650", "broker_to": "10.0.0.3:6650"},
    ),
    Fires("closed_topics", "D24", "consumers", {"producers": 0, "consumers": 1}),
    Fires("closed_topics", "D24", "terminated", {"error_code": "TopicTerminatedError"}),
    Fires("closed_topics", "D24", "deleted", {"command": "PRODUCER", "error_text": "no more"}),
    Fires("closed_topics", "D24", "not_reopened", {"producers": 1, "wait_s": 20.001}),
    Fires("moved_twice", "D24", "", {"producers": 1, "wait_s": 0.502, "first_receipt_s": 0.602}),
    Fires("fenced_topic", "D23", "", {"refused": 5, "lasted_s": 31.0, "successes": 1}),
    Fires("silent_opens", "D23", "accepted_but_silent", {"lasted_s": 59.001, "pongs": 2}),
    Fires(
        "migrated_opens", "D23", "migrated_not_followed",
        {"answered_ms": 15.0, "migrated_to": "pulsar://10.0.0.3:6650", "lasted_s": 29.987,
         "opened_at": "10.0.0.3:6650", "client_version": "Made-1"},
    ),
    Fires("migrated_opens", "D23", "migrated_never_followed", {"lasted_s": 58.986}),
    Fires("migrated_opens", "D23", "closed_instead", {"answered_ms": 10.0, "refused": 1}),
    Fires("silent_opens", "D23", "late_success", {"lasted_s": 40.0, "command": "SUBSCRIBE"}),
    Fires(
        "connects_that_time_out", "D28", "proxy_timeout",
        {"connections": 4, "closest_s": 30.0, "longest_s": 10.001, "closed_by_client": 4},
    ),
    Fires("connects_that_wait", "D28", "waits_on", {"connections": 2, "longest_s": 78.991}),
    Fires("connects_given_up", "D28", "", {"connections": 2, "longest_s": 6.001}),
    Fires(
        "expired_connections", "D26", "",
        {"connections": 3, "youngest_s": 120.001, "oldest_s": 130.001, "auth_method": "token"},
    ),
    Fires("endless_challenges", "D26", "auth_refresh_loop", {"challenges": 4, "closest_s": 20.0}),
    Fires("endless_challenges", "D26", "refused", {"error_text": "JWT expired at noon"}),
    Fires("unanswered_challenge", "D26", "challenge_ignored", {"closed_by_broker": 1}),
    Fires(
        "lookups_redirected", "D22", "",
        {"redirects_seen": 6, "lookups": 7, "authoritative": 5, "ended_with": "Connect"},
    ),
    Fires("lookups_slow", "D22", "lookup_overload", {"slow": 4, "lookups": 20, "refused": 1}),
    Fires(
        "opened_per_message", "D25", "",
        {"opens_seen": 30, "closest_s": 19.0, "short": 30, "messages_seen": 30, "opening_s": 0.06},
    ),
    Fires("opened_per_message", "D25", "reader_per_request", {"opens_seen": 30, "short": 30}),
    Fires("asked_per_message", "D25", "last_id_polling", {"opens_seen": 40, "messages_seen": 40}),
    Fires("asked_per_message", "D25", "schema_per_message", {"opens_seen": 40}),
    Fires("connections_grow", "D25", "connections_growing", {"opens_seen": 20, "short": 10}),
    Fires("delay_on_exclusive", "D29", "delay_ignored", {"messages": 2, "off_s": 9.99}),
    Fires("delay_cut_short", "D29", "", {"messages": 2, "off_s": 5.0, "intended_s": 10.0}),
    Fires(
        "delay_by_a_slow_clock", "D29", "clock_skew",
        {"messages": 2, "skew_s": -8.0, "intended_s": 10.0, "waited_s": 2.0},
    ),
    Fires("delay_overdue", "D29", "late", {"messages": 2, "off_s": 20.1}),
    Fires("delay_released", "D29", "released", {"messages": 2, "off_s": 20.02}),
    Fires("clocks_that_differ", "D30", "", {"skew_median_s": 4.99, "agreeing": 1, "off_s": 4.99}),
    Fires("clocks_that_differ", "D30", "behind", {"skew_median_s": -90.01, "sends_seen": 30}),
    Fires(
        "order_lost", "D31", "",
        {"entries": 1, "entry_id": "5", "before_entry_id": "6", "subscription_type": "Exclusive"},
    ),
    Fires("order_of_keys_lost", "D31", "", {"entries": 1, "key": "a", "entry_id": "5"}),
    Fires("order_of_keys_lost", "D31", "key_at_two", {"key": "b", "entry_id": "9"}),
    Fires("order_given_up", "D31", "after_nack", {"entries": 1, "entry_id": "0"}),
    Fires(
        "kept_out", "D21", "own_half_open",
        {"refusals": 6, "refused_s": 25.0, "owner_port": "40000", "owner_silent_s": 74.799},
    ),
    Fires("kept_out", "D21", "own_second_connection", {"owner_port": "40001", "refusals": 6}),
    Fires("kept_out", "D21", "own_connection", {"client_ip": "10.0.0.10", "refusals": 6}),
    Fires("kept_out", "D21", "other_host", {"client_ip": "10.0.0.9", "owner_ip": "10.0.0.1"}),
    Fires("kept_out", "D21", "limit", {"error_text": "Topic reached max producers limit"}),
    Fires("kept_out", "D21", "other_half_open", {"client_ip": "10.0.0.11", "owner_port": "40000"}),
    Fires(
        "kept_out", "D21", "exclusive",
        {"error_code": "ProducerFenced", "owner": "another connection of the same address"},
    ),
    Fires("kept_out", "D21", "subscription_type", {"error_code": "ConsumerBusy"}),
    Fires("kept_out", "D21", "range", {"owner_port": "40001", "text_address": "10.0.0.1:40001"}),
    Fires(
        "kept_out", "D21", "range_half_open",
        {"owner_port": "40000", "text_address": "10.0.0.1:40000"},
    ),
    Fires(
        "kept_out", "D21", "reopened",
        {"topic": "persistent://public/default/t10", "owner_port": "40001"},
    ),
    Fires("refused_once", "D21", "limit_once", {"refusals": 6}),
    Fires("refused_once", "D21", "exclusive_once", {"refusals": 6}),
    Fires("refused_once", "D21", "subscription_type_once", {"refusals": 6}),
    Fires("refused_once", "D21", "range_once", {"owner_port": "40001"}),
    Fires("refused_once", "D21", "not_in_capture_once", {"owner_ip": None}),
    Fires("kept_out", "D21", "not_in_capture", {"refusals": 6, "owner_ip": None}),
    Fires("refused_once", "D21", "", {"refusals": 6, "refused_s": 2.0}),
    Fires(
        "looping_producer", "D19", "",
        {"opens_seen": 12, "closest_s": 2.0, "late_pause_s": 0.5, "closed_by_client": 12,
         "last_frame": "SEND_RECEIPT of the broker", "resent": 11},
    ),
    Fires(
        "short_runs", "D19", "in_order",
        {"opens_seen": 8, "closest_s": 2.0, "last_frame": "SUCCESS of the broker"},
    ),
    Fires("backing_off", "D19", "backoff_retry", {"opens_seen": 8, "early_pause_s": 0.3}),
    Fires(
        "group_stalled", "C05", "",
        {"member": "m-1234", "messages": 40, "commits": 10, "silent_s": 38.51, "beats": 13},
    ),
    Fires(
        "wrong_leader", "C06", "",
        {"refusals_seen": 8, "lasted_s": 21.0, "error_code": "NOT_LEADER", "successes": 1},
    ),
]  # fmt: skip
SILENT = [
    ("tls_and_plain", "D18"),
    ("proxy_header_taken", "D18"),
    ("closed_in_a_ping", "D20"),
    ("paused_client", "D20"),
    ("stopped_broker", "D24"),
    ("slow_opens", "D23"),
    ("connects_closed_at_once", "D28"),
    ("brokers_restarted", "D26"),
    ("lookups_found", "D22"),
    ("opened_for_ten", "D25"),
    ("asked_seldom", "D25"),
    ("delay_kept", "D29"),
    ("clocks_that_agree", "D30"),
    ("order_kept", "D31"),
    ("moved_twice", "D21"),
    ("connected_seldom", "D19"),
    ("group_at_work", "C05"),
    ("new_leader", "C06"),
]
MODULES = (cursus_captures, links_captures, order_captures, topics_captures)
MADE_BY = {name: made for module in MODULES for name, made in vars(module).items()}
MAKERS = sorted({each.maker for each in FIRES} | {maker for maker, _ in SILENT})


@pytest.fixture(scope="module")
def findings_by_rule(tmp_path_factory):
    """The findings by made capture and rule."""
    folder = tmp_path_factory.mktemp("links")
    files = {maker: folder / f"{maker}.pcap" for maker in MAKERS}
    for maker, file in files.items():
        file.write_bytes(MADE_BY[maker]())
    sorted_out: dict[tuple[str, str], list[Any]] = {}
    for maker, findings in findings_by_capture(RULES, files).items():
        for one in findings:
            sorted_out.setdefault((maker, one.number), []).append(one)
    return sorted_out


def test_every_rule_is_there_and_has_a_harmless_twin():
    assert {each.number for each in FIRES} == {number for _, number in SILENT} == MADE == {*RULES}
    variants = {(number, name) for number, rule in RULES.items() for name in rule.words if name}
    assert variants <= {(each.number, each.variant) for each in FIRES}


@pytest.mark.parametrize("each", FIRES, ids=lambda each: f"{each.number}-{each.maker}")
def test_a_made_fault_is_found_and_measured(each, findings_by_rule):
    words = RULES[each.number].words[each.variant]
    all_measured = [
        {**one.subject, **one.measured}
        for one in findings_by_rule.get((each.maker, each.number), [])
        if (one.title, one.severity, one.verdict) == (words.title, words.severity, words.verdict)
    ]
    expected = {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in each.values.items()
    }
    assert expected in [{name: one.get(name) for name in expected} for one in all_measured]


def test_a_name_that_was_refused_for_a_moment_keeps_nobody_out(findings_by_rule):
    findings = findings_by_rule["refused_once", "D21"]
    assert {one.severity for one in findings} == {"info"}
    held = [one.measured["owner"] for one in findings if one.measured["error_text"] == "taken"]
    assert len(held) == len({*held}) == 6


def test_two_moves_are_no_churn(findings_by_rule):
    assert [one.severity for one in findings_by_rule["moved_twice", "D24"]] == ["info"]


def test_tls_on_its_own_port_is_silent(tmp_path):
    """Captures of TLS alone have no frames."""
    for name in ("fake-f17_tls", "java-j35_tls"):
        (file,) = ROOT.glob(f"captures/*/{name}.pcap*")
        assert run(["land", "-q", "--lake", str(tmp_path / "lake"), str(file)]) in (0, 3)
    with open_lake(tmp_path / "lake") as opened, sandbox_over(opened) as engine:
        assert findings_of(engine, [RULES["D18"], RULES["D28"]]) == ([], [])


@pytest.mark.parametrize(("maker", "number"), SILENT)
def test_a_harmless_twin_is_silent(maker, number, findings_by_rule):
    assert [one.text for one in findings_by_rule.get((maker, number), [])] == []
