"""Sessions stand in the rows of pairing's connections: room, and rows that are used again."""

from dissector.limits import NULL
from dissector.protocols.cursus import commands, sessions
from dissector.protocols.pairing import connections, rules
from dissector.protocols.pairing.exchanges import Exchanges
from dissector.protocols.pairing.steps import close_rest
from dissector.schemas.enums import CONN_CLOSED
from tests.wire.frames import FrameMaker


def test_rows_of_sessions_are_used_again_and_there_is_always_room():
    exchanges = Exchanges(0, rules.rules_of(commands.TABLE), 0)
    own, pairing = sessions.new_session_state(), exchanges.memory()
    numbers = [sessions.open_session(own, pairing, connection) for connection in range(3000)]
    assert sorted(numbers) == list(range(3000))
    own.sessions.has_asked[numbers[7]] = 1
    block = FrameMaker().block([])
    run = exchanges.begin(block.frames, 0, block.words, [])
    connections.close_connection(run, numbers[7], CONN_CLOSED)
    assert connections.find_connection(pairing, 7) == -1
    assert sessions.open_session(own, pairing, 9000) == numbers[7]
    assert own.sessions.has_asked[numbers[7]] == 0 and own.sessions.last_topic[numbers[7]] == NULL
    sessions.reserve(own, pairing, 0, 5000)
    assert int(pairing.pending_pool.free[0]) >= 5000
    assert len(own.requests.matrix) >= len(pairing.pending_pool.rows)
    assert close_rest(run, 1) == 0, "nothing waits"
