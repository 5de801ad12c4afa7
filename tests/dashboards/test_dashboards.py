"""Dashboards and alerts against a real Prometheus server that scraped a real tap."""

import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector.tap.metrics import HISTOGRAMS
from tests.dissector.observed import CAPTURES

ROOT = Path(__file__).resolve().parents[2] / "dashboards"
BOARDS = sorted((ROOT / "grafana").glob("*.json"))
ALERTS = ROOT / "prometheus" / "alerts.yml"
CAPTURE = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
CORRUPT = CAPTURES / "pulsar-apache" / "java-j74_corrupt.pcap"
LABELS = ("cluster", "instance", "topic", "subscription")
NAME = re.compile(r"\bdissector_\w+")
SUFFIXES = re.compile(r"_(?:bucket|sum|count)$")


class Query(NamedTuple):
    place: str
    text: str


def of_boards() -> list[Query]:
    queries = []
    for path in BOARDS:
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel["targets"]:
                queries.append(Query(f"{path.stem}/{panel['title']}", target["expr"]))
    (marks,) = json.loads(path.read_text("utf-8"))["annotations"]["list"]
    return [*queries, Query("marks", marks["expr"])]


def of_alerts() -> list[Query]:
    """Expressions of the rules, one line or folded, as promtool sees them."""
    text = re.sub(r">-\n((?: {10,}.*\n)+)", _folded, ALERTS.read_text("utf-8"))
    names = re.findall(r"- (?:alert|record): ([\w:]+)", text)
    return [
        Query(name, expression)
        for name, expression in zip(names, re.findall(r"expr: (.+)", text), strict=True)
    ]


def _folded(found: re.Match) -> str:
    return " ".join(line.strip() for line in found[1].splitlines()) + "\n"


def filled(query: str) -> str:
    """A query with Grafana's variables in place: all of everything."""
    query = query.replace("$__rate_interval", "30s")
    for label in LABELS:
        query = query.replace(f"${label}", ".*")
    assert "$" not in query
    return query


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def waited(condition: Any, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
            if found:
                return found
        except OSError:
            pass
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.2)


@contextmanager
def running(folder: Path, capture: Path) -> Iterator[tuple[str, str]]:
    """Addresses of a server with the alerts, and of a tap that it watches."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs a Prometheus server (Debian's package prometheus)")
    tap_port, port = free_port(), free_port()
    tap = subprocess.Popen(
        [sys.executable, "-m", "dissector", "tap", "--replay", str(capture), "--speed", "0.05",
         "--lake", str(folder / "lake"), "--rotate", "100ms", "--metrics", str(tap_port)],
        stderr=subprocess.DEVNULL, env={**os.environ},
    )  # fmt: skip
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{ALERTS}']\n"
        "scrape_configs:\n"
        f"  - {{job_name: dissector, static_configs: [{{targets: ['127.0.0.1:{tap_port}']}}]}}\n"
    )
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
         f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    base, of_tap = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{tap_port}"
    try:
        waited(lambda: "ready" in get(f"{base}/-/ready").lower())
        yield base, of_tap
    finally:
        for process in (prometheus, tap):
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of a server that scraped a tap several times, and of the tap."""
    with running(tmp_path_factory.mktemp("prometheus"), CAPTURE) as (base, of_tap):
        sends = 'sum(count_over_time(dissector_sends_total{outcome="ok"}[1m]))'
        waited(lambda: float((asked(base, sends) or [{"value": [0, "0"]}])[0]["value"][1]) > 4)
        yield base, of_tap


