"""The shared options: values they take, and what they become."""

import re

import click
import pytest

from dissector import limits
from dissector.cli.document import all_commands
from dissector.cli.options import (
    INPUT_NAME,
    PROTOCOL_NAMES,
    SIZE,
    Common,
    LocalPath,
    Parsed,
    Whole,
    dissecting_options,
    port_protocol,
    speaking_options,
    usable_cpus,
)
from dissector.cli.terminal import NORMAL, QUIET, VERBOSE
from dissector.options import Options
from spark_jobs import land as cluster


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("65536", 65536),
        ("64KiB", 65536),
        ("64kb", 64000),
        ("1.5M", 1_500_000),
        ("2 GiB", 2 << 30),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "x", "-5", "5X", "1..2", "64 KiBs", "1e9"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size"):
        SIZE.convert(text, None, None)


def test_ports_and_protocols() -> None:
    kind = Parsed("port=protocol", port_protocol)
    assert kind.convert("6655=pulsar", None, None) == (6655, "pulsar")
    for text in ("5", "0=pulsar", "65536=pulsar", "x=pulsar", "6655=", "6655=http", "=pulsar"):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


def test_whole_numbers_are_bounded() -> None:
    assert Whole(1, 5).convert("5", None, None) == 5
    for text in ("0", "6", "1.0", "x", ""):
        with pytest.raises(click.BadParameter):
            Whole(1, 5).convert(text, None, None)


@pytest.mark.parametrize(
    "command", [*all_commands(), ("land.py", cluster.land)], ids=lambda pair: str(pair[0])
)
def test_what_names_a_file_takes_no_address(command: tuple[str, click.Command]) -> None:
    for parameter in command[1].params:
        names = set(re.findall(r"[A-Z]+", str(parameter.metavar or "")))
        if isinstance(parameter.type, click.Path) or names & {"DIR", "FILE", "LAKE", "INPUT"}:
            assert isinstance(parameter.type, LocalPath) or parameter.type is INPUT_NAME, parameter


def collected(*arguments: str, reads: bool = True) -> Common:
    found: list[Common] = []

    def body(common: Common) -> None:
        found.append(common)

    options = dissecting_options if reads else speaking_options
    click.command()(options(body)).main(list(arguments), standalone_mode=False)
    return found[0]


def test_defaults_are_those_of_the_limits() -> None:
    common = collected()
    assert common.core == Options()
    assert common.core.max_frame_bytes == limits.MAX_FRAME_BYTES
    assert common.core.reorder_window_ms == limits.REORDER_WINDOW_MS
    assert common.jobs == usable_cpus() and common.core.redact and not common.is_strict
    assert (common.loudness, common.core.memory_limit) == (NORMAL, None)


def test_options_reach_their_place() -> None:
    common = collected(
        "-d", "1=pulsar", "-d", "2=pulsar", "-j", "3", "--no-redact", "--strict", "-v",
        "--max-frame-bytes", "1MiB", "--reorder-window", "0", "--memory-limit", "1GB",
        "--overlap", "linux", "--verify-checksums", "--protocol", "pulsar", "--no-progress",
        "--color", "never",
    )  # fmt: skip
    assert common == Common(
        VERBOSE, False, "never", 3, True,
        Options(
            decode_as={1: "pulsar", 2: "pulsar"}, protocol="pulsar", redact=False,
            max_frame_bytes=1 << 20, reorder_window_ms=0, memory_limit=10**9, overlap="linux",
            verify_checksums=True,
        ),
    )  # fmt: skip
    assert not common.is_progress_shown


def test_quiet_hides_progress_and_excludes_verbose() -> None:
    common = collected("-q", reads=False)
    assert common.loudness == QUIET and not common.is_progress_shown
    with pytest.raises(click.UsageError, match="exclude each other"):
        collected("-q", "-v", reads=False)


def test_the_core_gets_what_the_user_chose() -> None:
    options = collected("--overlap", "last", "--memory-limit", "64MB").core_options(
        want_detail="all"
    )
    assert (options.overlap, options.memory_limit, options.want_detail) == (
        "last",
        64_000_000,
        "all",
    )
    assert options.redact and options.protocol == "auto"


def test_protocols_are_those_that_can_be_read() -> None:
    from dissector.protocols import PROTOCOLS

    assert set(PROTOCOL_NAMES) == {spec.name for spec in PROTOCOLS}


def test_one_idea_has_one_name_in_all_commands() -> None:
    """The same long option means the same everywhere: same help text, same kind of value."""
    seen: dict[str, tuple[str | None, str]] = {}
    for name, command in all_commands():
        for option in command.params:
            if not isinstance(option, click.Option):
                continue
            assert option.help, f"{name} {option.opts}"
            words = (option.help, option.type.name)
            for long in (each for each in option.opts if each.startswith("--")):
                if long not in ("--lake", "--format", "--json", "--capture"):
                    assert seen.setdefault(long, words) == words, f"{name} {long}"


def test_help_texts_start_with_a_verb_in_capitals_and_end_with_a_stop() -> None:
    for name, command in all_commands():
        for option in command.params:
            if isinstance(option, click.Option) and option.help:
                words = re.sub(r"  \[default: .*\]$", "", option.help)
                assert words[0].isupper() and words.endswith("."), f"{name}: {option.help}"
                assert len(words) <= 60, f"{name}: {option.help}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("land", "{nacks}", "--lake", ""),
        ("land", "{nacks}", "--lake", "lake", "--cluster", ""),
        ("summary", "--lake", ""),
        ("analyze", "{nacks}", "-o", ""),
        ("tap", "--replay", "{nacks}", "--lake", ""),
        ("findings", "{nacks}", "--rules", ""),
        ("frames", "{nacks}", "-w", ""),
    ],
)
def test_an_empty_name_is_not_the_current_folder(command, nacks, tmp_path, monkeypatch, arguments):
    """A variable of the shell that is not set would land there."""
    monkeypatch.chdir(tmp_path)
    done = command(*(one.format(nacks=nacks) for one in arguments))
    assert (done.code, done.out) == (1, "") and "the name is empty" in done.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_utf8_and_cannot_be_used_is_refused(command, nacks, tmp_path, monkeypatch):
    """A lake there was written, and could not be read."""
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("land", nacks, "--lake", "la\udce9ke"),
        ("analyze", nacks, "-o", "la\udce9ke"),
        ("sql", nacks, "select '\udce9'"),
    ):
        done = command(*arguments)
        assert (done.code, done.out) == (1, "") and "is not UTF-8" in done.err, arguments
    assert list(tmp_path.iterdir()) == []
