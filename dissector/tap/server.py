"""The tap's HTTP server: /metrics for Prometheus, /healthz for whoever watches processes."""

import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from dissector.errors import OutputError, UsageError
from dissector.tap.health import Health
from dissector.tap.metrics import TapCollector, TapNumbers

Answer = Callable[[str, list[tuple[str, str]]], Any]

_OK: Final = "200 OK"
_UNAVAILABLE: Final = "503 Service Unavailable"
_NOT_FOUND: Final = "404 Not Found"
# An answer may wait, packets may not; but Prometheus gives up after ten seconds, and with 10 a
# scrape took five of them where the loop needed four fifths of the processor.
_NICE: Final = 4
LOOPBACK: Final = "127.0.0.1"


def _step_back() -> None:
    """Let the loop go first where both share a processor: rendering thousands of series takes half
    a second of it, in which packets waited. Linux gives each thread a priority of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, _NICE))


class _Quiet(WSGIRequestHandler):
    """Writes no line per request; a client that says nothing is not waited for."""

    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class _ServerOfSix(ThreadingWSGIServer):
    """The same for addresses of IPv6."""

    import socket as _socket

    address_family = _socket.AF_INET6


def address_of(text: str) -> tuple[str, int]:
    """Address and port of ADDR:PORT, PORT or [ADDR]:PORT; without an address: loopback.

    Raises:
        UsageError: it is none of them.
    """
    address, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(f"--metrics {text!r}: write ADDR:PORT, such as 127.0.0.1:9401, or PORT")
    return address.strip("[]") or LOOPBACK, int(port)


def text_of(address: str, port: int) -> str:
    """The reverse: address and port as users write them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Server:
    """Serves from `start` until `close`, in threads of its own; the address is taken at once.

    port: the one that it got (0 asks for any).

    Raises:
        OutputError: the address cannot be used.
    """

    def __init__(self, address: str, port: int, health: Health, numbers: TapNumbers) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(TapCollector(health, numbers))
        self._health = health
        self._metrics = make_wsgi_app(registry)
        kind: type[WSGIServer] = _ServerOfSix if ":" in address else ThreadingWSGIServer
        try:
            self._server = make_server(address, port, self._answer, kind, _Quiet)
        except OSError as error:
            is_taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            raise OutputError(
                f"--metrics {text_of(address, port)}: {error.strerror or error}; "
                + ("choose another port" if is_taken else "give an address of this host")
            ) from None
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(1.0,), name="tap-http", daemon=True
        )

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Answer) -> Iterable[bytes]:
        _step_back()
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, start)
            return found
        if path == "/healthz":
            report = self._health.report()
            status = _OK if report["status"] == "ok" else _UNAVAILABLE
            start(status, [("Content-Type", "application/json")])
            return [json.dumps(report).encode() + b"\n"]
        start(_NOT_FOUND if path != "/" else _OK, [("Content-Type", "text/plain")])
        return [b"dissector tap: /metrics and /healthz\n"]