def asked(base: str, query: str) -> list[dict[str, Any]]:
    """What the server answers to a query; a failure is an exception."""
    content = json.loads(get(f"{base}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
    assert content["status"] == "success", content
    found: list[dict[str, Any]] = content["data"]["result"]
    return found


def families(of_tap: str) -> dict[str, bool]:
    """Metrics that the tap has, and whether they have samples."""
    text = get(f"{of_tap}/metrics")
    families = dict.fromkeys(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE), False)
    for name in re.findall(r"^(dissector_\w+)", text, re.MULTILINE):
        for known in (name, SUFFIXES.sub("", name)):
            if known in families:
                families[known] = True
    return families


@pytest.mark.parametrize("query", [*of_boards(), *of_alerts()], ids=lambda query: query.place)
def test_every_query_is_answered(server: tuple[str, str], query: Query) -> None:
    base, of_tap = server
    answer = asked(base, filled(query.text))
    known = families(of_tap)
    names = {name if name in known else SUFFIXES.sub("", name) for name in NAME.findall(query.text)}
    missing = names - known.keys()
    assert not missing, f"the tap has no {missing}"
    # What compares with a threshold, or divides by what is rare, may rightly say nothing.
    is_plain = not re.search(r"[<>]=? *\d|/|\bincrease\b", query.text)
    if is_plain and names and all(known[name] for name in names) and query in of_boards():
        assert answer, "the tap has these numbers, and the panel would be empty"


def test_the_server_evaluates_the_rules(server: tuple[str, str]) -> None:
    groups = waited(lambda: json.loads(get(f"{server[0]}/api/v1/rules"))["data"]["groups"])
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == [query.place for query in of_alerts()]
    assert all(rule["health"] in ("ok", "unknown") for rule in rules)


def test_the_first_damaged_frame_raises_the_alert(tmp_path: Path) -> None:
    firing = 'ALERTS{alertname="PulsarChecksumMismatch", alertstate="firing"}'
    with running(tmp_path, CORRUPT) as (base, _):
        (found,) = waited(lambda: asked(base, firing))
        # The alert counts from the moment at which its rule was asked, a query from now.
        counted = "max_over_time(sum(dissector_checksum_mismatches_total)[1m:1s])"
        count = waited(lambda: asked(base, counted))
    assert found["metric"]["direction"] == "to_broker"
    assert count[0]["value"][1] == "1", "one event, with which its series began"


def test_the_first_event_of_any_series_counts(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian's package prometheus)")
    text = (Path(__file__).parent / "first_events.yml").read_text("utf-8")
    (tmp_path / "test.yml").write_text(text.replace("ALERTS", str(ALERTS)))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_metrics(server: tuple[str, str]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian's package prometheus)")
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=get(f"{server[1]}/metrics"), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_is_on_a_dashboard(server: tuple[str, str]) -> None:
    shown = {name for query in of_boards() for name in NAME.findall(query.text)}
    shown |= {SUFFIXES.sub("", name) for name in shown}
    assert not families(server[1]).keys() - shown


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_boards_are_what_grafana_imports(path: Path) -> None:
    board = json.loads(path.read_text("utf-8"))
    addresses = [f"/d/dissector-{each.stem}" for each in BOARDS]
    assert board["schemaVersion"] >= 39 and board["uid"].startswith("dissector-")
    assert board["description"] and board["links"][0]["tags"] == ["dissector"]
    assert "dissector" in board["tags"]
    assert board["annotations"]["list"][0]["useValueForTime"]
    assert "id" not in board  # the server's own, which an import must not bring
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    names = {variable["name"] for variable in board["templating"]["list"]}
    assert {"cluster", "instance"} <= names
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert panel["description"].endswith(".")
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0
        assert panel["type"] in ("timeseries", "stat", "heatmap") and panel["targets"]
        for link in panel["fieldConfig"]["defaults"].get("links", ()):
            assert link["url"].split("?")[0] in addresses
        assert panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"} <= names
            assert target["datasource"]["uid"] == "${source}"


def test_no_panel_lies_on_another_one() -> None:
    for path in BOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            x, y, width, height = (panel["gridPos"][name] for name in "xywh")
            cells = {(x + i, y + j) for i in range(width) for j in range(height)}
            assert not cells & taken, f"{path.stem}: {panel['title']}"
            taken |= cells


def test_the_files_are_what_the_program_beside_them_makes() -> None:
    """Change dashboards/build.py, then run it."""
    pytest.importorskip("grafana_foundation_sdk", reason="needs pip install '.[dev]'")
    build = runpy.run_path(str(ROOT / "build.py"))
    made = {f"{board.name}.json": build["board_of"](board) for board in build["BOARDS"]}
    assert made == {path.name: path.read_text("utf-8") for path in BOARDS}


def test_each_histogram_is_a_heatmap() -> None:
    drawn = "".join(
        target["expr"]
        for path in BOARDS
        for panel in json.loads(path.read_text("utf-8"))["panels"]
        for target in panel["targets"]
        if panel["type"] == "heatmap" and target["format"] == "heatmap"
    )
    assert all(f"dissector_{name}_bucket" in drawn for name, _, _ in HISTOGRAMS)


def test_links_between_alerts_and_metrics_are_labels_that_exist() -> None:
    text = ALERTS.read_text("utf-8")
    labels = set(re.findall(r"\$labels\.(\w+)", text))
    assert labels <= {
        "instance", "interface", "by", "topic", "direction", "subscription", "command",
        "error_code", "id", "code",
    }  # fmt: skip
