"""Pages of the site that no file of docs/ has: the start, and the reference made from the code."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from dissector.findings.loading import load_rules
from dissector.notices import NOTICES
from dissector.report.merged_tables import empty_tables
from dissector.report.result import SECTIONS, build

ROOT: Final = Path(__file__).resolve().parents[1]
# Files beside docs/ that are pages of the site, too.
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK: Final = re.compile(r"(\[[^\]\n]*\]\()([^)\s:]+)(\))")
_BOUND: Final = re.compile(r"([A-Z][A-Z0-9_]+): Final = ([^#\n]+?)(?:  # (.*))?$")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages = {
        "reference/notices.md": notices_page(),
        "reference/findings.md": findings_page(),
        "reference/report.md": report_page(),
        "reference/bounds.md": bounds_page(),
    }
    for name, page in ROOT_PAGES.items():
        pages[page] = (ROOT / name).read_text("utf-8")
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the files have them, made links of the site; what is no page of it is a name."""
    folder = "" if page.file.src_uri in ROOT_PAGES.values() else "docs/"

    def linked(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not target:
            return match[0]
        path = (ROOT / folder / target).resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else target
        place = ROOT_PAGES.get(name) or (name[5:] if name.startswith("docs/") else "")
        if place.endswith(".md"):
            return f"{match[1]}{place}{'#' + anchor if anchor else ''})"
        return f"`{name}`"

    is_made = page.file.src_uri.startswith("reference/")
    return markdown if is_made else _LINK.sub(linked, markdown)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("{value}", "*n*").replace("{value2}", "*m*")


def notices_page() -> str:
    """What was odd, lost or limited."""
    lines = [
        "# Notices",
        "",
        "What was odd, lost or limited is a row of the table `notices`, counted in reports.",
        "",
        "| code | severity | meaning |",
        "|---|---|---|",
        *(f"| `{kind.code}` | {kind.severity} | {_cell(kind.sentence)} |" for kind in NOTICES),
    ]
    return "\n".join(lines) + "\n"


def findings_page() -> str:
    """What the rules that come with the program find."""
    rules, problems = load_rules()
    assert not problems, problems
    lines = ["# Findings", "", "`dissector explain CODE` says the same of one.", ""]
    for rule in rules:
        for variant, words in rule.words.items():
            name = f"{rule.code} ({variant})" if variant else rule.code
            lines += [f"## {name}: {_cell(words.title)}", ""]
            lines += [f"Severity: {words.severity}. Protocol: {rule.protocol}.", ""]
            for part, text in words.parts.items():
                lines += [f"- **{part}**: {_cell(text)}"]
            lines += [""]
    return "\n".join(lines) + "\n"


def report_page() -> str:
    """The keys of report.json."""
    report = build(empty_tables())
    lines = [
        "# report.json",
        "",
        "Sections and their keys, as a report of nothing has them; [numbers](../metrics.md) says"
        " what each means.",
        "",
    ]
    for name in ("schema_version", "sources", *SECTIONS):
        lines += [f"## {name}", ""]
        if isinstance(report[name], dict):
            lines += [f"- `{key}`" for key in _keys(report[name])]
            lines += [""]
    return "\n".join(lines) + "\n"


def _keys(value: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, inner in value.items():
        yield path + key
        if isinstance(inner, dict):
            yield from _keys(inner, f"{path}{key}.")


def bounds_page() -> str:
    """What everything that can grow is bounded by."""
    lines = ["# Bounds", "", "| bound | value | of what, and what happens then |", "|---|---|---|"]
    text = (ROOT / "dissector" / "limits.py").read_text("utf-8")
    before: list[str] = []
    for line in text.splitlines():
        bound = _BOUND.match(line)
        if bound:
            words = " ".join([*before, bound[3] or ""]).strip()
            lines.append(f"| `{bound[1]}` | `{bound[2]}` | {_cell(words)} |")
            before = []
        elif line.startswith("# -- "):
            lines += ["", f"## {line[5:].capitalize()}", "", *lines[2:4]]
            before = []
        else:
            before = [*before, line[2:]] if line.startswith("# ") else []
    return "\n".join(lines) + "\n"
