"""Accounts: sums over what came out, and the sentence that tells them."""

import pickle

import numpy as np
import pytest

from dissector.blocks import Coded, TableBlock
from dissector.limits import MAX_MISSING_SENTENCES, NULL
from dissector.sources.account import Account


def files(packets: int, used: int, **ignored: int) -> TableBlock:
    return TableBlock(
        "capture_files",
        1,
        {
            "file_name": ["x"],
            "packets": np.array([packets]),
            "packets_tcp": np.array([used]),
            "packets_ignored_by_reason": [sorted(ignored.items())],
        },
    )


def notices(*codes: str, text: str | None = None) -> TableBlock:
    names = sorted(set(codes))
    return TableBlock(
        "notices",
        len(codes),
        {
            "code": Coded(np.array([names.index(code) for code in codes], np.int64), names),
            "text": Coded(np.arange(len(codes)), [text or f"about {code}" for code in codes]),
        },
    )


def connections(gap: int, cut: int) -> TableBlock:
    return TableBlock(
        "connections",
        2,
        {
            "connection_id": np.array([0, 1]),
            "stream_bytes_to_broker": np.array([100, NULL]),
            "gap_bytes_to_client": np.array([gap, 0]),
            "snaplen_cut_bytes_to_broker": np.array([0, cut]),
        },
    )


def test_everything_is_counted_and_told() -> None:
    account = Account("night")
    for block in (
        files(10, 7, udp=1, not_ip=2), connections(5, 1), notices("gap_lost", "gap_lost"),
        TableBlock("frames", 3, {}), TableBlock("messages", 1, {}), TableBlock("frames", 1, {}),
    ):  # fmt: skip
        account.add(block)
    assert account.notices == {"gap_lost": 2} and not account.is_partial
    assert account.stream_bytes == 100
    assert account.sentence() == (
        "read 10 packets in 1 file: 2 connections (one carries 100 % of the bytes), "
        "4 frames, 1 message; "
        "5 bytes never captured, 1 byte cut by the snap length, "
        "3 packets not used (not_ip 2, udp 1)"
    )


def carrying(*amounts: tuple[int, int]) -> Account:
    """The account of connections that carry so many bytes to the broker and to the client."""
    to_broker, to_client = np.array(amounts, np.int64).reshape(-1, 2).T
    columns = {"stream_bytes_to_broker": to_broker, "stream_bytes_to_client": to_client}
    account = Account()
    account.add(TableBlock("connections", len(amounts), columns))
    return account


@pytest.mark.parametrize(
    ("amounts", "said"),
    [
        ([(80, 0), (0, 20)], "2 connections (one carries 80 % of the bytes)"),
        ([(9, 890), (20, 29), (0, 1)], "3 connections (one carries 94 % of the bytes)"),
        ([(79, 0), (20, 1)], "2 connections"),
        ([(0, 0), (0, 0)], "2 connections"),
        ([(60, 0)], "1 connection"),
        ([], "0 connections"),
    ],
)
def test_a_connection_that_carries_most_is_told(amounts: list[tuple[int, int]], said: str) -> None:
    account = carrying(*amounts)
    assert f": {said}, 0 frames;" in account.sentence()
    again = Account.from_json(account.as_json(), "", ())
    assert again is not None and again.sentence() == account.sentence()


def test_of_several_captures_the_connection_that_carries_most_of_all_is_told() -> None:
    account = carrying((60, 0), (20, 29))
    account.merge(carrying((90, 0)))
    assert "3 connections, " in account.sentence()
    account.merge(carrying((900, 0)))
    assert "4 connections (one carries 81 % of the bytes), " in account.sentence()


def test_drops_of_the_interface_are_lost_packets() -> None:
    account = Account()
    account.add(TableBlock("capture_files", 2, {
        "packets": [3, 4], "packets_tcp": [3, 4], "dropped_by_interface": [None, 2],
        "packets_ignored_by_reason": [[], []],
    }))  # fmt: skip
    account.merge(account)
    assert account.sentence().endswith("; 4 packets dropped by the interface")


