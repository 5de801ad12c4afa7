"""Loops of kernels end: whoever follows a list, a chain or a table does so in a `for`.

A `while` may count a position up to an end, or take from a queue that shrinks; where its condition
asks an array of links, a list's length or a table's slot, memory that is wrong would make it run
for ever, and nobody could interrupt it.
"""

import ast

from tests.test_tidy import CODE, ROOT, tree_of

# Arrays that say what comes next: of lists, chains, and the slots of tables.
LINKS = frozenset(
    {"first", "last", "next", "previous", "length", "heads", "tails", "successors", "index", "ids",
     "values", "slots", "table"}
)  # fmt: skip
_POSITIONS = frozenset({"ranges", "pieces"})  # their `length` is that of bytes


def is_kernel(function: ast.FunctionDef) -> bool:
    names = {each.id for each in function.decorator_list if isinstance(each, ast.Name)}
    return bool(names & {"kernel", "inlined"})


def follows_links(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if "ABSENT" in (getattr(node, "id", ""), getattr(node, "attr", "")):
            return True
        if isinstance(node, ast.Subscript):
            held = node.value
            name = held.attr if isinstance(held, ast.Attribute) else getattr(held, "id", "")
            if name in LINKS and not (
                _POSITIONS
                & {each.attr for each in ast.walk(held) if isinstance(each, ast.Attribute)}
            ):
                return True
    return False


def test_no_while_of_a_kernel_follows_links() -> None:
    found = {
        (str(path.relative_to(ROOT)), function.name)
        for path in CODE
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef) and is_kernel(function)
        for node in ast.walk(function)
        if isinstance(node, ast.While) and follows_links(node.test)
    }
    assert not found
