"""The words that columns hold: those that are explained are those that there are."""

from typing import Any

import pytest

from dissector.protocols import columns
from dissector.protocols.cursus import rows as cursus
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.exchanges import columns as exchange_columns
from dissector.schemas import TABLES
from dissector.schemas.words import (
    CAUSES,
    CHECKSUMS,
    DELIVERY_OUTCOMES,
    ENDED,
    EXPLAINED,
    NAME_SOURCES,
    OUTCOMES,
    STATUSES,
    listed,
)
from dissector.stream.columns import ENDED_NAMES


@pytest.mark.parametrize(
    ("explained", "made"),
    [
        (ENDED, ENDED_NAMES),
        (OUTCOMES, (*exchange_columns.OUTCOME_NAMES, *cursus.OUTCOME_NAMES)),
        (
            DELIVERY_OUTCOMES,
            (*consumption_state.OUTCOME_NAMES, *cursus.DELIVERY_OUTCOME_NAMES),
        ),
        (CAUSES, (*consumption_state.CAUSE_NAMES, *cursus.CAUSE_NAMES)),
        (STATUSES, columns.STATUS_NAMES),
        (CHECKSUMS, columns.CHECKSUM_NAMES),
        (NAME_SOURCES, columns.NAME_SOURCE_NAMES),
    ],
)
def test_every_word_is_explained_and_no_other(explained: dict[str, str], made: Any) -> None:
    assert set(explained) == set(made)
    assert all(len(meaning) > 8 for meaning in explained.values())


def test_columns_list_the_words_that_are_explained() -> None:
    for places, words in EXPLAINED.items():
        for place in places.split(", "):
            table, _, name = place.partition(".")
            (column,) = (each for each in TABLES[table].columns if each.name == name)
            assert listed(words) in column.meaning


def test_a_list_reads_as_one() -> None:
    assert listed(["a", "b", "c"]) == "a, b or c"
