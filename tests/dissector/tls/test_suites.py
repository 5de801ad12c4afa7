"""Names of ciphers and what they say of themselves."""

from dissector.tls import suites
from tests.wire import tls


def test_a_suite_has_the_numbers_that_its_name_says() -> None:
    for name, kind in tls.KINDS.items():
        suite = suites.suite_of(kind.number)
        assert suite.name == name
        assert suite.key_bytes == kind.key_bytes and suite.digest == kind.digest
        assert suite.mac == kind.mac


def test_what_is_not_known_has_its_number() -> None:
    assert suites.suite_of(0xFAFA).name == "0xfafa" and not suites.suite_of(0xFAFA).mode
    assert suites.alert_name(48) == "unknown_ca" and suites.alert_name(200) == "alert 200"
    assert suites.version_name(0x0301) == "TLS 1.0" and suites.version_name(5) == "0x0005"
