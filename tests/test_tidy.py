"""House rules that a machine can check: who may import whom, sizes, names, files.

A rule is one test over all files. Lengths of lines and types of functions are rules of ruff.
"""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest

from dissector.protocols import PROTOCOL_NAMES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dissector", "spark_jobs")

# Layers, lowest first: a module may import modules of its own layer and of lower ones. The longest
# prefix of the module's name decides.
LAYERS = {
    "dissector": 0,
    "dissector.errors": 0,
    "dissector.limits": 0,
    "dissector.options": 0,
    "dissector.notices": 0,
    "dissector.notice_rows": 0,
    "dissector.schemas": 0,
    "dissector.jit": 0,
    "dissector.native": 0,
    "dissector.buckets": 0,
    "dissector.blocks": 0,
    "dissector.bundles": 0,
    "dissector.installed": 0,
    "dissector.states": 0,
    "dissector.codecs": 1,
    "dissector.protobuf": 1,
    "dissector.tables": 1,
    "dissector.capture": 2,
    "dissector.packet": 2,
    "dissector.stream": 2,
    "dissector.endpoints": 2,
    "dissector.protocols": 3,
    "dissector.tls": 3,
    "dissector.dissection": 4,
    "dissector.stream_secrets": 4,
    "dissector.notice_log": 3,
    "dissector.outputs": 5,
    "dissector.local_paths": 5,
    "dissector.sources": 5,
    "dissector.storage": 5,
    "dissector.lake": 5,
    "dissector.report": 5,
    "dissector.compare": 5,
    "dissector.evidence": 5,
    "dissector.findings": 5,
    "dissector.queries": 5,
    "dissector.joining": 5,
    "dissector.tap": 5,
    "dissector.spark": 5,
    "dissector.cli": 6,
    "dissector.__main__": 6,
    "spark_jobs": 7,
}
EDGES = (
    "sources", "lake", "report", "compare", "evidence", "queries", "joining", "tap", "spark", "cli",
    "findings", "storage",
)  # fmt: skip
# An edge knows the core and no other edge, but for these.
EDGES_THAT_MEET = {
    "dissector.sources": {"storage"},  # captures are read from stores
    "dissector.local_paths": {"storage"},
    "dissector.lake.log": {"storage"},  # lakes lie in stores, too
    "dissector.lake.mirror": {"storage"},
    "dissector.lake.fetching": {"storage"},
    "dissector.lake.ranges": {"storage"},
    "dissector.lake.publish_": {"storage"},  # libraries of tables reach the same servers
    "dissector.lake.land": {"sources"},  # the landing of a capture, which Spark tasks call, too
    "dissector.lake.known": {"sources"},  # whether it is there already
    # What is counted and found in windows is what queries count and rules find in a lake.
    "dissector.tap": {"sources", "lake", "report", "queries"},
    "dissector.tap.judging": {"findings"},
    # What it records is redacted as files of packets are.
    "dissector.tap.recorder": {"evidence"},
    "dissector.tap.finding_incidents": {"findings"},
    "dissector.joining": {"lake"},  # which captures belong together is a question about a lake
    # Numbers and findings are made by queries over a lake.
    "dissector.report": {"findings", "joining", "lake", "queries"},
    "dissector.compare": {"joining", "lake", "queries", "report"},  # so are those of two runs
    # A bundle is chosen by queries, cut out of files, and its packets are landed and counted again.
    "dissector.evidence": {"findings", "sources", "lake", "queries"},
    "dissector.findings": {"queries"},  # a rule is a query over a lake
    "dissector.findings.running_findings": {"lake"},  # what a tap notes lies in its lake
    # The engine reads captures, tables and lakes; the memory of this machine is asked for as a tap
    # does.
    "dissector.spark": {"sources", "queries", "tap", "lake"},
}
# `packet` reads what `capture` found, in columns that `packet` declares.
PACKAGES_THAT_SHARE = {"dissector.capture": {"dissector.packet"}}
OPERATING_SYSTEM = {
    *("os", "io", "sys", "pathlib", "socket", "select", "threading", "asyncio", "subprocess"),
    *("time", "datetime", "random", "logging", "pyspark", "pandas"),
}
# The one place where a rule may be broken, and why.
EXCEPTIONS = {
    ("dissector.jit", "os"): "a variable says that nothing is compiled",
    ("dissector.native.entropy", "os"): "keys of hash tables are drawn here, for each run",
    ("dissector.native.code", "os"): "compiled code lies in the file system",
    ("dissector.native.digests", "sys"): "the digest names the interpreter",
    ("dissector.native.digests", "pathlib"): "the digest covers files of the program",
    ("dissector.native.recording", "threading"): "kernels are called from several threads",
    ("dissector.native.code", "pathlib"): "compiled code lies in the file system",
    ("dissector.native.code", "threading"): "two threads may need the same code at once",
    ("dissector.native.versions", "os"): "names of folders say versions",
    ("dissector.native.versions", "sys"): "where folders of installed libraries are",
    ("dissector.native.trust", "os"): "owners and modes of what code is loaded from",
    ("dissector.native.trust", "pathlib"): "owners and modes of what code is loaded from",
}
NUMBA_IN = {
    "dissector.native.code": "machine code is loaded by the compiler's loader",
    "dissector.native.codegen": "object code is made of the compiler's IR",
    "dissector.native.compiler": "the compiler's side of kernels",
    "dissector.native.indexing": "its rules for arrays",
    "dissector.native.passes": "the passes that kernels go through",
}
PYARROW_IN = ("dissector.schemas", "dissector.sources", "dissector.lake", "dissector.report",
              "dissector.compare",
              "dissector.evidence", "dissector.findings", "dissector.queries", "dissector.joining",
              "dissector.tap",
              "dissector.spark", "dissector.cli", "spark_jobs")  # fmt: skip
