"""Every limit of the program: its value, its unit, the reason, and the effect of reaching it.

A limit that is reached is always counted and always gives a notice (`dissector.notices`).
"""

from typing import Final

# The integer that stands for null in every int64 column inside the core. Wire ids reach both ends
# of the 64-bit range (Java writes -1 and the smallest integer on purpose), so an odd value near the
# low end is taken; a wire field that holds exactly this value would read as null.
NULL: Final = -0x7FFF_FFFF_5EED_0A11

# -- all
MAX_NOTICES: Final = 200_000  # of one capture; further ones are counted in one last notice
HASH_KEY_BITS: Final = 128  # a key of hash tables: nobody tries them all
MAX_PROBES: Final = 512  # slots of a hash table in one search; more: it gets another secret
MAX_CHAIN_STEPS: Final = 64  # of equal keys the oldest so many are looked through for the best

# -- stores: of one file
STORE_RANGE_BYTES: Final = 8 << 20  # asked for at once
STORE_RANGES_AHEAD: Final = 3  # asked for before they are wanted
STORE_ATTEMPTS: Final = 4  # to reach a name node
STORE_RETRIES: Final = 6  # of a request, after answers of 5xx, 429, and lost connections
STORE_RETRY_SECONDS: Final = 60  # in all; a request that began before may still end
STORE_TIMEOUT_SECONDS: Final = 30  # of a request
STORE_CONNECT_SECONDS: Final = 5
MAX_SEEN_FILES: Final = 100_000  # whose versions are remembered

# -- lakes in stores
STORE_REQUESTS: Final = 16  # on their way at once
STORE_ENDS: Final = 1024  # of files that are read in ranges, in memory; more: the oldest go
STORED_LAKE_BYTES: Final = 32 << 30  # copies on this machine; more: those not used longest go
MAX_LOG_ENTRY_BYTES: Final = 1 << 30  # of the text of an entry or bundle; longer ones are damaged
STORED_LAKE_GRACE_HOURS: Final = 24  # what no manifest names stays: somebody may read it

# -- capture
READ_BUFFER_BYTES: Final = 6 << 20  # one input buffer; 8 MiB cost 45 MB, 4 MiB a tenth more time
PACKET_BLOCK_ROWS: Final = 16_384  # packets handed on at once
MAX_RECORD_BYTES: Final = 16 << 20  # of a pcap record or pcapng block; longer = corrupt, input ends
MAX_PACKETLESS_BYTES: Final = 1 << 30  # of a file in a row; then the rest of it is not read
MAX_FRUITLESS_BYTES: Final = 16 << 20  # compressed, in a row, that give none; likewise
MEMBER_CHARGE_BYTES: Final = 256  # counted so for each compressed member, as setting one up costs
MAX_ZSTD_WINDOW_BYTES: Final = 128 << 20  # of a compressed input; what needs more is not read
MAX_XZ_BYTES: Final = 256 << 20  # memory of its decompressor; likewise
MAX_TIMELESS_RANGES: Final = 1 << 18  # of packets without a time; more: all after them are so, too
MAX_INTERFACES: Final = 65_536  # interfaces of one capture; more: packets counted `interface_limit`

# -- packets
MAX_VLAN_TAGS: Final = 4  # deeper stacks are counted as `vlan_depth`
MAX_EXTENSION_HEADERS: Final = 16  # IPv6; more are counted as `extension_depth`
MAX_TUNNEL_DEPTH: Final = 8  # tunnels in tunnels; deeper ones are counted as `tunnel_depth`
MAX_TUNNELS: Final = 1 << 16  # distinct ones of a capture; further ones share one number
MAX_FRAGMENTED_PACKETS: Final = 1 << 13  # waiting for fragments; then the oldest is given up
MAX_FRAGMENT_BYTES: Final = 32 << 20  # of waiting fragments, 512 added for each packet; likewise
FRAGMENT_TIMEOUT_MS: Final = 30_000  # after its first fragment a packet is given up, as Linux does

