"""Keys that an attacker chose to collide cost what other keys cost: searches are counted.

The attacker knows the code and its constants, and works out keys that all belong into one
sixty-fourth of a table, under a secret that he has to guess. Under the secret that a run has drawn
they lie as any others do; under the one that was guessed right, the table soon gets another.
"""

from collections.abc import Callable

import numpy as np
import pytest

from dissector.blocks import Int64Array
from dissector.codecs.keyed_hash import hash_of_bytes, hash_of_five, hash_of_words, new_secret
from dissector.codecs.names import NameTable
from dissector.jit import kernel
from dissector.limits import MAX_TOPIC_HINTS, NULL
from dissector.notice_log import NoticeLog, of_limits
from dissector.packet.columns import PacketBuffers, SegmentColumns
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, FrameColumns, new_frame_columns
from dissector.protocols.pairing.state import KeyKind
from dissector.protocols.pulsar.exchanges import ErrorTexts, PulsarExchanges
from dissector.protocols.pulsar.registry import PulsarRegistry
from dissector.protocols.pulsar.registry.state import RegistryKey
from dissector.protocols.pulsar.wire import commands
from dissector.stream.state import StreamOptions
from dissector.stream.streams import Streams
from dissector.tables import PROBES, hash_tables
from tests.hard.floods import FLOODS

GUESSED = 0x0123_4567_89AB_CDEF  # the attacker's guess
DRAWN = 0xFEDC_BA98_7654_3210 << 64 | 0x0F1E_2D3C_4B5A_6978  # the key of the run
SHARE = 64
MOST_TIMES = 2  # as many probes as ordinary keys need
BLOCK = 16_384
SEARCHED = 1 << 18  # numbers at once


@kernel
def _place_words(secret: Int64Array, words: Int64Array, places: Int64Array) -> None:
    for row in range(len(words)):
        if words.shape[1] == 4:
            places[row] = hash_of_words(
                secret, words[row, 0], words[row, 1], words[row, 2], words[row, 3]
            )
        else:
            places[row] = hash_of_five(
                secret, words[row, 0], words[row, 1], words[row, 2], words[row, 3], words[row, 4]
            )


@kernel
def _place_names(secret: Int64Array, text: np.ndarray, places: Int64Array) -> None:
    for row in range(len(places)):
        places[row] = (hash_of_bytes(secret, text, 16 * row, 16 * row + 16) >> 33) | 1