NO_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "base"})
MAX_FUNCTION = 60
MAX_FILE = 500
MAX_PARAMETERS = 6
# Parameters of commands are their options, one each.
MANY_PARAMETERS_IN = ("dissector/cli/", "spark_jobs/land.py")
# Kernels take what they work on one by one where a bundle made for one call would cost more than
# it explains; each reason says what the parameters are.
_PULSAR = "dissector/protocols/pulsar"
_CURSUS = "dissector/protocols/cursus"
_PAIRING = "dissector/protocols/pairing"
_FRAMING = "dissector/protocols/framing"
A_PLACE = "state, bundle and the coordinates of one place in them"
A_PASS = "the pass over a block: state, columns, their number, names or rules, what it fills"
MANY_PARAMETERS = {
    (f"{_CURSUS}/bodies.py", "read_batches"): A_PASS,
    (f"{_CURSUS}/messages.py", "fill_messages"): A_PASS,
    (f"{_CURSUS}/messages.py", "_fill_batch"): A_PLACE,
    (f"{_FRAMING}/splitting.py", "split"): A_PASS,
    (
        "dissector/packet/rewriting.py",
        "_patch",
    ): "bytes, their bounds, their stream and place in it",
    ("dissector/tables.py", "fill_slot"): "a key of four numbers, and its slot and row",
    ("dissector/tables.py", "chain_append"): "a key of four numbers, and its row",
    ("dissector/tables.py", "chain_unlink"): "a key of four numbers, and its row",
}
LONG_FUNCTIONS = {
    ("dissector/protobuf/scan.py", "walk"): "one loop; cut in two it would pass its cell around",
}