# -- streams
REORDER_WINDOW_MS: Final = 200  # default of --reorder-window
UNACKED_HOLE_MS: Final = 60_000  # a hole that the peer has not acknowledged waits this long at most
IDLE_TIMEOUT_MS: Final = 3_600_000  # a connection without packets this long is over (`idle`)
MAX_CONNECTIONS: Final = 1 << 18  # live at once, 1.2 KB each; the least recently used is given up
MAX_HELD_BYTES: Final = 64 << 20  # bytes waiting behind holes, all connections together
MAX_HELD_BYTES_PER_CONNECTION: Final = 16 << 20  # one connection; then its oldest hole is given up
LEAST_REACH_BYTES: Final = 16 << 20  # further ahead, and beyond every window: a stream of its own
MAX_REACH_BACK: Final = 64 << 20  # further behind, and beyond every window: likewise
NODE_CHARGE_BYTES: Final = 144  # counted as held for each waiting segment, beside its bytes
MAX_UNCONFIRMED_HOLE: Final = 64 << 20  # longer holes: given up on more evidence than one segment
MAX_ACK_REACH: Final = 64 << 20  # an acknowledgement further beyond all data seen is not believed
MAX_START_BACK: Final = 16 << 20  # how far before its first packet a mid-stream side may begin
RST_REACH_BYTES: Final = 1 << 20  # an RST further ahead of its stream is outside the window
DUPLICATE_WINDOW_MS: Final = 50  # copies by the tap are that close; retransmissions hardly ever
MAX_SHARED_ADDRESSES: Final = 64  # connections of equal addresses and ports behind other tags
TAG_REACH_BYTES: Final = 4 << 20  # so far off, numbers still fit a stream seen with another tag
UNSTEADY_CLOCK_MS: Final = 100  # where capture time goes further back, durations are not true
CLOCK_LEAP_MS: Final = 3_600_000  # a time that far ahead counts when a second packet confirms it
SYN_ONLY_TIMEOUT_MS: Final = 130_000  # a SYN without answer; senders repeat it for 127 s
LINGER_MS: Final = 60_000  # a closed connection still owns the packets of its addresses
MAX_BRIEF_CONNECTIONS: Final = 1 << 17  # closed ones lingering, or SYNs without answer, each

# -- TLS
MAX_TLS_CONNECTIONS: Final = 1 << 15  # followed at once, up to 10 KB each; others stay encrypted
MAX_TLS_HELD_BYTES: Final = 64 << 20  # of connections of which nothing is decided, all together
MAX_TLS_HELD_BYTES_PER_CONNECTION: Final = 1 << 20  # then it stays encrypted; likewise above
TLS_RANGE_CHARGE_BYTES: Final = 256  # counted as held for each range, beside its bytes
TLS_KEY_WAIT_MS: Final = 10_000  # by capture time, for a key that may still come
MAX_TLS_HEAD_BYTES: Final = 4096  # looked at for a proxy's header before the first record
MAX_TLS_MESSAGE_BYTES: Final = 1 << 18  # of a handshake message; longer ones are not read
MAX_TLS_NOTED_RECORDS: Final = 16  # of a direction, that were not authentic; more: counted in one
MAX_TLS_TRIED_RECORDS: Final = 4096  # numbers that a record behind a hole may have
MAX_TLS_TRIED_BYTES: Final = 256 << 20  # of a direction, tried so; then the rest stays encrypted
TLS_TRY_CHARGE_BYTES: Final = 1 << 10  # counted for each try, beside the record's bytes
MAX_TLS_EARLY_RECORDS: Final = 1 << 16  # of early data (0-RTT), which no secret here opens
MAX_TLS_BLIND_RECORDS: Final = 64  # of a handshake whose secrets are not in the key log
MAX_TLS_SESSIONS: Final = 1 << 14  # of TLS 1.2 that may be resumed; the first ones are forgotten
MAX_TLS_PLACES: Final = 256  # behind a hole, where a record that is not whole yet may begin
MAX_CERTIFICATE_PARTS: Final = 64  # of one value of DER; further ones are not read
MAX_CERTIFICATE_SUBJECT: Final = 1024  # characters
MAX_KEY_LOG_BYTES: Final = 1 << 30  # of a file that are read
MAX_KEY_LINE_BYTES: Final = 1024  # of a key log; longer lines are broken
MAX_KEY_LOG_CONNECTIONS: Final = 1 << 20  # whose secrets are kept; more: the first are forgotten
MAX_HELD_KEY_LOG_BYTES: Final = 32 << 20  # of a capture, until they are taken; more: passed over
MAX_USED_KEYS: Final = 1 << 16  # connections opened last, whose keys can be written beside packets
MAX_BROKEN_KEY_LINES: Final = 5  # that are named; all are counted

