"""What must have rows for a query to have any, as its text tells: `Rows`, `All` of some, or `Any`.

`beginnings` tells also which queries of a WITH must have some, `Found`: such a part can be asked
before the whole, and costs less to plan. `parts` has all of them, to be made one after the other.

An inner join has no rows where one side has none; what stands behind LEFT or ANTI JOIN is not
needed. A condition on one table alone is needed with it. What a text does not tell is not needed
(`NOTHING`), so that a query which is passed over would have given no rows. Keywords are in capitals
here, as in all queries of this program; a text that has others tells nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias


class Rows(NamedTuple):
    """That a table or view has rows, such of them as meet a condition, "" for any."""

    table: str
    condition: str


class Found(NamedTuple):
    """That a query has rows, with which another one begins."""

    text: str


class All(NamedTuple):
    """That all parts are met."""

    parts: "tuple[Need, ...]"


class Any(NamedTuple):
    """That a part is met."""

    parts: "tuple[Need, ...]"


Need: TypeAlias = Rows | Found | All | Any
Node: TypeAlias = "str | list[Node]"  # a token, or what stands in parentheses
Nodes: TypeAlias = "list[Node]"


class Scope(NamedTuple):
    """What names stand for: the queries of WITH. most: tokens of a beginning, 0 if none is told."""

    named: Mapping[str, Need]
    most: int


class Part(NamedTuple):
    """A query of a WITH: its name, its text, and from where to where in the whole that is;
    is_read_again: more than once."""

    name: str
    text: str
    start: int
    end: int
    is_read_again: bool


NOTHING: Final = All(())
NEVER: Final = Any((Any(()),))  # Any(()) would equal NOTHING, as tuples do
_BEGINNING: Final = 0.3  # of a text, at most: what costs as much as the whole spares nothing
_DEEPEST: Final = 50  # parentheses within each other
_COMMENT: Final = re.compile(r"--[^\n]*")
_TOKEN: Final = re.compile(
    r"""[A-Za-z_]\w*|[(),.]|'(?:[^']|'')*'|"[^"]*"|\d[\w.]*|<=|>=|<>|!=|::|\|\||>>|<<|->|//|\S"""
)
_WORD: Final = re.compile(r"[A-Za-z_]\w*|\"")
_CLAUSES: Final = ("WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT")
_JOINS: Final = (
    ",", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "ANTI", "SEMI", "ASOF",
)  # fmt: skip
_KEYWORDS: Final = frozenset((
    "ALL", "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "DESC", "DISTINCT", "ELSE", "END",
    "EXCLUDE", "EXISTS", "FALSE", "FILTER", "IN", "IS", "LIKE", "NOT", "NULL", "NULLS", "ON", "OR",
    "OVER", "PARTITION", "REPLACE", "SELECT", "THEN", "TRUE", "TRY", "TRY_CAST", "USING", "WHEN",
    "WHERE",
))  # fmt: skip
# Functions of one row. A SELECT without GROUP BY that calls another one may be an aggregate, which
# has a row also of nothing.
ROW_FUNCTIONS: Final = frozenset((
    "abs", "coalesce", "concat", "contains", "floor_div", "greatest", "histogram_bucket", "items",
    "least", "len", "lies_in", "lower", "micros", "nullif", "regexp_extract", "round", "split_part",
    "try_multiply", "try_subtract", "unnest", "upper",
))  # fmt: skip


@cache
def needed(text: str) -> Need:
    """What a query needs."""
    return needed_within(text, {})


@cache
def beginnings(text: str) -> Need:
    """What a query needs, parts of it that can be asked by themselves among that."""
    nodes = _nodes(text)
    if nodes is None:
        return NOTHING
    return _longest(_query(nodes, Scope({}, int(_BEGINNING * len([*_tokens(nodes)])))))


