"""Publish a lake as Iceberg tables, in a catalog that pyiceberg is configured for.

A table has the columns of the lake's table and `day`, its partition column. The files lack `day`;
its value is in the table's manifests. Columns match by name, so columns that files of older schema
versions lack read as null.

A data file is identified by its path, size and row count. These do not change if a file is
rewritten under its path with as many bytes; so the footers of files of landings that were installed
since the last commit are compared with the statistics in the manifests.
"""

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from dissector.errors import DependencyError, OutputError, UsageError, needs
from dissector.lake.publish import (
    DAY,
    ConflictError,
    Difference,
    Held,
    LakeFile,
    Published,
    leaves_of,
    private_folder,
)
from dissector.limits import (
    PUBLISH_CLOCK_SECONDS,
    PUBLISH_HISTORY_DAYS,
    STORE_CONNECT_SECONDS,
    STORE_TIMEOUT_SECONDS,
)
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.storage.addresses import s3_server

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import IcebergType, PrimitiveType

# Folder below the lake for table metadata if the catalog names no warehouse.
_FOLDER: Final = "_iceberg"
_LAKE: Final = "dissector.lake"  # table property: address of the lake
_VERSION: Final = "dissector.schema-version"  # summary property of our own snapshots
_PROPERTIES: Final = {
    # No engine may delete the lake's files when it expires snapshots or drops the table.
    "gc.enabled": "false",
    # A retry by the library would repeat the first change beside another writer's commit.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
# The part of pyarrow's error text before the store's response body.
_ANSWER: Final = re.compile(
    r".*AWS Error (\w+(?: \(HTTP status \d+\))?) during (\w+) operation.*", re.DOTALL
)
_TIMES: Final = (STORE_CONNECT_SECONDS, STORE_TIMEOUT_SECONDS)
_FIRST_DAY: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000


class Iceberg:
    """The tables in one namespace of an Iceberg catalog."""

    name = "iceberg"

    def __init__(self, catalog: str, namespace: str) -> None:
        """Open a catalog.

        Args:
            catalog: a name that pyiceberg is configured for, or an address (`sqlite:////…`, `http://…`).

        Raises:
            DependencyError: a library is missing. UsageError: pyiceberg knows no such catalog.
            OutputError: the catalog cannot be reached.
        """
        with needs("publish", "all but lake publish works without"):
            import sqlalchemy  # noqa: F401
            from pyiceberg.catalog import load_catalog
        self._shown = re.sub(r"//[^/@]*@", "//…@", catalog)
        self._namespace = tuple(namespace.split("."))
        if not all(part.strip() for part in self._namespace):
            raise UsageError(
                f"--namespace {namespace!r} is no name; write dissector or network.night"
            )
        with self._speaking("reach"):
            try:
                is_address = "://" in catalog
                self._catalog = load_catalog(uri=catalog) if is_address else load_catalog(catalog)
            except ValueError as error:
                raise UsageError(f"no catalog {self._shown}: {error}") from None
        _add_server(self._catalog.properties)

    def listed(self, table: str, root: str) -> set[str]:
        """See Format."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self._speaking("read"), suppress(NoSuchTableError, NoSuchNamespaceError):
            there = self._catalog.load_table((*self._namespace, table))
            if there.properties.get(_LAKE) == root:
                files = _data_files(there, there.current_snapshot())
                return {each.file_path.removeprefix(f"{root}/{table}/") for each in files}
        return set()

    def publish(self, table: str, held: Held) -> Published:
        """See Format."""
        _must_be_reached(held.root)
        root = f"{held.root}/{table}/"
        with self._speaking("write to"):
            there = self._opened(table, held)
            files = {root + file.inner: file for file in held.files(table)}
            listed = {each.file_path: each for each in _data_files(there, there.current_snapshot())}
            seen_ns = _seen_ns(there)
            columns = _columns_of(there.metadata)

            def is_same(file: LakeFile, known: "DataFile") -> bool:
                if (file.bytes, file.rows) != (known.file_size_in_bytes, known.record_count):
                    return False
                if held.stored or held.installed_ns(file.landing) < seen_ns:
                    return True
                return _is_true(known, _data_file(root, file, columns))

            difference = held.difference(files, listed, is_same)
            _change(there, root, held, difference, listed)
            _forget_old(there)
        return Published.of(table, files.values(), difference)

    @contextmanager
    def _speaking(self, doing: str) -> Iterator[None]:
        """Convert exceptions of pyiceberg and the libraries below it to our errors.

        Args:
            doing: the verb for the message: "cannot {doing} the catalog".

        Raises:
            ConflictError, OutputError, DependencyError: as Format says.
        """
        from pyiceberg import exceptions as of_iceberg
        from sqlalchemy.exc import SQLAlchemyError

        logging.getLogger("pyiceberg").setLevel(logging.ERROR)
        try:
            with _answered():
                yield
        except (of_iceberg.CommitFailedException, of_iceberg.TableAlreadyExistsError) as error:
            raise ConflictError(str(error)) from error
        except (of_iceberg.NotInstalledError, ImportError) as error:
            raise DependencyError(f"the catalog {self._shown} needs more: {error}") from error
        except (
            *(OSError, ValueError, SQLAlchemyError, of_iceberg.RESTError),
            *(of_iceberg.ValidationException, of_iceberg.NoSuchNamespaceError),
        ) as error:
            cause = getattr(error, "orig", None) or error
            said = _ANSWER.sub(
                r"the store of its lists says \1 to \2", f"{type(cause).__name__}: {cause}"
            )
            raise OutputError(
                f"cannot {doing} the catalog {self._shown}: {said}; "
                "tables that are not printed are as they were"
            ) from error

    def _opened(self, table: str, held: Held) -> "Table":
        """Load the catalog's table; create it if it is missing."""
        from pyiceberg.exceptions import NoSuchTableError

        lake = held.root
        name = (*self._namespace, table)
        try:
            there = self._catalog.load_table(name)
        except NoSuchTableError:
            there = self._created(name, lake, held)
        if (of := there.properties.get(_LAKE)) != lake:
            raise OutputError(
                f"{'.'.join(name)} in {self._shown} is of {of or 'no lake'}, not of {lake}: choose "
                "another --namespace, or drop that table"
            )
        return there

    def _created(self, name: tuple[str, ...], lake: str, held: Held) -> "Table":
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        self._catalog.create_namespace_if_not_exists(self._namespace)
        schema = _schema(name[-1])
        day = schema.find_field(DAY.name).field_id
        return self._catalog.create_table(
            name,
            schema,
            location=self._location(name, lake, held),
            partition_spec=PartitionSpec(
                PartitionField(
                    source_id=day, field_id=1000, transform=IdentityTransform(), name=DAY.name
                )
            ),
            properties={**_PROPERTIES, _LAKE: lake},
        )

    def _location(self, name: tuple[str, ...], lake: str, held: Held) -> str | None:
        """Return the location of a new table's metadata; None if the catalog chooses it."""
        from pyiceberg.catalog import MetastoreCatalog

        catalog = self._catalog
        if not isinstance(catalog, MetastoreCatalog) or "warehouse" in catalog.properties:
            return None
        if "location" in catalog.load_namespace_properties(self._namespace):
            return None
        if held.stored is None:
            private_folder(held.lake.folder / _FOLDER)
        return "/".join((lake, _FOLDER, *name))


def _add_server(properties: dict[str, str]) -> None:
    """Set the S3 endpoint, region and timeouts that the catalog's properties lack to ours. The
    library reads credentials from the environment by itself."""
    endpoint, region = s3_server()
    connect_seconds, answer_seconds = map(str, _TIMES)
    is_unsigned = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")
    for names, value in (
        (("s3.endpoint",), endpoint),
        (("s3.region", "client.region"), region),
        (("s3.anonymous",), "true" if is_unsigned else None),
        (("s3.connect-timeout",), connect_seconds),
        (("s3.request-timeout",), answer_seconds),
    ):
        if value and not any(name in properties for name in names):
            properties[names[0]] = value


def _must_be_reached(root: str) -> None:
    """Refuse a store that pyiceberg cannot write to.

    Raises:
        UsageError: pyiceberg lacks support for it. DependencyError: adlfs is missing.
    """
    scheme = root.partition("://")[0]
    if scheme == "az":
        raise UsageError(
            f"{root}: Iceberg knows no az://; write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/"
            "NAME, everywhere"
        )
    if scheme == "hdfs":
        raise UsageError(f"{root}: no table of Iceberg is made in HDFS; --delta makes one of Delta")
    if scheme == "abfss" and find_spec("adlfs") is None:
        raise DependencyError(
            f"{root}: Iceberg in Azure needs adlfs: pip install 'pyiceberg[adlfs]'"
        )


@contextmanager
def _answered() -> Iterator[None]:
    """Set timeouts on HTTP requests: pyiceberg sets none, and we hold the lake's lock meanwhile."""
    from requests.adapters import HTTPAdapter

    adapter: Any = HTTPAdapter
    real = adapter.send

    def send(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **options | {"timeout": options.get("timeout") or _TIMES})

    adapter.send = send
    try:
        yield
    finally:
        adapter.send = real


# -- reading table metadata


def _data_files(table: "Table", snapshot: "Snapshot | None") -> Iterator["DataFile"]:
    from pyiceberg.manifest import ManifestContent

    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content != ManifestContent.DATA:
            raise OutputError(
                f"rows of {'.'.join(table.name())} were deleted by another program, which no lake "
                "can say: drop the table, and publish again"
            )
        for entry in manifest.fetch_manifest_entry(table.io):
            yield entry.data_file


def _seen_ns(table: "Table") -> int:
    """Return the time (ns since 1970) before which installed landings are listed unchanged."""
    ours = [s for s in table.metadata.snapshots if s.summary and _VERSION in s.summary]
    latest_ms = max((snapshot.timestamp_ms for snapshot in ours), default=0)
    return latest_ms * 1_000_000 - PUBLISH_CLOCK_SECONDS * 1_000_000_000


def _is_true(known: "DataFile", now: "DataFile") -> bool:
    """Whether the listed statistics equal the file's; columns added later may be unlisted."""
    pairs = (
        (known.column_sizes, now.column_sizes),
        (known.value_counts, now.value_counts),
        (known.null_value_counts, now.null_value_counts),
        (known.lower_bounds, now.lower_bounds),
        (known.upper_bounds, now.upper_bounds),
    )
    are_true = all(dict(listed).items() <= dict(actual).items() for listed, actual in pairs)
    return are_true and known.partition == now.partition


class _Columns(NamedTuple):
    """ids: column ids by path in the files. types: primitive types by column id. spec_id: id of the
    partition spec."""

    ids: dict[str, int]
    types: dict[int, "PrimitiveType"]
    spec_id: int


def _columns_of(metadata: "TableMetadata") -> _Columns:
    from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
    from pyiceberg.types import PrimitiveType

    schema = metadata.schema()
    ids = parquet_path_to_id_mapping(schema)
    types = {number: schema.find_type(number) for number in ids.values()}
    primitive = {n: type for n, type in types.items() if isinstance(type, PrimitiveType)}
    return _Columns(ids, primitive, metadata.default_spec_id)


def _data_file(root: str, file: LakeFile, columns: _Columns) -> "DataFile":
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    by_path, begins = leaves_of(file)
    leaves = {columns.ids[path]: leaf for path, leaf in by_path.items() if path in columns.ids}
    ranged = [(n, columns.types[n], leaf) for n, leaf in leaves.items() if leaf.least is not None]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=root + file.inner,
        file_format=FileFormat.PARQUET,
        partition=Record(file.day and (file.day - _FIRST_DAY).days),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        column_sizes={number: leaf.bytes for number, leaf in leaves.items()},
        value_counts={number: leaf.values for number, leaf in leaves.items()},
        null_value_counts={n: leaf.nulls for n, leaf in leaves.items() if leaf.nulls is not None},
        nan_value_counts={},
        lower_bounds={number: to_bytes(type, leaf.least) for number, type, leaf in ranged},
        upper_bounds={number: to_bytes(type, leaf.most) for number, type, leaf in ranged},
        split_offsets=begins,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        spec_id=columns.spec_id,
    )


