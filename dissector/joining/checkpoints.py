"""What stands open at the end of some captures, so that a replay of the next goes on from it.

Of the passes that is their whole memory, as arrays: requests, balances, deliveries that wait for an
acknowledgement, names, what was sent and delivered before. Rows of traffic could not hold it:
which entries were delivered to whom, and in which order, is known of a million intervals, each of
which would need a row, and the passes would give the rows of these once more.
Arrays are exact, and their size has the bounds of `dissector.limits`. Beside them go small tables
of what SQL knows: places of connections, connections that go on, incarnations.

Kernels trust their memory. So whoever reads one must know that it is what this program wrote
(`increment_cache` seals it); here is only its form: a Parquet file of arrays and tables.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dissector.blocks import Int64Array
from dissector.bundles import Bundle
from dissector.states import State

_SCHEMA: Final = pa.schema(
    [
        ("name", pa.string()),
        ("shape", pa.list_(pa.int64())),  # of an array of int64; null: rows of a table, as Arrow
        ("data", pa.large_binary()),
    ]
)


class Checkpoint(NamedTuple):
    """arrays: int64, by name; texts: lists of bytes, by name; tables: by name."""

    arrays: Mapping[str, Int64Array]
    texts: Mapping[str, Sequence[bytes]]
    tables: Mapping[str, pa.Table]


def arrays_of(value: Any, name: str) -> Iterator[tuple[str, Int64Array]]:
    """The arrays of a State, Bundle, array, or tuple of these, by names that begin with one."""
    if isinstance(value, Bundle):
        yield name, value.matrix
    elif isinstance(value, np.ndarray):
        yield name, value
    else:
        for field in value._fields:
            yield from arrays_of(getattr(value, field), f"{name}.{field}")


def rebuilt(value: Any, name: str, arrays: Mapping[str, Int64Array]) -> Any:
    """Such a value with the arrays of these names in the place of its own; a State itself."""
    if isinstance(value, Bundle):
        return type(value)(arrays[name])
    if isinstance(value, np.ndarray):
        return arrays[name]
    fields = {
        field: rebuilt(getattr(value, field), f"{name}.{field}", arrays) for field in value._fields
    }
    if isinstance(value, State):
        value.grow(**fields)
        return value
    return type(value)(**fields)


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write it as a file, at once or not at all: a task may run twice at the same time."""
    names: list[str] = []
    shapes: list[list[int] | None] = []
    data: list[bytes] = []
    for name, array in checkpoint.arrays.items():
        names.append(name)
        shapes.append(list(array.shape))
        data.append(_without_last_zeros(array.reshape(-1)).tobytes())
    tables = {
        f"text {name}": pa.table([pa.array(list(texts), pa.binary())], ["text"])
        for name, texts in checkpoint.texts.items()
    }
    tables |= {f"table {name}": table for name, table in checkpoint.tables.items()}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        names.append(name)
        shapes.append(None)
        data.append(sink.getvalue().to_pybytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    pq.write_table(
        pa.table([names, pa.array(shapes, _SCHEMA.field("shape").type), data], schema=_SCHEMA),
        fresh,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
    )
    os.replace(fresh, path)


def read(path: Path) -> Checkpoint:
    """Read what `write` wrote."""
    arrays: dict[str, Int64Array] = {}
    texts: dict[str, list[bytes]] = {}
    tables: dict[str, pa.Table] = {}
    for row in pq.ParquetFile(path).read().to_pylist():
        name, shape = row["name"], row["shape"]
        if shape is not None:
            flat = np.zeros(int(np.prod(shape)), np.int64)
            held = np.frombuffer(row["data"], np.int64)
            flat[: len(held)] = held
            arrays[name] = flat.reshape(shape)
            continue
        kind, _, name = name.partition(" ")
        table = pa.ipc.open_stream(row["data"]).read_all()
        if kind == "text":
            texts[name] = table.column(0).to_pylist()
        else:
            tables[name] = table
    return Checkpoint(arrays, texts, tables)


def _without_last_zeros(flat: Int64Array) -> Int64Array:
    """An array up to a place behind which all is zero, no more than twice as far as needed."""
    used = len(flat)
    while used and not flat[used // 2 : used].any():
        used //= 2
    return flat[:used]
