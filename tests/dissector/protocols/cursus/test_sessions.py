"""Records of sessions and their requests: room, use again, and what waits."""

from dissector.protocols.cursus.sessions import OpenSessions


def test_records_of_sessions_are_used_again_and_there_is_always_room():
    opened = OpenSessions(1 << 10)
    numbers = [opened.open(connection) for connection in range(200)]
    assert sorted(numbers) == list(range(200))
    opened.close(7, numbers[7])
    assert opened.open(1000) == numbers[7] and opened.open(1001) == 200
    opened.reserve(500)
    assert int(opened.state.free.free[0]) >= 500
    opened.reserve(5000)
    assert 1 << 10 < len(opened.state.free.rows) <= (1 << 10) + 210, "no more than may wait"
    assert not opened.is_over_limit and opened.waiting(numbers[3]) == []
