"""Connections that fail, of clients and brokers, and harmless twins."""

from tests.dissector.findings.tape import PING, Tape
from tests.hard.framing_cases import PROXY_V1, PROXY_V2
from tests.wire import others

# -- what the client speaks is not what the port does (D18)

HELLO = (
    bytes.fromhex("16030100360100003203 03".replace(" ", ""))
    + bytes(range(32))
    + bytes.fromhex("000002c02f01000007000500050100000000"[:38])
)
ALERT = bytes.fromhex("15030300020228")  # fatal, handshake_failure


def tls_on_plain_port() -> bytes:
    """TLS and HTTP to a port where another client speaks Pulsar; the broker resets."""
    tape = Tape()
    good = tape.pulsar(0.0, 40000)
    good.produce(0.1, 1)
    for time, (port, first) in enumerate(
        [
            (40001, HELLO),
            (40002, HELLO),
            (40003, b"GET /admin/v2/clusters HTTP/1.1\r\nHost: b\r\n\r\n"),
        ]
    ):
        link = tape.link(1.0 + time, port, client="10.0.0.9")
        link.send(1.01 + time, 0, first)
        link.reset(1.02 + time, 1)
    return tape.capture()


def others_on_plain_port() -> bytes:
    """Clients of other protocols, and of a balancer's PROXY header; the broker closes."""
    tape = Tape()
    good = tape.pulsar(0.0, 40000)
    good.produce(0.1, 1)
    for turn, talk in enumerate((others.kafka(), others.mqtt(), others.amqp())):
        link = tape.link(1.0 + turn, 40001 + turn, client="10.0.0.9")
        link.send(1.01 + turn, 0, talk.said[0][1])
        link.fin(1.02 + turn, 1)
    for turn, header in enumerate((PROXY_V1, PROXY_V2)):
        link = tape.link(5.0 + turn, 40011 + turn, client="10.0.0.9")
        link.send(5.01 + turn, 0, header)
        link.tell(5.011 + turn, "CONNECT", client_version="Made-1", protocol_version=21)
        link.fin(5.02 + turn, 1)
    return tape.capture()


def proxy_header_taken() -> bytes:
    """The harmless twin: a PROXY header that the broker expects."""
    tape = Tape()
    link = tape.link(0.0, 40000)
    link.send(0.01, 0, PROXY_V1)
    link.tell(0.011, "CONNECT", client_version="Made-1", protocol_version=21)
    link.hear(0.012, "CONNECTED", server_version="Broker-1", protocol_version=21)
    link.fin(0.02, 1)
    return tape.capture()


def plain_on_tls_port() -> bytes:
    """CONNECT in clear to a port of TLS, and to one that answers with an alert."""
    tape = Tape()
    good = tape.link(0.0, 40000, broker_port=6651)
    good.send(0.01, 0, HELLO)
    good.send(0.02, 1, bytes.fromhex("160303007a0200007603 03".replace(" ", "")) + bytes(120))
    for port, broker_port, answer in ((40001, 6651, b""), (40002, 6652, ALERT)):
        link = tape.link(1.0, port, client="10.0.0.9", broker_port=broker_port)
        link.tell(1.01, "CONNECT", client_version="Made-1", protocol_version=21)
        if answer:
            link.send(1.015, 1, answer)
        link.fin(1.02, 1)
    return tape.capture()


def tls_refused() -> bytes:
    """A broker that answers the hello of TLS with an alert."""
    tape = Tape()
    for port in (40001, 40002):
        link = tape.link(1.0, port, broker_port=6651)
        link.send(1.01, 0, HELLO)
        link.send(1.02, 1, ALERT)
        link.fin(1.03, 1)
    return tape.capture()


def tls_and_plain() -> bytes:
    """The harmless twin: each protocol on its port, both answered, the broker closes first."""
    tape = Tape()
    plain = tape.pulsar(0.0, 40000)
    plain.fin(2.0, 1)
    secret = tape.link(0.0, 40001, broker_port=6651)
    secret.send(0.01, 0, HELLO)
    secret.send(0.02, 1, bytes.fromhex("160303007a0200007603 03".replace(" ", "")) + bytes(120))
    secret.fin(2.0, 1)
    return tape.capture()


def tls_on_default_port() -> bytes:
    """TLS to port 6650, and nothing tells what that port speaks."""
    tape = Tape()
    link = tape.link(0.0, 40001)
    link.send(0.01, 0, HELLO)
    link.fin(0.02, 1)
    return tape.capture()


# -- connections that are made again and again (D19)


def _again(pauses: list[float]) -> bytes:
    """A producer's connections: each gets a receipt late, and its client closes."""
    tape = Tape()
    at = 1.0
    for turn, pause in enumerate([0.0, *pauses]):
        at += pause
        link = tape.pulsar(at, 40000 + turn)
        link.produce(at + 0.01, 1)
        link.publish(at + 0.02, 1, 0, turn, answer_s=0.01, publish_time=7)
        link.fin(at + 0.05, 0)
    return tape.capture()


def looping_producer() -> bytes:
    """Twelve connections, half a second apart, in a capture that goes on for ten minutes."""
    return _again([0.5] * 11 + [600.0])


def backing_off() -> bytes:
    """Eight connections, each after twice the pause."""
    return _again([0.2 * 2**turn for turn in range(7)])


def short_runs() -> bytes:
    """Eight runs of a program, half a second apart: each closes its producer, then leaves."""
    tape = Tape()
    for turn in range(8):
        at = 1.0 + turn / 2
        link = tape.pulsar(at, 40000 + turn)
        link.produce(at + 0.01, 1)
        link.publish(at + 0.02, 1, 0, turn, answer_s=0.01, publish_time=turn)
        link.tell(at + 0.04, "CLOSE_PRODUCER", producer_id=1, request_id=2)
        link.hear(at + 0.042, "SUCCESS", request_id=2)
        link.fin(at + 0.05, 0)
    return tape.capture()


