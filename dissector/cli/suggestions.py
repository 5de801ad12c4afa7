"""Suggestions for misspelt names, and for syntax of other tools."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from dissector.protocols import PROTOCOL_NAMES
from dissector.schemas import TABLES
from dissector.schemas.enums import ENDED, OTHER_PROTOCOLS, TLS_DECRYPTION

# Operators of other languages, and ours; longer ones before their prefixes.
SIGNS: Final = {
    "===": "==", "!==": "!=", "<>": "!=", "=~": "matches", "!~": "not … matches", "&&": "and",
    "||": "or", "&": "and", "|": "or", "!": "not", "~": "matches", "=": "==",
}  # fmt: skip
WORDS: Final = {
    "eq": "==", "ne": "!=", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "is": "==", "AND": "and",
    "OR": "or", "NOT": "not", "IN": "in", "like": "contains", "LIKE": "contains", "xor": "!=",
}  # fmt: skip
# Wireshark's fields, and the columns nearest to them, of which a table has some or none.
WIRESHARK: Final[dict[str, tuple[str, ...]]] = {
    "frame.number": ("first_packet", "last_packet"),
    "frame.time": ("ts", "first_ts_ns"),
    "frame.time_epoch": ("last_ts_ns", "first_ts_ns"),
    "frame.time_relative": ("ts", "first_ts_ns"),
    "frame.len": ("frame_bytes",),
    "frame.cap_len": ("frame_bytes",),
    "ip.addr": ("client_ip", "broker_ip"),
    "ip.src": ("client_ip", "broker_ip"),
    "ip.dst": ("client_ip", "broker_ip"),
    "ip.host": ("client_ip", "broker_ip"),
    "ipv6.addr": ("client_ip", "broker_ip"),
    "ipv6.src": ("client_ip", "broker_ip"),
    "ipv6.dst": ("client_ip", "broker_ip"),
    "tcp.port": ("client_port", "broker_port"),
    "tcp.srcport": ("client_port", "broker_port"),
    "tcp.dstport": ("client_port", "broker_port"),
    "tcp.stream": ("connection_id",),
    "tcp.seq": ("stream_offset", "first_seq_to_broker", "first_seq_to_client"),
    "tcp.len": ("frame_bytes", "payload_bytes_to_broker", "payload_bytes_to_client"),
    "tcp.analysis.retransmission": (
        "retransmitted", "retransmitted_packets_to_broker", "retransmitted_packets_to_client",
    ),
    "tcp.analysis.lost_segment": ("status", "gap_bytes_to_broker", "gap_bytes_to_client"),
    "tcp.flags.reset": ("ended",),
    "vlan.id": ("vlan_ids",),
    "tls.handshake.extensions_server_name": ("tls_sni",),
    "tls.handshake.ciphersuite": ("tls_cipher",),
    "tls.handshake.version": ("tls_version",),
    "tls.alert_message.desc": ("tls_alert_to_broker", "tls_alert_to_client"),
    "pulsar.type": ("command",),
    "pulsar.cmd": ("command",),
    "pulsar.error": ("error_code",),
    "pulsar.message": ("error_text",),
}  # fmt: skip
# Columns whose values are few and fixed; the meaning of each names all of them.
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "protocol": (*PROTOCOL_NAMES, "tls", "http", *OTHER_PROTOCOLS, "unknown", "none"),
    "direction": ("to_broker", "to_client", "unknown"),
    "status": ("complete", "cut_by_gap", "cut_by_snaplen", "cut_by_end", "malformed"),
    "checksum": ("ok", "mismatch", "absent", "not_evaluated"),
    "ack_type": ("Individual", "Cumulative"),
    "compression": ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"),
    "name_source": ("observed", "backfilled", "ledger_join", "unknown"),
    "role_source": ("syn", "command", "port", "first_seen"),
    "started": ("syn", "midstream"),
    "ended": tuple(ENDED),
    "tls_decryption": tuple(TLS_DECRYPTION),
    "closed_first_by": ("client", "broker"),
    "leg": ("client", "broker"),
}

# Options that a command lacks, and what it may have in their place, the first that it has; a text
# with a blank is advice for all commands without the others.
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "-o": ("--lake", "-w", "> FILE keeps what is printed"),
    "--output": ("--lake", "-w", "> FILE keeps what is printed"),
    "-w": ("-o", "--record", "--lake", "> FILE keeps what is printed"),
    "--write": ("-o", "--record", "--lake", "> FILE keeps what is printed"),
    "--lake": ("-o", "name the lake without an option, or ask it with dissector sql --lake LAKE"),
    "-r": ("files to read stand without an option",),
    "--read": ("files to read stand without an option",),
    "-n": ("-c",),
    "-f": ("--bpf", "-Y"),
    "--filter": ("-Y", "--bpf"),
    "--where": ("-Y",),
    "--json": ("-T jsonl", "--format jsonl"),
    "--csv": ("-T csv", "--format csv"),
    "-T": ("--format", "--json"),
    "--from": ("--since",),
    "--start": ("--since",),
    "--to": ("--until",),
    "--end": ("--until",),
    "--port": ("-d",),
    "--rule": ("--code", "--finding"),
}


def instead_of_option(name: str, known: Mapping[str, str]) -> str | None:
    """The suggestion for an option that a command lacks. known: help by name of those it has."""
    for option in OPTIONS.get(name, ()):
        if not option.startswith("-"):
            return option
        meaning = known.get(option.partition(" ")[0])
        if meaning is not None and (option != "--lake" or meaning.startswith("Write")):
            return f"write {option}"
    return None


def as_text(rest: str) -> str | None:
    """The suggestion for an address without quotes."""
    word = re.split(r"[\s)]", rest, maxsplit=1)[0]
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return None
    return f'an address is a text: write "{word}"'


def instead_of_sign(rest: str) -> str | None:
    """Our operator for the foreign one at the start of a text."""
    sign = next((sign for sign in SIGNS if rest.startswith(sign)), None)
    return f"write {SIGNS[sign]} instead of {sign}" if sign else None


def instead_of_word(*words: object) -> str | None:
    """Our operator for the first foreign word of several."""
    word = next((word for word in words if isinstance(word, str) and word in WORDS), None)
    return f"write {WORDS[word]} instead of {word}" if word else None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The known name most similar to a name, ignoring case."""
    by_lower = {text.lower(): text for text in known}
    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


