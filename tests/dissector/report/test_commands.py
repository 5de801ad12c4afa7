"""Commands for the next step: they name the inputs, safely quoted."""

import shlex
from typing import Any

from dissector.report.commands import Commands


def report(*names: tuple[str, str | None]) -> dict[str, Any]:
    return {"sources": [{"capture": capture, "file_name": name} for capture, name in names]}


def test_files_are_named_and_quoted() -> None:
    commands = Commands(report(("a", "it's night.pcap")))
    words = shlex.split(commands.frames('command == "SEND"', {"capture": "a"}, " -V"))
    assert words == ["dissector", "frames", "it's night.pcap", "-Y", 'command == "SEND"', "-V"]
    assert commands.connections() == "dissector connections 'it'\"'\"'s night.pcap'"
    assert shlex.split(Commands(report(("a", "-w"))).other("dissector summary {}"))[2] == "./-w"


def test_a_row_of_one_of_several_captures_names_its_own_files() -> None:
    both = report(("a", "one.pcap"), ("b", "two.pcap"))
    assert " two.pcap -Y" in Commands(both).frames("x", {"capture": "b"})
    assert " one.pcap two.pcap -Y" in Commands(both).frames("x")
    typed = Commands(both, ["night/"], {"a": ["night/one.pcap"], "b": ["night/two.pcap"]})
    assert " night/two.pcap -Y" in typed.frames("x", {"capture": "b"})
    assert " night/ -Y" in typed.frames("x")


def test_what_cannot_be_named_is_left_to_the_user() -> None:
    assert Commands(report()).connections() == "dissector connections INPUT"
    assert Commands(report(("a", "stdin"))).connections() == "dissector connections INPUT"
    ring = report(*(("a", f"ring{number}") for number in range(9)))
    assert " INPUT -Y" in Commands(ring).frames("x", {"capture": "a"})
