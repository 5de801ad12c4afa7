"""What is an address of a store, what is none, and that none holds a secret."""

import pytest

from dissector.errors import UsageError
from dissector.local_paths import located
from dissector.storage.addresses import is_stored, parsed


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://bucket/night.pcap", "s3://bucket/night.pcap"),
        ("S3A://bucket/a/b c%20d", "s3://bucket/a/b c%20d"),
        ("gcs://bucket", "gs://bucket/"),
        ("az://container/x*", "az://container/x*"),
        ("abfs://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("hdfs://name:8020/taps/x", "hdfs://name:8020/taps/x"),
        ("hdfs:///taps/x", "hdfs:///taps/x"),
    ],
)
def test_addresses_of_other_tools_are_taken(text: str, address: str) -> None:
    assert located(text) == address == str(parsed(address)) and is_stored(address)


@pytest.mark.parametrize(
    "text",
    ["s3://AKID:sekret@bucket/x", "s3://bucket:9000/x", "gs://user@bucket/x", "s3:///x", "az://",
     "hdfs://a:b@host/x", "abfss://container/x"],
)  # fmt: skip
def test_what_may_hold_a_secret_or_names_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        located(text)
    assert "sekret" not in str(raised.value)


@pytest.mark.parametrize("text", ["http://host/x.pcap", "wasbs://c@a/l", "webhdfs://h/l"])
def test_other_schemes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is an address"):
        located(text)


@pytest.mark.parametrize("text", ["s3/x", "a:b", "./s3://b/x", "-", "/s3://b", "s3:/b/x"[:2]])
def test_paths_are_no_addresses(text: str) -> None:
    assert not is_stored(located(text))
