"""Kept machine code: found again, refused when damaged, made anew after an edit."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dissector import jit
from dissector.jit import compiled
from dissector.native import code as kept
from dissector.native.arguments import append
from dissector.native.code import Code, find_code, keep_code, read_code

CODE = Code(b"\x7fELF and more\n", "entry", ["t", "", "", [["i"], ["n"]]], ["memset"])


def test_code_is_read_as_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "module" / "name.kernel"
    keep_code(path, CODE)
    assert read_code(path) == CODE
    assert [each.name for each in path.parent.iterdir()] == ["name.kernel"]


@pytest.mark.parametrize("damage", [b"", b"\n", b"{}\n", b"[1]\nxx", b"\xff\xfe\n"])
def test_damaged_files_are_as_if_they_were_not_there(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "name.kernel"
    path.write_bytes(damage)
    assert read_code(path) is None
    assert read_code(tmp_path / "absent.kernel") is None


def test_one_changed_byte_of_code_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "name.kernel"
    keep_code(path, CODE)
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    assert read_code(path) is None


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Code that came with the package, for two families of processors; an empty cache."""
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "_PACKAGED", tmp_path / "package")
    families = {"new": frozenset({"teleport"}), "old": frozenset({"walk"})}
    monkeypatch.setattr(kept, "FAMILIES", families)
    monkeypatch.setattr(kept, "processor_features", lambda: frozenset({"walk"}))
    monkeypatch.setattr("llvmlite.binding.get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    for name in families:
        keep_code(tmp_path / "package" / name / "f-1.kernel", CODE._replace(symbol=name))
    kept._packaged_folders.cache_clear()
    yield tmp_path / "package"
    kept._packaged_folders.cache_clear()


def test_code_of_the_package_fits_the_processor(
    packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_code("f-1")
    assert found is not None and found.symbol == "old"
    assert find_code("f-2") is None
    monkeypatch.setattr(kept, "processor_features", lambda: frozenset({"walk", "teleport"}))
    kept._packaged_folders.cache_clear()
    found = find_code("f-1")
    assert found is not None and found.symbol == "new"


@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "DISSECTOR_BOUNDSCHECK"])
def test_code_of_the_package_is_not_for_who_asks_for_other_code(
    packaged: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert find_code("f-1") is None


@pytest.mark.parametrize("mode", [0o777, 0o775], ids=oct)
@pytest.mark.parametrize("which", ["file", "folder", "parent"])
def test_code_of_a_package_that_others_can_write_is_not_loaded(
    packaged: Path, which: str, mode: int, recwarn: pytest.WarningsRecorder
) -> None:
    """As in an environment that a group shares; without a word, since the user's cache serves."""
    file = packaged / "old" / "f-1.kernel"
    {"file": file, "folder": file.parent, "parent": packaged}[which].chmod(mode)
    assert find_code("f-1") is None and not recwarn.list
    keep_code(kept.code_folder() / "f-1.kernel", CODE)
    assert find_code("f-1") == CODE


def test_installers_may_keep_a_link_to_code_of_the_package(packaged: Path, tmp_path: Path) -> None:
    os.link(packaged / "old" / "f-1.kernel", tmp_path / "store of an installer")
    assert find_code("f-1") is not None


def test_what_is_all_there_is_listed(packaged: Path) -> None:
    assert kept.kept_list("program").names == ()
    kept.keep_list("program", ["f-1", "g-2"])
    assert kept.kept_list("program") == (kept.code_folder(), ("f-1", "g-2"))
    kept.keep_file(packaged / "old" / "program.list", b"f-1")
    assert kept.kept_list("program") == (packaged / "old", ("f-1",))


@pytest.mark.skipif(not compiled(), reason="nothing is compiled")
def test_a_second_process_loads_without_the_compiler(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np\n"
        "from dissector.codecs.crc32c import crc32c\n"
        "assert crc32c(np.frombuffer(bytearray(b'123456789'), np.uint8), 0, 9) == 0xE3069283\n"
        "print('numba' in sys.modules)\n"
    )
    told = []
    for _ in range(2):
        completed = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "DISSECTOR_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(completed.stdout.strip())
    assert told == ["True", "False"]


@pytest.mark.skipif(not compiled(), reason="nothing is compiled")
def test_a_folder_that_cannot_be_written_is_said_once_and_all_works(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    program = (
        "import numpy as np\n"
        "from dissector.codecs.crc32c import crc32c\n"
        "print(crc32c(np.zeros(4, np.uint8), 0, 0))\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DISSECTOR_CACHE": str(blocked / "below")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout == "0\n"
    assert completed.stderr.count("compiled code cannot be kept") == 1


def evil(data: np.ndarray, start: int, stop: int) -> int:
    """Stands for any code that somebody else would like to run as us."""
    return 0xBAD


def checksum(cache: Path) -> subprocess.CompletedProcess[str]:
    """What a process says of nine digits that keeps its code there."""
    program = (
        "import warnings, numpy as np\n"
        "from dissector.cli import main\n"
        "from dissector.codecs.crc32c import crc32c\n"
        "warnings.showwarning = main._warn\n"
        "print(hex(crc32c(np.frombuffer(bytearray(b'123456789'), np.uint8), 0, 9)))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DISSECTOR_CACHE": str(cache)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with other code in the place of a kernel's, which runs as long as it is ours."""
    cache = tmp_path_factory.mktemp("planted") / "cache"
    assert checksum(cache).stdout == "0xe3069283\n"
    (good,) = cache.rglob("crc32c-*.kernel")
    kinds = tuple(append(value, []) for value in (np.zeros(9, np.uint8), 0, 9))
    keep_code(good, jit.Kernel(evil).code(kinds))
    assert checksum(cache).stdout == "0xbad\n", "what the user wrote is what runs"
    return cache


@pytest.mark.skipif(not compiled(), reason="nothing is compiled")
@pytest.mark.parametrize("way", ["everybody's folder", "everybody's parent", "hard link"])
def test_planted_code_does_not_run(planted: Path, tmp_path: Path, way: str) -> None:
    """Digest and symbol in a file are those of its code, whoever wrote both."""
    cache = tmp_path / "shared" / "cache"
    shutil.copytree(planted, cache)
    (good,) = cache.rglob("crc32c-*.kernel")
    if way == "everybody's folder":
        good.parent.chmod(0o777)
    elif way == "everybody's parent":
        (tmp_path / "shared").chmod(0o777)
    else:
        os.link(good, tmp_path / "kept by the attacker")
    done = checksum(cache)
    assert done.stdout == "0xe3069283\n"
    assert done.stderr.startswith("dissector: ") and done.stderr.count("\n") <= 2
    assert ("chmod go-w" if way != "hard link" else "hard links") in done.stderr
