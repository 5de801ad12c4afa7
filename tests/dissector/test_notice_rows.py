"""Rows of notices: one layout, whoever writes them."""

from dissector.jit import kernel
from dissector.limits import NULL
from dissector.notice_rows import (
    Notice,
    NoticeRows,
    Notices,
    add_row,
    drained,
    has_room,
    new_notices,
    notice_of,
)
from dissector.notices import NOTICE_NUMBER


@kernel
def written(notices: Notices, kind: int, value: int) -> bool:
    """Write two notices; whether a third one fits."""
    for each in range(2):
        row = add_row(notices, kind)
        notices.rows.value[row] = value + each
    return has_room(notices, 1)


def test_a_notice_has_the_columns_of_its_rows() -> None:
    assert Notice._fields == NoticeRows._fields


def test_a_kernel_writes_what_other_code_makes() -> None:
    notices, kind = new_notices(2), NOTICE_NUMBER["gap_lost"]
    notices.rows.matrix[:] = 5
    assert not written(notices, kind, 7)
    rows = drained(notices)
    notices.rows.matrix[:] = 5
    assert [Notice(*row) for row in rows.tolist()] == [
        notice_of("gap_lost", value=7),
        notice_of("gap_lost", value=8),
    ]
    assert notices.used[0] == 0 and not len(drained(notices))


def test_a_notice_knows_its_code_and_is_null_but_for_what_it_says() -> None:
    notice = notice_of("clock_step", packet=3)
    assert notice.code == "clock_step"
    assert set(notice._replace(kind=NULL, packet=NULL)) == {NULL}
