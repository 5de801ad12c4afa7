"""summary --over-time: how its step is read, and the table as text."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from dissector.cli.exits import EXIT_OK, EXIT_USAGE
from dissector.cli.over_time import CommandOverTime, over_time_option, table_lines
from dissector.cli.terminal import Paint
from tests.dissector.cli.conftest import SAMPLES, Command

pytestmark = pytest.mark.usefixtures("few_rules")

NACKS = SAMPLES / "java-j12_nack.pcap"
S = 1_000_000_000


def parsed(*words: str) -> tuple[int | None, tuple[str, ...]]:
    found: list[Any] = []

    @click.command(cls=CommandOverTime)
    @click.argument("inputs", nargs=-1)
    @over_time_option
    def body(width_ns: int | None, inputs: tuple[str, ...]) -> None:
        found.append((width_ns, inputs))

    body.main(list(words), standalone_mode=False)
    return found[0]  # type: ignore[no-any-return]


def test_an_input_may_follow_the_option_and_a_step_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed("night.pcap") == (None, ("night.pcap",))
    assert parsed("--over-time", "night.pcap") == (0, ("night.pcap",))
    assert parsed("night.pcap", "--over-time") == (0, ("night.pcap",))
    assert parsed("--over-time", "1m", "night.pcap") == (60 * S, ("night.pcap",))
    assert parsed("--over-time=500ms", "night.pcap") == (S // 2, ("night.pcap",))
    assert parsed("--", "--over-time", "1m") == (None, ("--over-time", "1m"))
    monkeypatch.chdir(tmp_path)
    Path("1m").touch()
    assert parsed("--over-time", "1m") == (0, ("1m",)), "a file of that name is an input"
    for text in ("0s", "x", "-1m", "1e9"):
        with pytest.raises(click.BadParameter, match="is no step"):
            parsed(f"--over-time={text}")


def row(second: int, **values: Any) -> dict[str, Any]:
    names = ("refused", "permits", "unacked", "opened", "closed", "lost_bytes")
    counts = dict.fromkeys(("sends", "receipts", "deliveries", "acks", *names), 0)
    return {
        "ts_ns": second * S, "is_captured": True, **counts, "permits": None,
        "latency_ms": {"p50": None, "p99": None}, **values,
    }  # fmt: skip


def lines(*rows: dict[str, Any], has_bars: bool = False, step_ms: float = 60_000.0) -> list[str]:
    made = {"step_ms": step_ms, "rows": list(rows)}
    return list(table_lines(made, Paint("never"), has_bars=has_bars))


def test_columns_without_a_number_are_left_out_and_gaps_are_named() -> None:
    lost = {"is_captured": False, **dict.fromkeys(("sends", "receipts", "deliveries", "acks"))}
    shown = lines(
        row(0, sends=5, receipts=4, latency_ms={"p50": 1.5, "p99": 20.25}),
        row(60), row(120, **lost), row(180, **lost), row(240, sends=1200),
    )  # fmt: skip
    assert shown == [
        "over time, in steps of 1 min, from 1970-01-01 UTC",
        "      time  sends  receipts  p50 ms  p99 ms  deliveries  acks",
        "  00:00:00      5         4   1.500  20.250           0     0",
        "  00:01:00      0         0       -       -           0     0",
        "  00:02:00 to 00:03:00: nothing was captured",
        "  00:04:00  1,200         0       -       -           0     0",
    ]


def test_bars_say_how_high_a_number_is_in_its_column() -> None:
    shown = lines(row(0, sends=8), row(60, sends=1), row(120, sends=0), has_bars=True)
    assert [each[10:].strip()[:3].strip() for each in shown[2:]] == ["8 █", "1 ▁", "0"]
    ends = {line.index(bar) - 2 for line, bar in ((shown[2], "█"), (shown[3], "▁"))}
    assert ends == {shown[1].index("sends") + 4}, "numbers end where their head does"


def test_several_days_are_told_apart_and_short_steps_have_milliseconds() -> None:
    shown = lines(row(86_340), row(86_400))
    assert [each.split("  ")[1] for each in shown[2:]] == ["01-01 23:59:00", "01-02 00:00:00"]
    assert "00:00:00.000" in lines(row(0), step_ms=500.0)[2]


def test_the_table_is_printed_and_a_list_in_json(command: Command) -> None:
    result = command("summary", "-q", NACKS, "--over-time", "100ms")
    assert result.code == EXIT_OK
    at = result.out.index("over time, in steps of 100 ms")
    assert result.out[at:].count("\n") == 18 and "█" not in result.out
    report = json.loads(command("summary", "-q", "--json", "--over-time=100ms", NACKS).out)
    assert sum(row["sends"] for row in report["over_time"]["rows"]) == 20
    assert "over_time" not in json.loads(command("summary", "-q", "--json", NACKS).out)
    assert command("summary", "-q", NACKS, "--over-time=1ms").code == EXIT_OK
    assert command("summary", "-q", NACKS, "--over-time=bad").code == EXIT_USAGE


def test_a_capture_without_packets_has_no_table(command: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(NACKS.read_bytes()[:24])
    result = command("summary", "-q", empty, "--over-time")
    assert result.code == EXIT_OK and result.lines[-1] == "over time: no packet has a time"
    result = command("frames", "-q", empty, "--since", "-1s")
    assert result.code == EXIT_USAGE and "no packet to count back from" in result.err
