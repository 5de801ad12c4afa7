"""What the user chose reaches the kernels, and what first bytes name is read."""

from dissector.protocols.framing.detection import Detection, FramingOptions
from dissector.protocols.framing.state import (
    COUNTER_IS_FORCED,
    COUNTER_ONLY,
    PORT_OF_BROKER,
    PROTOCOL_SHIFT,
    new_state,
)
from tests.wire.toy import SPEC


def test_ports_that_the_user_names_are_those_of_brokers() -> None:
    found, state = Detection((SPEC,), FramingOptions(forced={7007: 0})), new_state(1, 0)
    found.apply_options(state)
    assert found.broker_ports == {7000, 7007}
    assert state.port_hints[[6999, 7000, 7007]].tolist() == [
        0, PORT_OF_BROKER, PORT_OF_BROKER | 1 << PROTOCOL_SHIFT,
    ]  # fmt: skip
    assert state.counters[COUNTER_IS_FORCED] and not state.counters[COUNTER_ONLY]


def test_a_protocol_for_all_connections_is_asked_for() -> None:
    state = new_state(1, 0)
    Detection((SPEC,), FramingOptions()).apply_options(state)
    assert not state.counters[COUNTER_IS_FORCED]
    Detection((SPEC,), FramingOptions(only=0)).apply_options(state)
    assert state.counters[COUNTER_IS_FORCED] and state.counters[COUNTER_ONLY] == 1
