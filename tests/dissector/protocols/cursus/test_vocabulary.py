"""Every command as clients send it with the answer that it gets, bare and in an envelope."""

import gzip
import json

import cramjam
import lz4.frame
import pytest

from dissector.protocols.cursus.commands import VERBS
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.dissector.protocols.cursus.test_compressed import xerial
from tests.wire import cursus

POLICY = (
    "cleanup_policy=delete partitioner=hash_key auth_policy=open read_acl= write_acl="
    " retention_hours=0 retention_bytes=0"
)
GROUP = "topic=t1 group=g member=m-1 generation=3"
TXN = "transactional_id=x-1 producerId=p-9 epoch=4"
MEMBER = {"topic": "t1", "subscription": "g", "consumer_name": "m-1"}
IN_TXN = {"producer_name": "p-9", "producer_epoch": 4}

# Command, columns of its frame, answer, columns of the answer's frame.
TEXTS = [
    ("AUTH principal=a token=FAKE", {}, "OK principal=a authenticated=true", {}),
    (
        "PROTOCOL_INFO",
        {},
        "OK protocol=cursus min_version=1 max_version=1 default_version=1 features=a,b"
        " error_classes=routing,internal",
        {},
    ),
    (
        "NEGOTIATE version=1 features=* require_features=true",
        {},
        "OK protocol_version=1 enabled=structured_errors_v1 unsupported=",
        {},
    ),
    ("HELP", {}, "OK commands=CREATE,DELETE", {}),
    (
        "CREATE topic=t1 partitions=2 idempotent=true cleanup_policy=delete retention_hours=0"
        " retention_bytes=0 partitioner=hash_key auth_policy=acl read_acl=a,b write_acl=*",
        {"topic": "t1"},
        f"OK topic=t1 partitions=2 {POLICY}",
        {"topic": "t1"},
    ),
    ("CREATE topic=es partitions=4 event_sourcing=true", {"topic": "es"}, "OK topic=es", {}),
    ("DELETE topic=t1", {"topic": "t1"}, "OK topic=t1 deleted=true", {"topic": "t1"}),
    ("LIST", {}, "OK count=2 topics=a,b", {}),
    (
        "DESCRIBE topic=t1",
        {"topic": "t1"},
        '{\n  "status": "OK",\n  "topic": "t1",\n  "partitions": [\n    {\n      "id": 0,\n'
        '      "leader": "h:1",\n      "replicas": ["b"],\n      "isr": ["b"],\n      "leo": 5,\n'
        '      "hwm": 5\n    }\n  ]\n}',
        {"command": "RESPONSE_JSON", "topic": "t1"},
    ),
    (
        "METADATA topic=t1",
        {"topic": "t1"},
        f"OK topic=t1 partitions=2 leaders=h:1,h:2 epochs=0,0 {POLICY}",
        {"topic": "t1"},
    ),
    (
        "PUBLISH topic=t1 acks=-1 producerId=p1 partition=1 seqNum=5 epoch=7 isIdempotent=true"
        " key=k message=two words = here",
        {
            **{"topic": "t1", "producer_name": "p1", "partition": 1, "sequence_id": 5},
            **{"producer_epoch": 7, "message_count": 1},
        },
        '{"status":"OK","last_offset":6,"producer_epoch":7,"producer_id":"p1","seq_start":5,'
        '"seq_end":5}',
        {"command": "RESPONSE_JSON", "entry_id": 6, "sequence_id": 5},
    ),
    ("PUBLISH topic=t1 acks=0 producerId=p1 message=x", {"message_count": 1}, "OK", {}),
    (
        "LIST_OFFSETS topic=t1 partition=1",
        {"topic": "t1", "partition": 1},
        "OK topic=t1 partitions=2 offsets=P0:earliest=0:latest=101:leo=101:hwm=101,"
        "P1:earliest=5:latest=44:leo=44:hwm=44",
        {"topic": "t1"},
    ),
    (
        "FETCH_OFFSET topic=t1 partition=1 group=g",
        {"topic": "t1", "partition": 1, "subscription": "g"},
        "OK offset=17",
        {"subscription": "g"},
    ),
    (
        "COMMIT_OFFSET topic=t1 partition=1 group=g offset=12 generation=3 member=m-1",
        {**MEMBER, "partition": 1, "entry_id": 11},
        "OK",
        MEMBER,
    ),
    (f"BATCH_COMMIT {GROUP} P0:11,P1:21", MEMBER, "OK batched=2", MEMBER),
    (
        "BATCH_COMMIT topic=t1 group=g generation=3 member=m-1 P0:11",
        MEMBER,
        "OK batched=1",
        {},
    ),
    (
        "REGISTER_GROUP topic=t1 group=g",
        {"topic": "t1", "subscription": "g"},
        "OK group=g topic=t1 registered=true",
        {"subscription": "g"},
    ),
    (
        "JOIN_GROUP topic=t1 group=g member=m",
        {"consumer_name": "m"},
        "OK generation=3 member=m-0042 assignments=[0 1 2]",
        {"consumer_name": "m-0042", "subscription": "g"},
    ),
    (
        "JOIN_GROUP topic=t1 group=g member=m-0042 generation=3",
        {"consumer_name": "m-0042"},
        "OK generation=3 member=m-0042 assignments=[] resumed=true",
        {"consumer_name": "m-0042"},
    ),
    (f"SYNC_GROUP {GROUP}", MEMBER, "OK generation=3 member=m-1 assignments=[0,1]", MEMBER),
    (f"HEARTBEAT {GROUP}", MEMBER, "OK member=m-1 generation=3", MEMBER),
    (f"LEAVE_GROUP {GROUP}", MEMBER, "OK group=g member=m-1 left=true", MEMBER),
    (
        "GROUP_STATUS group=g",
        {"subscription": "g"},
        '{"status":"OK","group_name":"g","topic_name":"t1","state":"Stable","generation":3,'
        '"member_count":1,"partition_count":2,"members":[{"member_id":"m-1"}],'
        '"last_rebalance":"2026-01-01T00:00:00Z"}',
        {"command": "RESPONSE_JSON", "subscription": "g"},
    ),
    ("LIST_GROUPS", {}, "OK count=1 groups=g", {}),
    (
        "FIND_COORDINATOR group=g",
        {"subscription": "g"},
        "OK coordinator_id=standalone coordinator_type=group host=h port=9000",
        {},
    ),
    (
        "FIND_COORDINATOR transactional_id=x-1",
        {},
        "OK coordinator_id=standalone coordinator_type=transaction host=h port=9000",
        {},
    ),
    (
        "INIT_PRODUCER_ID transactional_id=x-1",
        {},
        "OK transactional_id=x-1 producerId=p-9 epoch=4",
        IN_TXN,
    ),
    (
        "BEGIN_TXN transactional_id=x-1 producerId=p-9 epoch=4",
        IN_TXN,
        "OK transactional_id=x-1 state=open producerId=p-9 epoch=4",
        IN_TXN,
    ),
    (
        "TXN_PUBLISH transactional_id=x-1 topic=t1 partition=-1 producerId=p-9 seqNum=1 epoch=4"
        " key=k message=hello",
        {**IN_TXN, "topic": "t1", "partition": None, "sequence_id": 1},
        "OK transactional_id=x-1 staged_messages=1 topic=t1 partition=1",
        {"topic": "t1", "partition": 1},
    ),
    (
        f"SEND_OFFSETS_TO_TXN {TXN} {GROUP} P0:101",
        {**IN_TXN, **MEMBER},
        "OK transactional_id=x-1 staged_offsets=1",
        MEMBER,
    ),
    (
        f"END_TXN {TXN} result=commit",
        IN_TXN,
        "OK transactional_id=x-1 state=committed messages=1 offsets=1",
        {},
    ),
    (f"END_TXN {TXN} result=abort", IN_TXN, "OK transactional_id=x-1 state=aborted", {}),
    (
        "TXN_STATUS transactional_id=x-1",
        {},
        "OK transactional_id=x-1 state=committed messages=1 offsets=1",
        {},
    ),
    (
        "APPEND_STREAM topic=es key=k version=3 event_type=Made schema_version=1 producerId=p1"
        ' metadata={"a":1} message={"b": 2}',
        {"topic": "es", "producer_name": "p1", "message_count": 1},
        "OK version=3 offset=8 partition=2",
        {"partition": 2},
    ),
    ("STREAM_VERSION topic=es key=k", {"topic": "es"}, "OK version=3", {}),
    ("SAVE_SNAPSHOT topic=es key=k version=3 message={}", {}, "OK version=3 partition=2", {}),
    ("READ_SNAPSHOT topic=es key=k", {}, 'OK snapshot={"version": 3, "payload": "{ }"}', {}),
    ("READ_SNAPSHOT topic=es key=none", {}, "OK snapshot=null", {}),
    ("CLUSTER_STATUS", {}, 'OK cluster={"brokers": [1, 2]}', {}),
    ("LIST_CLUSTER", {}, 'OK brokers=[{"id": "b 1"}]', {}),
    (
        "ELECT_LEADER topic=t1 partition=1 broker=b2",
        {"topic": "t1", "partition": 1},
        "OK topic=t1 partition=1 previous_leader=b1 leader=b2 leader_epoch=3 changed=true",
        {"partition": 1},
    ),
    ('JOIN_CLUSTER {"id":"b1"}', {}, '{"success":true}', {"command": "RESPONSE_JSON"}),
    ('LEAVE_CLUSTER {"id":"b1"}', {}, '{"success":true}', {"command": "RESPONSE_JSON"}),
    ('AUTH FAKE HEARTBEAT_CLUSTER {"id":"b1"}', {}, '{"success":true}', {}),
    ("LIST_SNAPSHOTS topic=es partition=2", {"topic": "es", "partition": 2}, "OK snapshots=[]", {}),
    ("FETCH_SNAPSHOT topic=es key=k partition=2", {"partition": 2}, "OK snapshot=null", {}),
    ("CATCHUP_SNAPSHOTS topic=es partition=2 leader=b1", {"topic": "es"}, "OK snapshots=3", {}),
    ("REPLICATE_MESSAGE payload={}", {}, "OK leo=1 hwm=1", {}),
    ("REPLICATE_SNAPSHOT payload={}", {}, "OK", {}),
    ("RAFT_APPLY type=GROUP_SYNC payload={}", {}, "OK", {}),
]
ELSEWHERE = {"CONSUME", "STREAM", "READ_STREAM", "INTERNAL_BATCH"}  # not answered by one text
NEVER_ANSWERED = {"SUBSCRIBE", "COMMIT", "EXIT"}  # of the published document alone


