"""Tables of a few values are what Arrow makes of the same values."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dissector.schemas.small_tables import NUMBER, TEXT, no_rows, small_table

ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    )
)


@given(ROWS)
def test_values_are_what_they_were(rows: list[tuple[str | None, int | None]]) -> None:
    found = small_table(iter(rows), name=TEXT, number=NUMBER)
    found.validate(full=True)
    columns = [[row[at] for row in rows] for at in (0, 1)]
    expected = {"name": pa.array(columns[0], TEXT), "number": pa.array(columns[1], NUMBER)}
    assert found.equals(pa.table(expected))


def test_nothing_has_its_columns() -> None:
    assert no_rows(small_table([], a=TEXT, b=NUMBER).schema).to_pydict() == {"a": [], "b": []}
