"""The program that cuts captures elsewhere."""

import pytest

from tests.anycut import main
from tests.dissector.observed import CAPTURES


def test_its_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert said.startswith("usage: python -m tests.anycut [-h] [capture ...]")


def test_a_capture_that_is_named_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CAPTURES / "pulsar" / "cpp-s20_auth_token.pcap")]) == 0
    assert capsys.readouterr().out.startswith("cpp-s20_auth_token.pcap: the same\n")