# -- frames
FRAME_BLOCK_ROWS: Final = 16_384  # frames decoded at once: more would leave the cache
FRAME_BLOCKS_AT_ONCE: Final = 2  # of them in the stages behind the framing, which waits then
MAX_FRAME_BYTES: Final = 5 * 1024 * 1024 + 10_240  # default of --max-frame-bytes, Pulsar's own
MAX_FRAME_BYTES_HARD: Final = 128 << 20  # whatever CONNECTED announces
MAX_HEAD_BYTES: Final = 64 << 10  # bytes of one direction looked at before a protocol is given up
MAX_ROLE_WAIT_FRAMES: Final = 4096  # frames that wait for the role of a connection
RESYNC_HOLD_BYTES: Final = 1 << 20  # an unconfirmed chain is held this long
RESYNC_HOLD_MS: Final = 1_000  # or so long, by capture time
MAX_WAIT_BYTES: Final = 4 * RESYNC_HOLD_BYTES  # of a direction that waits for the other one's
MAX_SEARCH_BYTES: Final = 16 << 20  # as MAX_HEAD_BYTES, where the port is a known protocol's
REFUSED_BYTES: Final = 32  # behind a SYN, without a frame header: no broker protocol
MAX_LARGE_BUFFER_BYTES: Final = 32 << 20  # without a chain, all large buffers; then these decide
MAX_SMALL_BUFFER_BYTES: Final = 128 << 20  # all buffers of a few ranges; then they are large ones
MAX_PENDING_ARENA_BYTES: Final = 256 << 20  # bytes of unfinished frames, all connections together

# -- fields
MAX_IDS_PER_ACK: Final = 1 << 20  # ids of one ACK; the rest are dropped with a notice
MAX_NESTING: Final = 8  # protobuf messages inside messages
MAX_NAMES: Final = 1 << 20  # distinct names kept; further ones are null with a notice
MAX_PSEUDONYMS: Final = 1 << 20  # short words that are kept apart; further ones might meet
MAX_NAME_BYTES: Final = 64 << 20
MAX_NAME_LENGTH: Final = 4096  # bytes of one name; longer: its beginning, its length and a digest
MAX_ENTRY_BYTES: Final = 64 << 20  # uncompressed size of one entry; larger: not opened, a notice
MAX_UNPACKED_RATIO: Final = 256  # of all entries together; beyond: not opened, a notice
FREE_UNPACKED_BYTES: Final = 2 << 30  # unpacked before that ratio counts
MAX_CHUNKED_BYTES: Final = 256 << 20  # chunks waiting for the rest of their message
MAX_CHUNKED_MESSAGES: Final = 1 << 16  # messages with chunks to come; the oldest is given up
MAX_BATCH_MESSAGES: Final = 1 << 18  # messages of one entry; more: not opened, a notice
MAX_DETAIL_ITEMS: Final = 1000  # elements of one list in `detail`; it then says how many there are
MAX_DETAIL_TEXT: Final = 16_384  # characters of one text in `detail`; it then says how many
SECRET_WINDOW_BYTES: Final = 1 << 20  # of a stream searched for secrets at once
# Of a stream while its frames are looked at for secrets; a longer frame is hidden as a whole.
SECRET_HELD_BYTES: Final = 2 * MAX_FRAME_BYTES
SECRET_REACH_BYTES: Final = 64 << 10  # windows overlap by this: longer values are hidden in part

# -- under --memory-limit: bounds of connections, of what waits for an answer or an acknowledgement,
# and of what is remembered to know it again shrink alike; the registry and the names keep theirs
LEAST_MEMORY_BYTES: Final = 350 << 20  # what landing takes beside state, by measurement
STATE_BYTES: Final = 3 << 30  # what all state takes at its bounds, with room to grow
LEAST_STATE_ROWS: Final = 1024  # no bound becomes less