# Kernels and arithmetic that one module puts together are tested through it: what a test would
# have to set up for one of them alone is what that module does. The test file names the whole.
TESTED_THROUGH = {
    f"{_FRAMING}/test_resync.py": "search_state",
    f"{_FRAMING}/test_unsynchronised.py": "searching",
    f"{_PULSAR}/registry/test_registry.py": "requests steps client_handles",
    f"{_PAIRING}/test_exchanges.py": "columns connections pending rows rules sends state steps",
    f"{_PULSAR}/consumption/test_consumption.py": "acks consumers deliveries lifecycle"
    " permits redelivery rows walk",
    "dissector/packet/test_unwrap.py": "walk",
    f"{_CURSUS}/test_facts.py": "bodies state_updates groups messages decoded_bodies rows",
    "dissector/cli/test_sql.py": "lake_of_command",
    "dissector/report/test_pipeline.py": "aggregation_cache workspace",
    "dissector/report/test_counting.py": "merged_tables",
    "dissector/compare/test_comparing.py": "questions runs",
    "dissector/compare/test_wording.py": "facts markdown page",
    "dissector/report/sections/test_sections.py": "checksum_failures coverage permit_utilization",
    "dissector/lake/test_parquet.py": "chunks metadata",
    "dissector/schemas/test_tables.py": "column connections shared",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


CODE = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PYTHON = (
    CODE
    + TESTS
    + sorted((ROOT / "proto").rglob("*.py"))
    + sorted((ROOT / "captures").rglob("*.py"))
)
MODULES = {module_name(path): path for path in CODE}


@pytest.fixture(autouse=True, scope="module")
def trees() -> Iterator[None]:
    """Of all files, millions of nodes that live until the end: to look among them for garbage
    would take as long as to make them."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_for_types_only(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Modules that a file imports, inside functions too, but not those for types only."""
    return tuple(imports(tree_of(path)))


def imports(node: ast.AST) -> Iterator[str]:
    """Modules that a piece of code imports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_for_types_only(child):
            for other in child.orelse:
                yield from imports(other)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield whole if whole in MODULES else str(child.module)
        else:
            yield from imports(child)


def layer_of(module: str) -> int:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in LAYERS and (length > 1 or len(parts) == 1 or parts[0] == "spark_jobs"):
            return LAYERS[prefix]
    raise AssertionError(f"{module} is in no layer: name it in LAYERS")


def edge_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "dissector" and len(parts) > 1 and parts[1] in EDGES else None


def violations_of_layers(module: str, imported: str) -> str | None:
    if layer_of(imported) > layer_of(module):
        return f"{module} imports {imported}, which is above it"
    if imported.startswith("dissector.cli") and not module.startswith(
        ("dissector.cli", "dissector.__main__", "spark_jobs")
    ):
        return f"{module} imports {imported}: nothing knows the command line"
    mine, other = edge_of(module), edge_of(imported)
    if mine not in (None, "cli") and other not in (None, mine):
        allowed = [found for name, found in EDGES_THAT_MEET.items() if module.startswith(name)]
        if not any(other in found for found in allowed):
            return f"{module} imports {imported}: one edge does not know another"
    for one, two in permutations(PROTOCOL_NAMES, 2):
        folders = f"dissector.protocols.{one}", f"dissector.protocols.{two}"
        if module.startswith(folders[0]) and imported.startswith(folders[1]):
            return f"{module} imports {imported}: protocols do not know each other"
    return None


# Beside a protocol's own folder, who may know it by name, and why.
KNOWS_PROTOCOLS = {
    "dissector.protocols": "the one list",
    "dissector.joining.closing": "which rows SQL stitches together how",
    "dissector.joining.stitching": "whose rows SQL stitches together",
    "dissector.joining.stitching_cursus": "whose rows SQL stitches together, too",
    "dissector.lake.queries": "an example of SQL that users copy",
}


def names_of_protocols_in(module: str) -> list[str]:
    """Where a module knows a protocol by its name."""
    names = "|".join(PROTOCOL_NAMES)
    tree = tree_of(MODULES[module])
    prefixes = tuple(f"dissector.protocols.{name}" for name in PROTOCOL_NAMES)
    found = [name for name in imports_of(MODULES[module]) if name.startswith(prefixes)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A text that is the name, or that has it as a text of SQL; prose may speak of it.
            if re.search(rf"\A({names})\Z|'({names})'", node.value):
                found.append(node.value)
        elif isinstance(node, ast.Name | ast.Attribute | ast.FunctionDef | ast.arg):
            own = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}.get(type(node), "name")
            if re.search(rf"(\A|_)({names})(_|\Z)", getattr(node, own)):
                found.append(getattr(node, own))
    return found


def test_a_protocol_is_known_by_name_in_its_folder_and_one_list_alone() -> None:
    """All others ask: see protocols.interface.ProtocolSpec."""
    own = re.compile(rf"dissector\.protocols\.({'|'.join(PROTOCOL_NAMES)})\b")
    asking = (name for name in MODULES if name not in KNOWS_PROTOCOLS and not own.match(name))
    assert {name: found for name in asking if (found := names_of_protocols_in(name))} == {}


def test_imports_go_down_only() -> None:
    found = [
        violations_of_layers(module, name)
        for module, path in MODULES.items()
        for name in imports_of(path)
        if name.split(".")[0] in PACKAGES
    ]
    assert [text for text in found if text] == []


def names_at_the_door(package: str) -> tuple[str, ...] | None:
    """What a package of protocols gives out, its `__all__`; None where it has none."""
    if not package.startswith("dissector.protocols.") or MODULES[package].name != "__init__.py":
        return None
    for node in tree_of(MODULES[package]).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    return None


def test_nothing_reaches_behind_the_door_of_a_package() -> None:
    wrong = []
    for module, path in MODULES.items():
        for name in imports_of(path):
            package, _, inner = name.rpartition(".")
            given = names_at_the_door(package)
            is_outside = name in MODULES and not module.startswith(package)
            if given is not None and is_outside and inner not in given:
                wrong.append(f"{module} imports {name}: {package} gives out {given}")
    assert wrong == []


def loaded_by_name(tree: ast.Module) -> Iterator[str]:
    """Modules that `importlib.import_module` is called for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (each.value for each in node.args if isinstance(each, ast.Constant))


def import_graph() -> dict[str, set[str]]:
    """What each module imports of ours: at its top, inside functions, by name."""
    return {
        module: {*imports_of(path), *loaded_by_name(tree_of(path))} & MODULES.keys() - {module}
        for module, path in MODULES.items()
    }


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of one cycle of a graph, the first one again at the end; none if there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for name in sorted(graph[node]):
            if found := visit(name, [*path, node]):
                return found
        done.add(node)
        return []

    return next(filter(None, (visit(node, []) for node in sorted(graph))), [])


def package_of(module: str) -> str:
    """The package of a module below `dissector`; a module beside the packages is one by itself."""
    return ".".join(module.split(".")[: 2 if module.startswith("dissector") else 1])


def test_no_module_imports_itself_through_others() -> None:
    assert cycle_in(import_graph()) == []


def test_no_package_imports_itself_through_others() -> None:
    packages: dict[str, set[str]] = {}
    for module, imported in import_graph().items():
        mine = package_of(module)
        packages.setdefault(mine, set()).update({package_of(name) for name in imported} - {mine})
    packages["dissector.capture"] -= PACKAGES_THAT_SHARE["dissector.capture"]
    assert cycle_in(packages) == []


def test_the_core_knows_no_operating_system() -> None:
    core = [name for name in MODULES if layer_of(name) <= 4]
    used = {(name, each.split(".")[0]) for name in core for each in imports_of(MODULES[name])}
    assert sorted(pair for pair in used - EXCEPTIONS.keys() if pair[1] in OPERATING_SYSTEM) == []


# The modules of each library; kernels are declared through dissector.jit.
PLACES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("numba", "llvmlite"), tuple(f"{name}." for name in NUMBA_IN)),
    "pyarrow": PYARROW_IN,
    "pyspark": ("dissector.spark", "spark_jobs"),
    "cryptography": ("dissector.tls.ciphers",),
    **dict.fromkeys(("scapy", "dpkt", "pytest", "hypothesis"), ()),
}


