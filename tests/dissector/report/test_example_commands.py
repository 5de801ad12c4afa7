"""Commands for the next step: they name the inputs, safely quoted."""

import shlex
from typing import Any

from dissector.report.example_commands import Commands


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


def test_a_lake_that_was_named_is_asked_and_a_tap_is_in_no_file() -> None:
    row = {"capture": "b"}
    both = report(("a", "one.pcap"), ("b", "two.pcap"))
    asked = Commands(both, lake="my lake")
    words = shlex.split(asked.frames('error_code != null and command == "it\'s"', row, " -V"))
    assert words[:4] == ["dissector", "sql", "--lake", "my lake"]
    condition = "capture = 'b' and error_code IS NOT NULL and command = 'it''s'"
    assert words[4] == f"select * from frames where {condition}"
    assert shlex.split(asked.connections())[4] == "select * from connections"
    assert shlex.split(asked.notices())[4] == "select * from notices"
    assert asked.other("dissector summary {}") == "dissector summary --lake 'my lake'"
    live = {"sources": [{"capture": "c-eth0-5", "file_name": "eth0", "format": "live"}]}
    shown = Commands(live).frames("frame_no in (1)", {"capture": "c-eth0-5"})
    assert shlex.split(shown)[3:] == [
        "LAKE", "select * from frames where capture like 'c-eth0-5%' and frame_no in (1)"
    ]  # fmt: skip
    assert Commands(live, ["night.pcap"]).connections() == "dissector connections night.pcap"