# -- facts
MAX_PENDING_SENDS: Final = 1 << 18  # sends waiting for a receipt; oldest is `evicted`
MAX_PENDING_REQUESTS: Final = 1 << 18
MAX_EARLY_ANSWERS: Final = 1 << 16  # answers waiting for their request; oldest is an orphan
MAX_ATTEMPTS: Final = 1 << 19  # sends remembered to count attempts; beyond: `attempt` is null
MAX_ATTEMPT_SOURCES: Final = 1 << 16  # producers by name whose attempts are counted; else null
MAX_ANSWERED_PER_PRODUCER: Final = 1024  # of them answered ones; clients keep 1000 to send again
MAX_SUBJECTS: Final = 1 << 18  # producers and consumers; the longest closed is forgotten
MAX_TOPIC_HINTS: Final = 1 << 15  # ledgers, and producer names, whose topic is remembered
LATE_ACK_MS: Final = 300_000  # from a delivery on; an ack then counts though its consumer has left
MAX_OPEN_DELIVERIES: Final = 1 << 21  # deliveries waiting for an ack; oldest `unresolved_at_limit`
# As many acks may wait for their answer or commit; more: their deliveries `unresolved_at_limit`.
MAX_IDENTITY_INTERVALS: Final = 1 << 20  # intervals of entry ids already delivered
MAX_PUBLISH_WINDOW: Final = 1 << 20  # entries remembered for publish to delivery
MAX_CONSUMERS: Final = 1 << 18  # open or lately closed; more: their deliveries have no identity
MAX_IDENTITY_PAGES: Final = 1 << 14  # 64 ids each, whose last delivery is known; older: only "seen"
MAX_ACK_SET_WORDS: Final = 1 << 20  # of all ack sets in use; then `unresolved_at_limit`
MAX_BATCH_WORDS: Final = 1 << 10  # ack set of one delivery, 64 messages each; else as above
MAX_UNKNOWN_KINDS: Final = 256  # commands, fields, values, flags unknown to us; others counted
MAX_LEAVING_CONSUMERS: Final = 4096  # of a connection, that go with its FIN; others at its end
FREE_ACK_STEPS: Final = 1 << 22  # over deliveries that are not in order, all cumulative ACKs
ACK_STEPS_PER_FRAME: Final = 64  # and so many more per frame; then `unresolved_at_limit`
MAX_TRANSACTIONS: Final = 1 << 14  # whose end is remembered for redeliveries

# -- bundles of evidence, beside their packets, which are read piece by piece; more is refused
MAX_BUNDLE_MEMBERS: Final = 64
MAX_BUNDLE_PART_BYTES: Final = 256 << 20
# A bundle is widened by whole connections up to this, so that it shows its finding; else it says
# what it cannot show.
MAX_EVIDENCE_PACKETS: Final = 500_000

# -- windows of a tap
MAX_WINDOW_BYTES: Final = 32 << 20  # of rows, then rules are asked; a window ends at a quarter
MAX_FOLLOWED_CONSUMERS: Final = 1 << 16  # whose balance goes on in the next window; more: counted
MAX_FOLLOWED_CLOCKS: Final = 4096  # of clients; further ones: by the sends of a window

# -- findings that a tap notes in its lake while it runs; further ones are said and counted only
MAX_NOTED_FINDINGS: Final = 10_000
MAX_NOTED_BYTES: Final = 64 << 20

# -- histograms of durations
SUB_BUCKET_BITS: Final = 5  # an octave has 2^5 buckets, so that a percentile is at most 1.6 % off
SUB_BUCKETS: Final = 1 << SUB_BUCKET_BITS

# -- lake
WRITE_QUEUE_BYTES: Final = 32 << 20  # blocks waiting to be written; then decoding waits
WRITE_QUEUE_BLOCKS: Final = 512
DIGEST_MARKS: Final = 1024  # digests kept of a capture's prefixes; more: every other is dropped

# -- packets, connections and texts once more: what is kept of them to know it again
MAX_UNWRAP_STEPS: Final = 64  # headers in one packet, of all kinds
MAX_KEPT_HISTORIES: Final = 1 << 12  # texts kept: connections of a scan share a few; then anew
MAX_HISTORY_TEXTS: Final = 1 << 12  # distinct ones in one list; then a new list begins
MAX_MOVED_SEGMENTS: Final = 256  # waiting segments that every further answer to a SYN may move
# A buffer of a direction without a chain is small up to here; large ones have a bound of their own.
SMALL_BUFFER_BYTES: Final = 16 << 10
SMALL_BUFFER_RANGES: Final = 16
MAX_ODD_FIELDS: Final = 8  # of one span; further ones are not counted
MAX_SHOWN_NAME: Final = 120  # characters of a name from the wire that sentences and the page show
# What was made of texts may be kept at once; then all of it is forgotten, and it begins anew. With
# keys and table that is half a megabyte beside what was made, which `may_keep` bounds. Of longer
# texts the digest costs as much as it saves, and they are seldom the same.
MAX_REMEMBERED_TEXTS: Final = 4096
MAX_REMEMBERED_BYTES: Final = 2048

