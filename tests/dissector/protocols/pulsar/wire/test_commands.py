"""The table of commands against the protocol description."""

import pytest

from dissector.protobuf.descriptors import descriptors, enum_names
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pairing.rules import Command, PairedBy
from dissector.protocols.pulsar.wire import commands
from dissector.protocols.pulsar.wire.commands import (
    COMMAND_BY_NUMBER,
    COMMANDS,
    CONSUMER_SUBJECT,
    PRODUCER_SUBJECT,
    command_name,
    rule_columns,
)

REQUESTS = [each for each in COMMANDS if each.pairing != PairedBy.NO_REQUEST]


def has_field(command: Command, name: str) -> bool:
    messages = descriptors().messages
    body = messages["BaseCommand"][command.number].of
    return any(field.name == name for field in messages[body].values())


def test_the_table_has_every_command_of_the_description() -> None:
    assert {each.number for each in COMMANDS} == set(enum_names("BaseCommand.Type"))
    assert len(COMMANDS) == 71


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: command_name(each.number))
def test_a_constant_is_called_what_the_description_calls_its_number(command: Command) -> None:
    short = {"REDELIVER_UNACKNOWLEDGED_MESSAGES": "REDELIVER"}
    name = command_name(command.number)
    assert getattr(commands, short.get(name, name)) == command.number


def test_a_command_is_the_number_of_its_own_field() -> None:
    fields = descriptors().messages["BaseCommand"]
    assert set(fields) - {1} == set(COMMAND_BY_NUMBER)


def test_answers_come_from_the_other_side() -> None:
    for command in COMMANDS:
        for request in command.answers:
            directions = {command.direction, COMMAND_BY_NUMBER[request].direction}
            assert directions != {TO_BROKER} and directions != {TO_CLIENT}, command


def test_what_is_paired_by_request_id_has_one() -> None:
    for command in REQUESTS:
        if command.pairing == PairedBy.REQUEST_ID:
            assert has_field(command, "request_id"), command
            assert any(command.number in each.answers for each in COMMANDS), command
    for command in COMMANDS:
        asked = [COMMAND_BY_NUMBER[number] for number in command.answers]
        if any(each.pairing == PairedBy.REQUEST_ID for each in asked):
            assert has_field(command, "request_id"), command


def test_error_answers_all_that_have_a_request_id_and_connect() -> None:
    expected = {each.number for each in REQUESTS if each.pairing == PairedBy.REQUEST_ID}
    assert set(COMMAND_BY_NUMBER[commands.ERROR].answers) == expected | {commands.CONNECT}


def test_what_a_command_is_about_it_names_by_its_id() -> None:
    fields = {PRODUCER_SUBJECT: "producer_id", CONSUMER_SUBJECT: "consumer_id"}
    for command in COMMANDS:
        if command.client_handle:
            assert has_field(command, fields[command.client_handle]), command


def test_kernels_read_what_the_table_says() -> None:
    columns = rule_columns()
    assert columns.request_key[commands.SEND] == PairedBy.SEND
    assert columns.reply_key[commands.SUCCESS] == PairedBy.REQUEST_ID
    assert columns.client_handle[commands.FLOW] == CONSUMER_SUBJECT
    assert columns.client_handle[commands.SEND] == PRODUCER_SUBJECT
    for command in COMMANDS:
        assert (columns.request_key[command.number] == -1) == (command not in REQUESTS)
        assert (columns.reply_key[command.number] == -1) == (not command.answers)
        assert set(columns.may_answer[:, command.number].nonzero()[0]) == set(command.answers)


def test_unknown_commands_have_a_name_too() -> None:
    assert command_name(6) == "SEND"
    assert command_name(20) == "REDELIVER_UNACKNOWLEDGED_MESSAGES"
    assert command_name(83) == "UNKNOWN_83"