def connected_seldom() -> bytes:
    """The harmless twin: twelve connections, a minute apart."""
    return _again([60.0] * 11)


# -- PINGs without a PONG (D20)


def stopped_broker() -> bytes:
    """A broker answers two PINGs, then is stopped; its client gives up."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    link.ping(30.0)
    link.ping(60.0, answer_s=0.004)
    link.ping(90.0, answer_s=None)
    link.fin(120.0, 0)
    return tape.capture()


def stopped_client() -> bytes:
    """A client is stopped after its first PONG; it goes on half a minute behind the close."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.ping(30.0, 1)
    link.tell(31.0, "FLOW", consumer_id=1, messagePermits=1)
    link.hear(60.0, "PING")
    link.half_close(90.0, 1)
    link.tell(120.0, "PONG")
    link.reset(120.001, 1)
    return tape.capture()


def paused_client() -> bytes:
    """The harmless twin: its PONG is as late, and the connection goes on."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.ping(30.0, 1)
    link.hear(60.0, "PING")
    link.tell(88.0, "PONG")
    link.fin(91.0, 0)
    return tape.capture()


def client_without_pongs() -> bytes:
    """A client that sends PINGs and never answers; the broker closes."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.ping(30.0, 1, answer_s=None)
    link.ping(35.0)
    link.fin(60.0, 1)
    return tape.capture()


def vanished_client() -> bytes:
    """A client's host is gone: the broker's PING is sent again, and nothing comes."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.send(30.0, 1, PING, again=3)
    link.fin(60.0, 1)
    return tape.capture()


def closed_in_a_ping() -> bytes:
    """The harmless twin: an application closes just when a PING is under way."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.ping(30.0)
    link.ping(60.0, answer_s=None)
    link.fin(60.01, 0)
    other = tape.pulsar(0.0, 40001)
    other.ping(30.0, answer_s=20.0)
    other.fin(90.0, 0)
    return tape.capture()


# -- credentials (D26)

_TOKEN = {"auth_method_name": "token", "auth_data": b"secret"}


def expired_connections() -> bytes:
    """A client without refresh: the broker closes each of three connections after two minutes."""
    tape = Tape()
    for turn in range(3):
        at = 150.0 * turn
        link = tape.pulsar(at, 40000 + turn, **_TOKEN)
        link.produce(at + 0.1, 1)
        link.fin(at + 120.0 + 5 * turn, 1)
    return tape.capture()


def endless_challenges() -> bytes:
    """Four challenges in 30 s, all answered; another client's credentials are refused."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000, feature_flags={"supports_auth_refresh": True}, **_TOKEN)
    for turn in range(4):
        link.hear(10.0 + 10.0 * turn, "AUTH_CHALLENGE", protocol_version=21)
        link.tell(10.01 + 10.0 * turn, "AUTH_RESPONSE", protocol_version=21)
    link.ping(70.0)
    other = tape.link(1.0, 40001, client="10.0.0.9")
    other.tell(1.01, "CONNECT", client_version="Made-1", protocol_version=21, **_TOKEN)
    other.hear(
        1.02, "ERROR", request_id=-1, error="AuthenticationError", message="JWT expired at noon"
    )
    other.fin(1.03, 1)
    return tape.capture()


def brokers_restarted() -> bytes:
    """The harmless twin: two connections of equal age, closed together; two challenges a minute."""
    tape = Tape()
    for turn in range(2):
        tape.pulsar(0.0, 40000 + turn, **_TOKEN).fin(600.0, 1)
    link = tape.pulsar(0.0, 40009, feature_flags={"supports_auth_refresh": True}, **_TOKEN)
    for turn in range(2):
        link.hear(60.0 + 60.0 * turn, "AUTH_CHALLENGE", protocol_version=21)
        link.tell(60.01 + 60.0 * turn, "AUTH_RESPONSE", protocol_version=21)
    return tape.capture()


def unanswered_challenge() -> bytes:
    """A client goes on working and does not answer a challenge; the broker closes."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000, **_TOKEN)
    link.produce(0.1, 1)
    link.hear(60.0, "AUTH_CHALLENGE", protocol_version=21)
    link.publish(61.0, 1, 0, 0)
    link.fin(120.0, 1)
    return tape.capture()


# -- CONNECT without an answer (D28)


def _connects(wait_s: float | None, count: int) -> bytes:
    """So many connections whose CONNECT is not answered; the client closes after a while."""
    tape = Tape()
    tape.pulsar(0.0, 40000).ping(80.0)
    for turn in range(count):
        at = 1.0 + 15.0 * turn
        link = tape.link(at, 40001 + turn, client="10.0.0.9")
        link.tell(at + 0.01, "CONNECT", client_version="Made-1", protocol_version=21)
        link.acknowledge(at + 0.011, 1)
        if wait_s is not None:
            link.fin(at + 0.01 + wait_s, 0)
    return tape.capture()


def connects_that_time_out() -> bytes:
    """Four connections, each given up after ten seconds."""
    return _connects(10.0, 4)


def connects_that_wait() -> bytes:
    """Two connections that wait until the capture ends."""
    return _connects(None, 2)


def connects_given_up() -> bytes:
    """Two connections, each given up after 6 s."""
    return _connects(6.0, 2)


def connects_closed_at_once() -> bytes:
    """The harmless twin: a broker that stops; clients close within a second and go elsewhere."""
    return _connects(1.0, 4)
