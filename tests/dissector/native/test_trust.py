"""Attacks on folders and files that code is loaded from: each is refused, and says why."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dissector.native import trust
from dissector.native.code import Code, cache_folder, cache_problems, keep_code, read_code

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
OTHER = 54321  # a user who is neither root nor us
CODE = Code(b"\x7fELF\n", "entry", [], [])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The folder of all code, with one kernel in it."""
    base = tmp_path / "home" / "cache"
    keep_code(base / "module" / "name.kernel", CODE)
    # What looked at the folder keeps it open: an attack begins before that.
    fresh = tmp_path / "later"
    (tmp_path / "home").rename(fresh)
    return fresh / "cache"


@pytest.fixture(autouse=True)
def told(recwarn: pytest.WarningsRecorder) -> Iterator[Callable[[], str]]:
    yield lambda: " ".join(str(each.message) for each in recwarn)


def opened(path: Path) -> None:
    with trust.folder(path):
        pass


def test_what_is_kept_is_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep_code(tmp_path / "made" / "cache" / "module" / "name.kernel", CODE)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"made": 0o700, "cache": 0o700, "module": 0o700, "name.kernel": 0o600}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o770, 0o702, 0o1777], ids=oct)
@pytest.mark.parametrize("which", ["module", "cache", "parent"])
def test_a_folder_that_others_can_write_is_not_loaded_from(
    base: Path, which: str, mode: int, told: Callable[[], str]
) -> None:
    folder = {"module": base / "module", "cache": base, "parent": base.parent}[which]
    folder.chmod(mode)
    is_safe = which == "parent" and bool(mode & stat.S_ISVTX)  # as /tmp is
    found = read_code(base / "module" / "name.kernel")
    assert (found == CODE) is is_safe
    if is_safe:
        return
    keep_code(base / "module" / "other.kernel", CODE)
    assert not (base / "module" / "other.kernel").exists()
    assert str(folder) in told() and f"chmod go-w {folder}" in told()


@as_root
@pytest.mark.parametrize("which", ["module", "cache", "parent"])
def test_a_folder_of_another_user_is_not_loaded_from(
    base: Path, which: str, told: Callable[[], str]
) -> None:
    folder = {"module": base / "module", "cache": base, "parent": base.parent}[which]
    os.chown(folder, OTHER, OTHER)
    assert read_code(base / "module" / "name.kernel") is None
    keep_code(base / "module" / "other.kernel", CODE)
    assert not (base / "module" / "other.kernel").exists()
    assert f"{folder} belongs to user {OTHER}" in told()


@as_root
def test_a_file_of_another_user_is_not_loaded(base: Path, told: Callable[[], str]) -> None:
    path = base / "module" / "name.kernel"
    os.chown(path, OTHER, OTHER)
    assert read_code(path) is None and f"{path} belongs to user {OTHER}" in told()
    keep_code(path, CODE)  # the next run has its own
    assert read_code(path) == CODE and path.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602], ids=oct)
def test_a_file_that_others_can_write_is_not_loaded(base: Path, mode: int) -> None:
    path = base / "module" / "name.kernel"
    path.chmod(mode)
    assert read_code(path) is None


def test_a_second_name_of_a_file_is_noticed(base: Path, tmp_path: Path) -> None:
    path = base / "module" / "name.kernel"
    os.link(path, tmp_path / "kept by an attacker")
    assert read_code(path) is None


def test_links_in_the_place_of_files_and_folders_of_code_are_not_followed(
    base: Path, tmp_path: Path
) -> None:
    path = base / "module" / "name.kernel"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert read_code(path) is None
    keep_code(path, CODE)
    assert not path.is_symlink() and read_code(path) == CODE
    (base / "module").rename(tmp_path / "module")
    (base / "module").symlink_to(tmp_path / "module")
    assert read_code(path) is None


