"""A catalog of Iceberg that speaks REST: requests of the specification over one kept in SQLite."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg import exceptions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

CONFLICTS = (
    exceptions.CommitFailedException,
    exceptions.TableAlreadyExistsError,
    exceptions.NamespaceAlreadyExistsError,
)
MISSING = (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, SqlCatalog]]:
    """A server's address, and the catalog behind it; where tables lie is the server's business."""
    folder.mkdir()
    uri, house = f"sqlite:///{folder}/catalog.db", f"file://{folder}/house"
    behind = SqlCatalog("behind", uri=uri, warehouse=house)

    class Handler(_Handler):
        catalog = behind

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", behind
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        behind.close()


class _Handler(BaseHTTPRequestHandler):
    catalog: SqlCatalog

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, sent: dict[str, Any]) -> None:
        try:
            code, answer = 200, _reply(self.catalog, self.command, self.path.split("?")[0], sent)
        except CONFLICTS as error:
            code, answer = 409, _problem(409, error)
        except MISSING as error:
            code, answer = 404, _problem(404, error)
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _reply(behind: SqlCatalog, method: str, path: str, sent: dict[str, Any]) -> dict[str, Any]:
    match path.removeprefix("/v1/").split("/"), method:
        case ["config"], _:
            return {"defaults": {}, "overrides": {}}
        case ["namespaces"], "POST":
            behind.create_namespace(tuple(sent["namespace"]))
            return {"namespace": sent["namespace"], "properties": {}}
        case ["namespaces", namespace, "tables"], "POST":
            table = behind.create_table(
                (namespace, sent["name"]),
                Schema.model_validate(sent["schema"]),
                sent.get("location"),
                PartitionSpec.model_validate(sent["partition-spec"]),
                properties=sent["properties"],
            )
            return _loaded(table)
        case ["namespaces", namespace, "tables", name], _:
            table = behind.load_table((namespace, name))
            if method == "POST":
                asked = CommitTableRequest.model_validate(sent)
                behind.commit_table(table, asked.requirements, asked.updates)
            return _loaded(behind.load_table((namespace, name)))
    raise exceptions.NoSuchTableError(path)


def _loaded(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata}


def _problem(code: int, error: Exception) -> dict[str, Any]:
    return {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
