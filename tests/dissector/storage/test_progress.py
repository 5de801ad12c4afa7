"""One listener hears how much of a store came."""

from dissector.storage import progress


def test_the_last_listener_alone_hears() -> None:
    heard: list[object] = []
    progress.listen(lambda *each: heard.append(("first", *each)))
    progress.listen(lambda *each: heard.append(("last", *each)))
    progress.tell(1, 2, "s3://x")
    progress.listen(None)
    progress.tell(2, 2, "s3://x")
    assert heard == [("last", 1, 2, "s3://x")]
