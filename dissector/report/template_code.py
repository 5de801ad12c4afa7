"""Cache the compiled code of the page's template in the folder of compiled code.

Compiling the template takes longer than filling it. The cached code is as trusted as machine code
(`dissector.native.trust`); code that is missing, damaged or of another program is compiled again.
"""

import hashlib
import marshal
from pathlib import Path
from types import CodeType
from typing import Final

from jinja2 import Environment

from dissector.jit import cache_folder, read_kept
from dissector.native.code import keep_file
from dissector.report.program import program

_FOLDER: Final = "pages"


def kept_path(name: str) -> Path:
    """The path of a template's cached code."""
    return cache_folder() / _FOLDER / f"{name}.code"


def code_of(environment: Environment, source: str, name: str) -> CodeType:
    """The code of a template, cached or compiled.

    Args:
        source: its text. name: of the cache file; it differs for each environment of a template.
    """
    head, _, data = read_kept(kept_path(name)).partition(b"\n")
    if head == _head(name, data):
        code: CodeType = marshal.loads(data)
        return code
    code = environment.compile(source)
    data = marshal.dumps(code)
    keep_file(kept_path(name), _head(name, data) + b"\n" + data, is_missed=False)
    return code


def _head(name: str, data: bytes) -> bytes:
    """The digest of a cached code, its name and the program."""
    return hashlib.sha256(f"{program()} {name}\n".encode() + data).hexdigest().encode()