def verb_of(line: str) -> str:
    words = line.split()
    return words[2] if words[0] == "AUTH" and "=" not in words[1] else words[0]


def test_no_command_is_left_out():
    expected = {verb_of(line) for line, *_ in TEXTS}
    assert expected == set(VERBS) - ELSEWHERE - NEVER_ANSWERED


@pytest.mark.parametrize("form", ["bare", "empty envelope", "envelope", "lower case"])
def test_every_command_and_answer(form):
    dialogue = Dialogue()
    for index, (line, _, answer, _) in enumerate(TEXTS):
        dialogue.open()
        word, *rest = line.split(" ", 1)
        if form == "lower case":
            line = " ".join([word.lower(), *rest])
        topic = {"envelope": b"admin"}.get(form, b"")
        dialogue.ask(
            index, cursus.bare(line) if form == "bare" else cursus.enveloped(line, topic), answer
        )
        dialogue.close(index)
    tables = dialogue.rows()
    assert "FAKE" not in json.dumps(tables, default=str)
    assert {row["protocol"] for row in tables["connections"]} == {"cursus"}
    frames = tables["frames"]
    assert len(frames) == 2 * len(TEXTS) == 2 * len(tables["exchanges"])
    for index, (line, asked, _, answered) in enumerate(TEXTS):
        request, answer = frames[2 * index], frames[2 * index + 1]
        expected = {
            "command": verb_of(line),
            "direction": "to_broker",
            "status": "complete",
            **asked,
        }
        assert {name: request[name] for name in expected} == expected, line
        expected = {"command": "RESPONSE_OK", "direction": "to_client", "status": "complete"}
        expected.update(answered)
        if '"success"' in TEXTS[index][2]:
            expected["command"] = "RESPONSE_JSON"
        assert {name: answer[name] for name in expected} == expected, line
        pair = tables["exchanges"][index]
        assert (pair["request_command"], pair["outcome"]) == (verb_of(line), "ok"), line


