"""Both files say the same, one of them in TLS."""

from pathlib import Path

import pytest

from tests.busy.encrypted import write_encrypted
from tests.busy.traffic import Size, write_capture
from tests.dissector.tls.seen import seen


@pytest.mark.parametrize("record_bytes", [100, 16384])
def test_a_capture_and_its_twin_give_the_same_frames(tmp_path: Path, record_bytes: int) -> None:
    source, path, twin = (tmp_path / name for name in ("source.pcap", "tls.pcap", "twin.pcap"))
    write_capture(source, Size(4000))
    keys = write_encrypted(source, path, twin, record_bytes)
    found, plain = seen(path.read_bytes(), keys), seen(twin.read_bytes())
    assert {row["tls_decryption"] for row in found.tables["connections"]} == {"decrypted"}
    assert found.frames == plain.frames and len(found.tables["frames"]) > 4000
    assert found.streams == plain.streams
