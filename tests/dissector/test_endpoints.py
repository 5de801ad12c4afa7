"""Addresses, and keys that do not depend on who is looked at first."""

import ipaddress

import pytest

from dissector.endpoints import Endpoint, FlowKey
from tests.naive.endpoints import community_id, connection_key


def endpoint(text: str, port: int) -> Endpoint:
    number = int(ipaddress.ip_address(text))
    version = ipaddress.ip_address(text).version

    def signed(value: int) -> int:
        return value - (1 << 64) if value >> 63 else value

    if version == 4:
        return Endpoint(4, 0, number, port)
    return Endpoint(6, signed(number >> 64), signed(number & (1 << 64) - 1), port)


@pytest.mark.parametrize("text", ["10.0.0.1", "255.255.255.255", "::1", "fe80::1", "ff::ffff:1"])
def test_addresses_survive_the_two_halves(text):
    assert endpoint(text, 1).text() == text
    assert Endpoint.of(text, 1) == endpoint(text, 1)


def test_a_flow_has_its_ends_as_segments_have_them():
    flow = FlowKey.between(Endpoint.of("fe80::1", 5), Endpoint.of("10.0.0.1", 6650))
    assert flow == (-0x180_0000_0000_0000, 1, 5, 0, 0x0A00_0001, 6650)
    assert flow.mirrored() == (0, 0x0A00_0001, 6650, -0x180_0000_0000_0000, 1, 5)


def test_the_lower_address_comes_first_then_the_lower_port():
    one, other = endpoint("10.0.0.2", 6650), endpoint("10.0.0.1", 50000)
    assert connection_key(one, other, None) == "10.0.0.1:50000 10.0.0.2:6650"
    assert connection_key(other, one, "gre") == "gre 10.0.0.1:50000 10.0.0.2:6650"
    same = endpoint("::1", 9), endpoint("::1", 8)
    assert connection_key(*same, None) == "[::1]:8 [::1]:9"


def test_community_id_equals_the_published_vectors():
    """Values of the specification's own test data for TCP, seed 0."""
    one, other = endpoint("128.232.110.120", 34855), endpoint("66.35.250.204", 80)
    assert community_id(one, other) == "1:LQU9qZlK+B5F3KDmev6m5PMibrg="
    assert community_id(other, one) == "1:LQU9qZlK+B5F3KDmev6m5PMibrg="