ERRORS = [
    ("ERROR: NOT_COORDINATOR host=h port=9000", "NOT_COORDINATOR"),
    ("ERROR: NOT_LEADER LEADER_IS h:9000", "NOT_LEADER"),
    ("ERROR: NOT_LEADER class=routing retryable=true LEADER_IS h:9000", "NOT_LEADER"),
    ("ERROR: GEN_MISMATCH current=2 requested=1", "GEN_MISMATCH"),
    ("ERROR: OFFSET_OUT_OF_RANGE requested=9 earliest=0 latest=3", "OFFSET_OUT_OF_RANGE"),
    ('ERROR: command_failed reason="non-contiguous \\"offset\\""', "command_failed"),
    ('ERROR: decode_failed reason="data too short"', "decode_failed"),
    ("ERROR: malformed_input reason=missing_topic_or_payload", "malformed_input"),
    ('ERROR: unknown_command command="LIST topic=X"', "unknown_command"),
    ("ERROR: missing_generation command=LEAVE_GROUP", "missing_generation"),
    ("ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=t1", "NOT_AUTHORIZED_FOR_TOPIC"),
    ("ERROR: authentication_required command=CREATE", "authentication_required"),
    (
        'ERROR: broker_error reason="batch replication failed (offset=46): ERROR: x_y z"',
        "broker_error",
    ),
    ("ERROR topic_not_found topic=t1", "topic_not_found"),
    ("ERROR: no offset found", None),
    ("REBALANCE_REQUIRED", "REBALANCE_REQUIRED"),
    ("NOT_LEADER LEADER_IS h:1", "NOT_LEADER"),
    (
        '{"error":"event_sourcing_not_enabled topic=t1","status":"ERROR"}',
        "event_sourcing_not_enabled",
    ),
    (
        '{"status":"PARTIAL","last_offset":1,"producer_epoch":7,"producer_id":"p1","seq_start":1,'
        '"seq_end":3}',
        None,
    ),
]


