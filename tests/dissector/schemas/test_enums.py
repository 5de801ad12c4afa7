"""The words that columns hold: part of the lake's interface, each explained where it is listed."""

import pytest

from dissector.schemas import TABLES, enums
from dissector.schemas.enums import EXPLAINED, listed


@pytest.mark.parametrize(
    ("explained", "those"),
    [
        (enums.ENDED, "fin rst reused idle capture_end"),
        (enums.KINDS, "publish request ack ping auth consume"),
        (
            enums.OUTCOMES,
            "ok error dup_or_dropped dropped_after_close conn_closed unanswered_at_end lost_in_gap"
            " response_cut other_side_not_captured not_awaited evicted orphan_response",
        ),
        (
            enums.DELIVERY_OUTCOMES,
            "acked discarded redelivery_requested consumer_closed unacked_at_end conn_closed"
            " unknown_gap unresolved_at_limit ack_refused ack_rolled_back ack_uncommitted",
        ),
        (
            enums.CAUSES,
            "seek explicit txn_abort failover_switch unload reconnect consumer_gone pre_capture"
            " unknown rebalance no_commit reset",
        ),
        (enums.PERMIT_EVENTS, "grant delivery reset"),
        (enums.CLOSERS, "client broker connection capture_end"),
        (enums.DIRECTIONS, "to_broker to_client unknown"),
        (enums.STATUSES, "complete cut_by_gap cut_by_snaplen cut_by_end malformed"),
        (enums.CHECKSUMS, "ok mismatch absent not_evaluated"),
        (enums.NAME_SOURCES, "observed backfilled ledger_join unknown"),
    ],
)
def test_the_words_are_those_that_users_know_each_with_a_meaning(
    explained: dict[str, str], those: str
) -> None:
    assert list(explained) == those.split()
    assert all(len(meaning) > 8 for meaning in explained.values())


def test_a_number_stands_for_the_word_at_its_place() -> None:
    assert list(enums.OUTCOMES)[enums.CONN_CLOSED] == "conn_closed"
    assert list(enums.DELIVERY_OUTCOMES)[enums.DELIVERY_CONN_CLOSED] == "conn_closed"
    assert list(enums.CAUSES)[enums.CAUSE_RESET] == "reset"
    assert enums.CHECKSUM_NOTES[enums.CUT_BY_END] == "capture_end"


def test_columns_list_the_words_that_are_explained() -> None:
    for places, explained in EXPLAINED.items():
        for place in places.split(", "):
            table, _, name = place.partition(".")
            (column,) = (each for each in TABLES[table].columns if each.name == name)
            assert listed(explained) in column.meaning


def test_a_list_reads_as_one() -> None:
    assert listed(["a", "b", "c"]) == "a, b or c"
