"""What random clients saw of their runs (captures/make/random_clients.py), beside the rows."""

from collections import Counter, defaultdict

from tests.dissector.observed import Case, Row

Entry = tuple[int, int]
Place = tuple[str, str, int, int]  # topic, subscription, entry


def entry_of(row: Row) -> Entry:
    return row["ledger_id"], row["entry_id"]


def logged(case: Case, *kinds: str) -> list[Row]:
    return [event for event in case.events if event["ev"] in kinds]


def asked_topic(row: Row) -> str:
    """The topic that clients name, of one or of its partition."""
    return row["topic"].partition("-partition-")[0]


def place_of(row: Row) -> Place:
    """The subscription, and the entry, of a delivery or an ack."""
    return asked_topic(row), row["subscription"], *entry_of(row)


def consumer_of(row: Row) -> tuple[int, int, int]:
    return row["connection_id"], row["consumer_id"], row["incarnation"]


def place_of_event(event: Row) -> Place:
    ledger, entry, *_ = map(int, event["mid"].split(":"))
    return event["topic"], event["sub"], ledger, entry


def deliveries(case: Case) -> dict[Place, list[Row]]:
    """Those of each entry to each subscription, in order."""
    found = defaultdict(list)
    for row in sorted(case.tables["deliveries"], key=lambda row: row["frame_no"]):
        found[place_of(row)].append(row)
    return found


def times(case: Case) -> dict[int, float]:
    """When each frame ended, in ms."""
    return {row["frame_no"]: row["last_ts_ns"] / 1e6 for row in case.tables["frames"]}


def chunks(case: Case) -> dict[Entry, Entry]:
    """Of each chunk's entry that of the last chunk, by which clients name the message."""
    messages = defaultdict(dict)
    for row in case.tables["frames"]:
        if row["command"] == "MESSAGE" and row["chunk_id"] is not None:
            messages[row["chunk_uuid"]][row["chunk_id"]] = entry_of(row)
    return {each: some[max(some)] for some in messages.values() for each in some.values()}


def indices(row: Row) -> set[int]:
    """The places in its batch that a delivery has messages of; -1 of what is no batch."""
    if row["batch_size"] is None:
        return {-1}
    left = sum((word & (2**64 - 1)) << (64 * n) for n, word in enumerate(row["ack_set"] or ()))
    return {n for n in range(row["batch_size"]) if not row["ack_set"] or left >> n & 1}


class Acked:
    """What applications acknowledged, and when."""

    def __init__(self, case: Case) -> None:
        self.single: dict[Place, dict[int, float]] = defaultdict(dict)
        self.cumulative: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        for event in logged(case, "ack", "cumack"):
            ledger, entry, partition, index = map(int, event["mid"].split(":"))
            where = event["topic"], event["sub"]
            if event["ev"] == "ack":
                self.single[*where, ledger, entry].setdefault(index, event["t"])
            else:
                up_to = {"at": (ledger, entry, index if index >= 0 else 2**31), "t": event["t"]}
                self.cumulative[*where, partition].append(up_to)
        self.last_chunk = chunks(case)

    def of(self, row: Row, before_ms: float) -> set[int]:
        """The messages of a delivery that were acknowledged until then."""
        topic, subscription, *entry = place_of(row)
        ledger, last = self.last_chunk.get(tuple(entry), entry)
        partition = -1 if row["partition"] is None else row["partition"]
        single = self.single.get((topic, subscription, ledger, last), {})
        marks = [
            mark["at"]
            for mark in self.cumulative.get((topic, subscription, partition), ())
            if mark["t"] <= before_ms
        ]
        return {
            index
            for index in indices(row)
            if single.get(index, before_ms + 1) <= before_ms
            or any((ledger, last, index) <= mark for mark in marks)
        }


def shown_by(case: Case) -> Counter[str]:
    """What a capture shows, and how often."""
    tables, found = case.tables, Counter()
    kinds = {(asked_topic(row), row["subscription"]): row["subscription_type"]
             for row in tables["consumers"]}  # fmt: skip
    unloaded = {event["topic"] for event in logged(case, "unload")}
    for (topic, _), kind in kinds.items():
        found[f"unload of {kind}"] += topic in unloaded
    for event in logged(case, "redeliver_all"):
        found[f"redeliver_all on {kinds[event['topic'], event['sub']]}"] += 1
    found["seek"] = len(logged(case, "seek"))
    found["SIGKILL"] = len(logged(case, "SIGKILL"))
    ends = {
        consumer_of(row): row for row in tables["consumers"] if row["closed_frame_no"] is not None
    }
    for row in tables["deliveries"]:
        end = ends.get(consumer_of(row))
        if end is not None:
            found["MESSAGE behind a close"] += row["frame_no"] > end["closed_frame_no"]
            is_late = (row["ack_frame_no"] or 0) > end["closed_frame_no"]
            found["ACK behind an unload"] += is_late and end["closed_by"] == "broker"
    for row in tables["acks"]:
        found["cumulative ack"] += row["ack_type"] == "Cumulative"
        found["batch index ack"] += bool(row["ack_set"])
    for row in tables["deliveries"]:
        found["batch acked in part"] += row["outcome"] != "acked" and bool(row["messages_acked"])
        found["delayed"] += row["deliver_at_ms"] is not None
        found["partition"] += row["partition"] is not None
    found["chunk"] = sum(row["chunk_id"] is not None for row in tables["frames"])
    return found
