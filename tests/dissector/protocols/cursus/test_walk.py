"""What `walk` decides by itself gives the rows that the rules alone give."""

from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dissector.protocols.cursus import exchanges, facts, groups
from dissector.protocols.cursus.exchanges import CursusExchanges
from dissector.protocols.pairing.steps import begin_row
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.wire import cursus

PRODUCERS = (0, 1)
STREAMS = (2, 3)
CONTROL = 4
# Partitions beside 0 that a commit names, who commits, and the answer.
COMMITS = tuple(
    product(("", ",P1:3"), ("g", "h"), ("OK batched=1", "OK", '{"status":"OK"}', "done"))
)

few = st.integers(0, 3)
producer_step = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), few, st.integers(1, 3), few),
    st.tuples(st.just("answer"), st.sampled_from(PRODUCERS), st.sampled_from("aaaaope")),
)
stream_step = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(STREAMS), st.integers(-4, 3), st.integers(1, 4)),
    st.tuples(st.just("keepalive"), st.sampled_from(STREAMS)),
    st.tuples(st.just("say"), st.sampled_from(STREAMS)),
)
control_step = st.one_of(
    st.tuples(st.just("commit"), st.integers(-3, 6)),
    st.tuples(st.just("commit list"), st.integers(-3, 6), st.sampled_from(COMMITS)),
    st.tuples(st.just("refused commit"), st.integers(-3, 6)),
    st.tuples(st.just("join")),
    st.tuples(st.just("offsets"), st.integers(0, 40)),
    st.tuples(st.just("consume"), st.integers(-3, 3), few),
    st.tuples(st.just("reopen"), st.sampled_from((*PRODUCERS, *STREAMS))),
)
steps = st.lists(st.one_of(producer_step, producer_step, stream_step, stream_step, control_step),
                 max_size=60)  # fmt: skip


class Script:
    """A conversation that a list of steps tells: two producers, two streams, one that controls."""

    def __init__(self, is_once: bool) -> None:
        self.dialogue = Dialogue()
        self.at: dict[int, int] = {}
        self.open: dict[int, list[tuple[int, int, bytes]]] = {}
        self.sequence = {number: 1 for number in PRODUCERS}
        self.top = 0
        for number in (*PRODUCERS, *STREAMS, CONTROL):
            self.reopen(number)
        create = f"CREATE topic=t1 partitions=1 idempotent={str(is_once).lower()}"
        self.dialogue.ask(self.at[CONTROL], create, "OK topic=t1 partitions=1")

    def reopen(self, number: int) -> None:
        if number in self.at:
            self.dialogue.close(self.at[number])
        self.at[number] = self.dialogue.open()
        self.open[number] = []
        if number in STREAMS:
            member = f"m-{number}"
            self.dialogue.client(
                self.at[number], f"STREAM topic=t1 partition=0 group=g generation=1 member={member}"
            )

    def send(self, number: int, back: int, count: int, odd: int) -> None:
        """Mostly what follows; a step back is a copy or an overlap, odd ones are of other kinds."""
        first = max(1, self.sequence[number] - back)
        epoch, acks = (6 if odd == 3 else 7), (b"0" if odd == 2 else b"1")
        producer = b"p%d" % number
        records = cursus.records(count, first=first, producer=producer, epoch=epoch)
        idempotent = int(odd == 1)
        self.dialogue.client(
            self.at[number], cursus.batch(records, acks=acks, idempotent=idempotent)
        )
        self.sequence[number] = max(self.sequence[number], first + count)
        self.open[number].append((first, first + count - 1, acks))

    def answer(self, number: int, kind: str) -> None:
        if not self.open[number]:
            return
        start, end, _ = self.open[number].pop(0)
        texts = {
            "a": cursus.ack(self.top + end, start, end, producer=f"p{number}"),
            "o": "OK",
            "p": f'{{ "status":"OK", "last_offset":{end}, "producer_epoch":7, "producer_id":'
            f'"p{number}", "seq_start":{start}, "seq_end":{end} }}',
            "e": "ERROR: stale_producer_epoch current=9",
        }
        self.dialogue.broker(self.at[number], texts[kind])

    def batch_at(self, step: int, count: int) -> bytes:
        first = max(0, self.top + step)
        self.top = max(self.top, first + count)
        records = cursus.records(count, first=first + 1, offset=first, producer=b"p0")
        return cursus.batch(records)

    def push(self, number: int, step: int, count: int) -> None:
        self.dialogue.broker(self.at[number], self.batch_at(step, count))

    def keepalive(self, number: int) -> None:
        self.dialogue.broker(self.at[number], b"\0\0\0\0")

    def say(self, number: int) -> None:
        self.dialogue.client(self.at[number], "LIST")

    def commit(self, step: int) -> None:
        line = f"COMMIT_OFFSET topic=t1 partition=0 group=g offset={max(0, self.top + step)}"
        self.dialogue.ask(self.at[CONTROL], f"{line} generation=1 member=m-2", "OK")

    def commit_list(self, step: int, how: tuple[str, str, str]) -> None:
        more, group, answer = how
        line = f"BATCH_COMMIT topic=t1 group={group} generation=1 member=m-2"
        line += f" P0:{max(0, self.top + step)}{more}"
        self.dialogue.ask(self.at[CONTROL], line, answer)

    def refused_commit(self, step: int) -> None:
        line = f"BATCH_COMMIT topic=t1 group=g generation=1 member=m-2 P0:{max(0, self.top + step)}"
        self.dialogue.ask(self.at[CONTROL], line, "ERROR: GEN_MISMATCH current=2 requested=1")

    def join(self) -> None:
        line = "JOIN_GROUP topic=t1 group=g member=m"
        self.dialogue.ask(self.at[CONTROL], line, "OK generation=2 member=m-7 assignments=[0]")

    def offsets(self, end: int) -> None:
        answer = f"OK topic=t1 partitions=1 offsets=P0:earliest=0:latest={end}:leo={end}:hwm={end}"
        self.dialogue.ask(self.at[CONTROL], "LIST_OFFSETS topic=t1", answer)

    def consume(self, step: int, count: int) -> None:
        line = "CONSUME topic=t1 partition=0 offset=0 group=g member=m-2 generation=1"
        self.dialogue.ask(self.at[CONTROL], line, self.batch_at(step, count))


