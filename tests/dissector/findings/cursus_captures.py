"""Groups and requests of Cursus that do not get on, and harmless twins."""

from tests.dissector.findings.tape import Tape
from tests.wire import cursus

# -- Cursus (C05, C06)

MEMBER = "group=g member=m-1234 generation=1"


def _group(commits: int) -> bytes:
    """A member that gets a record a second for fifty, and commits the first so many."""
    tape = Tape()
    ends = {"broker_port": 9000}
    control = tape.link(0.0, 40000, **ends)
    control.send(0.1, 0, cursus.enveloped("JOIN_GROUP topic=t1 group=g member=m"))
    control.send(0.11, 1, cursus.bare("OK generation=1 member=m-1234 assignments=[0]"))
    stream = tape.link(0.2, 40001, **ends)
    stream.send(0.3, 0, cursus.enveloped(f"STREAM topic=t1 partition=0 offset=0 {MEMBER}"))
    for turn in range(50):
        at = 1.0 + turn
        stream.send(at, 1, cursus.batch(cursus.records(1, first=turn + 1, offset=turn)))
        if turn < commits:
            line = f"BATCH_COMMIT topic=t1 group=g generation=1 member=m-1234 P0:{turn + 1}"
            control.send(at + 0.1, 0, cursus.enveloped(line))
            control.send(at + 0.11, 1, cursus.bare("OK batched=1"))
        if turn % 3 == 0:
            control.send(at + 0.5, 0, cursus.enveloped(f"HEARTBEAT topic=t1 {MEMBER}"))
            control.send(at + 0.51, 1, cursus.bare("OK member=m-1234 generation=1"))
    return tape.capture()


def group_stalled() -> bytes:
    """Ten commits, then none."""
    return _group(10)


def group_at_work() -> bytes:
    """The harmless twin: a commit for each."""
    return _group(50)


def _not_leader(pause_s: float) -> bytes:
    """Eight requests that a broker refuses, as it does not lead; then one that it answers."""
    tape = Tape()
    link = tape.link(0.0, 40000, broker_port=9000)
    for turn in range(8):
        at = 1.0 + pause_s * turn
        link.send(at, 0, cursus.enveloped(f"CONSUME topic=t1 partition=0 offset=0 {MEMBER}"))
        link.send(at + 0.01, 1, cursus.bare("ERROR: NOT_LEADER LEADER_IS 10.0.0.3:9000"))
    at = 1.0 + pause_s * 8
    link.send(at, 0, cursus.enveloped(f"CONSUME topic=t1 partition=0 offset=0 {MEMBER}"))
    link.send(at + 0.01, 1, cursus.batch(cursus.records(2, offset=0)))
    return tape.capture()


def wrong_leader() -> bytes:
    """For 21 s."""
    return _not_leader(3.0)


def new_leader() -> bytes:
    """The harmless twin: for 2 s."""
    return _not_leader(0.3)
