"""The language of -Y and --fail-on: parses the text of an expression to a tree, without eval.

    frame_bytes > 1000 and command in ("SEND", "MESSAGE") and not topic contains "retry"

A comparison with a null is false, whatever the operator, so `partition != 3` leaves out rows
without a partition; `partition == null` and `partition != null` test absence and presence. `not`
only swaps true and false. A Boolean column may be an expression by itself.
"""

import re
from typing import Final, NamedTuple, NoReturn, cast

from dissector.cli.suggestions import as_text, instead_of_sign, instead_of_word
from dissector.errors import UsageError
from dissector.limits import MAX_EXPRESSION_NESTING, MAX_TOKENS

ORDERED: Final = ("==", "!=", "<", "<=", ">", ">=")
WORDS: Final = frozenset({"and", "or", "not", "in", "contains", "matches", "true", "false", "null"})
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>-?(?:0[xX][0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.]))
    | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z0-9_]\w*)*)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|<=|>=|<|>|\(|\)|,)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}

Value = int | float | str | bool | None


class Token(NamedTuple):
    """One word of an expression.

    kind: number, name, text, sign or end.
    at: its first character.
    """

    kind: str
    value: Value
    at: int


class Column(NamedTuple):
    """A column, by name."""

    name: str
    at: int


class Literal(NamedTuple):
    """A number, a text, true, false or null."""

    value: Value
    at: int


class Comparison(NamedTuple):
    """Two operands and one of ORDERED, `contains` or `matches`."""

    operator: str
    left: "Column | Literal"
    right: "Column | Literal"
    at: int


class Membership(NamedTuple):
    """`left in (…)`."""

    left: Column
    values: tuple[Literal, ...]
    at: int


class Flag(NamedTuple):
    """A Boolean column as an expression."""

    column: Column


class Negation(NamedTuple):
    """`not inner`."""

    inner: "Node"


class Junction(NamedTuple):
    """All (`and`) or any (`or`) of several parts."""

    operator: str
    parts: tuple["Node", ...]


Node = Comparison | Membership | Flag | Negation | Junction


def refuse(text: str, at: int, reason: str) -> NoReturn:
    """Raise an error with the position of the wrong character and the text from there on."""
    rest = text[at : at + 24].encode("unicode_escape").decode()
    where = f'at "{rest}"' if rest else "at its end"
    raise UsageError(f"expression, character {at + 1}, {where}: {reason}")


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if len(code) == 3 else _ESCAPES.get(code, code)


def _read_number(digits: str) -> int | float:
    plain = digits.replace("_", "")
    if "x" in plain.lower():
        return int(plain, 16)
    return float(plain) if any(sign in plain for sign in ".eE") else int(plain)


