"""One lake of two taps: an incident is one finding, and what explains it is found at either tap."""

import json

import pytest

from dissector.cli.main import run
from tests.dissector.findings.tape import TOPIC, Link, Tape

OWNER, REFUSED = "10.0.0.1", "10.0.0.9"


def _hold(tape: Tape) -> None:
    """A producer that stays open and alive."""
    owner = tape.pulsar(0.0, 40000, client=OWNER)
    owner.produce(0.1, 1, name="own")
    for at in (20.0, 40.0, 60.0):
        owner.ping(at)


def _ask(tape: Tape) -> Link:
    """Another host asks for the same name and is refused six times over 25 s."""
    refused = tape.pulsar(45.0, 40001, client=REFUSED)
    for turn in range(6):
        at = 46.0 + 5.0 * turn
        refused.produce(at, 10 + turn, answer_s=None, name="own")
        refused.hear(
            at + 0.002, "ERROR", request_id=10 + turn, error="ProducerBusy",
            message=f"Producer with name 'own' is already connected to topic '{TOPIC}'",
        )  # fmt: skip
    return refused


@pytest.mark.parametrize("at_host", [_hold, _ask], ids=["owner", "refused"])
@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")], ids="".join)
def test_the_owner_of_a_name_is_found_at_either_tap(tmp_path, capsys, at_host, names):
    whole, part = Tape(), Tape()
    for tape, makers in ((whole, (_hold, _ask)), (part, (at_host,))):
        for make in makers:
            make(tape)
    files = [tmp_path / f"{name}.pcap" for name in names]
    for file, tape in zip(files, (whole, part), strict=True):
        file.write_bytes(tape.capture())
    assert run(["findings", "-q", "--json", "--chain", "none", *map(str, files)]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [row["id"] for row in found] == ["D21", "V07"], "the same traffic twice is told, too"
    one = found[0]
    assert one["title"] == "A client is kept out by another host"
    assert one["measured"]["owner_ip"] == OWNER
    assert one["capture"].startswith(f"c-{names[0]}-") and one["incidents"] == 1
