"""Rules of slow and oversized sends and of lossy paths: made captures and their twins."""

import pytest

from tests.dissector.findings.asking import findings_of_lines, variant
from tests.dissector.findings.sending_captures import Line, ns

# Rules that fire on what is made here, and on no sample capture.
MADE = {"D14", "D17"}


# -- D14


def spiking(*, slow: float, lookup: float | None = None, is_always: bool = False) -> Line:
    """Five sends each second; those from 40 to 44 s on wait for `slow` seconds, or all do.

    lookup: how long a lookup of that time takes.
    """
    line = Line()
    line.begin()
    line.produce(0.1)
    said: list[tuple[float, int, bool]] = []
    for number in range(300):
        at = 1 + number * 0.2
        is_slow = is_always or 40 <= at < 44
        said += [(at, number, True), (at + (slow if is_slow else 0.005), number, False)]
    for at, number, is_send in sorted(said):
        if is_send:
            line.send(at, number)
        else:
            line.receipt(at, number, number)
        if lookup is not None and is_send and number == 205:
            line.lookup(at + 0.02, at + 0.02 + lookup)
    return line


@pytest.mark.parametrize(("lookup", "name"), [(None, ""), (0.003, "storage"), (0.1, "broker")])
def test_sends_that_are_slow_for_a_time(tmp_path, lookup, name):
    (one,) = findings_of_lines(tmp_path, "D14", spiking(slow=0.171, lookup=lookup))
    assert variant(one) == name and one.severity == "warning"
    assert one.measured["slow"] == 20
    assert one.measured["slow_ms"] == pytest.approx(171, abs=3)
    assert one.measured["calm_ms"] == pytest.approx(5, abs=3)


@pytest.mark.parametrize(("slow", "is_always"), [(0.09, False), (0.171, True)])
def test_sends_that_are_a_little_slow_or_slow_always_are_no_finding(tmp_path, slow, is_always):
    assert findings_of_lines(tmp_path, "D14", spiking(slow=slow, is_always=is_always)) == []


# -- D17


def too_large(size: int, *, attempts: int = 2, is_closed: bool = True) -> list[Line]:
    """A broker that takes 20,000 bytes, and a send that comes on a new connection each time."""
    lines = []
    for attempt in range(attempts):
        line = Line(40_000 + attempt)
        line.begin(attempt * 10, 20_000)
        line.produce(attempt * 10 + 0.1)
        line.send(attempt * 10 + 1, 0, payload=bytes(size))
        if is_closed:
            line.finish(attempt * 10 + 1.2, by_client=False)
        else:
            line.ping(attempt * 10 + 15, attempt * 10 + 15.001)
        lines.append(line)
    return lines


def test_a_frame_above_the_limit_is_sent_again_and_again(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D17", *too_large(40_000))
    assert variant(one) == "" and one.measured["attempts"] == 2
    assert one.measured["limit_bytes"] == 20_000 and one.measured["frame_bytes"] > 40_000


def test_a_payload_just_below_the_limit_gets_no_answer(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D17", *too_large(19_500, attempts=1, is_closed=False))
    assert variant(one) == "near_limit" and one.measured["payload_bytes"] == 19_500
    assert one.measured["waited_s"] == pytest.approx(14, abs=0.1)


@pytest.mark.parametrize(("size", "attempts"), [(40_000, 1), (25_000, 2), (19_500, 2)])
def test_sends_that_the_broker_could_take_or_that_come_once_are_no_finding(
    tmp_path, size, attempts
):
    assert findings_of_lines(tmp_path, "D17", *too_large(size, attempts=attempts)) == []


# -- D27


def lossy(*, is_late: bool) -> Line:
    """Each tenth send comes late to the tap, since its first copy was lost before it."""
    line = Line()
    line.begin()
    line.produce(0.1)
    for number in range(200):
        at = 1 + number * 0.1
        line.send(at, number, payload=bytes(1800))
        if number % 10 == 0 and is_late:
            # Two segments and an ACK: the first came late, and twice.
            line.packets[-3] = line.packets[-3]._replace(ts_ns=ns(at + 0.04))
            line.again(at + 0.041, -3)
        line.receipt(at + (0.06 if number % 10 == 0 and is_late else 0.006), number, number)
    return line


def test_answers_are_slow_where_packets_were_lost(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D27", lossy(is_late=True))
    assert variant(one) == "" and one.measured["retransmitted"] == 20
    assert one.measured["slow_answers"] == 20 and one.measured["clean"] == 180


def test_a_path_without_loss_is_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D27", lossy(is_late=False)) == []


def swallowing(large: int, *, links: int = 2) -> list[Line]:
    """Connections on which a large send is repeated and never answered."""
    lines = []
    for number in range(links):
        line = Line(40_000 + number)
        line.begin(number * 40)
        line.produce(number * 40 + 0.1)
        for sequence in range(5):
            line.send(number * 40 + 1 + sequence, sequence, payload=bytes(300))
            line.receipt(number * 40 + 1.01 + sequence, sequence, sequence)
        line.send(number * 40 + 8, 5, payload=bytes(large), is_acked=False)
        for seconds in (8.3, 9, 10.4, 13.2):
            line.again(number * 40 + seconds)
        lines.append(line)
    return lines


def test_large_sends_that_never_arrive(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D27", *swallowing(1300))
    assert variant(one) == "path_black_hole" and one.measured["connections_seen"] == 2
    assert one.measured["retransmitted"] == 8
    assert 300 < one.measured["answered_bytes"] < 1000 < one.measured["lost_bytes"]


@pytest.mark.parametrize(("large", "links"), [(250, 2), (1300, 1)])
def test_small_sends_or_a_single_connection_are_no_black_hole(tmp_path, large, links):
    assert findings_of_lines(tmp_path, "D27", *swallowing(large, links=links)) == []


def idle(pause: float, *, is_answered: bool) -> Line:
    """A silence, and a send behind it that is repeated, or answered."""
    line = Line()
    line.begin()
    line.produce(0.1)
    line.send(1, 0)
    line.receipt(1.01, 0, 0)
    line.send(1.01 + pause, 1, is_acked=is_answered)
    if is_answered:
        line.receipt(1.02 + pause, 1, 1)
    else:
        for seconds in (0.3, 1, 2.4):
            line.again(1.01 + pause + seconds)
        line.reset(1.01 + pause + 8, by_client=True)
    return line


@pytest.mark.parametrize("pause", [30, 300])
def test_a_connection_that_is_cut_while_idle(tmp_path, pause):
    (one,) = findings_of_lines(tmp_path, "D27", idle(pause, is_answered=False))
    assert variant(one) == "cut_while_idle"
    assert one.measured["idle_measured_s"] == pytest.approx(pause, abs=0.1)
    assert one.measured["retransmitted"] == 3


@pytest.mark.parametrize(("pause", "is_answered"), [(300, True), (10, False)])
def test_a_silence_that_cuts_nothing_is_no_finding(tmp_path, pause, is_answered):
    assert findings_of_lines(tmp_path, "D27", idle(pause, is_answered=is_answered)) == []
