"""Reasons and their names."""

from dissector.packet import reasons

NO_REASONS = ("LOOK_CLOSER", "DETAIL_SHIFT", "REASON_MASK")


def test_every_reason_has_its_own_name_in_its_place():
    numbers = [
        value
        for name, value in vars(reasons).items()
        if name.isupper() and isinstance(value, int) and name not in NO_REASONS
    ]
    assert sorted(numbers) == list(range(len(reasons.IGNORED_REASONS)))
    assert len(set(reasons.IGNORED_REASONS)) == len(reasons.IGNORED_REASONS)
    for name, value in vars(reasons).items():
        if name in ("MPLS", "PPPOE", "VLAN_DEPTH", "BAD_TCP_CHECKSUM", "GRE"):
            assert reasons.IGNORED_REASONS[value] == name.lower()
