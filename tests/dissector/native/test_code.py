"""Kept machine code: found again, refused when damaged, made anew after an edit."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dissector import jit
from dissector.jit import compiled
from dissector.native import code as kept
from dissector.native.arguments import append
from dissector.native.code import Code, keep_code, module_digest, read_code

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


def test_a_digest_is_the_same_for_all_patch_versions_of_an_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers of a cluster have another 3.11 than the machine where their archive was made."""
    found = []
    for version in ((3, 11, 2), (3, 11, 15), (3, 12, 0)):
        monkeypatch.setattr(kept, "sys", SimpleNamespace(version_info=version))
        module_digest.cache_clear()
        found.append(module_digest("dissector.buckets"))
    monkeypatch.undo()
    module_digest.cache_clear()
    assert found[0] == found[1] != found[2]


def test_a_digest_depends_on_what_a_module_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    module_digest.cache_clear()
    before = module_digest("dissector.stream.reassembly"), module_digest("dissector.buckets")
    read = kept._read_module.__wrapped__

    def edited(module: str) -> tuple[bytes, tuple[str, ...]] | None:
        found = read(module)
        if module == "dissector.stream.records" and found is not None:
            return b"edited", found[1]
        return found

    monkeypatch.setattr(kept, "_read_module", edited)
    module_digest.cache_clear()
    after = module_digest("dissector.stream.reassembly"), module_digest("dissector.buckets")
    module_digest.cache_clear()
    assert before[0] != after[0] and before[1] == after[1]


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
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "DISSECTOR_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(found.stdout.strip())
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
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DISSECTOR_CACHE": str(blocked / "below")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "0\n"
    assert found.stderr.count("compiled code cannot be kept") == 1


def evil(data: np.ndarray, start: int, stop: int) -> int:
    """Stands for any code that somebody else would like to run as us."""
    return 0xBAD


@pytest.mark.skipif(not compiled(), reason="nothing is compiled")
@pytest.mark.parametrize("way", ["everybody's folder", "everybody's parent", "hard link"])
def test_planted_code_does_not_run(tmp_path: Path, way: str) -> None:
    """Digest and symbol in a file are those of its code, whoever wrote both."""
    program = (
        "import warnings, numpy as np\n"
        "from dissector.cli import main\n"
        "from dissector.codecs.crc32c import crc32c\n"
        "warnings.showwarning = main._warn\n"
        "print(hex(crc32c(np.frombuffer(bytearray(b'123456789'), np.uint8), 0, 9)))\n"
    )
    cache = tmp_path / "shared" / "cache"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "DISSECTOR_CACHE": str(cache)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip

    assert run().stdout == "0xe3069283\n"
    (good,) = cache.rglob("crc32c-*.kernel")
    kinds = tuple(append(value, []) for value in (np.zeros(9, np.uint8), 0, 9))
    compiler = jit._compiler()
    keep_code(good, compiler.compile_kernel(jit.Kernel(evil).dispatcher, "evil", kinds))
    assert run().stdout == "0xbad\n", "what the user wrote is what runs"
    if way == "everybody's folder":
        good.parent.chmod(0o777)
    elif way == "everybody's parent":
        (tmp_path / "shared").chmod(0o777)
    else:
        os.link(good, tmp_path / "kept by the attacker")
    done = run()
    assert done.stdout == "0xe3069283\n"
    assert done.stderr.startswith("dissector: ") and done.stderr.count("\n") <= 2
    assert ("chmod go-w" if way != "hard link" else "hard links") in done.stderr
