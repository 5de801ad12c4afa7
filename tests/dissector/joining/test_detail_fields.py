"""What a replay reads from the column `detail`."""

import json

import pyarrow as pa
import pytest

from dissector.joining.detail_fields import commands_with_detail, fill_details, number_of
from dissector.limits import NULL
from dissector.protocols.columns import new_frame_columns

POLICY = {"keySharedMode": "STICKY", "hashRanges": [{"start": 1, "end": 2}]}


def test_fields_defaults_and_policies_go_to_their_rows() -> None:
    details = [
        json.dumps({"subType": "Key_Shared", "durable": False, "keySharedMeta": POLICY}),
        json.dumps({"subType": "Failover", "keySharedMeta": {"hashRanges": ["<2 more>"]}}),
        json.dumps({"response": "Redirect"}),
        "[1]",
        '{"subType": "Sha',
        None,
    ]
    commands = ["SUBSCRIBE", "SUBSCRIBE", "LOOKUP_RESPONSE", "SUBSCRIBE", "SUBSCRIBE", "PING"]
    _, frames = new_frame_columns(len(details))
    text = {"command": pa.array(commands), "detail": pa.array(details)}
    assert fill_details(frames, text, len(details)) == {0: b"\x08\x01\x1a\x04\x08\x01\x10\x02"}
    assert frames.subscription_type[:6].tolist() == [3, 2, NULL, NULL, NULL, NULL]
    assert frames.is_durable[:6].tolist() == [0, 1, NULL, 1, 1, NULL]
    assert frames.response[2] == 0


@pytest.mark.parametrize(
    ("text", "number"), [(None, NULL), ("Shared", 1), ("7", 7), ("-7", -7), ("Other", NULL)]
)
def test_a_word_is_its_number_and_digits_are_themselves(text: str | None, number: int) -> None:
    assert number_of(text, "CommandSubscribe.SubType") == number


def test_commands_that_open_have_a_detail_and_frequent_ones_have_none() -> None:
    assert {"SUBSCRIBE", "PRODUCER", "LOOKUP_RESPONSE"} <= {*commands_with_detail()}
    assert not {"SEND", "MESSAGE", "ACK", "FLOW"} & {*commands_with_detail()}
