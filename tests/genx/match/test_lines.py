"""Lines that a model answers: read in pieces of any size, typed, quoted, and written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.genx.match.lines import LineParser, MatchResult, format_line, parse_line
from vaka.genx.match.rules import MatchRule, parse_rule

RULE = parse_rule(
    {
        "name": "order",
        "vars": {
            "dish": {"label": "name of the dish"},
            "count": {"type": "int"},
            "price": {"type": "float"},
            "hot": {"type": "bool"},
        },
    }
)
RULES: dict[str, MatchRule] = {"order": RULE, "stop": MatchRule(name="stop")}
ANSWER = (
    "order: dish=noodles, count=2\r\n\n  stop \nI cannot say.\n"
    'order: dish="beans, \\"red\\"\\nand=green", hot=yes, price=1.50, size=9\nstop:'
)
RESULTS: list[tuple[str, dict[str, Any]]] = [
    ("order", {"dish": "noodles", "count": 2, "price": None, "hot": None}),
    ("stop", {}),
    ("", {}),
    ("order", {"dish": 'beans, "red"\nand=green', "count": None, "price": 1.5, "hot": True}),
    ("stop", {}),
]


def _parse(pieces: list[str], rules: dict[str, MatchRule] = RULES) -> list[MatchResult]:
    parser = LineParser(rules)
    return [result for piece in pieces for result in parser.feed(piece)] + parser.finish()


def test_an_answer_is_read_the_same_whatever_its_pieces_are() -> None:
    results = _parse([ANSWER])
    assert [(result.rule, result.args) for result in results] == RESULTS
    assert results[2].raw_text == "I cannot say."
    assert results[0].given == {"dish": "noodles", "count": 2}
    assert _parse(list(ANSWER)) == results
    for first in range(len(ANSWER) + 1):
        for second in range(first, len(ANSWER) + 1):
            assert _parse([ANSWER[:first], ANSWER[first:second], ANSWER[second:]]) == results


def test_each_result_is_there_as_soon_as_its_line_is() -> None:
    parser = LineParser(RULES)
    assert parser.feed("sto") == []
    assert parser.feed("p\nord") == [MatchResult("stop", {}, "stop")]
    assert [result.rule for result in parser.feed("er: count=1\nstop\n")] == ["order", "stop"]
    assert parser.finish() == []


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("order: count=+7", "count", 7),
        ("order: count=７", "count", 7),
        ("order: count=-9223372036854775808", "count", -(2**63)),
        ("order: count=9223372036854775808", "count", "9223372036854775808"),
        ("order: count=1_000", "count", "1_000"),
        ("order: count=2.5", "count", "2.5"),
        ("order: count=two", "count", "two"),
        ("order: count=" + "9" * 5000, "count", "9" * 5000),
        ("order: count=", "count", ""),
        ("order: price=2", "price", 2.0),
        ("order: price=.5e1", "price", 5.0),
        ("order: price=1e999", "price", "1e999"),
        ("order: price=nan", "price", "nan"),
        ("order: hot=T", "hot", True),
        ("order: hot=ON", "hot", True),
        ("order: hot=No", "hot", False),
        ("order: hot=f", "hot", False),
        ("order: hot=0", "hot", False),
        ("order: hot=maybe", "hot", "maybe"),
        ("order: dish=a=b", "dish", "a=b"),
        ('order: dish="open, count=3', "dish", '"open'),
        ('order: dish="a" b', "dish", '"a" b'),
        ('order: dish="a\\\\b\\tc"  , count=1', "dish", "a\\b\tc"),
        ("order: dish=[name of the dish], count=1", "dish", None),
        ("order: loose words, dish=soup", "dish", "soup"),
        ("order：dish=汤", "dish", "汤"),
        ("- order: dish=soup", "dish", "soup"),
        (" order : dish = soup ", "dish", "soup"),
    ],
)
def test_values_have_the_type_of_their_variable_or_stay_text(line: str, name: str, value: object) -> None:
    (result,) = _parse([line])
    assert (result.rule, result.args[name], type(result.args[name])) == ("order", value, type(value))


def test_lines_that_name_no_rule_are_kept_as_text() -> None:
    assert _parse([": dish=soup\nOrder: dish=soup\n```\nnothing"]) == [
        MatchResult("", {}, line) for line in (": dish=soup", "Order: dish=soup", "```", "nothing")
    ]


@given(st.lists(st.text(alphabet=st.sampled_from('order stp:=,"\\\n\r-：abc1[]') | st.characters())))
def test_any_text_in_any_pieces_is_read_without_an_error(pieces: list[str]) -> None:
    assert _parse(pieces) == _parse(["".join(pieces)])


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_a_written_line_is_read_back(dish: str, count: int, price: float, hot: bool) -> None:
    args: dict[str, Any] = {"dish": dish, "count": count, "price": price, "hot": hot}
    line = format_line("order", args)
    assert "\n" not in line
    assert parse_line(line, RULES).args == args
    assert format_line("stop", {"dish": None}) == "stop"