def test_a_pipe_does_not_hold_the_program_up(base: Path) -> None:
    path = base / "module" / "name.kernel"
    path.unlink()
    os.mkfifo(path, 0o600)
    assert read_code(path) is None


@pytest.mark.parametrize("target", ["absolute", "relative"])
def test_a_link_on_the_way_is_followed_step_by_step(tmp_path: Path, target: str) -> None:
    """Where it leads is looked at as well, each folder of the way."""
    real = tmp_path / "open" / "real" / "cache"
    real.mkdir(parents=True)
    (tmp_path / "one" / "two").mkdir(parents=True)
    link = tmp_path / "one" / "two" / "link"
    link.symlink_to(tmp_path / "open" / "real" if target == "absolute" else "../../open/./real")
    opened(link / "cache")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(trust.DistrustedError, match="open can be written by everybody"):
        opened(link / "cache")


@as_root
def test_a_link_that_another_user_put_into_a_shared_folder_is_not_followed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "mine").mkdir()
    (shared / "cache").symlink_to(tmp_path / "mine")
    opened(shared / "cache")
    os.lchown(shared / "cache", OTHER, OTHER)
    with pytest.raises(trust.DistrustedError, match=f"belongs to user {OTHER}"):
        opened(shared / "cache")


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        opened(tmp_path / "a")


def test_a_folder_that_is_put_in_place_of_one_that_was_looked_at_is_not_used(
    tmp_path: Path,
) -> None:
    """What is read lies in the folder that was looked at, whatever its name leads to by then."""
    with trust.folder(tmp_path / "cache", make=True) as folder:
        trust.write_file(folder, "code", b"ours")
        (tmp_path / "cache").rename(tmp_path / "moved")
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "code").write_bytes(b"planted")
        assert trust.read_file(folder, "code", tmp_path / "cache" / "code") == b"ours"
        trust.write_file(folder, "more", b"ours")
    assert not (tmp_path / "cache" / "more").exists()


def test_a_file_that_changes_places_while_it_is_read_is_refused_or_ours(tmp_path: Path) -> None:
    """A race: a link and our own file take turns under the name that is read."""
    with trust.folder(tmp_path / "cache", make=True) as folder:
        place = tmp_path / "cache" / "code"
        (tmp_path / "planted").write_bytes(b"planted")
        is_over = threading.Event()

        def swap() -> None:
            while not is_over.is_set():
                trust.write_file(folder, "code", b"ours")
                os.symlink(tmp_path / "planted", tmp_path / "cache" / "link")
                os.replace(tmp_path / "cache" / "link", place)

        thread = threading.Thread(target=swap)
        thread.start()
        found = set()
        try:
            for _ in range(2000):
                try:
                    found.add(trust.read_file(folder, "code", place))
                except (OSError, trust.DistrustedError):
                    found.add(b"refused")
        finally:
            is_over.set()
            thread.join()
    assert found <= {b"ours", b"refused"} and b"refused" in found


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with trust.folder(tmp_path) as folder:
        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="No space"):
            trust.write_file(folder, "name", b"data")
    assert list(tmp_path.iterdir()) == []


# -- where code is kept


def test_a_home_that_others_can_write_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISSECTOR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "not absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("dissector.native.code._home_of_user", lambda: "")
    assert cache_folder() == tmp_path / "home" / ".cache" / "pulsar-dissector"
    assert cache_problems() == ()
    (tmp_path / "other").mkdir()
    (tmp_path / "other").chmod(0o777)
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    assert cache_folder() == tmp_path / f"pulsar-dissector-{os.geteuid()}"
    assert "other can be written by everybody" in cache_problems()[0]
    assert not (tmp_path / "other" / ".cache").exists()


def test_a_folder_that_was_named_has_no_substitute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" and len(cache_problems()) == 1


def test_a_user_without_home_and_name_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "DISSECTOR_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert cache_folder() == tmp_path / f"pulsar-dissector-{os.geteuid()}"
