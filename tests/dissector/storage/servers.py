"""Stores on this machine: a server of S3 as others wrote it, and one that fails as it is told."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar, Final
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

import pytest

from dissector.storage import objects, stores

SECRET: Final = "wJalrXUtnFEMIsecretKEY"
BUCKET: Final = "traffic"
# What failed is asked again after so long, not after a tenth of a second and more.
SOON: Final = {
    "init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=50), "base": 2,
}  # fmt: skip


def forget() -> None:
    """What this process knows of stores is forgotten, as in another one."""
    stores._store.cache_clear()
    stores._seen.clear()


@contextmanager
def environment(endpoint: str, *, is_failing: bool = False) -> Iterator[None]:
    """The variables with which a user names an endpoint and credentials. One that fails is asked
    again soon."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        if is_failing:
            patch.setitem(objects._RETRY, "backoff", SOON)
        forget()
        yield
        forget()


@contextmanager
def s3_server() -> Iterator[str]:
    """A server of S3 with an empty bucket; gives its address. It is moto's."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        with environment(f"http://{host}:{port}"):
            import boto3

            # Servers of one process have the same buckets: what others left there goes.
            reset = Request(f"http://{host}:{port}/moto-api/reset", method="POST")
            urlopen(reset).close()
            boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket=BUCKET)
            yield f"http://{host}:{port}"
    finally:
        server.stop()


_NOTHING: Final = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


class _Failing(BaseHTTPRequestHandler):
    """One object, `x.pcap`; each request first takes what is next in `failures`.

    A failure is a status, "cut" (half of the body, then the connection ends) or "" (none).
    """

    data: ClassVar[bytes] = b""
    tag: ClassVar[str] = '"1"'
    failures: ClassVar[list[int | str]] = []
    requests: ClassVar[list[str]] = []
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        if "list-type" in self.path:
            self._send(200, _NOTHING, {})
        else:
            self._answer(has_body=True)

    def _answer(self, has_body: bool) -> None:
        self.requests.append(f"{self.command} {self.headers.get('Range', '')}".strip())
        failure = self.failures.pop(0) if self.failures else ""
        if isinstance(failure, int):
            body = f"<Error><Code>Odd</Code><Secret>{SECRET}</Secret></Error>".encode()
            self._send(failure, body if has_body else b"", {})
            return
        if self.headers.get("If-Match") not in (None, self.tag):
            self._send(412, b"", {})
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = (int(found[1]), int(found[2]) + 1) if found else (0, len(self.data))
        part = self.data[start:end]
        headers = {
            "ETag": self.tag,
            "Last-Modified": "Fri, 27 Nov 2026 09:31:02 GMT",
            "Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(self.data)}",
        }
        if failure == "cut":
            self.close_connection = True
        size = len(part) // 2 if failure == "cut" else len(part)
        self._send(206 if found else 200, part[:size] if has_body else b"", headers, len(part))

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def failing_server(data: bytes) -> Iterator[type[_Failing]]:
    """A server of one object that fails as `failures` of what it gives says."""
    kind = type("Failing", (_Failing,), {"data": data, "failures": [], "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # ends as soon
    thread.start()
    try:
        with environment(f"http://127.0.0.1:{server.server_address[1]}", is_failing=True):
            yield kind
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Bucket(BaseHTTPRequestHandler):
    """A bucket in memory whose server fails as `fails` says of each request: a status, "cut" (the
    connection ends before it is done), "lost" (after it is done), "half" (half of what was sent is
    read, and nothing done), "late" (after two seconds, when it is done), or "" (none)."""

    files: ClassVar[dict[str, bytes]] = {}
    fails: ClassVar[Callable[[str, str], int | str]]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        address = urlsplit(self.path)
        name = unquote(address.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        failure = self.fails(self.command, name)
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size // 2 if failure == "half" else size)
        if failure in ("cut", "half"):
            self.close_connection = True
            return
        status, answer = (failure, b"") if isinstance(failure, int) else (0, b"")
        if not status:
            status, answer = self._done(name, parse_qs(address.query, True), body)
        if failure in ("lost", "late"):
            time.sleep(2 if failure == "late" else 0)
            self.close_connection = True
            return
        self.send_response(status)
        data = self.files.get(name, b"")
        self.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        self.send_header("Last-Modified", "Fri, 27 Nov 2026 09:31:02 GMT")
        if status == 206:
            start = int(self.headers["Range"][6:].partition("-")[0])
            end = start + len(answer) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _done(self, name: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes]:
        if self.command == "PUT":
            if self.headers.get("If-None-Match") == "*" and name in self.files:
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.files[name] = body
            return 200, b""
        if self.command == "POST" and "delete" in query:
            for key in re.findall(rb"<Key>([^<]*)</Key>", body):
                self.files.pop(key.decode(), None)
            return 200, b"<DeleteResult></DeleteResult>"
        if "list-type" in query:
            after = query.get("start-after", [""])[0]
            prefix = query["prefix"][0]
            found = sorted(name for name in self.files if name.startswith(prefix) and name > after)
            entries = "".join(
                f"<Contents><Key>{each}</Key><Size>{len(self.files[each])}</Size>"
                "<LastModified>2026-11-27T09:31:02.000Z</LastModified></Contents>"
                for each in found
            )
            return 200, f"<ListBucketResult>{entries}</ListBucketResult>".encode()
        data = self.files.get(name)
        if data is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return (200, data) if part is None else (206, data[int(part[1]) : int(part[2]) + 1])


@contextmanager
def failing_bucket(fails: Callable[[str, str], int | str]) -> Iterator[dict[str, bytes]]:
    """A bucket that fails as a function of method and name says; gives what it holds."""
    kind = type("Bucket", (_Bucket,), {"files": {}, "fails": staticmethod(fails)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # ends as soon
    thread.start()
    try:
        with environment(f"http://127.0.0.1:{server.server_address[1]}", is_failing=True):
            yield kind.files  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
