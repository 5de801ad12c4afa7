"""The passes of all protocols over one group of captures: each replay takes the rows of its own."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dissector.joining.checkpoints import Checkpoint
from dissector.joining.replay import Replay, TableRows
from dissector.joining.replay_cursus import CursusReplay

if TYPE_CHECKING:
    import duckdb

# The replay of each protocol by its name (see protocols.PROTOCOLS), in the order in which rows go
# to them. Argument: how long an answer waits for its request, ns.
REPLAYS: Final[Mapping[str, Callable[[int], Replay]]] = {
    "cursus": lambda window_ns: CursusReplay(),
    "pulsar": Replay,
}
# What the replay of this one leaves can be written down; a group with others is read whole.
_LASTING: Final = "pulsar"
READ_WHOLE: Final = tuple(name for name in REPLAYS if name != _LASTING)


class Replays:
    """`feed` batches in order, then `finish`, or `leave` and `checkpoint`; see replay.Replay."""

    def __init__(self, window_ns: int, without: str = "") -> None:
        """without: a protocol whose rows others make."""
        self._window_ns = window_ns
        self._open = {} if without == _LASTING else {_LASTING: Replay(window_ns)}
        self._without = without

    def reads(self, db: "duckdb.DuckDBPyConnection") -> bool:
        """Whether a group (placed) has connections of a protocol that is replayed."""
        names = ", ".join(f"'{name}'" for name in REPLAYS if name != self._without)
        return bool(db.sql(f"SELECT 1 FROM placed WHERE read_by IN ({names}) LIMIT 1").fetchall())

    @classmethod
    def resumed(cls, window_ns: int, left: Checkpoint) -> "Replays":
        """Replays that go on where others were left."""
        replays = cls(window_ns)
        replays._open[_LASTING] = Replay.resumed(window_ns, left)
        return replays

    def leave(self) -> Iterator[TableRows]:
        """The rows that close with what was fed."""
        assert [*self._open] == [_LASTING], "a group with another protocol is in one piece"
        yield from self._open[_LASTING].leave()

    def checkpoint(self) -> Checkpoint:
        """What is open, after `leave`."""
        return self._open[_LASTING].checkpoint()

    def feed(self, batch: pa.Table) -> Iterator[TableRows]:
        """Take rows (replay.INPUT); gives the rows that closed."""
        read_by = batch.column("read_by")
        seen = set(read_by.unique().to_pylist())
        for name, make in REPLAYS.items():
            if name in seen and name not in self._open and name != self._without:
                self._open[name] = make(self._window_ns)
            if name in self._open:
                is_own = pc.fill_null(pc.equal(read_by, name), False)
                yield from self._open[name].feed(batch.filter(is_own))

    def finish(self) -> Iterator[TableRows]:
        """The rest."""
        for name in REPLAYS:
            if name in self._open:
                yield from self._open[name].finish()
