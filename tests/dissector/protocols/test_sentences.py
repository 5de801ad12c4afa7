"""Sentences of brokers: their own words stay, names go, the length stays."""

import pytest

from dissector.protocols.pseudonyms import Pseudonyms
from dissector.protocols.sentences import Sentences

NAMES = Pseudonyms(bytes(range(16)))
SENTENCES = Sentences(NAMES)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Topic 'persistent://acme/eu/orders' reached max producers limit", ["acme", "orders"]),
        ("Namespace bundle is being unloaded", []),
        (
            "org.apache.pulsar.broker.service.BrokerServiceException$NamingException: "
            "Producer with name 'same' is already connected to topic 'persistent://acme/eu/t'",
            ["same", "acme"],
        ),
        ("Topic has an existing exclusive producer: standalone-0-44", ["standalone-0-44"]),
        ("connect to 10.88.0.3:9000 refused", ["10.88.0.3", "9000"]),
        ("topic my-topic not found", ["my-topic"]),
        ("Kundenkonto überzogen", ["Kundenkonto", "überzogen"]),
    ],
)
def test_names_go_and_words_stay(text: str, names: list[str]) -> None:
    made = SENTENCES.anonymized(text.encode()).decode()
    assert len(made.encode()) == len(text.encode())
    assert not [name for name in names if name in made]
    assert names or made == text


def test_a_name_is_the_same_one_as_where_it_stands_alone() -> None:
    topic = b"persistent://acme/eu/orders-partition-2"
    assert NAMES.name(topic) in SENTENCES.anonymized(b"Topic '" + topic + b"' not found.")


def test_secrets_are_stars() -> None:
    made = SENTENCES.anonymized(b"refused: password=hunter2x for client")
    assert b"hunter2x" not in made and b"********" in made


def test_codes_stay_where_they_are_the_protocols_own() -> None:
    cursus = Sentences(NAMES, has_codes=True)
    assert cursus.anonymized(b"partition_not_found NOT_LEADER") == b"partition_not_found NOT_LEADER"
    assert b"acme" not in cursus.anonymized(b"acme_not_found")


@pytest.mark.parametrize(
    "text", ["Pulsar-Java-v4.0.6", "Pulsar Server4.0.6", "Pulsar-CPP-v3.13.0", "token", "none"]
)
def test_versions_stay(text: str) -> None:
    assert SENTENCES.version(text.encode()).decode() == text


def test_what_is_no_version_does_not() -> None:
    made = SENTENCES.version(b"acme-client-1.2 Basic dTpuTjVDcm12Zjk=")
    assert b"acme" not in made and b"client-1.2" in made and b"dTpu" not in made