def test_every_form_of_refusal():
    dialogue = Dialogue()
    dialogue.open()
    for text, _ in ERRORS:
        dialogue.ask(0, cursus.batch(cursus.records(1)), text)
    tables = dialogue.rows()
    for (text, code), row in zip(ERRORS, tables["exchanges"], strict=True):
        assert (row["outcome"], row["error_code"]) == ("error", code), text


OLD = (
    "\u2705 Topic 't1' created with 4 partitions",
    "0",
    "a\nb",
    "NOT_AUTHORIZED_FOR_PARTITION t1:0",
)


def test_free_text_of_old_versions_is_no_refusal():
    dialogue = Dialogue()
    dialogue.open()
    for text in OLD:
        dialogue.ask(0, "METADATA topic=t1", text)
    assert {row["outcome"] for row in dialogue.rows()["exchanges"]} == {"ok"}


PACKED = {
    "NONE": lambda body: body,
    "GZIP": gzip.compress,
    "LZ4": lz4.frame.compress,
    "SNAPPY": lambda body: bytes(cramjam.snappy.compress_raw(body)),
    "SNAPPY xerial": xerial,
}


@pytest.mark.parametrize("codec", PACKED)
def test_every_layout_in_every_codec(codec):
    dialogue = Dialogue()
    for index, layout in enumerate(cursus.LAYOUTS):
        dialogue.open()
        body = cursus.batch_body(cursus.records(30, key=b"key"), partition=3, layout=layout)
        dialogue.ask(index, cursus.frame(PACKED[codec](body)), cursus.ack(29, 1, 30))
        dialogue.close(index)
    tables = dialogue.rows()
    sent = [row for row in tables["frames"] if row["direction"] == "to_broker"]
    for row in sent:
        assert (row["command"], row["status"]) == ("BATCH", "complete")
        assert (row["topic"], row["partition"], row["message_count"]) == ("t1", 3, 30)
        assert (row["producer_name"], row["producer_epoch"]) == ("p1", 7)
        assert row["compression"] == codec.split()[0]
    assert len(sent) == len(cursus.LAYOUTS) and len(tables["messages"]) == 30 * len(sent)
    assert {row["outcome"] for row in tables["exchanges"]} == {"ok"}


