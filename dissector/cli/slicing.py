"""frames -w: the packets behind the selected frames as a capture file."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from dissector.cli.terminal import counted
from dissector.errors import UsageError
from dissector.outputs import new_file, written
from dissector.sources.private import private

if TYPE_CHECKING:
    from dissector.blocks import TableBlock
    from dissector.dissection import Options
    from dissector.sources.slice import PacketSelection

_COLUMNS: Final = ("connection_id", "direction", "first_packet", "last_packet")
_ENDS: Final = ("client_ip", "client_port", "broker_ip", "broker_port")
_TLS: Final = ("tls_decryption", "first_ts_ns", "last_ts_ns")
_DECRYPTED: Final = ("decrypted", "partly")


class Slice:
    """Records the packets of selected frames while they are shown, then writes them to a file.

    Packets are written unchanged, with all secrets, unless `redacted` gives the options to find
    these. Of a decrypted TLS connection all packets up to the last selected one are written: a
    record can only be decrypted after all before it. `decrypting` gives the options to find the
    keys, which are then in the file.
    """

    def __init__(
        self,
        path: str,
        inputs: Sequence[str] = (),
        is_forced: bool = False,
        redacted: "Options | None" = None,
        decrypting: "Options | None" = None,
    ) -> None:
        self.path = Path(path)
        self._redacted = redacted
        self._decrypting = decrypting
        self._encrypted: dict[int, tuple[int, int]] = {}  # first and last time
        self._is_forced = is_forced
        self._target = new_file(self.path, inputs, is_forced=is_forced)
        self._chain: Any = None
        self._ranges: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self._ends: dict[int, tuple[str, int, str, int]] = {}

    def add(self, chain: Any, batch: Any) -> None:
        """Record the frames of a shown batch."""
        if self._chain not in (None, chain):
            raise UsageError("-w takes frames of one capture; name one, or select more closely")
        self._chain = chain
        for connection, direction, first, last in zip(
            *(batch.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            self._ranges.setdefault((connection, direction), []).append((first, last))

    def watch(self, chain: Any, block: "TableBlock") -> None:
        """Record the endpoints of connections from blocks of the input."""
        if block.table != "connections":
            return
        from dissector.schemas.rows import arrow_batch

        batch = arrow_batch(block)
        names = ("connection_id", *_ENDS, *_TLS)
        for connection, *ends, fate, first_ns, last_ns in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            if chain == self._chain:
                self._ends[connection] = tuple(ends)
                if fate in _DECRYPTED:
                    self._encrypted[connection] = first_ns, last_ns

    def write(self) -> str:
        """Write the file; return the sentence about it.

        Raises:
            OutputError: it could not be written.
        """
        from dissector.endpoints import Endpoint
        from dissector.sources.slice import FlowSpan, PacketSelection, flows_of

        selection = PacketSelection()
        for (connection, direction), ranges in self._ranges.items():
            ends = self._ends[connection]
            client, broker = Endpoint.of(*ends[:2]), Endpoint.of(*ends[2:])
            encrypted = self._encrypted.get(connection)
            if encrypted is not None:
                last_packet = max(last for _, last in ranges)
                for flow in flows_of(client, broker):
                    selection.add(flow, 1, last_packet)
                    selection.spans.append(FlowSpan(flow, *encrypted, True))
                continue
            for flow in flows_of(client, broker, direction):
                for first, last in ranges:
                    selection.add(flow, first, last)
        with written(self._target, is_forced=self._is_forced, opener=private) as file:
            packets, content = self._write_to(file, selection)
        return f"{counted(packets, 'packet')} written to {self.path}; {content}"

    def _write_to(self, file: BinaryIO, selection: "PacketSelection") -> tuple[int, str]:
        """Write the packets to a file of mode 0600; return their number and a description."""
        from dissector.capture.write import with_secrets
        from dissector.evidence.redacted import RAW_BYTES, hidden_sentence, redact_capture
        from dissector.sources.key_logs import key_lines
        from dissector.sources.slice import write_slice

        if self._redacted is None and self._decrypting is None:
            packets = write_slice(self._chain, selection, file) if self._chain else 0
            return packets, RAW_BYTES
        # Raw bytes are never written to disk.
        whole = io.BytesIO()
        packets = write_slice(self._chain, selection, whole, False) if self._chain else 0
        data = bytearray(whole.getbuffer())
        if self._decrypting is not None:
            secrets = key_lines(data, self._decrypting, selection.key_logs)
            file.write(with_secrets(bytes(data), secrets.encode()))
            return packets, f"{RAW_BYTES}, and {counted(secrets.count(chr(10)), 'key')} of TLS"
        assert self._redacted is not None
        changed = redact_capture(data, self._redacted)
        file.write(data)
        return packets, hidden_sentence(changed)