def test_nothing_lost_is_said() -> None:
    account = Account()
    account.add(files(1, 1))
    assert account.sentence() == "read 1 packet in 1 file: 0 connections, 0 frames; nothing lost"


def test_what_was_not_decoded_and_directions_that_are_missing_are_told() -> None:
    account = Account()
    account.add(files(9, 9))
    account.add(
        TableBlock(
            "connections",
            4,  # whole, without answers, without requests, nothing of it was decoded
            {
                "packets_to_broker": np.array([5, 5, 0, 5]),
                "packets_to_client": np.array([4, 0, 4, 0]),
                "decoded_bytes_to_broker": np.array([90, 90, 0, 0]),
                "decoded_bytes_to_client": np.array([90, 0, 70, 0]),
                "unparsed_bytes_to_broker": np.array([0, 1000, NULL, 0]),
                "unparsed_bytes_to_client": np.array([0, 0, 0, 234]),
            },
        )
    )
    account.merge(Account())
    assert account.sentence().endswith(
        "; 1,234 bytes not decoded, 2 connections seen in one direction only"
    )


@pytest.mark.parametrize("code", ["truncated_tail", "damaged_compression", "skipped_section"])
def test_damage_of_the_file_makes_a_run_partial(code: str) -> None:
    account = Account("night")
    account.add(notices("gap_lost", code))
    assert account.is_partial and account.missing == [f"night: about {code}"]
    assert account.sentence().endswith("1 part of the input not read")


def test_sentences_name_the_file_that_they_are_about() -> None:
    account = Account("ring", ("ring.pcap0", "ring.pcap1"))
    account.add(notices("truncated_tail", text="file 1 ends inside a record at byte 9"))
    account.add(notices("unknown_link_type", text="link type 147 is not read"))
    assert account.missing == [
        "ring.pcap1 ends inside a record at byte 9",
        "ring: link type 147 is not read",
    ]
    alone = Account("night", ("night.pcap",))
    alone.add(notices("unknown_link_type", text="link type 147 is not read"))
    assert alone.missing == ["night.pcap: link type 147 is not read"]


def test_a_capture_of_unknown_link_types_only_is_unreadable() -> None:
    account = Account()
    account.add(files(5, 0, unknown_link_type=5))
    assert account.is_unreadable
    account.add(files(5, 0, not_ip=5))
    assert not account.is_unreadable
    assert not Account().is_unreadable
    odd = Account()
    odd.add(files(7, 0, unknown_link_type=5, unknown_interface=2))
    assert odd.is_unreadable


def test_bytes_that_the_snap_length_did_not_cut_are_not_its_doing() -> None:
    account = Account()
    account.cut_bytes = 10
    assert "10 bytes cut by the snap length;" in account.sentence() + ";"
    account.shortened_bytes = 4
    assert "cut by the snap length or missing from packets that are shorter" in account.sentence()
    account.shortened_bytes = 10
    assert "10 bytes missing from packets that are shorter than their IP" in account.sentence()
    assert "snap length" not in account.sentence()


def test_reasons_that_are_not_named_are_counted() -> None:
    account = Account()
    account.add(files(10, 0, udp=4, icmp=3, gre=2, esp=1))
    assert "(udp 4, icmp 3, gre 2 … 4 reasons in all)" in account.sentence()


def test_accounts_add_up_and_travel_between_processes() -> None:
    one, two, both = Account("a"), Account("b"), Account()
    for account, other in ((one, 0), (two, 3)):
        blocks = (files(10 + other, 7, udp=3 + other), connections(other, 1), notices("gap_lost"))
        for block in blocks:
            account.add(block)
            both.add(block)
        account.miss("part")
        both.miss("part")
    total = Account()
    total.merge(pickle.loads(pickle.dumps(one)))
    total.merge(two)
    assert vars(total) == vars(both)


def test_sentences_are_bounded_and_counted() -> None:
    account = Account()
    for number in range(1000):
        account.miss(f"part {number}")
    assert len(account.missing) == MAX_MISSING_SENTENCES and account.missing_count == 1000
