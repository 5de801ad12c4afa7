"""Deliveries and permits of a script, the slow and plain way: every open delivery is looked at.

For conversations without holes on subscriptions that share (individual acks) or not (cumulative
ones). It keeps every delivery for ever, so that nothing is bounded and nothing is forgotten.
"""

from typing import Any

from dissector.protocols.columns import EVENT_CLOSE, TO_BROKER
from dissector.protocols.pulsar.wire import commands

Row = dict[str, Any]
_OPEN = "open"


class Consumption:
    """What a script does to consumers; `deliveries` and `permits` in the order of their frames."""

    def __init__(self, script: list[Row]) -> None:
        self.deliveries: list[Row] = []
        self.permits: list[tuple[int, str, int | None, int, int]] = []
        self._consumers: dict[tuple[int, int], Row] = {}
        self._requests: dict[tuple[int, int], Row] = {}
        frame_no = 0
        for row in script:
            frame_no += row["command"] >= 0
            self._take(row, frame_no)
        for delivery in self.deliveries:
            if delivery["outcome"] == _OPEN:
                delivery["outcome"] = "unacked_at_end"

    def _take(self, row: Row, frame_no: int) -> None:
        command, connection = row["command"], row["connection_id"]
        if command == EVENT_CLOSE:
            for key, consumer in self._consumers.items():
                if key[0] == connection:
                    self._leave(consumer, "conn_closed")
        elif command == commands.SUBSCRIBE:
            self._open(row, frame_no)
        elif command == commands.SUCCESS:
            self._answered(self._requests.pop((connection, row["request_id"])))
        elif command == commands.CLOSE_CONSUMER:
            consumer = self._consumers[connection, row["consumer_id"]]
            if row["direction"] == TO_BROKER:
                self._requests[connection, row["request_id"]] = {"closes": consumer}
            else:
                self._leave(consumer, "consumer_closed")
        elif command in (commands.FLOW, commands.MESSAGE, commands.ACK, commands.REDELIVER):
            self._use(row, self._consumers[connection, row["consumer_id"]], frame_no)

    def _open(self, row: Row, frame_no: int) -> None:
        key = (row["connection_id"], row["consumer_id"])
        is_first = key not in self._consumers
        consumer = {"balance": 0, "shares": row["subscription_type"] in (1, 3),
                    "group": (row["topic"], row["subscription"]), "is_ready": False}  # fmt: skip
        self._consumers[key] = consumer
        self._requests[key[0], row["request_id"]] = {"opens": consumer}
        if not is_first:
            self.permits.append((frame_no, "reset", None, 0, 0))

    def _answered(self, request: Row) -> None:
        if "opens" in request:
            request["opens"]["is_ready"] = True
        else:
            self._leave(request["closes"], "consumer_closed")

    def _leave(self, consumer: Row, outcome: str) -> None:
        for delivery in self._held(consumer):
            delivery["outcome"] = outcome
        consumer["is_ready"] = False

    def _held(self, consumer: Row) -> list[Row]:
        return [
            each for each in self.deliveries
            if each["outcome"] == _OPEN and each["consumer"] is consumer
        ]  # fmt: skip

    def _use(self, row: Row, consumer: Row, frame_no: int) -> None:
        command = row["command"]
        if command == commands.FLOW:
            delta = row["permits"] if consumer["is_ready"] else 0
            consumer["balance"] += delta
            self._change(frame_no, "grant", delta, consumer)
        elif command == commands.MESSAGE:
            consumer["balance"] -= row["message_count"]
            self._deliver(row, consumer, frame_no)
            self._change(frame_no, "delivery", -row["message_count"], consumer)
        elif command == commands.ACK:
            for delivery in self._meant(row, consumer):
                delivery["outcome"] = "acked"
                delivery["ack_frame_no"] = frame_no
        else:
            is_all = not row["ids"] or not consumer["shares"]
            chosen = self._held(consumer) if is_all else self._meant(row, consumer)
            for delivery in chosen:
                delivery["outcome"] = "redelivery_requested"

    def _change(self, frame_no: int, event: str, delta: int, consumer: Row) -> None:
        unacked = sum(each["messages"] for each in self._held(consumer))
        self.permits.append((frame_no, event, delta, consumer["balance"], unacked))

    def _deliver(self, row: Row, consumer: Row, frame_no: int) -> None:
        entry = (row["ledger_id"], row["entry_id"])
        before = [
            each for each in self.deliveries
            if each["entry"] == entry and each["consumer"]["group"] == consumer["group"]
        ]  # fmt: skip
        for each in before:
            each["is_latest"] = False
        self.deliveries.append(
            {
                "frame_no": frame_no, "entry": entry, "consumer": consumer, "outcome": _OPEN,
                "messages": row["message_count"], "ack_frame_no": None, "is_latest": True,
                "previous": before[-1]["frame_no"] if before else None,
            }
        )  # fmt: skip

    def _meant(self, row: Row, consumer: Row) -> list[Row]:
        """The open deliveries that ids of a frame name."""
        entries = {(each["ledger_id"], each["entry_id"]) for each in row["ids"]}
        held = [each for each in self._held(consumer) if each["is_latest"]]
        if row.get("ack_type") == 1:
            last = max(entries)
            return [each for each in held if each["entry"] <= last]
        if row["command"] == commands.ACK:
            # Pulsar: on a subscription that is shared the broker looks for whoever holds the entry.
            held = [
                each for each in self.deliveries
                if each["outcome"] == _OPEN and each["is_latest"]
                and each["consumer"]["group"] == consumer["group"]
            ]  # fmt: skip
        return [each for each in held if each["entry"] in entries]
