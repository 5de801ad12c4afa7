"""Wrapped packets: the same rows as without what is around them, and every packet counted."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hard import cut_cases as cut
from tests.hard import link_cases as made
from tests.hard.cases import all_cases
from tests.hard.tape import Tables, capture, codes, commands, dissected, talk
from tests.wire import tunnels
from tests.wire.captures import ETHERNET, Record, enhanced_packet, interface, section
from tests.wire.fragments import fragments
from tests.wire.packets import ethernet

AROUND = {"vlan_ids", "tunnel_id", "connection_key"}
ADDRESSES = {"client_ip", "broker_ip", "community_id"}


def content(id: str, words: str) -> bytes:
    (found,) = (each for each in all_cases() if (each.id, each.words) == (id, words))
    return found.make()


def rows(tables: Tables, left_out: set[str], tables_of: tuple[str, ...] = ()) -> Tables:
    """All rows but those about files, without some columns."""
    return {
        name: [{key: row[key] for key in row if key not in left_out} for row in found]
        for name, found in tables.items()
        if name != "capture_files" and (not tables_of or name in tables_of)
    }


def closes(tables: Tables) -> dict[str, int]:
    """Packets in = used + ignored by reason, and used = those of connections; the reasons."""
    (file,) = tables["capture_files"]
    ignored = dict(file["packets_ignored_by_reason"] or {})
    assert file["packets"] == file["packets_tcp"] + sum(ignored.values())
    used = [
        row[f"packets_{way}"]
        for row in tables.get("connections", [])
        for way in ("to_broker", "to_client")
    ]
    assert file["packets_tcp"] == sum(used)
    return ignored


@pytest.fixture(scope="module")
def plain() -> Tables:
    """What comes of the conversation without anything around it."""
    return dissected(capture(made.conversation().records()))


def check_layers(id: str, plain: Tables) -> None:
    prefix, layers = made.LAYERS[id]
    for words, layer in layers.items():
        tables = dissected(content(id, f"{prefix}_{words}"))
        assert rows(tables, AROUND) == rows(plain, AROUND), words
        (connection,) = tables["connections"]
        assert tuple(connection["vlan_ids"] or ()) == layer.vlans, words
        assert connection["tunnel_id"] == layer.tunnel, words
        assert connection["connection_key"].startswith(f"{layer.tunnel} " if layer.tunnel else "1")
        assert closes(tables) == {}, words


def test_b01_any_tags_are_kept_in_order(plain: Tables) -> None:
    check_layers("B01", plain)


def test_b01_more_tags_are_counted() -> None:
    deep = made.tagged(0x8100, 1, 2, 3, 4, 5)
    tables = dissected(made.carried(deep))
    assert set(closes(tables)) == {"vlan_depth"}
    assert codes(tables) == ["nesting_limit"]


@pytest.mark.parametrize("words", ["tag_to_broker_only", "labels_differ_by_direction"])
def test_b02_directions_with_other_tags_are_one_connection(plain: Tables, words: str) -> None:
    tables = dissected(content("B02", words))
    assert rows(tables, AROUND) == rows(plain, AROUND)
    assert closes(tables) == {}


@pytest.mark.parametrize("words", ["tenants_in_two_vlans", "tenants_in_two_networks"])
def test_b03_tenants_with_equal_addresses_are_two_connections(plain: Tables, words: str) -> None:
    tables = dissected(content("B03", words))
    for number, tape in enumerate(made.tenants()):
        alone = dissected(capture(tape.records()))
        said = [row["command"] for row in tables["frames"] if row["connection_id"] == number]
        assert said == commands(alone)
        (row,) = (row for row in tables["connections"] if row["connection_id"] == number)
        assert row["decoded_bytes_to_broker"] == len(tape.sent[0])
        assert row["retransmitted_packets_to_broker"] == row["duplicate_packets_to_client"] == 0
        if "vlan" in words:
            assert row["vlan_ids"] == [number + 1]
        else:
            assert row["tunnel_id"] == f"vxlan:{number + 1}"
            assert row["connection_key"].startswith(f"vxlan:{number + 1} ")
    assert codes(tables) == ["addresses_shared"]
    assert tables["notices"][0]["connection_id"] == 1
    assert closes(tables) == {}


def test_b04_labels_and_tags_of_all_kinds(plain: Tables) -> None:
    check_layers("B04", plain)


def test_b04_what_is_not_read_is_named() -> None:
    records = made.conversation().records()
    records.insert(3, Record(records[3].ts_ns, ethernet(bytes(46), 0x22F3)))
    records.insert(5, Record(records[5].ts_ns, ethernet(bytes(46), 0x0806)))
    tables = dissected(capture(records))
    assert closes(tables) == {"unsupported_l2": 1, "not_ip": 1}
    assert codes(tables) == ["unknown_ethertype"]
    assert tables["notices"][0]["text"] == "ethertype 0x22f3 (TRILL) is not read: 1 packet"


def test_b05_every_link_type(plain: Tables) -> None:
    check_layers("B05", plain)


@pytest.mark.parametrize("link_type", [ETHERNET, 229, 0, 108])
def test_b05_ipv6_in_link_types(link_type: int) -> None:
    six = made.conversation(**made.SIX)
    wraps = {ETHERNET: made.framed, 229: bytes, 0: made.LINKS["null_little"].wrap}
    wrap = wraps.get(link_type, made.LINKS["loop"].wrap)
    tables = dissected(capture(six.records(lambda packet, _: wrap(packet)), link_type))
    assert commands(tables) == commands(dissected(capture(six.records())))


def test_b05_unknown_link_types_are_named() -> None:
    tables = dissected(mixed(147))
    assert closes(tables) == {"unknown_link_type": 1}
    assert codes(tables) == ["unknown_link_type"]
    assert tables["notices"][0]["text"] == "link type 147 (USER0) is not read: 1 packet"


def mixed(link_type: int) -> bytes:
    """pcapng with a packet of another link type beside the conversation."""
    out = section() + interface() + interface(link_type=link_type)
    records = made.conversation().records()
    out += enhanced_packet(records[0].ts_ns // 1000, b"what is this", interface_id=1)
    return out + b"".join(enhanced_packet(each.ts_ns // 1000, each.data) for each in records)


def check_twice(id: str, words: str, plain: Tables) -> None:
    tables = dissected(content(id, words))
    assert rows(tables, {"first_packet", "last_packet"}, ("frames",))["frames"] == [
        {key: row[key] for key in row if key not in ("first_packet", "last_packet")}
        for row in plain["frames"]
    ]
    (row,) = tables["connections"]
    (once,) = plain["connections"]
    for way in ("to_broker", "to_client"):
        assert row[f"packets_{way}"] == 2 * once[f"packets_{way}"]
        assert row[f"duplicate_packets_{way}"] == once[f"packets_{way}"]
        assert row[f"retransmitted_packets_{way}"] == row[f"gaps_{way}"] == 0
        assert row[f"decoded_bytes_{way}"] == once[f"decoded_bytes_{way}"]
    assert codes(tables) == []
    assert closes(tables) == {}


@pytest.mark.parametrize("words", ["every_interface_twice", "every_interface_twice_with_vlan"])
def test_b06_a_capture_on_all_interfaces_shows_each_packet_twice(plain: Tables, words: str) -> None:
    check_twice("B06", words, plain)


@pytest.mark.parametrize("words", ["tunnel_and_inside", "two_tunnels"])
def test_b22_a_tunnel_and_what_is_in_it_are_one_connection(plain: Tables, words: str) -> None:
    check_twice("B22", words, plain)
    (row,) = dissected(content("B22", words))["connections"]
    assert row["tunnel_id"] == "vxlan:5"
    # What was also seen outside of the tunnel has the key that others see.
    assert row["connection_key"].startswith("10." if words == "tunnel_and_inside" else "vxlan:5 ")


def test_b07_padding_is_no_payload(plain: Tables) -> None:
    assert rows(dissected(content("B07", "padding")), set()) == rows(plain, set())


def test_b07_an_ip_length_that_counts_padding_is_not_the_shortest(plain: Tables) -> None:
    tables = dissected(content("B07", "padding_in_the_ip_length"))
    assert rows(tables, AROUND) == rows(plain, AROUND)
    assert closes(tables) == {}


def test_b08_trailers_are_no_payload(plain: Tables) -> None:
    assert rows(dissected(content("B08", "trailers")), set()) == rows(plain, set())


FRAGMENTED = [f"fragments_{words}" for words in cut.ORDERS]
NUMBERS = {"first_packet", "last_packet", "packet", "ts", "frame_no"}


def said(tables: Tables) -> list[tuple[object, ...]]:
    """What was said, without times and numbers of packets."""
    names = ("direction", "command", "stream_offset", "frame_bytes", "checksum", "sequence_id")
    return sorted((tuple(row[name] for name in names) for row in tables["frames"]), key=str)


@pytest.mark.parametrize("words", [*FRAGMENTED, "fragments_in_a_tunnel"])
def test_b15_fragments_are_put_together(plain: Tables, words: str) -> None:
    data = content("B15", words)
    tables = dissected(data)
    assert said(tables) == said(plain)
    (row,), (once,) = tables["connections"], plain["connections"]
    for name in once:
        if name.startswith(("packets", "payload", "stream", "retrans", "dup", "out_of", "gap")):
            assert row[name] == once[name], name
    (file,) = tables["capture_files"]
    count = file["packets"] - (once["packets_to_broker"] + once["packets_to_client"])
    assert closes(tables) == {"ip_fragment": count}
    assert codes(tables) == []


def test_b15_missing_and_contradicting_fragments_cost_their_packet_only(plain: Tables) -> None:
    tape = made.conversation()
    big = [n for n, each in enumerate(tape.packets) if len(each.payload) > 1000][:2]
    records = []
    for number, record in enumerate(tape.records()):
        pieces = [record.data[14:]]
        if number in big:
            pieces = fragments(pieces[0], [512], number)
        if number == big[0]:
            pieces = pieces[:1]
        elif number == big[1]:
            first, second = pieces
            pieces = [first, first[:-1] + bytes([first[-1] ^ 1]), second]
        records += [Record(record.ts_ns, made.framed(piece)) for piece in pieces]
    tables = dissected(capture(records))
    assert set(said(tables)) < set(said(plain))
    (row,) = tables["connections"]
    lost = sum(len(tape.packets[number].payload) for number in big)
    assert row["gap_bytes_to_broker"] == lost
    assert closes(tables) == {"ip_fragment": 2, "fragment_conflict": 2}
    assert {"fragments_missing", "fragments_conflict", "gap_lost"} <= set(codes(tables))


def test_b16_a_header_in_two_fragments(plain: Tables) -> None:
    tables = dissected(content("B16", "first_fragment_shorter_than_its_header"))
    assert said(tables) == said(plain)
    assert set(closes(tables)) == {"ip_fragment"}


@pytest.mark.parametrize("words", [f"extension_{words}" for words in cut.EXTENSIONS])
def test_b17_extension_headers_are_walked(words: str) -> None:
    six = dissected(capture(made.conversation(**made.SIX).records()))
    tables = dissected(content("B17", words))
    assert rows(tables, set()) == rows(six, set())
    assert closes(tables) == {}


def test_b17_fragments_of_ipv6_are_put_together() -> None:
    six = dissected(capture(made.conversation(**made.SIX).records()))
    tables = dissected(content("B17", "fragments_of_ipv6"))
    assert said(tables) == said(six)
    assert set(closes(tables)) == {"ip_fragment"}


def test_b18_mirrors_of_all_types(plain: Tables) -> None:
    check_layers("B18", plain)


def test_b19_gre_with_all_fields(plain: Tables) -> None:
    check_layers("B19", plain)


def test_b19_deeper_tunnels_are_counted() -> None:
    def deep(packet: bytes) -> bytes:
        for _ in range(9):
            packet = tunnels.over_ip(tunnels.gre(packet, 0x0800), 47)
        return made.framed(packet)

    tables = dissected(made.carried(made.Layer(deep)))
    assert set(closes(tables)) == {"tunnel_depth"}
    assert codes(tables) == ["nesting_limit"]


def test_b20_vxlan_of_all_kinds(plain: Tables) -> None:
    check_layers("B20", plain)


def test_b21_geneve_with_options(plain: Tables) -> None:
    check_layers("B21", plain)


@pytest.mark.parametrize("words", [f"giant_{words}" for words in cut.GIANTS])
def test_b23_giants_not_yet_cut_by_the_card(words: str) -> None:
    tape = cut.giants("ipv6" in words)
    assert max(len(each.payload) for each in tape.packets) > 1 << 16
    tables = dissected(content("B23", words))
    (row,) = tables["connections"]
    assert row["decoded_bytes_to_broker"] == len(tape.sent[0])
    assert {each["checksum"] for each in tables["frames"]} == {"ok", None}
    assert closes(tables) == {}


def test_b24_checksums_left_to_the_card_are_no_damage(plain: Tables) -> None:
    data = content("B24", "checksums_left_to_the_card")
    tables = dissected(data)
    assert rows(tables, set())["frames"] == plain["frames"]
    # Of a capture that is not verified only the packets that open connections are looked at.
    assert codes(tables) == ["checksum_offload"] and "1 packets" in tables["notices"][0]["text"]
    verified = dissected(data, verify_checksums=True)
    assert verified["frames"] == plain["frames"]
    (row,) = plain["connections"]
    assert f"{row['packets_to_broker']} packets" in verified["notices"][0]["text"]
    assert closes(tables) == closes(verified) == {}


def test_b24_verification_drops_damage(plain: Tables) -> None:
    data = content("B24", "damaged_copy_before_the_right_one")
    verified = dissected(data, verify_checksums=True)
    assert said(verified) == said(plain)
    assert closes(verified) == {"bad_tcp_checksum": 1}
    assert closes(dissected(data)) == {}


@pytest.mark.parametrize("words", ["cut_in_payloads", "cut_by_a_mirror"])
def test_b26_cut_payloads_are_no_loss(plain: Tables, words: str) -> None:
    tape = made.conversation()
    tables = dissected(content("B26", words))
    (row,) = tables["connections"]
    for side, way in enumerate(("to_broker", "to_client")):
        missing = sum(
            max(0, len(each.payload) - 40) for each in tape.packets if each.to_broker == (side == 0)
        )
        assert row[f"snaplen_cut_bytes_{way}"] == missing
        assert row[f"stream_bytes_{way}"] == len(tape.sent[side])
        assert row[f"gaps_{way}"] == row[f"retransmitted_packets_{way}"] == 0
    heads = [(row["direction"], row["command"], row["frame_bytes"]) for row in tables["frames"]]
    whole = [(row["direction"], row["command"], row["frame_bytes"]) for row in plain["frames"]]
    assert len(heads) == len(whole)
    assert [head[2] for head in heads] == [head[2] for head in whole]
    assert closes(tables) == {}


def test_b26_a_cut_in_tcp_options_keeps_the_place() -> None:
    tape = made.conversation()
    tables = dissected(content("B26", "cut_in_tcp_options"))
    (row,) = tables["connections"]
    for side, way in enumerate(("to_broker", "to_client")):
        assert row[f"snaplen_cut_bytes_{way}"] == len(tape.sent[side])
        assert row[f"gaps_{way}"] == 0
    assert closes(tables) == {}


def test_b26_a_cut_in_ip_headers_is_counted() -> None:
    tables = dissected(content("B26", "cut_in_ip_headers"))
    assert closes(tables) == {"ip_header_cut": len(made.conversation().packets)}
    assert "connections" not in tables


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25, deadline=None)
def test_any_stack_of_tunnels_in_any_fragments_says_the_same(seed: int) -> None:
    chance = random.Random(seed)
    tape = talk(2, seed=seed & 7, sizes=(5, 900))
    records = []
    for number, record in enumerate(tape.records()):
        inner = tunnels.Wrapped(record.data[14:])
        for _ in range(chance.randrange(3)):
            inner = tunnels.wrapped(inner, chance)
        pieces = [inner.packet]
        if chance.random() < 0.5:
            cuts = [8 * chance.randrange(1, 100) for _ in range(chance.randrange(1, 4))]
            pieces = fragments(inner.packet, cuts, number, chance.choice((0, 16)))
            chance.shuffle(pieces)
        for piece in pieces:
            framed = tunnels.on_wire(tunnels.Wrapped(piece), chance)
            # All fragments of a packet come the same way.
            data = framed.packet if len(pieces) == 1 else made.framed(piece)
            records.append(Record(record.ts_ns, data))
    tables = dissected(capture(records))
    assert said(tables) == said(dissected(capture(tape.records())))
    assert set(closes(tables)) <= {"ip_fragment"}
    assert set(codes(tables)) == set()
