"""The language of selections: what is read, how it is grouped, and where an error points."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.cli import select
from dissector.cli.expression import (
    Column,
    Comparison,
    Flag,
    Junction,
    Literal,
    Membership,
    Negation,
    Node,
    columns_of,
    parse,
)
from dissector.errors import UsageError
from dissector.limits import MAX_EXPRESSION_NESTING


def shape(node: Node) -> str:
    """An expression with every pair of parentheses written out."""
    match node:
        case Junction(operator, parts):
            return "(" + f" {operator} ".join(map(shape, parts)) + ")"
        case Negation(inner):
            return f"not({shape(inner)})"
        case Flag(column):
            return column.name
        case Membership(left, values, _):
            return f"{left.name} in {[value.value for value in values]}"
        case Comparison(operator, left, right, _):
            sides = [
                side.name if isinstance(side, Column) else repr(side.value)
                for side in (left, right)
            ]
            return f"{sides[0]}{operator}{sides[1]}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a == 1", "a==1"),
        ("a==1 and b!=2 or c<3", "((a==1 and b!=2) or c<3)"),
        ("a==1 or b!=2 and c<3", "(a==1 or (b!=2 and c<3))"),
        ("not a and b", "(not(a) and b)"),
        ("not (a or b)", "not((a or b))"),
        ("not not a", "not(not(a))"),
        ("(a)", "a"),
        ("1_000 < a", "1000<a"),
        ("a >= -0x10", "a>=-16"),
        ("a > 1.5e3", "a>1500.0"),
        ("a in (1, 2 ,3,)", "a in [1, 2, 3]"),
        ("a in ()", "a in []"),
        ("a not in ('x')", "not(a in ['x'])"),
        ('topic contains "a\'b"', 'topiccontains"a\'b"'),
        (r"topic == 'a\'b\\\x41\n'", repr(None)),
        ("topic matches '^p.*\\\\d$'", "topicmatches'^p.*\\\\d$'"),
        ("partition == null", "partition==None"),
        ("is_batch == true", "is_batch==True"),
        ("total.latency_ms.p99 > 5", "total.latency_ms.p99>5"),
        ("by.0.x == 1", "by.0.x==1"),
    ],
)
def test_expressions_are_grouped_as_written(text: str, expected: str) -> None:
    if expected == "None":
        node = parse(text)
        assert isinstance(node, Comparison)
        assert isinstance(node.right, Literal) and node.right.value == "a'b\\A\n"
    else:
        assert shape(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "character", "reason"),
    [
        ("", None, "empty"),
        ("   ", None, "empty"),
        ("a ==", 5, "belongs here"),
        ("a = 1", 3, "write == instead of ="),
        ("a == 'x", 6, "a quote is not closed"),
        ("(a == 1", 8, "')' is missing"),
        ("a == 1)", 7, "or the end"),
        ("a == 1 b == 2", 8, "'and', 'or'"),
        ("and a", 1, "belongs here"),
        ("a in 5", 6, "'(' is missing"),
        ("a in (b)", 7, "only numbers"),
        ("5 in (5)", 1, "a column name"),
        ("'x'", 1, "a comparison"),
        ("a not b", 7, "'in' is missing"),
        ("12ab == 1", 1, "cannot be read"),
        ("a == 1; drop", 7, "cannot be read"),
        ("__import__('os')", 11, "or the end"),
    ],
)
def test_errors_name_the_place(text: str, character: int | None, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    if character is not None:
        assert f"character {character}," in str(caught.value)


def test_nesting_is_bounded() -> None:
    assert parse("(" * (MAX_EXPRESSION_NESTING - 1) + "a" + ")" * (MAX_EXPRESSION_NESTING - 1))
    for text in (
        "(" * 100_000 + "a" + ")" * 100_000,
        "not " * 100_000 + "a",
        "(" * MAX_EXPRESSION_NESTING + "a",
    ):
        with pytest.raises(UsageError):
            parse(text)


@given(st.text(alphabet="ab01.\"'\\()=!<>, notandorincontainsmatchesnull\n\t\x1bé", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        node = parse(text)
    except UsageError as error:
        assert str(error).isprintable()
        return
    if not columns_of(node):
        with pytest.raises(UsageError, match="a column name belongs"):
            select.check(text, node, {})


def test_columns_are_listed_in_order() -> None:
    names = [column.name for column in columns_of(parse("b==1 and (a in (1) or not c) and 5<d"))]
    assert names == ["b", "a", "c", "d"]
