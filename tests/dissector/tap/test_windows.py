"""Windows end when somebody asks, when it is time or when they are full; no row is lost in any."""

import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from dissector.blocks import TableBlock
from dissector.dissection import Options
from dissector.sources.rings import chains
from dissector.tap.playback import FilePlayback
from dissector.tap.service import Tap, TapSettings
from dissector.tap.window_tables import Rows
from dissector.tap.windows import Window, Windows
from tests.dissector.observed import CAPTURES, tables_of

PLAIN = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
S = 10**9


class Counting:
    """Takes windows, counts their rows; go_on: it waits for this in each."""

    def __init__(self) -> None:
        self.columns = {"frames": ("capture", "frame_no"), "exchanges": ("capture", "kind")}
        self.windows: list[Window] = []
        self.counts: Counter[str] = Counter()
        self.failed: list[Exception] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def take(self, window: Window, rows: Rows) -> None:
        self.go_on.wait(60)
        self.windows.append(window)
        self.counts += Counter({table: each.num_rows for table, each in rows.items()})

    def fail(self, window: Window, error: Exception) -> None:
        self.failed.append(error)


@pytest.mark.parametrize("window_bytes", [1, 12000, 1 << 30])
def test_every_row_is_in_one_window_however_large_they_are(window_bytes):
    (chain,) = chains([str(PLAIN)]).chains
    tap = Tap(FilePlayback(chain), TapSettings(Options(), rotate_ns=S // 10))
    taker = Counting()
    windows = Windows(tap, True, [taker], None, window_bytes)
    tap.listen(windows)
    tap.run()
    windows.close()
    tables = tables_of(str(PLAIN))
    assert taker.counts == {name: len(tables[name]) for name in taker.columns}
    assert (len(taker.windows) > 5) == (window_bytes == 1)
    assert taker.windows[-1].is_end


def block(rows: int) -> TableBlock:
    return TableBlock("frames", rows, {"frame_no": np.arange(rows)})


def of_nothing(taker: Counting, window_bytes: int = 1 << 20) -> Windows:
    tap = SimpleNamespace(tap_run="run", dissection=SimpleNamespace(repeated=set), open_rows=tuple)
    return Windows(tap, False, [taker], None, window_bytes)  # type: ignore[arg-type]


def test_windows_get_larger_while_the_last_one_is_counted():
    taker = Counting()
    taker.go_on.clear()
    windows = of_nothing(taker)
    for _ in range(5):
        windows.rows([block(10)])
        windows.ask()
        windows.tick(0.0)
    taker.go_on.set()
    windows.close()
    assert taker.counts == {"frames": 50}
    assert len(taker.windows) == 2 and not taker.failed


def test_who_asks_gets_what_was_there_and_nobody_waits_for_nothing():
    taker = Counting()
    windows = of_nothing(taker)
    windows.rows([block(7)])
    asking = threading.Thread(target=windows.refresh)
    asking.start()
    while asking.is_alive():
        windows.tick(0.0)
    assert taker.counts == {"frames": 7}
    windows.flush()
    windows.close()
    windows.refresh()  # nothing comes any more


def test_a_taker_that_fails_is_told_and_the_others_go_on():
    class Failing(Counting):
        def take(self, window: Window, rows: Rows) -> None:
            raise MemoryError("no more of it")

    taker = Failing()
    windows = of_nothing(taker)
    windows.rows([block(7)])
    windows.flush()
    windows.rows([block(7)])
    windows.close()
    assert [str(each) for each in taker.failed] == ["no more of it"] * 2
