"""Files, folders, patterns to a list of files."""

import errno
import os

import pytest

from dissector.sources.inputs import expand, looks_like_a_capture, no_capture_in


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.pcap", "a.pcap", "notes.txt", ".hidden.pcap", "sub/c.pcapng.gz", ".git/d.pcap"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def paths(*inputs):
    found, problems = expand(inputs)
    return [os.path.relpath(named.path) if named.path != "-" else "-" for named in found], problems


def test_folders_are_walked_in_order_without_hidden_files(tree):
    assert paths(".") == (["a.pcap", "b.pcap", "notes.txt", "sub/c.pcapng.gz"], [])
    found, _ = expand(["a.pcap", "."])
    assert [named.is_in_folder for named in found] == [False, True, True, True]


def test_patterns_are_matched_unless_a_file_has_that_name(tree):
    assert paths("*.pcap") == (["a.pcap", "b.pcap"], [])
    assert paths("**/*.gz") == (["sub/c.pcapng.gz"], [])
    (tree / "[x].pcap").write_bytes(b"x")
    assert paths("[x].pcap") == (["[x].pcap"], [])


def test_order_is_as_given_and_each_file_comes_once(tree):
    os.symlink("a.pcap", "link.pcap")
    os.link("b.pcap", "hard.pcap")
    assert paths("b.pcap", "-", "link.pcap", "./a.pcap", "-", "hard.pcap") == (
        ["b.pcap", "-", "link.pcap"],
        [],
    )


def test_what_names_nothing_is_a_problem(tree):
    (tree / "empty").mkdir()
    found, problems = paths("missing.pcap", "*.cap", "empty", "a.pcap")
    assert found == ["a.pcap"]
    assert [problem.path for problem in problems] == ["missing.pcap", "*.cap", "empty"]
    assert all(problem.is_fatal for problem in problems)


def test_names_of_captures():
    for name in ("x.pcap", "X.PCAPNG", "x.cap", "x.pcap12", "x.pcap.gz", "d/x.pcap0.zst", "x.dmp"):
        assert looks_like_a_capture(name)
    for name in ("x.txt", "manifest.json", "events.jsonl.gz", "pcap", "x.pcap.md"):
        assert not looks_like_a_capture(name)


def test_folders_without_captures_say_what_they_are(tmp_path):
    lake = tmp_path / "lake"
    (lake / "_manifest").mkdir(parents=True)
    assert f"dissector report --lake {lake} -o report" in no_capture_in(str(lake), "abc").text
    stored = ["s3://taps/lake/_log/0/000000000000.zst", "s3://taps/lake/frames/x.parquet"]
    assert "lake list s3://taps/lake`" in no_capture_in("s3://taps/lake", stored).text
    assert "what `dissector analyze` wrote" in no_capture_in(str(tmp_path), "abc").text
    (tmp_path / "report.json").write_text("{}")
    assert (
        f"this is a report, not a capture; open {tmp_path}/"
        in no_capture_in(str(tmp_path), "abc").text
    )
    assert (
        "none of its 2,000 files is a capture"
        in no_capture_in(str(lake.parent / "x"), "a" * 2000).text
    )
    assert "its only file is no capture" in no_capture_in(str(lake.parent / "x"), "a").text


def test_a_folder_that_cannot_be_listed_is_a_problem(tree, monkeypatch):
    """Its captures would be missing without a word."""
    closed = str(tree / "sub")
    listing = os.scandir

    def scandir(path):
        if os.fspath(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", closed)
        return listing(path)

    whole, _ = expand([str(tree)])
    monkeypatch.setattr(os, "scandir", scandir)
    files, problems = expand([str(tree)])
    assert files == [one for one in whole if not one.path.startswith(closed)] != whole
    sentence = f"{closed}: cannot be read (Permission denied); check its permissions"
    assert [problem.text for problem in problems] == [sentence]
    files, problems = expand([closed])
    assert (files, [problem.text for problem in problems]) == ([], [sentence])
