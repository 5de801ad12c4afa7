"""Every notice: its stable code, its severity and the sentence that explains it.

The number of a notice is its index in NOTICES; kernels write the number, tables show the code. In
a sentence {value} and {value2} are replaced by the two integers that a notice row carries (some are
written as durations or words, see notice_log), {name} by its name of the wire format.
Append new notices at the end of their block; numbers are internal and may change, codes may not.
"""

from typing import Final, NamedTuple


class NoticeKind(NamedTuple):
    """One kind of notice.

    code: stable snake_case name.
    severity: info, warning or error.
    sentence: what it means.
    """

    code: str
    severity: str
    sentence: str


NOTICES: Final = (
    # -- capture
    NoticeKind("truncated_tail", "warning", "file {value2} ends inside a record at byte {value}"),
    NoticeKind("corrupt_record", "error", "file {value2} is damaged from byte {value} on"),
    NoticeKind("clock_step", "info", "capture time goes back by up to {value} (packets: {value2})"),
    NoticeKind(
        "clock_unsteady",
        "error",
        "capture time goes back by up to {value} (packets: {value2}): durations are not true",
    ),
    NoticeKind("skipped_section", "warning", "file {value2}: a part from byte {value} was skipped"),
    NoticeKind("interface_drops", "warning", "the interface dropped {value} packets"),
    NoticeKind(
        "damaged_compression",
        "error",
        "the compressed data of file {value} is cut or corrupt; all before was read",
    ),
    NoticeKind(
        "captured_longer", "info", "{value} packets claim more captured bytes than the wire had"
    ),
    NoticeKind("unusable_time", "warning", "{value} packets carry no time between 1823 and 2116"),
    NoticeKind("long_fraction", "info", "{value} packets carry a fraction of a second over 1 s"),
    NoticeKind("packets_without_timestamp", "warning", "{value} packets have no timestamp"),
    NoticeKind(
        "filter_matched_nothing",
        "warning",
        "the capture filter of file {value2} let nothing pass; port filters miss tagged packets",
    ),
    NoticeKind("notices_limit", "warning", "{value} further notices are not listed"),
    NoticeKind(
        "packetless_limit",
        "error",
        "file {value2}: no packet in so many bytes from byte {value} on; the rest was not read",
    ),
    # -- packets and streams
    NoticeKind("unknown_link_type", "error", "link type {value} is not read: {value2} packets"),
    NoticeKind("unknown_ethertype", "info", "ethertype {value} is not read: {value2} packets"),
    NoticeKind("interface_limit", "warning", "{value} packets: too many interfaces before theirs"),
    NoticeKind("nesting_limit", "warning", "{value} packets: too many headers inside each other"),
    NoticeKind("tunnels_limit", "warning", "more than {value} tunnels: the others have no name"),
    NoticeKind("fragments_limit", "warning", "{value} fragmented packets given up: too many wait"),
    NoticeKind("fragments_missing", "warning", "{value} fragmented packets were never complete"),
    NoticeKind("fragments_conflict", "warning", "{value} packets whose fragments contradict"),
    NoticeKind("checksum_offload", "info", "{value} packets were captured before their checksum"),
    NoticeKind("gap_lost", "warning", "{value} bytes were never captured"),
    NoticeKind("held_bytes_limit", "warning", "a hole was given up early: too many bytes waited"),
    NoticeKind("overlap_conflict", "warning", "{value} bytes arrived twice with different content"),
    NoticeKind("connection_limit", "warning", "{value} connections given up: too many are open"),
    NoticeKind("sequence_jump", "info", "a segment lies far outside its stream and was not used"),
    NoticeKind("port_reused", "info", "the same addresses and ports opened a new connection"),
    NoticeKind(
        "addresses_shared",
        "info",
        "connection {value} has the same addresses and ports behind another VLAN or tunnel",
    ),
    NoticeKind(
        "wrong_checksum",
        "info",
        "damaged segment of {value} bytes: a good copy takes its place if one comes",
    ),
    NoticeKind(
        "translated_copy",
        "info",
        "connection {value} has the same packets with other addresses (NAT): they count once",
    ),
    NoticeKind("two_clocks", "info", "packets were captured twice, {value} apart: two clocks"),
    NoticeKind(
        "renumbered",
        "warning",
        "numbers beyond every window of connection {value}, which has the same addresses and ports",
    ),
    NoticeKind(
        "two_numberings",
        "info",
        "packets were captured twice, with other sequence numbers: something rewrites them",
    ),
    NoticeKind("urgent_data", "info", "urgent data: it is kept where it stands in the stream"),
    NoticeKind(
        "packets_shortened",
        "info",
        "{value} packets are shorter than their IP headers say, by {value2} bytes in all: "
        "shortened before they were captured, or damaged",
    ),
    NoticeKind(
        "unread_encapsulation",
        "warning",
        "the encapsulation {value} is not read: {value2} packets",
    ),
    # -- TLS
    NoticeKind(
        "tls_bad_record",
        "warning",
        "record {value} is not authentic under {value2}: it gives no byte",
    ),
    NoticeKind("tls_more_records", "warning", "{value} further records are not authentic"),
    NoticeKind(
        "tls_broken_record", "warning", "no header of a TLS record where record {value} must begin"
    ),
    NoticeKind("tls_early_data", "info", "early data (0-RTT) is not decoded"),
    NoticeKind("tls_renegotiation", "info", "TLS is negotiated once more on this connection"),
    NoticeKind(
        "tls_search_limit", "warning", "no record was found behind a hole, after so many tries"
    ),
    NoticeKind(
        "tls_connections_limit", "warning", "{value} TLS connections stay encrypted: too many"
    ),
    NoticeKind("tls_no_key_fits", "warning", "the key log opens none of {value} TLS connections"),
    NoticeKind("key_log_broken", "warning", "line {value} of the capture's key log cannot be read"),
    # -- frames
    NoticeKind("role_flipped", "info", "the first command shows the opener to be the broker"),
    NoticeKind("role_wait_limit", "warning", "the role was decided without a one-way command"),
    NoticeKind("desync", "warning", "no valid frame header where one must be"),
    NoticeKind("resync", "info", "frames again after {value} skipped bytes"),
    NoticeKind("resync_unconfirmed", "warning", "a chain of frames that no known end confirms"),
    NoticeKind("midstream_start", "info", "the first frame starts after {value} skipped bytes"),
    NoticeKind("not_recognised", "info", "no known protocol within the first {value} bytes"),
    NoticeKind("read_as_asked", "warning", "the options name another protocol than its content"),
    NoticeKind("malformed_frame", "warning", "a frame whose fields cannot be read"),
    NoticeKind("unfinished_frames_limit", "warning", "an unfinished frame was given up: memory"),
    # -- fields
    NoticeKind("names_limit", "warning", "too many distinct names: this one is null"),
    NoticeKind(
        "long_names_limit", "warning", "{value} times a name of more than {value2} bytes was cut"
    ),
    NoticeKind("ids_limit", "warning", "an ACK with more ids than are kept"),
    NoticeKind("entry_not_opened", "warning", "the entry could not be opened ({value})"),
    NoticeKind("batch_malformed", "warning", "a batch says {value} messages, {value2} were read"),
    NoticeKind("chunk_missing", "warning", "a chunked message lacks a chunk"),
    NoticeKind("chunks_limit", "warning", "chunks were given up: too many bytes waited"),
    NoticeKind("encrypted_batch", "info", "an encrypted batch of {value} messages is not opened"),
    NoticeKind("redacted", "info", "{value} texts held secrets, which are hidden; see --no-redact"),
    NoticeKind(
        "unknown_command",
        "info",
        "command {value} is unknown to this version; frames with it: {value2}",
    ),
    NoticeKind(
        "unknown_field",
        "info",
        "field {value} of {name} is unknown to this version; frames with it: {value2}",
    ),
    NoticeKind(
        "unknown_value",
        "info",
        "value {value} of {name} is unknown to this version; frames with it: {value2}",
    ),
    NoticeKind(
        "unknown_feature",
        "info",
        "feature flag {value} is unknown to this version; handshakes with it: {value2}",
    ),
    NoticeKind(
        "unknown_limit",
        "warning",
        "too many kinds of what is unknown to this version; frames with others: {value}",
    ),
    # -- facts
    NoticeKind("id_reopened", "info", "an id was opened again while it was open"),
    NoticeKind("flow_before_subscribe", "info", "{value} permits granted before the subscription"),
    NoticeKind(
        "publish_time_back",
        "info",
        "a producer published before its last message: the client's clock was set back",
    ),
    NoticeKind("negative_duration", "info", "a duration came out negative and is null"),
    NoticeKind("pending_limit", "warning", "{value} requests given up unanswered: too many waited"),
    NoticeKind("deliveries_limit", "warning", "too many open deliveries: the oldest was given up"),
    NoticeKind("identities_limit", "warning", "too many delivered ids: the oldest were forgotten"),
    NoticeKind("consumers_limit", "warning", "too many consumers: this one is not followed"),
    NoticeKind("subjects_limit", "warning", "too many producers, consumers: {value} without a row"),
    NoticeKind(
        "probe_limit", "info", "{value} searches of a table took {value2} steps or more: made anew"
    ),
    NoticeKind("walk_limit", "warning", "{value} searches along a list ended at their bound"),
    # -- tap
    NoticeKind("kernel_dropped", "error", "the kernel dropped {value} packets: we were too slow"),
    NoticeKind(
        "queue_dropped",
        "error",
        "{value} packets of {value2} rotations are not in the lake: it was full or too slow",
    ),
    NoticeKind("interface_down", "warning", "interface {value} of the tap is down or gone"),
    NoticeKind(
        "interface_up", "warning", "interface {value} is up again after {value2} without packets"
    ),
    NoticeKind(
        "filter_misses_tags",
        "warning",
        "the capture filter lets nothing pass beside {value} tagged packets: add `or vlan`",
    ),
    NoticeKind(
        "memory_restart",
        "warning",
        "{value} bytes of memory in use: open state was given up, a new run of the tap begins",
    ),
    # -- Cursus
    NoticeKind("large_frame", "info", "a frame of {value} bytes; brokers may refuse above 16 MiB"),
    NoticeKind("credentials_in_payload", "error", "a client put its credentials into a message"),
    NoticeKind("stored_without_auth", "error", "a batch was stored, though AUTH is asked for"),
    NoticeKind(
        "sequence_gap",
        "warning",
        "a producer that counts its messages goes from {value2} to {value}",
    ),
    NoticeKind("producer_epoch_back", "warning", "epoch {value} of a producer after {value2}"),
)

NOTICE_NUMBER: Final = {kind.code: number for number, kind in enumerate(NOTICES)}
