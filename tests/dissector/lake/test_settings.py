"""Settings of a lake: declared once, in manifests and in the page."""

import json

from dissector.lake.document import lake_page
from dissector.lake.settings import SETTINGS, settings_table


def test_a_manifest_can_hold_the_settings_and_the_page_lists_them() -> None:
    found = SETTINGS.as_json()
    assert json.loads(json.dumps(found)) == found
    table = settings_table()
    assert [line.split("`")[1] for line in table[2:]] == list(found)
    assert "\n".join(table) in lake_page()


def test_pages_fill_row_groups() -> None:
    assert SETTINGS.row_group_rows % SETTINGS.page_rows == 0
