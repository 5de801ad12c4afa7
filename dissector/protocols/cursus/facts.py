"""Cursus' part of a dissection: readings, messages and correlation over each block."""

from collections.abc import Collection
from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.codecs.names import NameTable
from dissector.findings import Finding, Findings
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COLUMN_NUMBER, EVENT_CLOSE, MALFORMED, FrameColumns
from dissector.protocols.cursus.commands import names_column
from dissector.protocols.cursus.compressed import CODEC_NAMES
from dissector.protocols.cursus.correlation import Correlation
from dissector.protocols.cursus.effects import Effects
from dissector.protocols.cursus.headers import BROKER_BODY_LIMIT, LENGTH_BYTES
from dissector.protocols.cursus.lines import as_json
from dissector.protocols.cursus.messages import Messages
from dissector.protocols.cursus.readings import Reading, Readings
from dissector.protocols.cursus.rows import Gathered
from dissector.protocols.cursus.secrets import without_secrets
from dissector.protocols.frame_table import picked
from dissector.protocols.interface import ConnectionFacts, FactsOptions, FrameBlock

_NAMED: Final = ("topic", "subscription", "producer_name", "consumer_name")
_PICKED: Final = ("command", "compression", *_NAMED)
_NUMBERS: Final = np.array([COLUMN_NUMBER[name] for name in _PICKED], np.int64)


class CursusFacts:
    """The state of one capture's Cursus frames."""

    def __init__(self, options: FactsOptions) -> None:
        self._names = NameTable()
        self.findings = Findings()
        self._redact = options.redact
        self._readings = Readings(self._names, options.place, options.redact, options.detail)
        gathered = Gathered(self._names)
        self._gathered = gathered
        self._effects = Effects(gathered, self._readings.codes, self.findings)
        self._correlation = Correlation(
            gathered, self._effects, self._readings.codes, options.redact
        )
        self._messages = Messages(self._names, options.properties, options.payload_sha256)
        self._read: dict[int, Reading] = {}

    def advance(self, block: FrameBlock) -> list[TableBlock]:
        """Fill the columns of Cursus' rows; messages, and subjects that closed."""
        frames = block.frames
        mine = self._readings.begin(block)
        self._read = {}
        messages: list[TableBlock] = []
        first = 0
        while len(mine) and first < block.rows:
            stop = self._readings.opening.read_batches(block, first, block.rows)
            for row in mine[(mine >= first) & (mine < stop)].tolist():
                if frames.frame_no[row] == NULL:
                    if frames.command[row] == EVENT_CLOSE:
                        self._readings.opening.forget(int(frames.connection_id[row]))
                    continue
                reading = self._readings.read(block, row)
                if reading.line is not None or reading.answer is not None:
                    self._read[row] = reading
                if frames.status[row] == MALFORMED:
                    self._note(frames, row, "malformed_frame")
                if frames.frame_bytes[row] > BROKER_BODY_LIMIT + LENGTH_BYTES:
                    self._note(frames, row, "large_frame", int(frames.frame_bytes[row]))
            sources = (*block.sources, self._readings.opening.opened)
            messages += self._messages.advance(frames, first, stop, sources, self._readings.bodies)
            first = stop
        self._correlation.advance(
            frames, block.rows, self._readings.bodies, mine.tolist(), self._read
        )
        return self._gathered.subjects() + messages

    def settle(self) -> list[TableBlock]:
        """Exchanges, acks and deliveries that closed in the block just advanced."""
        return self._gathered.relations()

    def _note(self, frames: FrameColumns, row: int, code: str, value: int = NULL) -> None:
        self.findings.add(
            [
                Finding(
                    NOTICE_NUMBER[code],
                    int(frames.last_ts_ns[row]),
                    int(frames.connection_id[row]),
                    int(frames.direction[row]),
                    int(frames.frame_no[row]),
                    int(frames.last_packet[row]),
                    int(frames.stream_offset[row]),
                    value=value,
                )
            ]
        )

    def frame_columns(self, block: FrameBlock, rows: Int64Array) -> dict[str, Column]:
        """Cursus' own columns of the table frames, for chosen rows of the block."""
        columns: dict[str, Column] = {}
        for place, values in picked(block, _NUMBERS, rows).items():
            name = _PICKED[place]
            if name == "command":
                columns[name] = names_column(values)
            elif name == "compression":
                columns[name] = Coded(values, CODEC_NAMES)
            else:
                columns[name] = Coded(values, self._names.names)
        self._add_texts(block, rows, columns)
        return columns

    def _add_texts(self, block: FrameBlock, rows: Int64Array, columns: dict[str, Column]) -> None:
        """Details and errors, where any row has one."""
        details: list[str | None] = [None] * len(rows)
        codes: list[str | None] = [None] * len(rows)
        texts: list[bytes | None] = [None] * len(rows)
        for place, row in enumerate(rows.tolist()):
            reading = self._read.get(row, Reading())
            details[place] = as_json(self._readings.detail(block.frames, row, reading))
            answer = reading.answer
            if answer is not None and answer.is_error:
                codes[place] = answer.error_code
                said = answer.error_text
                if said is not None:
                    texts[place] = without_secrets(said) if self._redact else said
        for name, values in (("detail", details), ("error_code", codes), ("error_text", texts)):
            if any(value is not None for value in values):
                columns[name] = values

    def connection_facts(self, connection: int) -> ConnectionFacts | None:
        """What is known of a connection that is over, which is forgotten."""
        return self._correlation.said.pop(connection, None)

    def repeated(self) -> Collection[int]:
        """A proxy of Cursus is not known."""
        return ()

    def finish(self) -> list[TableBlock]:
        """Close what is open at the capture's end."""
        self._correlation.finish(self.findings)
        self._effects.finish()
        return self._gathered.subjects() + self._gathered.relations()
