"""Why messages come again, where a request and what it is about cross on their way."""

import pytest

from tests.wire.talk import EXCLUSIVE, SHARED, Talk


def causes_after(requests: int, subscription_type: int) -> list[str | None]:
    """Causes of two entries that come twice, after so many requests for all."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=subscription_type)
    talk.flow(1000)
    for _ in range(requests):
        talk.redeliver()
    for entry in (0, 1, 0, 1):
        talk.message(entry)
    rows = sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])
    return [row["redelivery_cause"] for row in rows]


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
@pytest.mark.parametrize(("requests", "cause"), [(1, "explicit"), (2, "explicit"), (0, "unknown")])
def test_a_request_for_all_is_seen_before_what_was_on_its_way(
    kind: int, requests: int, cause: str
) -> None:
    assert causes_after(requests, kind) == [None, None, cause, cause]