# -- Pulsar
MAX_SPARE_ROWS: Final = 1 << 14  # beside what a frame needs; as many as a block has frames
MAX_HANDSHAKE_TEXT: Final = 512  # bytes of a handshake; all 4096 are 10 MB at most
MAX_CHUNKS: Final = 16 * MAX_CHUNKED_MESSAGES  # of all messages under way; the oldest is given up
MAX_COMPLETED_MESSAGES: Final = 4096  # messages completed last, whose chunks may come again
# Characters of a text that is remembered: all 4096 of the memory are 9 MB at most, and that only if
# each character takes four bytes; of what commands usually say they are a few hundred KB.
MAX_DETAIL_REMEMBERED: Final = 512

# -- Cursus
MAX_CURSUS_BODY_BYTES: Final = 64 << 20  # what older brokers, Java and Python take; else no frame
MAX_BATCH_RECORDS: Final = 100_000  # of one batch; brokers refuse more
MAX_GZIP_RATIO: Final = 1100  # gzip's best is 1032 to 1; what says more is not opened
MAX_FORWARDED_JSON_BYTES: Final = 4 << 20  # of a payload read whole; of longer ones the first keys
MAX_ANSWER_JSON_BYTES: Final = 1 << 20  # of an answer; longer ones are not read
MAX_ANSWER_DEPTH: Final = 16  # of lists and objects that are shown
MAX_KEPT_ANSWERS: Final = 1 << 10  # short ones that are kept read, as most say the same again
MAX_GROUP_DELIVERIES: Final = 1 << 17  # that wait for a commit; the oldest are given up
MAX_GROUP_PARTITIONS: Final = 1 << 17  # of groups, whose offsets are remembered
MAX_GROUP_MEMBERS: Final = 1 << 16  # in groups at once; then the first of them is closed
MAX_PRODUCED_BATCHES: Final = 1 << 17  # remembered; and producers and logs; a power of two
MAX_STAGED_TRANSACTIONS: Final = 1 << 14  # transactions whose offsets are remembered
MAX_CURSUS_PRODUCERS: Final = 1 << 12  # of one connection

# -- lakes and joining
MAX_SCHEMA_VERSION_DIGITS: Final = 9  # more are no version
MAX_DAY_LANDINGS: Final = 64  # with more in a day of a lake, its small ones become one
MAX_KEPT_DAYS: Final = 100_000  # of a lake, as somebody may write them
PUBLISH_ATTEMPTS: Final = 8  # to commit to a table to which others commit
FOOTER_BYTES: Final = 1 << 16  # of a file's end that are asked for; a longer footer: once more
PUBLISH_CLOCK_SECONDS: Final = 3600  # two clocks differ by less; files younger are looked at again
PUBLISH_HISTORY_DAYS: Final = 5  # of snapshots that a table keeps; a day more before some go
MAX_CACHE_BATCHES: Final = 24  # of one cached tally; more than these become one
MAX_KEPT_REPORTS: Final = 8  # of one lake; with more all older ones go
MAX_KEPT_REPORT_BYTES: Final = 1 << 28  # of one; what is larger is made anew each time
MAX_KEPT_NUMBERS: Final = 1 << 14  # encoded ones: footers say the same sizes again and again
MAX_KEPT_PAGES: Final = 4096  # headers of pages, likewise
MAX_INCREMENT_ROWS: Final = 1_000_000  # of an increment, but for its last capture
MAX_HANDOVER_BYTES: Final = 1 << 24  # missing, or there twice, between captures of one connection
MAX_SILENCE_NS: Final = 300 * 1_000_000_000  # between them, where no byte says that they belong
MAX_MISSING_SENTENCES: Final = 20  # of missing parts, kept as text; further ones are counted
# Requests that an increment leaves open to the next one; older ones are `evicted`.
MAX_CARRIED_REQUESTS: Final = 100_000
# What comes again of a partition of Cursus times all that came; more is told by first offsets.
MAX_COMPARED_DELIVERIES: Final = 20_000_000
MAX_SELECTED_FRAMES: Final = 200_000  # of a selection; what is more is no evidence but a capture

