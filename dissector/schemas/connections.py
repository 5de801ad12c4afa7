"""The table connections."""

from collections.abc import Iterator
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from dissector.schemas.column import NEVER, Column, Table, flag, integers, name, names, number, text
from dissector.schemas.enums import BOTH_DIRECTIONS, ENDED, OTHER_PROTOCOLS, TLS_DECRYPTION, listed
from dissector.schemas.shared import CAPTURE, CONNECTION_ID, ORIGIN_CAPTURE

if TYPE_CHECKING:
    from dissector.blocks import Int64Array


class PerDirection(NamedTuple):
    """Two columns, one of each direction: unit, meaning with {direction} in it, when it is null."""

    unit: str
    meaning: str
    null: str = NEVER


class TcpColumns:
    """Columns of each direction that TCP fills, in their order.

    Each side of a connection has them as fields of the same names (`Directions` of
    `stream/records.py`), for the rules in `stream` to count in: 0 at first, sequence numbers null.
    """

    packets: Annotated["Int64Array", PerDirection("packets", "Packets {direction}.")]
    payload_bytes: Annotated[
        "Int64Array",
        PerDirection("bytes", "TCP payload {direction}, everything sent again included."),
    ]
    stream_bytes: Annotated[
        "Int64Array", PerDirection("bytes", "Bytes of the stream {direction}, holes included.")
    ]
    retransmitted_packets: Annotated[
        "Int64Array", PerDirection("packets", "Packets {direction} whose bytes were there already.")
    ]
    duplicate_packets: Annotated[
        "Int64Array", PerDirection("packets", "Second copies {direction} that the capture made.")
    ]
    out_of_order_packets: Annotated[
        "Int64Array", PerDirection("packets", "Packets {direction} that came after later bytes.")
    ]
    keepalive_packets: Annotated[
        "Int64Array", PerDirection("packets", "TCP keep-alives {direction}.")
    ]
    gaps: Annotated["Int64Array", PerDirection("", "Holes in the stream {direction}.")]
    gap_bytes: Annotated[
        "Int64Array", PerDirection("bytes", "Bytes {direction} that were never captured.")
    ]
    snaplen_cut_bytes: Annotated[
        "Int64Array", PerDirection("bytes", "Bytes {direction} that the snap length cut off.")
    ]
    conflict_bytes: Annotated[
        "Int64Array",
        PerDirection("bytes", "Bytes {direction} that came twice with different content."),
    ]
    dropped_bytes: Annotated[
        "Int64Array",
        PerDirection(
            "bytes",
            "TCP payload {direction} that was captured and not used: far outside its stream, or"
            " after its end.",
        ),
    ]
    zero_window_ns: Annotated[
        "Int64Array",
        PerDirection("ns", "How long the receiver of what goes {direction} had no room."),
    ]
    isn: Annotated[
        "Int64Array",
        PerDirection("", "Initial sequence number {direction}.", "the SYN is not in the capture"),
    ]
    first_seq: Annotated[
        "Int64Array",
        PerDirection("", "First TCP sequence number of payload {direction}.", "no payload"),
    ]
    last_seq: Annotated[
        "Int64Array",
        PerDirection(
            "", "TCP sequence number after the last payload byte {direction}.", "no payload"
        ),
    ]


TCP_COLUMNS: Final[dict[str, PerDirection]] = {
    name: annotation.__metadata__[0] for name, annotation in get_annotations(TcpColumns).items()
}
# Columns that frames fill, by the name of the column of TCP behind which they stand.
_OF_FRAMES: Final = {
    "stream_bytes": {
        "decoded_bytes": PerDirection("bytes", "Stream bytes {direction} in complete frames."),
        "frames": PerDirection("frames", "Frames {direction}."),
    },
    "conflict_bytes": {
        "unparsed_bytes": PerDirection("bytes", "Bytes {direction} that are in no complete frame."),
    },
}
_DIRECTIONS: Final = tuple(zip(BOTH_DIRECTIONS, ("to the broker", "to the client"), strict=True))

_NO_SERVER_HELLO: Final = "not TLS or not in the capture"
_NO_CERTIFICATE: Final = "no certificate was seen"


def _both_directions() -> Iterator[Column]:
    for counter, column in TCP_COLUMNS.items():
        for stem, each in {counter: column, **_OF_FRAMES.get(counter, {})}.items():
            for suffix, direction in _DIRECTIONS:
                meaning = each.meaning.format(direction=direction)
                yield number(f"{stem}_{suffix}", each.unit, meaning, each.null)


