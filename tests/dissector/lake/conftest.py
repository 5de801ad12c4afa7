"""A server of S3 for lakes in stores."""

from collections.abc import Iterator

import pytest

from tests.dissector.storage.servers import s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its address."""
    with s3_server() as endpoint:
        yield endpoint
