"""Settings of the Parquet writer; each is declared only here.

Manifests record the settings that their files were written with; docs/lake.md lists them.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import zstandard

from dissector.installed import own_version


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class LakeSettings:
    """The values, each with its meaning for docs/lake.md."""

    row_group_rows: int = _setting(131_072, "rows of a row group")
    row_group_text_bytes: int = _setting(64 << 20, "text that ends a row group early")
    part_bytes: int = _setting(256 << 20, "size of a file, behind which the next one begins")
    page_rows: int = _setting(65_536, "rows of a page: while encoded, they fit the CPU's cache")
    zstd_level: int = _setting(1, "level of the compression")
    page_checksums: bool = _setting(
        True, "pages end with a checksum of zstd, which its readers compare"
    )
    text_bound_bytes: int = _setting(128, "longest text in a range; a longer bound is cut")
    sorted_by: tuple[str, ...] = _setting(
        ("ts", "frame_no", "event_no"),
        "a row group says that it is sorted by those of them that ascend in it",
    )
    bloom_filters: tuple[str, ...] = _setting(
        ("topic", "connection_key"), "columns with a Bloom filter in each row group"
    )
    bloom_filter_bits: int = _setting(10, "bits of a Bloom filter per text: one in 100 errs")

    def as_json(self) -> dict[str, Any]:
        """The settings for a manifest."""
        return {name: list(value) if isinstance(value, tuple) else value
                for name, value in vars(self).items()}  # fmt: skip


SETTINGS: Final = LakeSettings()


@cache
def writer_versions() -> dict[str, str]:
    """Return the versions that determine the files' bytes: equal rows give equal files."""
    zstd = ".".join(map(str, zstandard.ZSTD_VERSION))
    return {"dissector": own_version(), "zstd": zstd}


def settings_table() -> list[str]:
    """Return the lines of a Markdown table of all settings."""
    lines = ["| setting | value | meaning |", "|---|---|---|"]
    for each in dataclasses.fields(LakeSettings):
        value = getattr(SETTINGS, each.name)
        shown = ", ".join(f"`{n}`" for n in value) if isinstance(value, tuple) else f"{value:,}"
        shown = str(value).lower() if isinstance(value, bool) else shown
        lines.append(f"| `{each.name}` | {shown} | {each.metadata['meaning']} |")
    return lines