# The forms of the published document, with the columns that they fill.
BY_POSITION = [
    ("CREATE orders 4", {"topic": "orders"}),
    ("DELETE orders", {"topic": "orders"}),
    ("LIST", {}),
    ("CONSUME orders 1 7", {"topic": "orders", "partition": 1}),
    ("SUBSCRIBE orders workers", {"topic": "orders", "subscription": "workers"}),
    ("JOIN_GROUP orders workers c1", {"subscription": "workers", "consumer_name": "c1"}),
    ("LEAVE_GROUP orders workers c1", {"subscription": "workers", "consumer_name": "c1"}),
    ("STREAM orders 1 7", {"topic": "orders", "partition": 1}),
    (
        "COMMIT orders workers 1 12",
        {"topic": "orders", "subscription": "workers", "partition": 1, "entry_id": 11},
    ),
    (
        "HEARTBEAT orders workers c1 c1-0042 3",
        {"topic": "orders", "subscription": "workers", "consumer_name": "c1-0042"},
    ),
    (
        "BATCH_COMMIT orders workers c1-0042 3 P0:11,P1:21",
        {"topic": "orders", "subscription": "workers", "consumer_name": "c1-0042"},
    ),
    (
        "SYNC_GROUP orders workers c1-0042 3",
        {"topic": "orders", "subscription": "workers", "consumer_name": "c1-0042"},
    ),
]
DOCUMENTED_ACK = """{
  "status": "OK",
  "last_offset": 1023,
  "producer_epoch": 1,
  "producer_id": "abc-def-123",
  "seq_start": 100,
  "seq_end": 199,
  "leader": "localhost:9000",
  "error": ""
}"""


@pytest.mark.parametrize("form", ["bare", "enveloped"])
def test_the_published_document_s_grammar(form):
    dialogue = Dialogue()
    for index, (line, _) in enumerate(BY_POSITION):
        dialogue.open()
        request = cursus.bare(line) if form == "bare" else cursus.enveloped(line)
        dialogue.ask(index, request, "ERROR: missing_topic command=X")
        dialogue.close(index)
    tables = dialogue.rows()
    requests = [row for row in tables["frames"] if row["direction"] == "to_broker"]
    assert len(requests) == len(BY_POSITION)
    for (line, columns), row in zip(BY_POSITION, requests, strict=True):
        expected = {"command": line.split()[0], "status": "complete", **columns}
        assert {name: row[name] for name in expected} == expected, line
        if line != "LIST":
            assert json.loads(row["detail"])["grammar"] == "positional"
    pairs = tables["exchanges"]
    assert [row["request_command"] for row in pairs] == [line.split()[0] for line, _ in BY_POSITION]
    assert {row["outcome"] for row in pairs} == {"error"}


def test_the_published_document_s_batch_and_answer():
    dialogue = Dialogue()
    dialogue.open()
    records = cursus.records(100, first=100, producer=b"abc-def-123", epoch=1)
    dialogue.ask(0, cursus.batch(records, topic=b"orders", layout="seed"), DOCUMENTED_ACK)
    tables = dialogue.rows()
    request, answer = tables["frames"]
    assert (request["topic"], request["partition"], request["message_count"]) == ("orders", 0, 100)
    for row in (request, answer):
        assert (row["sequence_id"], row["highest_sequence_id"]) == (100, 199)
        assert (row["producer_name"], row["producer_epoch"]) == ("abc-def-123", 1)
    assert answer["entry_id"] == 1023
    (pair,) = tables["exchanges"]
    assert (pair["outcome"], pair["message_count"], pair["attempt"]) == ("ok", 100, 1)


def test_a_frame_longer_than_new_brokers_take_is_read_and_reported():
    dialogue = Dialogue()
    dialogue.open()
    huge = cursus.batch(cursus.records(1, payload=bytes(17 << 20)))
    dialogue.ask(0, huge, cursus.ack(0, 1, 1))
    tables = dialogue.rows()
    assert (tables["frames"][0]["status"], tables["frames"][0]["message_count"]) == ("complete", 1)
    assert [row["code"] for row in tables["notices"]] == ["large_frame"]