def read_tokens(text: str) -> list[Token]:
    """The tokens of an expression, the last one of kind `end`."""
    tokens: list[Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            quoted = text[start] in "\"'"
            hint = instead_of_sign(text[start:]) or as_text(text[start:]) or "this cannot be read"
            refuse(text, start, "a quote is not closed" if quoted else hint)
        kind = cast(str, match.lastgroup)
        raw = match.group(kind)
        value: Value = raw
        if kind == "number":
            value = _read_number(raw)
        elif kind == "text":
            value = _ESCAPE.sub(_unescape, raw[1:-1])
        tokens.append(Token(kind, value, match.start(kind)))
        if len(tokens) > MAX_TOKENS:
            refuse(text, match.start(kind), f"more than {MAX_TOKENS} words")
        at = match.end()
    tokens.append(Token("end", None, end))
    return tokens


class _Reader:
    """A recursive descent parser: one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = read_tokens(text)
        self.position = 0
        self.depth = 0

    def peek(self) -> Token:
        return self.tokens[self.position]

    def advance(self) -> Token:
        token = self.tokens[self.position]
        self.position += token.kind != "end"
        return token

    def is_next(self, kind: str, value: str) -> bool:
        token = self.peek()
        return token.kind == kind and token.value == value

    def expect(self, sign: str) -> Token:
        if not self.is_next("sign", sign):
            hint = instead_of_word(self.peek().value)
            refuse(self.text, self.peek().at, hint or f"'{sign}' is missing")
        return self.advance()

    def whole(self) -> Node:
        node = self.junction("or")
        if self.peek().kind != "end":
            before = self.tokens[self.position - 1].value
            hint = instead_of_word(self.peek().value, before)
            refuse(self.text, self.peek().at, hint or "'and', 'or' or the end belongs here")
        return node

    def junction(self, operator: str) -> Node:
        parts = [self.part(operator)]
        while self.is_next("name", operator):
            self.advance()
            parts.append(self.part(operator))
        return parts[0] if len(parts) == 1 else Junction(operator, tuple(parts))

    def part(self, operator: str) -> Node:
        return self.junction("and") if operator == "or" else self.negation()

    def negation(self) -> Node:
        self.depth += 1
        if self.depth > MAX_EXPRESSION_NESTING:
            refuse(self.text, self.peek().at, f"nested deeper than {MAX_EXPRESSION_NESTING}")
        if self.is_next("name", "not"):
            self.advance()
            node: Node = Negation(self.negation())
        elif self.is_next("sign", "("):
            self.advance()
            node = self.junction("or")
            self.expect(")")
        else:
            node = self.comparison()
        self.depth -= 1
        return node

    def comparison(self) -> Node:
        left = self.operand()
        token = self.peek()
        if token.kind == "sign" and token.value in ORDERED:
            self.advance()
            return Comparison(str(token.value), left, self.operand(), token.at)
        if token.kind == "name" and token.value in ("contains", "matches"):
            self.advance()
            return Comparison(str(token.value), left, self.operand(), token.at)
        if self.is_next("name", "in"):
            self.advance()
            return self.membership(left, token.at)
        if token.kind == "name" and token.value == "not":
            self.advance()
            if not self.is_next("name", "in"):
                refuse(self.text, self.peek().at, "'in' is missing")
            self.advance()
            return Negation(self.membership(left, token.at))
        if isinstance(left, Literal):
            refuse(self.text, left.at, 'a comparison belongs here, such as command == "SEND"')
        return Flag(left)

    def membership(self, left: Column | Literal, at: int) -> Membership:
        if isinstance(left, Literal):
            refuse(self.text, left.at, "a column name belongs before 'in'")
        self.expect("(")
        values: list[Literal] = []
        while not self.is_next("sign", ")"):
            operand = self.operand()
            if isinstance(operand, Column):
                refuse(self.text, operand.at, "only numbers and quoted text stand in a list")
            values.append(operand)
            if not self.is_next("sign", ")"):
                self.expect(",")
        self.advance()
        return Membership(left, tuple(values), at)

    def operand(self) -> Column | Literal:
        token = self.advance()
        if token.kind in ("number", "text"):
            return Literal(token.value, token.at)
        if token.kind == "name":
            name = str(token.value)
            if name in ("true", "false"):
                return Literal(name == "true", token.at)
            if name == "null":
                return Literal(None, token.at)
            if name not in WORDS:
                return Column(name, token.at)
        if self.text[token.at - 1 : token.at + 1] == "<>":
            refuse(self.text, token.at - 1, str(instead_of_sign("<>")))
        refuse(self.text, token.at, "a column name, a number or a quoted text belongs here")


def parse(text: str) -> Node:
    """Parse an expression.

    Raises:
        UsageError: it has a syntax error; the text shows where.
    """
    if not text.strip():
        raise UsageError("the expression is empty")
    return _Reader(text).whole()


def columns_of(node: Node) -> list[Column]:
    """The columns that an expression names, in order of appearance."""
    match node:
        case Comparison(_, left, right, _):
            return [side for side in (left, right) if isinstance(side, Column)]
        case Membership(left, _, _):
            return [left]
        case Flag(column):
            return [column]
        case Negation(inner):
            return columns_of(inner)
        case Junction(_, parts):
            return [column for part in parts for column in columns_of(part)]


def comparisons_of(node: Node) -> list[Comparison]:
    """The comparisons in an expression, in order of appearance."""
    match node:
        case Comparison():
            return [node]
        case Negation(inner):
            return comparisons_of(inner)
        case Junction(_, parts):
            return [each for part in parts for each in comparisons_of(part)]
        case _:
            return []
