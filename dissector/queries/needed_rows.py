"""Necessary conditions for a query to return rows, derived from its SQL text.

`TableRows` says that a table must have rows; `AllOf` and `AnyOf` combine conditions.
`needed_with_probes` adds queries of a WITH that must return rows (`QueryRows`): such a probe runs
before the whole query and costs less to plan. `with_queries` lists all queries of a WITH.

An inner join needs rows on both sides; the right side of LEFT or ANTI JOIN is not needed. A WHERE
condition on a single table is part of its need. What cannot be derived is not needed (`NOTHING`),
so a query that is skipped would have returned no rows. Keywords must be in capitals, as in all
queries of this program; from other texts nothing is derived.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias


class TableRows(NamedTuple):
    """A table or view must have a row that meets a condition ("": any row)."""

    table: str
    condition: str


class QueryRows(NamedTuple):
    """A query, built from queries of a WITH, must return rows."""

    text: str


class AllOf(NamedTuple):
    """All parts must be met."""

    parts: "tuple[Need, ...]"


class AnyOf(NamedTuple):
    """At least one part must be met."""

    parts: "tuple[Need, ...]"


Need: TypeAlias = TableRows | QueryRows | AllOf | AnyOf
Node: TypeAlias = "str | list[Node]"  # a token, or the nodes between two parentheses
Nodes: TypeAlias = "list[Node]"


class Scope(NamedTuple):
    """named: needs of the queries of a WITH, by name. probe_tokens_max: 0 if no probe is built."""

    named: Mapping[str, Need]
    probe_tokens_max: int


class WithQuery(NamedTuple):
    """A query of a WITH: its name, its text and the range of that in the whole text. is_read_again:
    it is read more than once."""

    name: str
    text: str
    start: int
    end: int
    is_read_again: bool


NOTHING: Final = AllOf(())
NEVER: Final = AnyOf((AnyOf(()),))  # AnyOf(()) would equal NOTHING, as tuples do
_PROBE_SHARE: Final = 0.3  # of a text's tokens, at most: a larger probe costs as much as the query
_DEEPEST: Final = 50  # nesting of parentheses
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
# Scalar functions. Without GROUP BY a SELECT that calls another function may be an aggregate, which
# returns a row even for no input.
ROW_FUNCTIONS: Final = frozenset((
    "abs", "coalesce", "concat", "contains", "floor_div", "greatest", "histogram_bucket", "items",
    "least", "len", "lies_in", "lower", "micros", "nullif", "regexp_extract", "round", "split_part",
    "try_multiply", "try_subtract", "unnest", "upper",
))  # fmt: skip


@cache
def needed(text: str) -> Need:
    """The conditions for a query to return rows."""
    return needed_within(text, {})


@cache
def needed_with_probes(text: str) -> Need:
    """The conditions for a query to return rows, with probes that can run before it."""
    nodes = _nodes(text)
    if nodes is None:
        return NOTHING
    return _with_longest_probe(_query(nodes, Scope({}, int(_PROBE_SHARE * len([*_tokens(nodes)])))))


def _with_longest_probe(need: Need) -> Need:
    """A need that keeps only the longest of the probes that must all return rows."""
    if isinstance(need, AnyOf):
        return AnyOf(tuple(map(_with_longest_probe, need.parts)))
    parts = [*_all_parts(need)]
    probes = sorted((part.text for part in parts if isinstance(part, QueryRows)), key=len)[-1:]
    rest = [_with_longest_probe(part) for part in parts if isinstance(part, AnyOf)]
    rows = [part for part in parts if isinstance(part, TableRows)]
    return AllOf((*rows, *rest, *map(QueryRows, probes)))


def _all_parts(need: Need) -> Iterator[Need]:
    """The parts of a need that must all be met, nested AllOf flattened."""
    if isinstance(need, AllOf):
        for part in need.parts:
            yield from _all_parts(part)
    else:
        yield need


def needed_within(text: str, named: Mapping[str, Need]) -> Need:
    """The conditions for a query to return rows. named: needs of the queries of a WITH, by name."""
    nodes = _nodes(text)
    return NOTHING if nodes is None else _query(nodes, Scope(named, 0))


@cache
def with_queries(text: str) -> tuple[WithQuery, ...]:
    """The queries of the first WITH of a text, in order; () if the text cannot be parsed."""
    tokens = [*_TOKEN.finditer(_COMMENT.sub(lambda comment: " " * len(comment[0]), text))]
    words = [token[0] for token in tokens]
    if "WITH" not in words or _nodes(text) is None:
        return ()
    queries = []
    position = words.index("WITH") + 1
    while True:
        if words[position + 1 : position + 3] != ["AS", "("]:
            return ()
        end = _closing(words, position + 2)
        start, stop = tokens[position + 2].end(), tokens[end].start()
        read = [index for index in range(end, len(words)) if words[index] == words[position]]
        times = sum(words[index - 1] in ("FROM", "JOIN") for index in read)
        queries.append(WithQuery(words[position], text[start:stop], start, stop, times > 1))
        if words[end + 1 : end + 2] != [","]:
            return tuple(queries)
        position = end + 2


def _closing(words: Sequence[str], position: int) -> int:
    """The index of the parenthesis that closes the one at `position`."""
    depth = 0
    for index in range(position, len(words)):
        depth += (words[index] == "(") - (words[index] == ")")
        if not depth:
            break
    return index


@cache
def _nodes(text: str) -> "Nodes | None":
    """The nodes of a text, None if it cannot be parsed."""
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
    """All tokens of nodes, parentheses included."""
    for node in nodes:
        if isinstance(node, list):
            yield from ("(", *_tokens(node), ")")
        else:
            yield node


def tables_in(need: Need) -> Iterator[TableRows]:
    """All tables of a need with their conditions, probes excluded."""
    if isinstance(need, TableRows):
        yield need
    elif not isinstance(need, QueryRows):
        for part in need.parts:
            yield from tables_in(part)


def _node_at(nodes: Nodes, position: int) -> Node:
    return nodes[position] if 0 <= position < len(nodes) else ""


def _query(nodes: Nodes, scope: Scope) -> Need:
    """The need of a query that may begin with WITH."""
    if _node_at(nodes, 0) == "WITH":
        position, bodies = 1, {}
        while True:
            name, word, body = (_node_at(nodes, position + more) for more in range(3))
            if not isinstance(name, str) or word != "AS" or not isinstance(body, list):
                return NOTHING
            bodies[name] = body
            position += 3
            if _node_at(nodes, position) != ",":
                break
            position += 1
        nodes, scope = nodes[position:], _with(bodies, scope)
    if "EXCEPT" in nodes or "INTERSECT" in nodes:
        return NOTHING
    needs = []
    while "UNION" in nodes:
        end = nodes.index("UNION")
        needs.append(_select(nodes[:end], scope))
        nodes = nodes[end + 1 :]
        while _node_at(nodes, 0) in ("ALL", "DISTINCT", "BY", "NAME"):
            nodes = nodes[1:]
    needs.append(_select(nodes, scope))
    return needs[0] if len(needs) == 1 else AnyOf(tuple(needs))


def _with(bodies: Mapping[str, Nodes], scope: Scope) -> Scope:
    """The scope with the needs of the queries of a WITH. The need of one that is small enough,
    together with the earlier queries that it reads, includes a probe."""
    without_probes = Scope(scope.named, 0)
    has_probes = scope.probe_tokens_max > 0 and not scope.named
    tokens = {name: [*_tokens(body)] for name, body in bodies.items()} if has_probes else {}
    for name, body in bodies.items():
        need = _query(body, without_probes)
        without_probes = Scope({**without_probes.named, name: need}, 0)
        if has_probes:
            read = _queries_read_by(name, tokens)
            if sum(len(tokens[each]) for each in read) > scope.probe_tokens_max:
                need = _query(body, Scope(scope.named, 0))
            else:
                parts = ", ".join(f"{each} AS ({' '.join(tokens[each])})" for each in read)
                need = AllOf((need, QueryRows(f"WITH {parts} SELECT 1 FROM {name}")))
        scope = scope._replace(named={**scope.named, name: need})
    return scope._replace(probe_tokens_max=0)


def _queries_read_by(name: str, tokens: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of a query of a WITH and of those that it reads, in their order."""
    names = [*tokens]
    read = [name]
    for other in reversed(names[: names.index(name)]):
        if any(other in tokens[each] for each in read):
            read.insert(0, other)
    return read