def _longest(need: Need) -> Need:
    """A need with one beginning of those that must all have rows."""
    if isinstance(need, Any):
        return Any(tuple(map(_longest, need.parts)))
    parts = [*_all_parts(need)]
    found = sorted((part.text for part in parts if isinstance(part, Found)), key=len)[-1:]
    rest = [_longest(part) for part in parts if isinstance(part, Any)]
    rows = [part for part in parts if isinstance(part, Rows)]
    return All((*rows, *rest, *map(Found, found)))


def _all_parts(need: Need) -> Iterator[Need]:
    """The parts of a need that must all be met, and of those that are such."""
    if isinstance(need, All):
        for part in need.parts:
            yield from _all_parts(part)
    else:
        yield need


def needed_within(text: str, named: Mapping[str, Need]) -> Need:
    """What a query needs where names stand for queries of a WITH."""
    nodes = _nodes(text)
    return NOTHING if nodes is None else _query(nodes, Scope(named, 0))


@cache
def parts(text: str) -> tuple[Part, ...]:
    """The queries of the first WITH of a text in their order, none if that cannot be told."""
    tokens = [*_TOKEN.finditer(_COMMENT.sub(lambda comment: " " * len(comment[0]), text))]
    words = [token[0] for token in tokens]
    if "WITH" not in words or _nodes(text) is None:
        return ()
    found = []
    place = words.index("WITH") + 1
    while True:
        if words[place + 1 : place + 3] != ["AS", "("]:
            return ()
        end = _closing(words, place + 2)
        start, stop = tokens[place + 2].end(), tokens[end].start()
        read = [at for at in range(end, len(words)) if words[at] == words[place]]
        times = sum(words[at - 1] in ("FROM", "JOIN") for at in read)
        found.append(Part(words[place], text[start:stop], start, stop, times > 1))
        if words[end + 1 : end + 2] != [","]:
            return tuple(found)
        place = end + 2


def _closing(words: Sequence[str], place: int) -> int:
    """Where the parenthesis closes that opens at a place."""
    depth = 0
    for at in range(place, len(words)):
        depth += (words[at] == "(") - (words[at] == ")")
        if not depth:
            break
    return at


@cache
def _nodes(text: str) -> "Nodes | None":
    """A text in nodes, None if it is no query that can be told."""
    if "/*" in text:
        return None
    nodes: Nodes = []
    stack: list[Nodes] = []
    for token in _TOKEN.findall(_COMMENT.sub("", text)):
        if token == "(":
            if len(stack) == _DEEPEST:
                return None
            stack.append(nodes)
            nodes = []
        elif token != ")":
            nodes.append(token)
        elif stack:
            stack[-1].append(nodes)
            nodes = stack.pop()
        else:
            return None
    return None if stack else nodes


def _tokens(nodes: Nodes) -> Iterator[str]:
    """The tokens of nodes."""
    for node in nodes:
        if isinstance(node, list):
            yield from ("(", *_tokens(node), ")")
        else:
            yield node


def tables_in(need: Need) -> Iterator[Rows]:
    """All that a need speaks of."""
    if isinstance(need, Rows):
        yield need
    elif not isinstance(need, Found):
        for part in need.parts:
            yield from tables_in(part)


def _at(nodes: Nodes, place: int) -> Node:
    return nodes[place] if 0 <= place < len(nodes) else ""


def _query(nodes: Nodes, scope: Scope) -> Need:
    """Of a query, with what WITH names before it."""
    if _at(nodes, 0) == "WITH":
        place, bodies = 1, {}
        while True:
            name, word, body = (_at(nodes, place + more) for more in range(3))
            if not isinstance(name, str) or word != "AS" or not isinstance(body, list):
                return NOTHING
            bodies[name] = body
            place += 3
            if _at(nodes, place) != ",":
                break
            place += 1
        nodes, scope = nodes[place:], _with(bodies, scope)
    if "EXCEPT" in nodes or "INTERSECT" in nodes:
        return NOTHING
    needs = []
    while "UNION" in nodes:
        end = nodes.index("UNION")
        needs.append(_select(nodes[:end], scope))
        nodes = nodes[end + 1 :]
        while _at(nodes, 0) in ("ALL", "DISTINCT", "BY", "NAME"):
            nodes = nodes[1:]
    needs.append(_select(nodes, scope))
    return needs[0] if len(needs) == 1 else Any(tuple(needs))


