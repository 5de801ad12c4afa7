"""Options of a dissection, and which commands have flags of them."""

import json

from dissector.options import LANDING, READING, Options, flags


def test_every_option_with_a_flag_has_it_in_one_kind_of_command() -> None:
    reading, landing = ({each.name for each in flags(kind)} for kind in (READING, LANDING))
    assert landing == {"properties", "payload_sha256", "max_packets"}
    assert not reading & landing
    assert set(vars(Options())) - reading - landing == {"want_detail", "follow_connection"}


def test_a_manifest_has_all_options_as_json() -> None:
    told = json.loads(json.dumps(Options(decode_as={80: "cursus", 9: "pulsar"}).as_json()))
    assert list(told["decode_as"]) == ["9", "80"] and told.keys() == vars(Options()).keys()