def _select(nodes: Nodes, scope: Scope) -> Need:
    """The need of one operand of UNION."""
    first = _node_at(nodes, 0)
    if isinstance(first, list):
        return _query(first, scope)
    position = _position_of("FROM", nodes, 0)
    while _node_at(nodes, position - 1) == "DISTINCT" and position < len(nodes):  # IS DISTINCT FROM
        position = _position_of("FROM", nodes, position + 1)
    if first != "SELECT" or position == len(nodes):
        return NOTHING
    ends = sorted({_position_of(word, nodes, position) for word in _CLAUSES})
    where = _position_of("WHERE", nodes, position)
    group = _position_of("GROUP", nodes, position)
    if group < len(nodes):
        has_no_aggregate = not {"ROLLUP", "CUBE", "SETS"} & {*filter(_is_word, nodes[group:])}
        has_no_aggregate = has_no_aggregate and [] not in nodes[group:]
    else:
        has_no_aggregate = "HAVING" not in nodes and _has_no_aggregate(nodes[1:position])
    if not has_no_aggregate:
        return NOTHING
    until = next((end for end in ends if end > where), len(nodes))
    return _source(nodes[position + 1 : ends[0]], nodes[where + 1 : until], scope)


def _position_of(word: str, nodes: Nodes, start: int) -> int:
    """The index of the next occurrence of a word from `start` on; len(nodes) if there is none."""
    try:
        return nodes.index(word, start)
    except ValueError:
        return len(nodes)


