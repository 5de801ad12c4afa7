"""The tap's server: who may ask, how long a client may take, and many who ask at once."""

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dissector.tap import server as serving
from dissector.tap.health import Health
from dissector.tap.metrics import TapNumbers
from dissector.tap.server import Hosts, Server


class Counting(Health):
    """Counts how often its report is made; it takes a while, as metrics of a large tap do."""

    reports = 0

    def report(self) -> dict:
        self.reports += 1
        time.sleep(0.05)
        return super().report()


@pytest.fixture
def health() -> Counting:
    found = Counting(is_live=True)
    found.packets_seen = 1
    return found


@pytest.fixture
def server(health: Counting) -> Iterator[Server]:
    found = Server("127.0.0.1", 0, health, TapNumbers(), ["tap.example"])
    found.start()
    yield found
    found.close()


def asked(server: Server, request: bytes, seconds: float = 10) -> bytes:
    """All that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as link:
        link.sendall(request)
        return b"".join(iter(lambda: link.recv(1 << 16), b""))


def status(server: Server, host: str, path: str = "/metrics") -> int:
    answer = asked(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return int(answer.split()[1])


def wait_for_clients(server: Server, count: int) -> None:
    for _ in range(250):
        if server._clients == count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{server._clients} clients, not {count}")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/", "/nothing"])
def test_a_name_that_leads_here_from_elsewhere_is_refused(server: Server, path: str) -> None:
    for host in ("evil.example", "evil.example:9401", "127.0.0.1.evil.example", "localhost.evil"):
        assert status(server, host, path) == 403
    answer = asked(server, f"GET {path} HTTP/1.1\r\nHost: evil.example:1\r\n\r\n".encode())
    assert b"--metrics-host evil.example\n" in answer and b"dissector_tap_" not in answer


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9401", "localhost", "LOCALHOST:80", "10.1.2.3:9401", "[::1]:9401",
     "[fe80::1%eth0]", "tap.example", "Tap.Example.:9401", socket.gethostname()],
)  # fmt: skip
def test_names_of_this_server_are_answered(server: Server, host: str) -> None:
    assert status(server, host) == 200


def test_an_address_that_is_a_name_is_a_name_of_the_server() -> None:
    assert Hosts("tap.internal").allow("tap.internal:80")
    assert not Hosts("0.0.0.0").allow("tap.internal:80")
    assert not Hosts("::1").allow("") and not Hosts("::1").allow("[::1]x")


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),  # as old checks ask
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: evil\r\n\r\n", 403),
        (b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        (b"\x16\x03\x01 \xff\xfe\r\n\r\n", 400),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
    ids=["old", "no host", "two hosts", "two hosts, old", "method", "no text", "long"],
)
def test_odd_requests_are_answered_in_one_line(
    server: Server, request_text: bytes, code: int
) -> None:
    answer = asked(server, request_text)
    assert int(answer.split()[1]) == code


def test_a_head_has_no_body(server: Server) -> None:
    link = http.client.HTTPConnection("localhost", server.port, timeout=10)
    link.request("HEAD", "/metrics")
    answer = link.getresponse()
    assert answer.status == 200 and int(answer.headers["Content-Length"]) > 0
    assert answer.read() == b""
    link.close()


def test_a_client_that_sends_slowly_is_ended_by_total_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then keeps no connection open."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.6)
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        with pytest.raises(OSError):
            for _ in range(200):
                link.sendall(b"G")
                time.sleep(0.05)
        assert 0.3 < time.monotonic() - start < 5


def test_a_client_that_reads_slowly_is_ended_by_total_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.6)
    body = b"x" * (64 << 20)  # more than the kernel holds between the two
    monkeypatch.setattr(server, "_render_metrics", lambda _: serving._Answer("200 OK", (), body))
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect(("127.0.0.1", server.port))
    link.settimeout(10)
    link.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with link:
        assert link.recv(1024)
        wait_for_clients(server, 1)
        start = time.monotonic()
        while server._clients and time.monotonic() - start < 8:
            link.recv(64)
            time.sleep(0.01)
        assert time.monotonic() - start < 5


def test_a_thousand_at_once_are_answered_and_rendered_together(
    server: Server, health: Counting
) -> None:
    """Threads stay few, work is done once for all who wait for it, and the next is answered."""
    before = threading.active_count()
    barrier = threading.Barrier(50)

    def ask(_: int) -> list[int]:
        barrier.wait()
        links = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(20)]
        codes = []
        for link in links:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for link in links:
            with link:
                codes.append(int(b"".join(iter(lambda: link.recv(4096), b"")).split()[1]))  # noqa: B023
        return codes

    start = time.monotonic()
    with ThreadPoolExecutor(50) as pool:
        codes = Counter(code for found in pool.map(ask, range(50)) for code in found)
        assert threading.active_count() <= before + 50 + 2
    assert codes == {200: 1000} and time.monotonic() - start < 20
    assert health.reports < 200
    assert status(server, "localhost", "/healthz") == 200


def test_clients_beyond_the_number_are_refused_at_once(server: Server) -> None:
    server._most_clients = 2
    silent = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(2)]
    try:
        wait_for_clients(server, 2)
        start = time.monotonic()
        assert status(server, "localhost") == 503 and time.monotonic() - start < 2
    finally:
        for link in silent:
            link.close()
    wait_for_clients(server, 0)
    assert status(server, "localhost") == 200


def test_closing_does_not_wait_for_clients(health: Counting) -> None:
    server = Server("127.0.0.1", 0, health, TapNumbers())
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), 10) as link:
        link.sendall(b"GET ")
        start = time.monotonic()
        server.close()
        assert time.monotonic() - start < 2
