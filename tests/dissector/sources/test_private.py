"""Files for their owner alone."""

import os
import stat
from pathlib import Path

import pytest

from dissector.sources.private import private


def test_only_the_owner_may_read_whatever_the_mask_allows(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open(tmp_path / "file", "xb", opener=private) as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OSError), open(tmp_path / "link", "wb", opener=private):
        pass
    assert not (tmp_path / "other").exists()