def _with(bodies: Mapping[str, Nodes], scope: Scope) -> Scope:
    """What the queries of a WITH need; of each, and those before it that it reads, also that it has
    rows, if that is a beginning."""
    plain = Scope(scope.named, 0)
    is_told = scope.most > 0 and not scope.named
    tokens = {name: [*_tokens(body)] for name, body in bodies.items()} if is_told else {}
    for name, body in bodies.items():
        need = _query(body, plain)
        plain = Scope({**plain.named, name: need}, 0)
        if is_told:
            read = _read_by(name, tokens)
            if sum(len(tokens[each]) for each in read) > scope.most:
                need = _query(body, Scope(scope.named, 0))
            else:
                parts = ", ".join(f"{each} AS ({' '.join(tokens[each])})" for each in read)
                need = All((need, Found(f"WITH {parts} SELECT 1 FROM {name}")))
        scope = scope._replace(named={**scope.named, name: need})
    return scope._replace(most=0)


def _read_by(name: str, tokens: Mapping[str, Sequence[str]]) -> list[str]:
    """A query of a WITH, and those that it reads, in their order."""
    names = [*tokens]
    read = [name]
    for other in reversed(names[: names.index(name)]):
        if any(other in tokens[each] for each in read):
            read.insert(0, other)
    return read


def _select(nodes: Nodes, scope: Scope) -> Need:
    """Of one of the queries that UNION puts together."""
    first = _at(nodes, 0)
    if isinstance(first, list):
        return _query(first, scope)
    place = _place_of("FROM", nodes, 0)
    while _at(nodes, place - 1) == "DISTINCT" and place < len(nodes):  # IS DISTINCT FROM
        place = _place_of("FROM", nodes, place + 1)
    if first != "SELECT" or place == len(nodes):
        return NOTHING
    ends = sorted({_place_of(word, nodes, place) for word in _CLAUSES})
    where = _place_of("WHERE", nodes, place)
    group = _place_of("GROUP", nodes, place)
    if group < len(nodes):
        is_of_rows = not {"ROLLUP", "CUBE", "SETS"} & {*filter(_is_word, nodes[group:])}
        is_of_rows = is_of_rows and [] not in nodes[group:]
    else:
        is_of_rows = "HAVING" not in nodes and _is_of_rows(nodes[1:place])
    if not is_of_rows:
        return NOTHING
    until = next((end for end in ends if end > where), len(nodes))
    return _source(nodes[place + 1 : ends[0]], nodes[where + 1 : until], scope)


def _place_of(word: str, nodes: Nodes, start: int) -> int:
    """Where a word is the next time; behind the end if it is not."""
    try:
        return nodes.index(word, start)
    except ValueError:
        return len(nodes)


def _is_word(node: Node) -> bool:
    return isinstance(node, str) and _WORD.match(node) is not None


def _is_of_rows(nodes: Nodes) -> bool:
    """Whether what is selected has a row for each row, as no aggregate has."""
    for place, node in enumerate(nodes):
        if not isinstance(node, list) or _at(node, 0) in ("SELECT", "WITH"):
            continue
        name = _at(nodes, place - 1)
        is_call = _is_word(name) and name not in _KEYWORDS and name not in ROW_FUNCTIONS
        if (is_call and _at(nodes, place + 1) != "OVER") or not _is_of_rows(node):
            return False
    return True


class _Side(NamedTuple):
    """What a join joins: by which name, what it needs, and whether that is a table; is_needed:
    whether the join needs it."""

    alias: str
    need: Need
    is_table: bool
    is_needed: bool


