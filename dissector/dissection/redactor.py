"""Remove secrets from all texts of rows before they leave the core.

All text columns of all protocols pass here, so that no column is missed. Names are codes: each
distinct name is searched once. Texts by the million (partition keys) are searched a block at a
time, and one by one only if a secret is possible.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dissector.blocks import Coded, Column, Spans, TableBlock
from dissector.codecs.redaction import cleaned, cleaned_text, may_hold, secrets
from dissector.codecs.suspicious_texts import suspicious
from dissector.limits import NULL

# Bytes of a stream are redacted by the command that shows them; notices are our own sentences.
_UNTOUCHED: Final = frozenset(("conversation", "notices"))
# Hashes of texts, which can be inverted by trying likely texts: null if the text has a secret.
_HASHES: Final = {"partition_key": "key_hash", "ordering_key": "key_hash"}
_LISTS_OF_NAMES: Final = 64  # cached; lists of earlier blocks are not used again
# Texts from numbers in headers, of every connection of a scan.
_OWN: Final = frozenset(
    ("client_ip", "broker_ip", "connection_key", "community_id", "history", "tunnel_id")
)


class _Names:
    """A growing list of names, and its redacted texts.

    texts: by code; always the same list object.
    sizes: by code of a name with a secret, its hidden bytes.
    same: by code, an earlier code with the same redacted text.
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self.names = names
        self.texts: list[Any] = []
        self.sizes: dict[int, int] = {}
        self.same: dict[int, int] = {}
        self._first: dict[Any, int] = {}

    def update(self) -> None:
        """Redact the names that were added since the last call."""
        first = len(self.texts)
        if first == len(self.names):
            return
        new = self.names[first:]
        self.texts.extend(new)
        # Names from frames are bytes, in all elements of a list.
        for index in suspicious(new if isinstance(new[0], bytes) else [_raw(name) for name in new]):
            self._redact_name(first + index)

    def _redact_name(self, code: int) -> None:
        name = self.names[code]
        size = hidden_bytes(_raw(name))
        if size:
            self.sizes[code] = size
            shown = cleaned_text(name) if isinstance(name, str) else cleaned(name)
            self.texts[code] = shown
            first = self._first.setdefault(shown, code)
            if first != code:
                self.same[code] = first


class Redactor:
    """Redacts the blocks of one capture.

    texts, hidden: number of texts with secrets since the last `drain`, and their hidden bytes.
    Secrets by key (`detail`, `properties`) are not counted: not every run has these columns.
    """

    def __init__(self) -> None:
        self.texts = 0
        self.hidden = 0
        self._names: OrderedDict[int, _Names] = OrderedDict()
        self._rows: list[int] = []  # of the current column, with a secret

    def drain(self) -> tuple[int, int]:
        """Texts and bytes hidden since the last call."""
        hidden_so_far = self.texts, self.hidden
        self.texts = self.hidden = 0
        return hidden_so_far

    def clean(self, blocks: list[TableBlock]) -> list[TableBlock]:
        """The blocks, with their text columns replaced where there is a secret."""
        for block in blocks:
            if block.table in _UNTOUCHED:
                continue
            for name, column in block.columns.items():
                if not isinstance(column, np.ndarray) and name not in _OWN:
                    self._rows = []
                    block.columns[name] = self._column(name, column)
                    hashed = _HASHES.get(name, "")
                    if self._rows and hashed in block.columns:
                        hashes = np.array(block.columns[hashed])
                        hashes[self._rows] = NULL
                        block.columns[hashed] = hashes
        return blocks

    def _column(self, name: str, column: Column) -> Column:
        if isinstance(column, Coded):
            return column if isinstance(column.names, tuple) else self._coded(column)
        if isinstance(column, Spans):
            return self._spans(column)
        if isinstance(column, list) and column and name != "detail":
            return self._objects(column)
        return column

    def _coded(self, column: Coded) -> Coded:
        names = self._names.get(id(column.names))
        if names is None:
            names = self._names[id(column.names)] = _Names(column.names)
            if len(self._names) > _LISTS_OF_NAMES:
                self._names.popitem(last=False)
        else:
            self._names.move_to_end(id(column.names))
        names.update()
        if not names.sizes:
            return Coded(column.codes, names.texts)
        codes = column.codes.copy()
        for code in np.intersect1d(codes, list(names.sizes)).tolist():
            has_code = codes == code
            count = int(np.count_nonzero(has_code))
            self._count(count, count * names.sizes[code])
            codes[has_code] = names.same.get(code, code)
        return Coded(codes, names.texts)

    def _spans(self, column: Spans) -> Column:
        if not may_hold(column.data.tobytes()):
            return column
        texts = [
            column.data[start : start + size].tobytes() if size >= 0 else None
            for start, size in zip(column.starts.tolist(), column.lengths.tolist(), strict=True)
        ]
        suspects = suspicious([text or b"" for text in texts])
        if not suspects:
            return column
        texts = self._redacted(texts, suspects)
        return [text and text.hex() for text in texts] if column.is_hex else texts

    def _objects(self, column: list[Any]) -> list[Any]:
        if any(isinstance(value, dict) for value in column):
            return [self._pairs(value) if isinstance(value, dict) else value for value in column]
        indices = [index for index, value in enumerate(column) if isinstance(value, str | bytes)]
        suspects = suspicious([_raw(column[index]) for index in indices])
        return self._redacted(list(column), [indices[index] for index in suspects])

    def _pairs(self, pairs: dict[str, str]) -> dict[str, str]:
        """Properties; values whose key means a secret are redacted already."""
        if not suspicious([_raw(text) for pair in pairs.items() for text in pair]):
            return pairs
        return {cleaned_text(key): cleaned_text(value) for key, value in pairs.items()}

    def _redacted(self, texts: list[Any], suspects: Sequence[int]) -> list[Any]:
        for index in suspects:
            text = texts[index]
            size = hidden_bytes(_raw(text))
            if size:
                self._count(1, size)
                self._rows.append(index)
                texts[index] = cleaned_text(text) if isinstance(text, str) else cleaned(text)
        return texts

    def _count(self, texts: int, size: int) -> None:
        self.texts += texts
        self.hidden += size


def _raw(text: bytes | str) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def hidden_bytes(text: bytes) -> int:
    """The number of secret bytes in a text."""
    return sum(end - start for start, end in secrets(text))
