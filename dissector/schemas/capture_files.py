"""The table capture_files."""

from typing import Final

from dissector.schemas.column import Column, Table, flag, name, names, number, text
from dissector.schemas.shared import CAPTURE, ORIGIN_CAPTURE

TABLE: Final = Table(
    "capture_files",
    "one input file of a capture, in the order of the chain",
    (
        text("file_name", "Name of the file, without its folder."),
        number("file_index", "", "Place of the file in its capture, from 0."),
        name("tap_run", "Name of the live tap's run.", "the packets came from a file"),
        name("cluster", "Label of the Pulsar cluster, from --cluster.", "no label was given"),
        text("sha256", "SHA-256 of the uncompressed bytes.", "live"),
        number("file_bytes", "bytes", "Size of the uncompressed file.", "live"),
        name("format", "pcap, pcapng or live."),
        name("compressed", "Codec around the file: gzip, zstd, lz4 or xz.", "not compressed"),
        number("packets", "packets", "Records in the file, also those that are not decoded."),
        number(
            "first_packet",
            "",
            "Number of the file's first record, counted over the whole capture from 1.",
        ),
        names("link_types", "Link layers of the file's interfaces."),
        number("snaplen", "bytes", "Longest captured length that was asked for.", "not stated"),
        number("first_ts_ns", "ns since 1970", "Time of the first packet.", "no packets"),
        number("last_ts_ns", "ns since 1970", "Latest time of a packet.", "no packets"),
        flag("is_truncated", "Whether the file ends inside a record."),
        number(
            "dropped_by_interface",
            "packets",
            "Packets that the capturing side says it dropped.",
            "it does not say",
        ),
        number("packets_tcp", "packets", "Packets that belong to a TCP connection."),
        Column(
            "packets_ignored_by_reason",
            "map<string,bigint>",
            "packets",
            "Packets that were not used, by reason; with packets_tcp they add up to packets.",
            "never",
        ),
        number("clock_steps", "", "How often capture time went backwards."),
        name("dissector_version", "Version of the program that wrote the row."),
        number("schema_version", "", "Version of the lake's schema."),
        CAPTURE,
        ORIGIN_CAPTURE,
    ),
)
