"""Fields to a plan: which field of which message goes to which column.

A plan is a tree of nodes. A node is a message in one place: the MessageIdData of a SEND_RECEIPT and
that of an ACK are two nodes, because their fields go to different columns. A node's fields are a
table by field number, one integer each (its *step*), so that walking bytes is one loop and one load
per field, and a new column is one line in a list of `FieldColumn`.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.protobuf.descriptors import Field, descriptors


class StepKind(enum.IntEnum):
    """What a step does with its field; the low bits of the step."""

    SKIP = 0
    INT64 = 1  # and uint64, whose upper half becomes negative
    INT32 = 2  # and enums: 32 bits with their sign
    UINT32 = 3
    BOOL = 4
    COUNTED = 5  # INT32, and 1 to a second column: there, even where the value is the default
    WORD = 6  # repeated int64 to the block's words; two columns, offset and count
    SPAN = 7  # text, bytes or a whole message: two columns, offset and length
    NAME = 8  # text: the code of the name table
    NESTED = 9  # a message whose fields go to the same row
    CHILD = 10  # a repeated message, each with a row of its own; two columns, first and count
    PAIR = 11  # a KeyValue whose key may be one of the plan's pairs
    PRESENT = 12  # 1 where the field is there
    UNWANTED = 13  # nothing: a field of the message that has no column; SKIP is of none


KIND_BITS: Final = 0x3F
IN_CHILD: Final = 0x40  # the column is one of the child's
NULL_SHIFT: Final = 8  # two bits: 0 nothing, else the value that means null, plus two
NULL_BITS: Final = 3
FIRST_SHIFT: Final = 16  # column, or node of NESTED and CHILD, or first pair
SECOND_SHIFT: Final = 32
ARGUMENT_BITS: Final = 0xFFFF

# Rows of Plan.nodes.
NODE_BASE: Final = 0  # index of the node's step for field number 0
NODE_LIMIT: Final = 1  # its largest field number
NODE_DEFAULTS: Final = 2  # first of its defaults
NODE_DEFAULT_COUNT: Final = 3

# Rows of Plan.pairs, and what becomes of the value.
PAIR_KEY_AT: Final = 0
PAIR_KEY_BYTES: Final = 1
PAIR_KIND: Final = 2
PAIR_COLUMN: Final = 3
PAIR_SECOND: Final = 4
PAIR_FLAG: Final = 5  # column of bits; PAIR_BIT is set there
PAIR_BIT: Final = 6


class PairValue(enum.IntEnum):
    """What becomes of the value of a pair."""

    DECIMAL = 0  # digits to a number
    POSITION = 1  # two numbers with a colon between, to two columns
    TEXT = 2  # to the code of the name table


_KINDS: Final = {
    "uint64": StepKind.INT64,
    "int64": StepKind.INT64,
    "int32": StepKind.INT32,
    "enum": StepKind.INT32,
    "uint32": StepKind.UINT32,
    "bool": StepKind.BOOL,
}


class FieldColumn(NamedTuple):
    """One field that has a column.

    path: field names from the root down, `send.message_id.ledgerId`; `*` as the first name stands
        for every field of the root that has the rest, once and as a plain value.
    column: for text a column of codes, or the stem of `<stem>_at` and `<stem>_bytes`; for repeated
        int64 the stem of `<stem>_at` and `<stem>_count`; `ids` makes a repeated message a child,
        whose columns are `ids.<column>`. A message as a plain column says whether it is there, as
        a stem where its bytes are.
    default: written where the message above it is there and the field may not be.
    null: a value that means null (0 or -1).
    present: a column that becomes 1 where the field is there.
    """

    path: str
    column: str
    default: int | None = None
    null: int | None = None
    present: str = ""


class KeyValueColumn(NamedTuple):
    """One key of a repeated KeyValue whose value has a column.

    path: of the KeyValue field.
    second: of a POSITION, the other column.
    flag, bit: the bit is added to that column where the key is there.
    """

    path: str
    key: bytes
    kind: PairValue
    column: str
    second: str
    flag: str
    bit: int


class Default(NamedTuple):
    """A value for a column wherever a message is there. path: as of FieldColumn; empty: root."""

    path: str
    column: str
    value: int


class Extra(NamedTuple):
    """A field that the shipped descriptors do not have yet."""

    message: str
    field: Field


class Root(NamedTuple):
    """A message that spans start with, and which of its fields have columns."""

    message: str
    fields: Sequence[FieldColumn]
    pairs: Sequence[KeyValueColumn] = ()
    defaults: Sequence[Default] = ()
    extra: Sequence[Extra] = ()


class FieldPlan(NamedTuple):
    """A plan as kernels see it.

    steps: int64[], see above.
    nodes: int64[4, nodes], rows NODE_*.
    defaults: int64[2, n], column and value.
    pairs: int64[7, n], rows PAIR_*.
    text: uint8[], the keys of the pairs. The roots are the nodes 0, 1, … in the order in which they
        were given.
    """

    steps: Int64Array
    nodes: Int64Array
    defaults: Int64Array
    pairs: Int64Array
    text: ByteArray


class _Node:
    """A node while the plan is built. steps: by field number, at first of all that is known."""

    def __init__(self, message: str, is_child: bool, known: Iterable[Field]) -> None:
        self.message = message
        self.is_child = is_child
        self.steps: dict[int, int] = {field.number: StepKind.UNWANTED for field in known}
        self.nested: dict[int, int] = {}
        self.defaults: list[tuple[int, int]] = []


class _Builder:
    """Collects nodes and steps; numbers of columns come from their names."""

    def __init__(self, columns: Sequence[str], child_columns: Sequence[str]) -> None:
        self.columns = {name: number for number, name in enumerate(columns)}
        self.child_columns = {name: number for number, name in enumerate(child_columns)}
        self.nodes: list[_Node] = []
        self.pairs: list[tuple[int, ...]] = []
        self.text = bytearray()
        self._extra: tuple[Extra, ...] = ()
        self._fields: dict[str, dict[str, Field]] = {}

    def fields(self, message: str) -> dict[str, Field]:
        """The fields of a message by name; found once for each root, as paths ask for it often."""
        known = self._fields.get(message)
        if known is None:
            fields = descriptors().messages.get(message, {}).values()
            known = self._fields[message] = {field.name: field for field in fields}
            for extra in self._extra:
                if extra.message == message:
                    known[extra.field.name] = extra.field
        return known

    def new_root(self, root: Root) -> _Node:
        """The node of a root."""
        self._extra, self._fields = tuple(root.extra), {}
        return self._new(root.message, is_child=False)

    def add_root(self, number: int, root: Root) -> None:
        """Roots are nodes already: the first ones, in their order."""
        self._extra = tuple(root.extra)
        self._fields = {}
        for rule in root.fields:
            for path in self._paths(root, rule.path):
                self._add(self._node(number, path[:-1]), path[-1], rule)
        for default in root.defaults:
            node = self._node(number, default.path.split(".") if default.path else [])
            node.defaults.append((self.columns[default.column], default.value))
        for path_of_pairs in dict.fromkeys(pair.path for pair in root.pairs):
            self._add_pairs(number, path_of_pairs, root)

    def _new(self, message: str, is_child: bool) -> _Node:
        return _Node(message, is_child, self.fields(message).values())

    def _paths(self, root: Root, path: str) -> Iterator[list[str]]:
        names = path.split(".")
        if names[0] != "*":
            yield names
            return
        for field in descriptors().messages[root.message].values():
            leaf: Field | None = field
            for name in names[1:]:
                leaf = self.fields(leaf.of).get(name) if leaf and leaf.of else None
                if leaf is not None and leaf.label == "repeated":
                    leaf = None
            if leaf is not None and leaf.type_name != "message":
                yield [field.name, *names[1:]]

    def _node(self, root: int, path: Sequence[str]) -> _Node:
        """The node at a path below a root, made where it is not there yet."""
        node = self.nodes[root]
        for name in path:
            field = self.fields(node.message)[name]
            if field.number not in node.nested:
                node.nested[field.number] = len(self.nodes)
                node.steps[field.number] = StepKind.NESTED | len(self.nodes) << FIRST_SHIFT
                self.nodes.append(self._new(field.of, node.is_child))
            node = self.nodes[node.nested[field.number]]
        return node

    def _add(self, node: _Node, name: str, rule: FieldColumn) -> None:
        field = self.fields(node.message)[name]
        if rule.column == "ids":
            assert field.label == "repeated" and field.number not in node.nested
            node.nested[field.number] = len(self.nodes)
            self.nodes.append(self._new(field.of, is_child=True))
            step = StepKind.CHILD | (len(self.nodes) - 1) << FIRST_SHIFT
            node.steps[field.number] = step | self.columns["first_id"] << SECOND_SHIFT
            assert self.columns["id_count"] == self.columns["first_id"] + 1
            return
        columns, column, flag = self.columns, rule.column, 0
        if column.startswith("ids."):
            columns, column, flag = self.child_columns, column.removeprefix("ids."), IN_CHILD
        assert bool(flag) == node.is_child, rule
        node.steps[field.number] = flag | self._leaf(field, columns, column, rule)
        if rule.default is not None:
            node.defaults.append((columns[column], rule.default))

    def _leaf(self, field: Field, columns: dict[str, int], column: str, rule: FieldColumn) -> int:
        if field.type_name in ("string", "bytes", "message"):
            if column in columns:
                kind = StepKind.PRESENT if field.type_name == "message" else StepKind.NAME
                return kind | columns[column] << FIRST_SHIFT
            first, second = columns[f"{column}_at"], columns[f"{column}_bytes"]
            return StepKind.SPAN | first << FIRST_SHIFT | second << SECOND_SHIFT
        if field.label == "repeated":
            first, second = columns[f"{column}_at"], columns[f"{column}_count"]
            return StepKind.WORD | first << FIRST_SHIFT | second << SECOND_SHIFT
        step = _KINDS[field.type_name] | columns[column] << FIRST_SHIFT
        if rule.null is not None:
            step |= (rule.null + 2) << NULL_SHIFT
        if rule.present:
            assert field.type_name == "int32"
            step += StepKind.COUNTED - StepKind.INT32
            step |= columns[rule.present] << SECOND_SHIFT
        return step

    def _add_pairs(self, root: int, path: str, rule: Root) -> None:
        names = path.split(".")
        node = self._node(root, names[:-1])
        field = self.fields(node.message)[names[-1]]
        assert field.of == "KeyValue" and not node.is_child
        first = len(self.pairs)
        for pair in rule.pairs:
            if pair.path != path:
                continue
            second = self.columns[pair.second] if pair.second else 0
            numbers = (self.columns[pair.column], second, self.columns[pair.flag], pair.bit)
            self.pairs.append((len(self.text), len(pair.key), pair.kind, *numbers))
            self.text += pair.key
        count = len(self.pairs) - first
        node.steps[field.number] = StepKind.PAIR | first << FIRST_SHIFT | count << SECOND_SHIFT

    def build(self) -> FieldPlan:
        steps: list[int] = []
        nodes: list[tuple[int, int, int, int]] = []
        defaults: list[tuple[int, int]] = []
        for node in self.nodes:
            limit = max(node.steps, default=0)
            nodes.append((len(steps), limit, len(defaults), len(node.defaults)))
            steps += [node.steps.get(number, StepKind.SKIP) for number in range(limit + 1)]
            defaults += node.defaults
        return FieldPlan(
            steps=np.array(steps, np.int64),
            nodes=_table(nodes, 4),
            defaults=_table(defaults, 2),
            pairs=_table(self.pairs, 7),
            text=np.frombuffer(self.text or bytearray(1), np.uint8),
        )


def column_paths(root: Root) -> dict[tuple[str, ...], FieldColumn]:
    """Every path that a root's fields stand for, `*` written out."""
    builder = _Builder((), ())
    return {tuple(path): rule for rule in root.fields for path in builder._paths(root, rule.path)}


def _table(rows: Sequence[tuple[int, ...]], width: int) -> Int64Array:
    """int64[width, rows]."""
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(len(rows), width).T)


def build_plan(
    roots: Sequence[Root], columns: Sequence[str], child_columns: Sequence[str] = ()
) -> FieldPlan:
    """The plan for several kinds of spans that fill one bundle of columns.

    Args:
        columns: names of the rows of the matrix that is filled; child_columns: of the children's,
            whose first column must be `parent`.

    Raises:
        KeyError: a path or a column that does not exist.
    """
    return _built(roots, columns, child_columns).build()


def plan_messages(
    roots: Sequence[Root], columns: Sequence[str], child_columns: Sequence[str] = ()
) -> list[str]:
    """The message of each node of such a plan."""
    return [node.message for node in _built(roots, columns, child_columns).nodes]


def _built(roots: Sequence[Root], columns: Sequence[str], child_columns: Sequence[str]) -> _Builder:
    builder = _Builder(columns, child_columns)
    for root in roots:
        builder.nodes.append(builder.new_root(root))
    for number, root in enumerate(roots):
        builder.add_root(number, root)
    return builder