def _source(nodes: Nodes, where: Nodes, scope: Scope) -> Need:
    """Of a FROM with its WHERE."""
    sides: list[_Side] = []
    conditions = _conjuncts(where)
    how: Nodes = []
    place = 0
    while place < len(nodes):
        relation, alias, is_table = nodes[place], "", False
        place += 1
        if isinstance(relation, list):
            need = _query(relation, scope)
        elif _is_word(relation):
            alias = relation
            is_table = relation not in scope.named
            need = scope.named.get(relation, Rows(relation, ""))
        else:
            return NOTHING
        if _at(nodes, place) == "AS":
            alias = str(_at(nodes, place + 1))
            place += 2
        sides.append(_Side(alias, need, is_table, "LEFT" not in how and "ANTI" not in how))
        start = place
        while place < len(nodes) and nodes[place] not in _JOINS:
            place += 1
        on, start = nodes[start:place], place
        if on and on[0] not in ("ON", "USING"):  # a function, or what is not known
            return NOTHING
        if sides[-1].is_needed and _at(on, 0) == "ON":
            conditions += _conjuncts(on[1:])
        while place < len(nodes) and nodes[place] in _JOINS:
            place += 1
        how = nodes[start:place]
        if "RIGHT" in how or "FULL" in how or "ASOF" in how:
            return NOTHING
    met: dict[str, list[str]] = {}
    aliases = [side.alias for side in sides]
    for condition in conditions:
        alias, text = _of_one(condition, aliases)
        met.setdefault(alias, []).append(text)
    parts: list[Need] = []
    for side in sides:
        need = side.need
        if side.is_table and side.alias in met and isinstance(need, Rows):
            need = Rows(need.table, " AND ".join(sorted({*met[side.alias]})))
        if side.is_needed and need not in (NOTHING, *parts):
            parts.append(need)
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _conjuncts(nodes: Nodes) -> list[Nodes]:
    """The parts of a condition that must all be met."""
    if "AND" not in nodes:
        return [nodes] if nodes else []
    parts: list[Nodes] = [[]]
    depth, is_between = 0, False
    for node in nodes:
        depth += (node == "CASE") - (node == "END")
        if node == "OR" and not depth:
            return [nodes]
        if node == "AND" and not depth and not is_between:
            parts.append([])
            continue
        is_between = node == "BETWEEN" or (is_between and node != "AND")
        parts[-1].append(node)
    return [part for part in parts if part]


def _of_one(condition: Nodes, aliases: Sequence[str]) -> tuple[str, str]:
    """The name of the only table that a condition speaks of, and its text without that name; "" for
    one that speaks of several, or of something else."""
    words: list[str] = []
    used: set[str] = set()
    if _read(condition, aliases, words, used) and len(used) == 1:
        (alias,) = used
        if alias or len(aliases) == 1:
            return alias or aliases[0], f"({' '.join(words)})"
    return "", ""


def _read(nodes: Nodes, aliases: Sequence[str], words: list[str], used: set[str]) -> bool:
    """Whether nodes are a plain condition. words: its text; used: the names of tables in it, "" for
    a column without one."""
    place = 0
    while place < len(nodes):
        node = nodes[place]
        if isinstance(node, list):
            words.append("(")
            if not _read(node, aliases, words, used):
                return False
            words.append(")")
        elif node in ("SELECT", "OVER", "LAMBDA", "INTERVAL"):
            return False
        elif node == "AS":  # of CAST
            words += ["AS", str(_at(nodes, place + 1))]
            place += 1
        elif node in aliases and _at(nodes, place + 1) == ".":
            used.add(node)
            place += 1
        else:
            is_call = isinstance(_at(nodes, place + 1), list)
            is_part = _at(nodes, place - 1) == "."  # of a column
            if _is_word(node) and node not in _KEYWORDS and not is_call and not is_part:
                used.add("")
            words.append(node)
        place += 1
    return True