def colliding(
    count: int, slots: int, made: Callable[[np.ndarray], Int64Array], is_text: bool = False
) -> np.ndarray:
    """Numbers whose keys all belong into the first part of a table under the guessed secret."""
    parts: list[np.ndarray] = []
    for start in range(1, 2 * SHARE * count, SEARCHED):  # until there are enough
        numbers = np.arange(start, start + SEARCHED, dtype=np.int64) * 2_654_435_761 % (1 << 31)
        places = np.empty(len(numbers), np.int64)
        if is_text:
            text = np.frombuffer(b"".join(b"%016d" % each for each in numbers.tolist()), np.uint8)
            _place_names(new_secret(GUESSED), text.copy(), places)
        else:
            _place_words(new_secret(GUESSED), made(numbers), places)
        parts.append(numbers[(places & (slots - 1)) < slots // SHARE])
        if sum(map(len, parts)) >= count:
            break
    found = np.unique(np.concatenate(parts))
    assert len(found) >= count
    return np.random.default_rng(1).permutation(found)[:count]


def ordinary(count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.int64)


def words(count: int, *given: tuple[int, int | np.ndarray]) -> Int64Array:
    made = np.zeros((count, 4), np.int64)
    for column, value in given:
        made[:, column] = value
    return made


def frames_of(count: int) -> FrameColumns:
    _, frames = new_frame_columns(count)
    frames.protocol[:count] = frames.connection_id[:count] = frames.status[:count] = 0
    frames.frame_no[:count] = np.arange(1, count + 1)
    return frames


def in_parts(take: Callable[[np.ndarray], None], numbers: np.ndarray) -> None:
    for start in range(0, len(numbers), BLOCK):
        take(numbers[start : start + BLOCK])


def probes(memory: object) -> int:
    return sum(int(table.counts[PROBES]) for table in hash_tables(memory))


class Walk:
    """The registry and exchanges under one key."""

    def __init__(self, key: int) -> None:
        self.registry, self.exchanges = PulsarRegistry(0, key), PulsarExchanges(0, 1, key=key)

    def take(self, frames: FrameColumns, rows: int) -> None:
        nothing = np.full(rows, NULL, np.int64)
        run = self.registry.begin(rows, [], nothing)
        texts = ErrorTexts(nothing, [])
        self.exchanges.pair_named(frames, rows, texts, [], run, NoticeLog())

    def open_producer(self) -> None:
        """Producer 1, with a topic and a name."""
        frames = frames_of(1)
        frames.command[0], frames.endpoint_index[0], frames.direction[0] = (
            commands.PRODUCER,
            0,
            TO_BROKER,
        )
        frames.producer_id[0], frames.request_id[0] = 1, 1
        frames.wire_topic[0] = frames.wire_producer_name[0] = 5
        self.take(frames, 1)


def send_cost(numbers: np.ndarray, key: int) -> int:
    """SENDs of one producer with these sequence ids, none of which is answered."""
    walk = Walk(key)
    walk.open_producer()

    def take(part: np.ndarray) -> None:
        frames, rows = frames_of(len(part)), len(part)
        frames.command[:rows] = commands.SEND
        frames.endpoint_index[:rows] = 0
        frames.direction[:rows] = TO_BROKER
        frames.producer_id[:rows], frames.sequence_id[:rows] = 1, part
        walk.take(frames, rows)

    in_parts(take, numbers)
    return probes(walk.exchanges.memory())


def lookup_cost(numbers: np.ndarray, key: int) -> int:
    """LOOKUPs with these request ids, none of which is answered."""
    walk = Walk(key)

    def take(part: np.ndarray) -> None:
        frames, rows = frames_of(len(part)), len(part)
        frames.command[:rows] = commands.LOOKUP
        frames.endpoint_index[:rows] = 0
        frames.direction[:rows] = TO_BROKER
        frames.request_id[:rows] = part
        walk.take(frames, rows)

    in_parts(take, numbers)
    return probes(walk.exchanges.memory())


def ledger_cost(numbers: np.ndarray, key: int) -> int:
    """Receipts of a producer whose topic is known, each in one of these ledgers."""
    walk = Walk(key)
    walk.open_producer()

    def take(part: np.ndarray) -> None:
        frames, rows = frames_of(len(part)), len(part)
        frames.command[:rows] = commands.SEND_RECEIPT
        frames.endpoint_index[:rows] = 1
        frames.direction[:rows] = TO_CLIENT
        frames.producer_id[:rows], frames.entry_id[:rows] = 1, 1
        frames.ledger_id[:rows] = part
        walk.take(frames, rows)

    in_parts(take, numbers)
    return probes(walk.registry.memory())


def name_cost(numbers: np.ndarray, key: int) -> int:
    """Names of 16 digits."""
    table = NameTable(1 << 17, 1 << 22, key)
    for number in numbers.tolist():
        table.code_of(b"%016d" % number)
    return table.probes


def syn_cost(numbers: np.ndarray, key: int) -> int:
    """SYNs from these addresses and ports to one port of a broker."""
    segments, _ = FLOODS["syns"](len(numbers))
    segments.source_low[: len(numbers)] = 0x0B00_0000 + (numbers >> 15)
    segments.source_port[: len(numbers)] = 1024 + (numbers & 0x7FFF)
    streams = Streams(StreamOptions(hash_key=key))
    nothing = PacketBuffers(np.zeros(1, np.uint8), np.zeros(1, np.uint8))
    for start in range(0, len(numbers), 4096):
        rows = min(4096, len(numbers) - start)
        part = SegmentColumns.new(rows)
        part.matrix[:, :rows] = segments.matrix[:, start : start + rows]
        for _ in streams.advance(part, rows, nothing):
            pass
    return streams.steps


def syn_words(numbers: np.ndarray) -> Int64Array:
    segments, _ = FLOODS["syns"](1)
    broker, port = int(segments.destination_low[0]), int(segments.destination_port[0])
    low, ports = 0x0B00_0000 + (numbers >> 15), 1024 + (numbers & 0x7FFF)
    made = np.zeros((len(numbers), 5), np.int64)
    is_upper = low > broker
    made[:, 0], made[:, 1] = np.where(is_upper, broker, low), np.where(is_upper, low, broker)
    one, other = np.where(is_upper, port, ports), np.where(is_upper, ports, port)
    made[:, 2] = (4 << 32) | (one << 16) | other
    return made


# What costs, how many, in how many slots, and the words of its key.
CASES: dict[str, tuple[Callable[[np.ndarray, int], int], int, int, Callable]] = {
    "syns": (syn_cost, 60_000, 1 << 18, syn_words),
    "sends": (
        send_cost, 100_000, 1 << 19,
        lambda ids: words(len(ids), (0, KeyKind.SEND), (1, 1), (2, ids), (3, 1)),
    ),
    "lookups": (
        lookup_cost, 60_000, 1 << 18, lambda ids: words(len(ids), (0, KeyKind.REQUEST), (2, ids))
    ),
    "ledgers": (
        ledger_cost, MAX_TOPIC_HINTS, 2 * MAX_TOPIC_HINTS,
        lambda ids: words(len(ids), (0, RegistryKey.LEDGER), (1, ids), (2, NULL)),  # no broker
    ),
    "names": (name_cost, 20_000, 1 << 18, lambda ids: ids),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_chosen_keys_cost_what_ordinary_ones_cost(name: str) -> None:
    cost, count, slots, made = CASES[name]
    chosen = colliding(count, slots, made, is_text=name == "names")
    usual = cost(ordinary(count), DRAWN)
    assert cost(chosen, DRAWN) <= MOST_TIMES * usual + count // 10
    assert usual <= 8 * count


@pytest.mark.parametrize("name", ["sends", "lookups", "ledgers"])
def test_a_guessed_secret_helps_for_one_block(name: str) -> None:
    cost, _, slots, made = CASES[name]
    chosen = colliding(2 * BLOCK, slots, made)
    # Exchanges make room several times in a block, and the table anew under another secret then.
    assert cost(chosen[:BLOCK], GUESSED) > 10 * cost(chosen[:BLOCK], DRAWN)
    both, first = cost(chosen, GUESSED), cost(chosen[:BLOCK], GUESSED)
    assert both - first <= 4 * cost(chosen, DRAWN) + BLOCK


def test_a_secret_that_puts_too_much_into_one_place_is_told() -> None:
    ids = colliding(BLOCK, 1 << 18, CASES["lookups"][3])
    walk = Walk(GUESSED)
    frames, rows = frames_of(BLOCK), BLOCK
    frames.command[:rows], frames.endpoint_index[:rows] = commands.LOOKUP, 0
    frames.direction[:rows], frames.request_id[:rows] = TO_BROKER, ids
    walk.take(frames, rows)
    (notice,) = of_limits(walk.exchanges.memory())
    assert notice.value > 0 and notice.value2 == 512
