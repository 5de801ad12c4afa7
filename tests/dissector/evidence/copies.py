"""Anonymous copies of captures that are bytes."""

import io
import tempfile
from typing import Any

from dissector.dissection import Options
from dissector.evidence.anonymizer import Anonymizer, Keeping
from dissector.evidence.anonymizing import anonymize
from dissector.sources.rings import Chain

KEY = bytes(range(32))


def anonymous(data: bytes, key: bytes = KEY, **keeping: Any) -> bytes:
    """The copy of a capture file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        sink = io.BytesIO()
        anonymizer = Anonymizer(key, Keeping(**keeping))
        anonymize(Chain((file.name,), "x"), Options(), anonymizer, sink)
        return sink.getvalue()
