"""The table of commands against the protocol description."""

from dissector.protobuf.descriptors import descriptors, enum_names
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pulsar.wire import commands
from dissector.protocols.pulsar.wire.commands import COMMAND_BY_NUMBER, COMMANDS, command_name


def test_the_table_has_every_command_of_the_description_with_its_name() -> None:
    assert {command.number: command.name for command in COMMANDS} == enum_names("BaseCommand.Type")
    assert len(COMMANDS) == 70


def test_a_command_is_the_number_of_its_own_field() -> None:
    fields = descriptors().messages["BaseCommand"]
    assert set(fields) - {1} == set(COMMAND_BY_NUMBER)


def test_answers_come_from_the_other_side() -> None:
    for command in COMMANDS:
        for reply in command.replies:
            directions = {command.direction, COMMAND_BY_NUMBER[reply].direction}
            assert directions != {TO_BROKER} and directions != {TO_CLIENT}, command


def test_what_is_paired_by_request_id_has_one() -> None:
    messages = descriptors().messages
    for command in COMMANDS:
        body = messages["BaseCommand"][command.number].of
        has_id = any(field.name == "request_id" for field in messages[body].values())
        assert has_id == (command.key == commands.KEY_REQUEST), command


def test_unknown_commands_have_a_name_too() -> None:
    assert command_name(6) == "SEND"
    assert command_name(20) == "REDELIVER_UNACKNOWLEDGED_MESSAGES"
    assert command_name(83) == "UNKNOWN_83"
