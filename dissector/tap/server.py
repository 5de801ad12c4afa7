"""The tap's HTTP server: /metrics for Prometheus, /healthz for process supervisors.

One thread serves all clients, another renders. An answer is rendered once for all requests that
arrived before rendering began; clients above a limit are refused immediately, and each client has a
time limit, however slowly it sends or reads.

A foreign web page in a browser can reach this server under a name of its own that it makes resolve
to the server's address (DNS rebinding). So the Host header must name an address, `localhost`, this
host's name, or a name that the user allows.
"""

import asyncio
import errno
import ipaddress
import socket
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from dissector.codecs.printable import json_text
from dissector.errors import OutputError, UsageError
from dissector.limits import MAX_HTTP_CLIENTS
from dissector.tap.health import Health
from dissector.tap.metrics import TapCollector, TapNumbers
from dissector.tap.priority import step_back

# Answers may wait, packets may not. But Prometheus times out after ten seconds, and with 10 a
# scrape took five of them when the loop used four fifths of the processor.
_NICE: Final = 4
LOOPBACK: Final = "127.0.0.1"
_WAITING_CLIENTS: Final = 4096  # backlog of the listening socket
REQUEST_SECONDS: Final = 5.0  # for a whole request, from the connection on
ANSWER_SECONDS: Final = 10.0  # until a client has read a whole answer
_REQUEST_BYTES: Final = 16 << 10
_PIECE_BYTES: Final = 16 << 10  # of an answer in a client's send buffer


class _Request(NamedTuple):
    """The parts of a request that determine the answer; equal requests share it."""

    path: str
    query: str
    accept: str
    encoding: str


class _Answer(NamedTuple):
    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def _plain(status: str, text: str) -> _Answer:
    return _Answer(status, (("Content-Type", "text/plain; charset=utf-8"),), text.encode() + b"\n")


_BUSY: Final = _plain("503 Service Unavailable", "too many clients at once: ask again later")
_UNREAD: Final = _plain("400 Bad Request", "no HTTP request with a Host that can be read")
_METHOD: Final = _plain("405 Method Not Allowed", "GET and HEAD only")


def address_of(text: str) -> tuple[str, int]:
    """Parse ADDR:PORT, PORT or [ADDR]:PORT; the default address is loopback.

    Raises:
        UsageError: the text is none of these.
    """
    address, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(f"--metrics {text!r}: write ADDR:PORT, such as 127.0.0.1:9401, or PORT")
    return address.strip("[]") or LOOPBACK, int(port)


