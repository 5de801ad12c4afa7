"""Incidents of rules under a selection: by time and subject, and of clients by their frames."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from dissector.cli.main import run
from tests.dissector.observed import CAPTURES, tables_of

RESTART = CAPTURES / "pulsar-apache" / "java-j73_broker_restart-bem.pcap"
REFUSED = CAPTURES / "pulsar-apache" / "java-j23_errors.pcap"


def found(path: Path, *asked: str) -> list[dict[str, Any]]:
    with redirect_stdout(io.StringIO()) as said:
        assert run(["findings", "-q", "--json", str(path), *asked]) == 0
    rows: list[dict[str, Any]] = json.loads(said.getvalue())["findings"]
    return rows


def test_a_finding_is_of_the_client_whose_frames_show_it() -> None:
    seen = tables_of(str(RESTART))
    connections = {row["frame_no"]: row["connection_id"] for row in seen["frames"]}
    (whole,) = found(RESTART)
    shown = {connections[each["frame_no"]] for each in whole["evidence"]}
    kept = {
        row["connection_id"]: found(RESTART, "--client", f"{row['client_ip']}:{row['client_port']}")
        for row in seen["connections"]
        if row["connection_id"] in connections.values()
    }
    assert {number for number, rows in kept.items() if rows} == shown
    assert 0 < len(shown) < len(kept), "of some clients, and not of others"


def test_a_finding_about_another_name_is_left_out() -> None:
    whole = found(REFUSED)
    topics = {row["subject"].get("topic") for row in whole}
    assert len(topics) > 4
    for topic in ("busy", "maxp"):
        name = f"persistent://public/default/{topic}"
        expected = [row for row in whole if row["subject"].get("topic") in (None, name)]
        assert 0 < len(expected) < len(whole)
        assert found(REFUSED, "--topic", topic) == expected
    mine = [row for row in whole if row["subject"].get("subscription") == "s2"]
    assert len(mine) == 1
    kept = found(REFUSED, "--topic", "maxp", "--subscription", "s2")
    assert [row for row in kept if row["subject"].get("subscription")] == mine