def test_libraries_stay_in_their_places() -> None:
    used = {(name, each.split(".")[0]) for name in MODULES for each in imports_of(MODULES[name])}
    assert sorted(
        (module, library)
        for module, library in used
        if library in PLACES and not f"{module}.".startswith(PLACES[library])
    ) == []  # fmt: skip


def faults_of_file(path: Path) -> Iterator[str]:
    """What is wrong with a file as a whole."""
    text = path.read_text(encoding="utf-8")
    if path.stem in NO_NAMES:
        yield "the name says nothing"
    if text.count("\n") > MAX_FILE:
        yield f"{text.count(chr(10))} lines"
    if text.strip():
        words = ast.get_docstring(tree_of(path))
        if not words or not text.startswith(('"""', 'r"""')):
            yield "the first line does not say what lives here"
        elif not words.split("\n")[0].endswith((".", "?", ":")):
            yield "the first line is no sentence"


def test_files_are_short_named_for_what_they_hold_and_say_it() -> None:
    assert [(str(path), text) for path in PYTHON for text in faults_of_file(path)] == []


def long_and_many(path: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Functions that are long, and those with many parameters, with the place of their file."""
    place = str(path.relative_to(ROOT))
    long, many = set(), set()
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        if node.end_lineno - node.body[0].lineno + 1 > MAX_FUNCTION:
            long.add((place, node.name))
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        if len(names) - (names[:1] in (["self"], ["cls"])) > MAX_PARAMETERS:
            many.add((place, node.name))
    is_bound = path in CODE and not place.startswith(MANY_PARAMETERS_IN)
    return long, many if is_bound else set()


def test_functions_are_short_and_take_few_parameters() -> None:
    long, many = zip(*map(long_and_many, PYTHON), strict=True)
    # Equal, so that an exception goes when its reason does.
    assert set().union(*long) == LONG_FUNCTIONS.keys()
    assert set().union(*many) == MANY_PARAMETERS.keys()


def has_code(path: Path) -> bool:
    """Whether a module holds more than names: functions or methods."""
    return any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree_of(path)))


def is_tested(path: Path) -> bool:
    """By a test file of its own, or by one of the same folder that imports it: many small modules
    may share one."""
    place = path.relative_to(ROOT)
    folder = ROOT / "tests" / place.parent
    for test, modules in TESTED_THROUGH.items():
        if (ROOT / test).parent == path.parent and place.stem in modules.split():
            return (ROOT / "tests" / test).is_file()
    if (folder / f"test_{place.name}").is_file():
        return True
    return any(module_name(path) in imports_of(test) for test in folder.glob("test_*.py"))


def test_every_module_has_its_test_file() -> None:
    modules = [path for path in CODE if path.name not in ("__init__.py", "__main__.py")]
    missing = [path for path in modules if has_code(path) and not is_tested(path)]
    assert missing == [], "tests/FOLDER/test_NAME.py is missing"


def test_child_processes_run_no_code_of_the_current_folder() -> None:
    """`-m` alone puts it before everything else that is imported."""
    unsafe = [
        f"{path}: {line.strip()}"
        for path in CODE
        for line in path.read_text().splitlines()
        if "sys.executable" in line and '"-m"' in line and '"-P"' not in line
    ]
    assert unsafe == []
