"""Reads the rows of a table of one capture as record batches, for a Spark task."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dissector.errors import InputError
from dissector.sources.rings import Chain
from spark_jobs.conditions import chosen
from spark_jobs.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

BATCH_ROWS: Final = 8192


def rows_of(
    chain: Chain,
    options: ReadOptions,
    columns: Sequence[str],
    conditions: Sequence["Filter"] = (),
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of a table of one capture that meet the conditions, in batches.

    Other columns are not gathered. A batch has the rows that passed out of BATCH_ROWS.
    """
    import pyarrow as pa

    from dissector.lake.digest import ChainDigest
    from dissector.schemas.arrow import arrow_schema
    from dissector.schemas.rows import TableBuilder
    from dissector.sources.account import Account
    from dissector.sources.dissect import dissect

    whole = arrow_schema(options.table)
    schema = pa.schema([whole.field(name) for name in columns])
    capture = capture_of(chain) if "capture" in columns else None
    digest, account = ChainDigest(), Account(chain.base_name, chain.shown_names)
    builder = TableBuilder(options.table, BATCH_ROWS, columns)

    def batch() -> pa.RecordBatch:
        rows = builder.rows
        built = builder.finish()
        arrays = [
            pa.repeat(pa.scalar(capture), rows)
            if name == "capture"
            else built.column(name).cast(schema.field(name).type)
            for name in columns
        ]
        return chosen(pa.RecordBatch.from_arrays(arrays, schema=schema), conditions)

    for block in dissect(chain, options.options, digest=digest, cluster=options.cluster):
        account.add(block)
        if block.table != options.table:
            continue
        start, wanted = 0, block.columns.keys() & set(columns)
        block = block._replace(columns={name: block.columns[name] for name in sorted(wanted)})
        while start < block.rows:
            stop = min(block.rows, start + builder.free_rows)
            builder.append(block, start, stop)
            start = stop
            if not builder.free_rows:
                yield batch()
                builder = TableBuilder(options.table, BATCH_ROWS, columns)
    if capture is not None and capture != _id_of(chain, digest):
        raise InputError(f"{chain.files[0]}: it was written to while it was read")
    if account.is_unreadable:
        raise InputError(account.missing[0])
    if builder.rows:
        yield batch()


def _id_of(chain: Chain, digest: Any) -> str:
    from dissector.sources.rings import capture_id

    return capture_id(chain.base_name, digest.sha256())


def capture_of(chain: Chain) -> str:
    """The id of a capture in a lake; reads all of its bytes."""
    from dissector.capture.reader import CaptureReader
    from dissector.lake.digest import ChainDigest
    from dissector.sources.files import Buffer, ChainReader, FileStart

    digest, scout = ChainDigest(), CaptureReader()
    with ChainReader(chain.files, digest) as reader:
        for event in reader:
            if isinstance(event, FileStart):
                scout.start_file()
            elif isinstance(event, Buffer):
                scan = scout.feed(event.data, event.start, event.end, event.is_last)
                while scan.is_more:
                    scan = scout.feed(event.data, scan.consumed, event.end, event.is_last)
                event.consumed, event.is_enough = scan.consumed, scout.is_over
            else:
                scout.finish_file()
    return _id_of(chain, digest)