def played(script: list[tuple], is_once: bool) -> Dialogue:
    story = Script(is_once)
    for name, *values in script:
        getattr(story, name.replace(" ", "_"))(*values)
    return story.dialogue


def walk_nowhere(context, row, stop, protocol, base):
    while row < stop and context.frames.protocol[row] != protocol:
        row += 1
    if row < stop:
        begin_row(context.pairing, row, base + row)
    return row


def with_rules_alone(dialogue: Dialogue):
    with patch.object(exchanges, "walk", walk_nowhere):
        return dialogue.rows()


@given(steps, st.booleans())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_any_conversation_has_the_rows_of_the_rules_alone(script, is_once):
    dialogue = played(script, is_once)
    assert dialogue.rows() == with_rules_alone(dialogue)


# One step of each kind that `walk` must leave to the rules, between frequent ones.
LONG = [
    *[("send", 0, 0, 2, 0), ("answer", 0, "a")] * 3,
    *[("push", 2, 0, 3)] * 5,
    ("commit", -4),
    ("push", 2, 2, 1),
    ("push", 2, 0, 1),
    ("commit", 0),
    ("push", 3, -5, 2),
    ("push", 2, 0, 2),
    *[("commit list", 0, how) for how in COMMITS],
    ("push", 2, 0, 2),
    ("send", 0, 2, 2, 0),
    ("send", 0, 0, 2, 0),
    ("answer", 0, "a"),
    ("answer", 0, "p"),
    ("join",),
    ("push", 2, -2, 2),
    ("push", 2, 0, 2),
    ("commit", 0),
    ("push", 2, 0, 2),
]


@pytest.mark.parametrize("limits", [{}, {"MAX_GROUP_DELIVERIES": 3}, {"MAX_PENDING_REQUESTS": 2}])
def test_bounds_change_nothing_between_the_two(limits, monkeypatch):
    for name, value in limits.items():
        monkeypatch.setattr(groups if name == "MAX_GROUP_DELIVERIES" else facts, name, value)
    sends = [("send", 1, 0, 1, 0)] * 5 + [("answer", 1, "a")] * 5
    dialogue = played(LONG + sends + LONG, True)
    assert dialogue.rows() == with_rules_alone(dialogue)


def test_what_is_frequent_is_left_to_no_rule():
    story = [("send", 0, 0, 2, 0), ("answer", 0, "a"), ("push", 2, 0, 3), ("keepalive", 2)]
    story += [("commit", 0), ("commit list", 0, COMMITS[0])]
    dialogue = played(story * 20, False)
    with patch.object(
        CursusExchanges, "_frame", autospec=True, side_effect=CursusExchanges._frame
    ) as left:
        dialogue.rows()
    assert left.call_count <= 10, "what opens a session, the first batch and push, and no more"
