"""Anonymous copies of captures that are bytes."""

import io
import tempfile
from typing import Any

from dissector.dissection import Options
from dissector.evidence.anonymizer import Anonymizer, Keeping
from dissector.evidence.anonymizing import anonymize
from dissector.evidence.streams import ASKED, TreatedStreams
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain

KEY = bytes(range(32))


def anonymous(data: bytes, key: bytes = KEY, **keeping: Any) -> bytes:
    """The copy of a capture file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        sink = io.BytesIO()
        anonymizer = Anonymizer(key, Keeping(**keeping))
        chain = Chain((file.name,), "x")
        streams = TreatedStreams(anonymizer.treat, dissect(chain, Options(**ASKED)))
        anonymize(chain, streams, anonymizer, sink)
        return sink.getvalue()
