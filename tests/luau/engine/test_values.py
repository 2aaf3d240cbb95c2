"""Values of scripts survive the encoding as JSON."""

import enum
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyluau
from vaka.core.types.errors import ScriptError
from vaka.luau.protocol import MultipleResults, pack, unpack, unpack_results

EXACT = 2**53
TAGS = ["$bytes", "$buffer", "$vector", "$number", "$map", "$several", "$table"]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(TAGS)
numbers = st.integers(-EXACT, EXACT) | st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | texts | st.binary(max_size=8) | st.binary(max_size=8).map(bytearray)
keys = texts | numbers | st.binary(max_size=4)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@given(values)
def test_every_value_survives_as_json(value: Any) -> None:
    written = msgspec.json.encode(pack(value))
    assert is_same(unpack(msgspec.json.decode(written)), value)


@given(st.lists(values, max_size=4))
def test_multiple_results_survive_as_json(several: list[Any]) -> None:
    assert is_same(unpack_results(msgspec.json.decode(msgspec.json.encode(pack(MultipleResults(several))))), several)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same type: 1 and True are not the same."""
    if type(one) is not type(other):
        return type(one) in {int, float} and type(other) in {int, float} and one == other
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("value", [{"a": 1, "b": [None, 1.5, "ü"]}, [], {}, "", {"$bytes": 1, "more": 2}, [{"$x": 1}]])
def test_plain_json_is_unchanged(value: Any) -> None:
    assert pack(value) == value


def test_nan_infinity_and_negative_zero_survive() -> None:
    assert math.isnan(unpack(pack(math.nan)))
    assert unpack(pack([math.inf, -math.inf])) == [math.inf, -math.inf]
    assert math.copysign(1, unpack(pack(-0.0))) == -1


def test_vectors_survive() -> None:
    vector = pyluau.Vector(1.0, 2.5, -3.0)
    assert pack([vector]) == [{"$vector": [1.0, 2.5, -3.0]}]
    again = unpack(pack({vector: vector}))
    assert again == {vector: vector}
    assert type(again[vector]) is pyluau.Vector


def test_large_integers_that_are_exact_as_floats_survive() -> None:
    assert unpack(pack(2**60)) == 2**60


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def test_subclasses_of_str_and_int_become_plain_values() -> None:
    assert pack([Colour.RED, Level.HIGH, (1, 2)]) == ["red", 3, [1, 2]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "a set cannot be a value of a script"),
        ([object()], "a object cannot be a value of a script"),
        ({None: 1}, "None cannot be a key of a script's table"),
        ({(1, 2): 1}, r"\(1, 2\) cannot be a key of a script's table"),
        ({math.nan: 1}, "nan cannot be a key of a script's table"),
        (2**53 + 1, "9007199254740993 cannot be represented exactly as a Luau number"),
        (10**400, "cannot be represented exactly as a Luau number"),
        ("a\udfff", "half a surrogate pair at 1"),
        ({"\udfff": 1}, "half a surrogate pair at 0"),
    ],
)
def test_values_that_luau_cannot_represent_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        pack(value)
