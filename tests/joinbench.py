"""What it costs to join captures that were one: a table of `make bench`."""

import tempfile
import time
from pathlib import Path

from rich.table import Table

from dissector.joining.closing import CLOSED, Target, close_group
from dissector.joining.files import JoinSettings, files_of
from dissector.joining.planning import parts_of
from dissector.lake.reader import open_lake
from tests.busy.traffic import Size, write_capture
from tests.dissector.joining.cutting import by_client, land, packets, parts, planned


def joining_table(frames: int = 300_000) -> Table:
    """Joining of a capture that was cut: processor time, and which of the facts are made again."""
    table = Table(title="joining of captures that were one")
    for heading in ("cut", "captures", "facts", "made again", "CPU s"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_capture(folder / "busy.pcap", Size(frames))
        data = (folder / "busy.pcap").read_bytes()
        count = len(packets(data)) - 1
        for cut, pieces in (
            ("by connection", by_client(data, lambda port: port % 2 == 0)),
            ("by time", parts(data, range(count // 10, count, count // 10))),
        ):
            for number, piece in enumerate(pieces):
                land(piece, f"piece{number}", folder / cut, folder)
            with open_lake(folder / cut) as lake:
                facts = sum(lake.table(name).num_rows for name in CLOSED)
                (group,) = parts_of(planned(lake))
                source = files_of(lake, group.captures)
                begun = time.process_time()
                counts = close_group(source, group, Target(folder / f"{cut}-joined", "group"),
                                     JoinSettings(folder=folder))  # fmt: skip
                seconds = time.process_time() - begun
            again = sum(counts[name] for name in CLOSED)
            table.add_row(cut, str(len(pieces)), f"{facts:,}", f"{again:,}", f"{seconds:.1f}")
    return table