# -- writing table metadata


def _schema(table: str) -> "Schema":
    """Return the Iceberg schema of a lake table: its columns and `day`."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    docs = {column.name: column.meaning for column in TABLES[table].columns}
    ids = count(1)
    return Schema(
        *(
            NestedField(next(ids), field.name, _type(field.type, ids), doc=docs.get(field.name))
            for field in (*arrow_schema(table), DAY)
        )
    )


def _type(of: pa.DataType, ids: Iterator[int]) -> "IcebergType":
    from pyiceberg import types

    if pa.types.is_list(of):
        return types.ListType(next(ids), _type(of.value_type, ids), element_required=False)
    if pa.types.is_map(of):
        return types.MapType(
            *(next(ids), _type(of.key_type, ids)),
            *(next(ids), _type(of.item_type, ids)),
            value_required=False,
        )
    return {
        pa.int64(): types.LongType(),
        pa.bool_(): types.BooleanType(),
        pa.string(): types.StringType(),
        pa.timestamp("us", "UTC"): types.TimestamptzType(),
        pa.date32(): types.DateType(),
    }[of]


def _change(
    table: "Table",
    root: str,
    held: Held,
    difference: Difference,
    known: dict[str, "DataFile"],
) -> None:
    """Add the columns that a table does not have and change its list, by one commit."""
    wanted = _schema(table.name()[-1])
    with table.transaction() as change:
        if table.name_mapping() is None:  # by the ids that the catalog gave
            mapping = table.schema().name_mapping.model_dump_json()
            change.set_properties({"schema.name-mapping.default": mapping})
        if not set(wanted.column_names) <= set(table.schema().column_names):
            with change.update_schema() as update:
                update.union_by_name(wanted)
        if difference.added or difference.removed:
            columns = _columns_of(change.table_metadata)
            snapshot = change.update_snapshot(snapshot_properties={_VERSION: str(SCHEMA_VERSION)})
            with snapshot.overwrite() if difference.removed else snapshot.merge_append() as files:
                for name in difference.removed:
                    files.delete_data_file(known[name])
                for file in held.described(
                    lambda each: _data_file(root, each, columns), difference.added
                ):
                    files.append_data_file(file)


def _forget_old(table: "Table") -> None:
    """Expire old snapshots and delete manifests that only these name. No engine does so, see
    gc.enabled. At most once a day, as this reads all manifests."""
    from pyiceberg.exceptions import CommitFailedException

    snapshots = table.metadata.snapshots
    end_ms = time.time_ns() // 1_000_000 - PUBLISH_HISTORY_DAYS * _DAY_MS
    if min((each.timestamp_ms for each in snapshots), default=end_ms) > end_ms - _DAY_MS:
        return
    referenced = {reference.snapshot_id for reference in table.metadata.refs.values()}
    old = [s for s in snapshots if s.timestamp_ms < end_ms and s.snapshot_id not in referenced]
    manifests = _manifests(table, old)
    try:
        table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    except CommitFailedException:
        return  # another writer committed; the next publication expires them
    for path in manifests - _manifests(table, table.metadata.snapshots):
        with suppress(FileNotFoundError):
            table.io.delete(path)


def _manifests(table: "Table", snapshots: Iterable["Snapshot"]) -> set[str]:
    """Return the paths of the manifest lists and manifests of snapshots."""
    paths = set()
    for snapshot in snapshots:
        paths |= {snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io))}
    return paths
