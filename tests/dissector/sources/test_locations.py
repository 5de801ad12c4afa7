"""Names of files in a store mean what they mean on a disk."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.sources import locations
from dissector.storage.store import Entry

PART = st.sampled_from(["a", "b.pcap", ".a", "ab.pcap.gz", "a-1", "[x]", "ä"])
NAMES = st.lists(st.lists(PART, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8)
PATTERN = st.lists(
    st.sampled_from(
        ["*", "**", "?", "a*", "*.pcap", "[ab]*", "[!a]*", "[a-b].pcap", "*[]x]", "a", ".*", "?b*"]
    ),
    min_size=1,
    max_size=3,
)
PATTERN = PATTERN.map("/".join).filter(lambda text: bool(set(text) & set("*?[")))


@given(names=NAMES, pattern=PATTERN)
def test_patterns_and_folders_are_those_of_a_disk(names: list[str], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        base = Path(folder)
        for name in names:
            path = base / name
            if not any(base in above.parents and above.is_file() for above in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    path.write_bytes(b"")
        files = sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())

        def below(path: str) -> list[Entry]:
            start = path.removeprefix("s3://b/").rstrip("/")
            inside = [name for name in files if not start or name.startswith(f"{start}/")]
            return [Entry(f"s3://b/{name}", 0, 0.0, None) for name in inside]

        patch.setattr(locations, "entries_below", below)
        found = [path.removeprefix("s3://b/") for path in locations.matches(f"s3://b/{pattern}")]
        here = [os.path.relpath(path, folder) for path in locations.matches(f"{folder}/{pattern}")]
        # A disk names a file twice where two parts of a pattern meet.
        assert found == [name for name in dict.fromkeys(here) if (base / name).is_file()]
        below_root = locations.files_in("s3://b/")
        assert below_root is not None
        assert [name.removeprefix("s3://b/") for name in below_root] == [
            os.path.relpath(path, folder) for path in locations.files_in(folder) or ()
        ]


def test_a_file_of_this_machine_is_asked_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    name, link = str(path), str(tmp_path / "link")
    assert locations.state_of(name).size == 3 and locations.is_regular(name)
    assert locations.identity_of(name) == locations.identity_of(link)
    assert locations.files_in(name) is None
    with locations.open_seekable(name) as file:
        assert file.seek(0, os.SEEK_END) == 3
    with pytest.raises(FileNotFoundError):
        locations.state_of(str(tmp_path / "none"))