def text_of(address: str, port: int) -> str:
    """Address and port as text, the reverse of `address_of`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _bare(host: str) -> str:
    """A host without port, brackets and final dot, in lower case."""
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        name = host.strip().lower()
    return name.strip("[]").removesuffix(".")


class Hosts:
    """The host names under which this server answers.

    Args:
        address: the listening address; names: further names that the user allows.
    """

    def __init__(self, address: str, names: Collection[str] = ()) -> None:
        own = socket.gethostname()
        known = ("localhost", address, own, own.partition(".")[0], *names)
        self._names = frozenset(_bare(name) for name in known)

    def allow(self, host: str) -> bool:
        """Whether a Host header names this server. Addresses are safe: they are not resolved."""
        name = _bare(host)
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True


class Server:
    """Serves from `start` until `close`, in threads; the constructor binds the address.

    port: the bound port (0 requests any).

    Args:
        names: allowed host names, besides the address and this host's name.

    Raises:
        OutputError: the address cannot be bound.
    """

    def __init__(
        self,
        address: str,
        port: int,
        health: Health,
        numbers: TapNumbers,
        names: Collection[str] = (),
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(TapCollector(health, numbers))
        self._health = health
        self._metrics = make_wsgi_app(registry)
        self._hosts = Hosts(address, names)
        try:
            self._socket = socket.create_server(
                (address, port),
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                backlog=_WAITING_CLIENTS,
            )
        except OSError as error:
            is_taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            raise OutputError(
                f"--metrics {text_of(address, port)}: {error.strerror or error}; "
                + ("choose another port" if is_taken else "give an address of this host")
            ) from None
        self.port = int(self._socket.getsockname()[1])
        self._most_clients = min(MAX_HTTP_CLIENTS, _open_files() // 2)
        self._clients = 0
        self._waiting: dict[_Request, asyncio.Future[_Answer]] = {}
        self._renderer = ThreadPoolExecutor(1, "tap-render", step_back, (_NICE,))
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tap-http", daemon=True)

    def start(self) -> None:
        """Start the threads and accept clients."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and end the threads."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._socket.close()
        self._loop.close()
        self._renderer.shutdown()

    # -- in the thread

    def _run(self) -> None:
        step_back(_NICE)
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve_all())

    async def _serve_all(self) -> None:
        server = await asyncio.start_server(
            self._serve, sock=self._socket, limit=_REQUEST_BYTES, backlog=_WAITING_CLIENTS
        )
        await self._closing.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client connection."""
        self._clients += 1
        try:
            is_head, answer = False, _BUSY
            if self._clients <= self._most_clients:
                async with asyncio.timeout(REQUEST_SECONDS):
                    is_head, answer = await self._answer(reader)
            async with asyncio.timeout(ANSWER_SECONDS):
                await _send(writer, answer, is_head)
        except (OSError, asyncio.IncompleteReadError):  # gone, or too slow: TimeoutError is one
            pass
        finally:
            self._clients -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[bool, _Answer]:
        """Read a request; whether it is HEAD, and the answer."""
        try:
            text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = text.split("\r\n")
            method, target, version = first.split(" ")
        except (ValueError, asyncio.LimitOverrunError):
            return False, _UNREAD
        headers = [line.partition(":")[::2] for line in lines if line]
        fields = {name.strip().lower(): value.strip() for name, value in headers}
        hosts = [value for name, value in headers if name.strip().lower() == "host"]
        # HTTP/1.0 has no Host header; browsers always send one.
        if not version.startswith("HTTP/1.") or (len(hosts) != 1 and version != "HTTP/1.0"):
            return False, _UNREAD
        if not all(self._hosts.allow(host) for host in hosts):
            return False, _misnamed(hosts[0])
        if method not in ("GET", "HEAD"):
            return False, _METHOD
        path, _, query = target.partition("?")
        accept, encoding = fields.get("accept", ""), fields.get("accept-encoding", "")
        return method == "HEAD", await self._rendered(_Request(path, query, accept, encoding))

    async def _rendered(self, request: _Request) -> _Answer:
        """The answer, rendered after the request arrived and shared with equal requests."""
        waiting = self._waiting.get(request)
        if waiting is None:
            waiting = self._loop.run_in_executor(self._renderer, self._render, request)
            self._waiting[request] = waiting
        return await asyncio.shield(waiting)

    # -- in the thread that renders

    def _render(self, request: _Request) -> _Answer:
        # Requests from now on need a new rendering.
        self._loop.call_soon_threadsafe(self._waiting.pop, request, None)
        if request.path == "/metrics":
            return self._render_metrics(request)
        if request.path == "/healthz":
            report = self._health.report()
            status = "200 OK" if report["status"] == "ok" else "503 Service Unavailable"
            text = json_text(report).encode() + b"\n"
            return _Answer(status, (("Content-Type", "application/json"),), text)
        status = "200 OK" if request.path == "/" else "404 Not Found"
        return _plain(status, "dissector tap: /metrics and /healthz")

    def _render_metrics(self, request: _Request) -> _Answer:
        responses: list[tuple[str, list[tuple[str, str]]]] = []
        environment = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "HTTP_ACCEPT": request.accept,
            "HTTP_ACCEPT_ENCODING": request.encoding,
        }

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            responses.append((status, headers))

        packet_batches: Iterable[bytes] = self._metrics(environment, start)
        body = b"".join(packet_batches)
        status, headers = responses[0]
        return _Answer(status, tuple(headers), body)


def _misnamed(host: str) -> _Answer:
    shown = host[:100].encode("ascii", "backslashreplace").decode()
    return _plain(
        "403 Forbidden",
        f"asked for as {shown!r}, which is no name of this tap: use its address, or start it with "
        f"--metrics-host {_bare(shown)}",
    )


def _open_files() -> int:
    """The limit of open files of this process."""
    with suppress(ImportError):
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 256


async def _send(writer: asyncio.StreamWriter, answer: _Answer, is_head: bool) -> None:
    """Send an answer in pieces, so that a slow client holds little memory."""
    headers = [
        *((name, value) for name, value in answer.headers if name.lower() != "content-length"),
        ("Content-Length", str(len(answer.body))),
        ("Connection", "close"),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    writer.transport.set_write_buffer_limits(_PIECE_BYTES)
    writer.write(f"HTTP/1.1 {answer.status}\r\n{head}\r\n".encode("latin-1"))
    for at in range(0, 0 if is_head else len(answer.body), _PIECE_BYTES):
        writer.write(answer.body[at : at + _PIECE_BYTES])
        await writer.drain()
    writer.write_eof()
    # Wait until the client has received everything: closing discards unsent data.
    writer.transport.set_write_buffer_limits(0)
    await writer.drain()
