"""Compiled code of the page's template: kept in the folder of compiled code, for one program.

To compile the template takes longer than to fill it. What is kept is as trusted as machine code
(`dissector.native.trust`); what is missing, damaged or of another program is compiled again.
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
    """Where the code of a template is kept."""
    return cache_folder() / _FOLDER / f"{name}.code"


def code_of(environment: Environment, source: str, name: str) -> CodeType:
    """The code of a template, found or made.

    Args:
        source: its text. name: of what decides the code beside text and program, for its file.
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
    """A digest of code and of all that it was made from."""
    return hashlib.sha256(f"{program()} {name}\n".encode() + data).hexdigest().encode()