def _snake(name: str) -> str:
    """The last part of a dotted name in our spelling: pulsar.producerName is producer_name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.rpartition(".")[2]).lower()


def instead_of_column(name: str, kinds: Mapping[str, str]) -> str:
    """The suggestion for a column that a table lacks."""
    meant = WIRESHARK.get(name.lower(), ())
    here = [column for column in meant if column in kinds]
    if here:
        return f"write {' or '.join(here)}"
    others = {column.name for column in TABLES["connections"].columns}
    elsewhere = next((column for column in (*meant, name) if column in others), None)
    if elsewhere:
        return (
            f"{elsewhere} is a column of connections: find the number of the connection with "
            "`dissector connections INPUT -Y …`, then write connection_id == NUMBER"
        )
    near = nearest(name, kinds) or nearest(_snake(name), kinds)
    return f"did you mean {near}?" if near else "see dissector fields"


def commands() -> tuple[str, ...]:
    """The names of all commands, of all protocols."""
    from dissector.protocols import PROTOCOLS

    return tuple(name for spec in PROTOCOLS for name in spec.commands)


def instead_of_value(column: str, value: str) -> str | None:
    """The suggestion for a value that a column never has; None if it may have it."""
    if column == "command":
        known = commands()
        if value in known or re.fullmatch(r"UNKNOWN_\d+", value):
            return None
    elif column in VALUES:
        known = VALUES[column]
        if value in known:
            return None
    else:
        return None
    near = nearest(value, known)
    if near:
        return f'no {column} is "{value}"; did you mean "{near}"?'
    if column == "command":
        return f'no command is "{value}"; all are in capitals, such as "SEND" and "MESSAGE"'
    return f'no {column} is "{value}"; it is one of {", ".join(known)}'


def quoted(column: str, word: str) -> str:
    """The sentence that a text needs quotes, with the probable value."""
    near = nearest(word, commands() if column == "command" else VALUES.get(column, ())) or word
    return f'text stands in quotes: {column} == "{near}"'
