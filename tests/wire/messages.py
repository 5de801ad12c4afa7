"""Decodes frames to rows of messages, as protocol decoders do: for tests of reading entries."""

from collections.abc import Sequence
from typing import Any

from dissector.codecs.names import NameTable
from dissector.notice_log import NoticeLog
from dissector.notice_rows import Notice
from dissector.protocols.pulsar.messages.entries import Entries
from dissector.protocols.pulsar.wire.fields import FieldDecoder
from tests.plain import rows_of_block
from tests.wire.blocks import block_of


class Opened:
    """Reads entries block after block; rows hold what is not null, `drained` gives the notices."""

    def __init__(
        self, properties: bool = False, payload_sha256: bool = False, redact: bool = False
    ) -> None:
        self.names = NameTable(4096, 1 << 20)
        self.decoder = FieldDecoder(self.names, 0)
        self.entries = Entries(0, properties, payload_sha256, redact)
        self.notice_log = NoticeLog()
        self.rows: list[dict[str, Any]] = []
        self.frame_no = 0

    def add(self, frames: Sequence[bytes], **columns: Any) -> "Opened":
        """Decode frames. columns: values to set in the frame columns before entries are opened."""
        if not frames:
            return self
        block, sources = block_of(frames)
        block.frame_no[:] += self.frame_no
        self.frame_no += len(frames)
        fields = self.decoder.decode(block, len(frames), sources)
        block.producer_name[:] = block.wire_producer_name
        for name, value in columns.items():
            getattr(block, name)[:] = value
        words, names = fields.words, self.names.update()
        blocks = self.entries.advance(block, len(frames), sources, words, names, self.notice_log)
        for each in blocks:
            assert each.table == "messages" and each.rows > 0
            self.rows += [without_nulls(row) for row in rows_of_block(each)]
        return self

    def finish(self) -> "Opened":
        """End the capture."""
        assert not self.entries.finish(self.notice_log)
        return self

    def notices(self) -> list[tuple[str, int]]:
        """Return and discard all notices so far: code and frame."""
        return [(each.code, each.frame_no) for each in self.drained()]

    def drained(self) -> list[Notice]:
        """Return and discard all notices so far."""
        notices, self.notice_log = self.notice_log.rows(), NoticeLog()
        return notices


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """The non-null columns of a message that depend on its frame alone."""
    values = {name: value for name, value in row.items() if value is not None}
    for name in ("connection_id", "direction", "ts"):
        del values[name]
    if "properties" in values:
        values["properties"] = dict(values["properties"])
    return values
