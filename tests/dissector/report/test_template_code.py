"""Code of the page's template is kept and found; what is not whole and its own is made again."""

from pathlib import Path

import pytest
from jinja2 import Environment

from dissector.report import page, template_code
from dissector.report.template_code import code_of, kept_path

SOURCE = "{% for each in rows %}{{ each|upper }} {% endfor %}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that were compiled."""
    texts: list[str] = []
    compiling = Environment.compile

    def noted(self: Environment, source: str) -> object:
        texts.append(source)
        return compiling(self, source)

    monkeypatch.setattr(Environment, "compile", noted)
    return texts


def said(name: str = "a") -> str:
    environment = Environment(autoescape=True)
    code = code_of(environment, SOURCE, name)
    template = environment.template_class.from_code(environment, code, environment.globals)
    return template.render(rows=["a", "<"])


def test_code_is_found_and_says_the_same(cache: Path, compiled: list[str]) -> None:
    assert said() == said() == "A &lt; " and compiled == [SOURCE]
    assert [path.name for path in (cache / "pages").iterdir()] == ["a.code"]
    assert said("b") == "A &lt; " and len(compiled) == 2


@pytest.mark.parametrize("damage", [b"", b"\n", b"0" * 64 + b"\n\xe3", b"\xff"])
def test_what_is_damaged_is_made_again(compiled: list[str], damage: bytes) -> None:
    first = said()
    kept_path("a").write_bytes(damage)
    assert said() == said() == first and len(compiled) == 2


def test_one_changed_byte_and_another_program_make_it_again(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = said()
    data = bytearray(kept_path("a").read_bytes())
    data[-1] ^= 1
    kept_path("a").write_bytes(data)
    assert said() == first and len(compiled) == 2
    monkeypatch.setattr(template_code, "program", lambda: "another one")
    assert said() == said() == first and len(compiled) == 3


@pytest.mark.filterwarnings("error")
def test_what_others_can_write_is_not_used_and_a_folder_that_cannot_be_written_is_no_matter(
    cache: Path, compiled: list[str]
) -> None:
    first = said()
    kept_path("a").chmod(0o666)
    assert said() == first and len(compiled) == 2
    kept_path("a").unlink()
    (cache / "pages").rmdir()
    (cache / "pages").touch()
    assert said() == said() == first and len(compiled) == 4


def test_the_page_is_filled_from_code_that_was_kept(compiled: list[str]) -> None:
    for _ in range(2):
        for is_exact in (False, True):
            page._template.cache_clear()
            assert page._template(is_exact).render is not None
    page._template.cache_clear()
    assert compiled == [page.asset("report.html")] * 2