# -- streams of captures: marks that an offset keeps of files that are gone; then they count as new
MAX_GONE_FILES: Final = 10_000

# -- findings: what is more is counted
MAX_RULE_BYTES: Final = 1 << 20  # of a rule's file; longer: broken
MAX_RULE_INCIDENTS: Final = 1_000  # of one rule in one capture
MAX_EVIDENCE_FRAMES: Final = 8  # that one incident names
MAX_EXPLANATIONS: Final = 8  # that a search lists

# -- reports: lists of single findings have the longest, the slowest or the first ones; tables all
MAX_LISTED: Final = 1000  # rows of any other list
MAX_SLOW: Final = 50
MAX_EXAMPLES: Final = 50
MAX_FAILURES: Final = 1000  # wrong checksums
MAX_LISTED_INCIDENTS: Final = 500
MAX_PASSED_OVER: Final = 1000  # consumers
MAX_VERDICTS: Final = 1000  # captures, the worst; the total counts all
MAX_OPENING_CHAINS: Final = 50  # connections, the slowest to open
MAX_BURSTS: Final = 50  # of connections that open
MAX_CLOSED_CONNECTIONS: Final = 1000
MAX_STRADDLING: Final = 10_000  # frames that captures cut
MAX_NOTICE_TEXTS: Final = 3  # of a code
MAX_ERROR_TEXTS: Final = 5  # of an error
MAX_FINDING_KINDS: Final = 12  # of findings that have a line; all have a place in the section
MAX_JUDGED_ROWS: Final = 1_000  # of each list of a section, that rules over totals see
MAX_COUNTED_KINDS: Final = 12  # that a sentence names
MAX_NAMED_INPUTS: Final = 3  # files that a command names; of more it says INPUT, as its help does
MAX_CURVE_POINTS: Final = 480
MAX_STEPS: Final = 10_000  # of a table over time
MAX_STEPS_CHOSEN: Final = (
    61  # of one whose step nobody names: an hour by minutes, wherever it begins
)
# A list of groups has its windows of time only up to this many minutes; the total always has them.
MAX_MINUTE_CELLS: Final = 2_000
MAX_LIST_BYTES: Final = 250_000  # of the text of one list, so that hundreds of captures stay small
MAX_PAGE_ROWS: Final = 40  # of a table on the page; as many findings have a timeline
MAX_PAGE_FOLDED: Final = 120  # rows of a list that are folded below others
MAX_PAGE_REASONS: Final = 3  # of a capture's verdict
MAX_TIMELINE_BINS: Final = 80  # of a series on a timeline, whatever time it shows
MAX_PARTITION_ROWS: Final = 20_000_000  # that one query reads, all tables together
# Up to here damage of one whole byte is hardly ever imitated by something else: 255 patterns per
# byte against 2^32 checksums.
MAX_BYTE_SEARCH_BYTES: Final = 1 << 16

# -- comparisons; a comment on GitHub holds 65,536 characters
MAX_COMPARED_TOPICS: Final = 20  # that are compared one by one, those with most events
MAX_COMPARED_CURVES: Final = 12  # of durations, on the page
MAX_MARKDOWN_BYTES: Final = 60_000
MAX_MARKDOWN_LINES: Final = 100
MAX_MARKDOWN_NAMES: Final = 20
MAX_SHOWN_INPUTS: Final = 6  # names of inputs in a heading; of more the number
MAX_BLOCK_RATIO: Final = 8  # how many times as many blocks the longer run may have

# -- command line
MAX_EXPRESSION_NESTING: Final = 50  # parentheses and `not`s in each other; deeper ones are refused
MAX_TOKENS: Final = 10_000  # of an expression; more are refused
# Of captures: about as many take two seconds of one processor without compiled code.
MAX_UNCOMPILED_BYTES: Final = 512 << 10

# -- live tap
MAX_SERIES: Final = 1000  # default: label sets of one metric; further ones are one, `other`
MAX_NEW_STALLS: Final = 1000  # listed one by one; all are counted
MAX_INCIDENT_SUBJECTS: Final = 10_000  # of incidents, remembered; the longest silent goes first
MAX_HTTP_CLIENTS: Final = 2000  # at once, and half of the files that the process may open