def _is_word(node: Node) -> bool:
    return isinstance(node, str) and _WORD.match(node) is not None


def _has_no_aggregate(nodes: Nodes) -> bool:
    """Whether the SELECT list calls no aggregate, so each input row gives a row."""
    for position, node in enumerate(nodes):
        if not isinstance(node, list) or _node_at(node, 0) in ("SELECT", "WITH"):
            continue
        name = _node_at(nodes, position - 1)
        is_call = _is_word(name) and name not in _KEYWORDS and name not in ROW_FUNCTIONS
        if (is_call and _node_at(nodes, position + 1) != "OVER") or not _has_no_aggregate(node):
            return False
    return True


class _JoinSide(NamedTuple):
    """One side of a join: its alias, its need and whether it is a table. is_needed: whether the
    join returns no rows without it."""

    alias: str
    need: Need
    is_table: bool
    is_needed: bool


def _source(nodes: Nodes, where: Nodes, scope: Scope) -> Need:
    """The need of a FROM clause with its WHERE condition."""
    sides: list[_JoinSide] = []
    conditions = _conjuncts(where)
    join: Nodes = []
    position = 0
    while position < len(nodes):
        relation, alias, is_table = nodes[position], "", False
        position += 1
        if isinstance(relation, list):
            need = _query(relation, scope)
        elif _is_word(relation):
            alias = relation
            is_table = relation not in scope.named
            need = scope.named.get(relation, TableRows(relation, ""))
        else:
            return NOTHING
        if _node_at(nodes, position) == "AS":
            alias = str(_node_at(nodes, position + 1))
            position += 2
        sides.append(_JoinSide(alias, need, is_table, "LEFT" not in join and "ANTI" not in join))
        start = position
        while position < len(nodes) and nodes[position] not in _JOINS:
            position += 1
        on, start = nodes[start:position], position
        if on and on[0] not in ("ON", "USING"):  # a table function, or unknown syntax
            return NOTHING
        if sides[-1].is_needed and _node_at(on, 0) == "ON":
            conditions += _conjuncts(on[1:])
        while position < len(nodes) and nodes[position] in _JOINS:
            position += 1
        join = nodes[start:position]
        if "RIGHT" in join or "FULL" in join or "ASOF" in join:
            return NOTHING
    conditions_of: dict[str, list[str]] = {}
    aliases = [side.alias for side in sides]
    for condition in conditions:
        alias, text = _condition_on_one_table(condition, aliases)
        conditions_of.setdefault(alias, []).append(text)
    parts: list[Need] = []
    for side in sides:
        need = side.need
        if side.is_table and side.alias in conditions_of and isinstance(need, TableRows):
            need = TableRows(need.table, " AND ".join(sorted({*conditions_of[side.alias]})))
        if side.is_needed and need not in (NOTHING, *parts):
            parts.append(need)
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _conjuncts(nodes: Nodes) -> list[Nodes]:
    """The operands of the top-level ANDs of a condition."""
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


def _condition_on_one_table(condition: Nodes, aliases: Sequence[str]) -> tuple[str, str]:
    """The alias of the only table that a condition reads, and its text without the alias; twice ""
    if it reads several tables or is not plain."""
    words: list[str] = []
    used: set[str] = set()
    if _is_plain(condition, aliases, words, used) and len(used) == 1:
        (alias,) = used
        if alias or len(aliases) == 1:
            return alias or aliases[0], f"({' '.join(words)})"
    return "", ""


def _is_plain(nodes: Nodes, aliases: Sequence[str], words: list[str], used: set[str]) -> bool:
    """Whether nodes are a plain condition. Appends its tokens to `words` and adds its table aliases
    to `used`, "" for a column without one."""
    position = 0
    while position < len(nodes):
        node = nodes[position]
        if isinstance(node, list):
            words.append("(")
            if not _is_plain(node, aliases, words, used):
                return False
            words.append(")")
        elif node in ("SELECT", "OVER", "LAMBDA", "INTERVAL"):
            return False
        elif node == "AS":  # of CAST
            words += ["AS", str(_node_at(nodes, position + 1))]
            position += 1
        elif node in aliases and _node_at(nodes, position + 1) == ".":
            used.add(node)
            position += 1
        else:
            is_call = isinstance(_node_at(nodes, position + 1), list)
            is_part = _node_at(nodes, position - 1) == "."  # of a column
            if _is_word(node) and node not in _KEYWORDS and not is_call and not is_part:
                used.add("")
            words.append(node)
        position += 1
    return True