TABLE: Final = Table(
    "connections",
    "one TCP connection",
    (
        CONNECTION_ID,
        text(
            "connection_key",
            "Tunnel, addresses and ports, the lower endpoint first: equal in every capture.",
        ),
        text("community_id", "Community ID 1 of the connection, as other tools compute it."),
        name(
            "protocol",
            f"pulsar, cursus, tls, http, {', '.join(OTHER_PROTOCOLS)}, unknown, or none if no "
            "payload was seen. Inside TLS that was decrypted: what was spoken there.",
        ),
        name("client_ip", "Address of the client (role unknown: of the first speaker)."),
        number("client_port", "", "Port of the client."),
        name("broker_ip", "Address of the broker."),
        number("broker_port", "", "Port of the broker."),
        name("role_source", "What told client from broker: syn, command, port or first_seen."),
        integers("vlan_ids", "VLAN tags around the packets, outermost first.", "no tags"),
        name(
            "tunnel_id",
            "Tunnels around the packets, outermost first, as vxlan:5/gre:7: kind and id, or both"
            " addresses where it has none.",
            "no tunnel",
        ),
        name("started", "syn, or midstream if its opening is not in the capture."),
        name("ended", f"{listed(ENDED)}."),
        name(
            "closed_first_by",
            "Who closed first: client or broker.",
            "nobody did, or the other side may have closed before the capture, or was not captured",
        ),
        number("first_ts_ns", "ns since 1970", "Time of the first packet."),
        number("last_ts_ns", "ns since 1970", "Latest time of a packet."),
        number(
            "handshake_rtt_ns",
            "ns",
            "From the SYN to the acknowledgement of the SYN-ACK, a packet of its own.",
            "the handshake is not in the capture, or it was acknowledged by the first data",
        ),
        name("history", "What happened, in Zeek's letters; upper case is from the opener."),
        name(
            "leg",
            "Side of a proxy, a balancer or an address translation, if both sides were captured: "
            "client or broker. Behind a translation the connection seen second is the broker's.",
            "no such pair",
        ),
        number("twin_connection_id", "", "The connection on the other side.", "none"),
        *_both_directions(),
        name("client_version", "Version that the client stated in CONNECT.", "not seen"),
        name("server_version", "Version that the broker stated in CONNECTED.", "not seen"),
        number("protocol_version", "", "Protocol version that both use.", "not seen"),
        names("feature_flags", "Optional features that the client announced.", "not seen"),
        number(
            "max_message_bytes", "bytes", "Largest message that the broker takes.", "not announced"
        ),
        name("proxied_client_ip", "Address of the client behind a proxy.", "not stated"),
        name("tls_sni", "Server name that the client asked for in TLS.", "not TLS or not sent"),
        name("tls_version", "Version of TLS that the server chose, as TLS 1.3.", _NO_SERVER_HELLO),
        name("tls_cipher", "Cipher suite that the server chose, by IANA's name.", _NO_SERVER_HELLO),
        name(
            "tls_alpn",
            "Protocol that the server chose by ALPN; encrypted in TLS 1.3.",
            "not TLS, none, or not decrypted",
        ),
        flag("tls_resumed", "Whether the TLS session was resumed.", _NO_SERVER_HELLO),
        number(
            "tls_handshake_ns",
            "ns",
            "From the ClientHello to the last Finished of the handshake.",
            "not TLS or not complete in the capture",
        ),
        *(
            name(
                f"tls_alert_{suffix}",
                f"Last TLS alert {direction} other than close_notify; encrypted after the hellos.",
                "none was seen",
            )
            for suffix, direction in _DIRECTIONS
        ),
        text(
            "tls_certificate_subject",
            "Subject of the server's certificate; encrypted in TLS 1.3.",
            _NO_CERTIFICATE,
        ),
        number(
            "tls_certificate_not_before_ns",
            "ns since 1970",
            "From when on the server's certificate is valid.",
            _NO_CERTIFICATE,
        ),
        number(
            "tls_certificate_not_after_ns",
            "ns since 1970",
            "Until when the server's certificate is valid.",
            _NO_CERTIFICATE,
        ),
        name("tls_decryption", f"{listed(TLS_DECRYPTION)}.", "not TLS"),
        *(
            number(
                f"tls_overhead_bytes_{suffix}",
                "bytes",
                f"Bytes of the stream {direction} that TLS put around the plain ones.",
                "not decrypted",
            )
            for suffix, direction in _DIRECTIONS
        ),
        number(
            "ended_packet",
            "",
            "Packet with which the connection was over.",
            "not over at the capture's end",
        ),
        *(
            number(
                f"fin_packet_{suffix}",
                "",
                f"Packet with which the stream {direction} was complete.",
                "no end of it was seen",
            )
            for suffix, direction in _DIRECTIONS
        ),
        CAPTURE,
        ORIGIN_CAPTURE,
    ),
)
