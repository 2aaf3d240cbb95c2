"""Our schemas against other implementations: the jsonschema library, pydantic, and values generated from types."""

import enum
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
from uuid import UUID

import annotated_types as at
import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from tests.tools.context import FakeContext
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import ParsedArguments
from vaka.tools import FunctionTool, strict_schema, tool
from vaka.tools.schema.json_schema import encode_unknown


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    label: str = ""


@dataclass
class Tree:
    value: int
    children: "list[Tree]" = field(default_factory=list)


class Film(TypedDict):
    title: str
    year: NotRequired[int]


class Spot(NamedTuple):
    x: int
    y: float = 0.0


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    good: bool


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    sizes: list[float] = []


SUBSET: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "optional": int | None,
    "union": int | str,
    "literal": Literal["a", 1, True],
    "enum": Color,
    "list": list[int],
    "set": set[str],
    "tuple": tuple[int, str],
    "tuples": tuple[int, ...],
    "dict": dict[str, int],
    "date": date,
    "datetime": datetime,
    "uuid": UUID,
    "path": Path,
    "decimal": Decimal,
    "bounded": Annotated[int, at.Ge(1), at.Lt(5)],
    "steps": Annotated[float, at.MultipleOf(0.5)],
    "short": Annotated[str, at.Len(1, 3)],
    "few": Annotated[list[int], at.MaxLen(2)],
    "dataclass": Point,
    "recursive": Tree,
    "typeddict": Film,
    "namedtuple": Spot,
    "model": Model,
    "models": dict[str, Model | None],
    "nested": list[dict[str, tuple[int, Point | None]]],
}

CORPUS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    4,
    5,
    -1,
    1.0,
    1.5,
    2.25,
    1e30,
    "",
    "a",
    "abc",
    "abcd",
    "red",
    "green",
    "1",
    "1.5",
    "-0.5",
    "2024-02-29",
    "2023-02-29",
    "2024-01-02T03:04:05Z",
    "2024-01-02T03:04:05+01:00",
    "2024-01-02T03:04:05.5",
    "never",
    "12345678-1234-5678-1234-567812345678",
    "a/b",
    [],
    [1],
    [1, 1],
    [1, 2, 3],
    ["a"],
    ["a", "a"],
    [1, "a"],
    ["a", 1],
    [1.0],
    [1, 2.5],
    [None],
    [[]],
    {},
    {"a": 1},
    {"a": "1"},
    {"a": 1.0},
    {"x": 1},
    {"x": 1, "label": "l"},
    {"x": "1"},
    {"label": "l"},
    {"value": 1},
    {"value": 1, "children": []},
    {"value": 1, "children": [{"value": "2"}]},
    {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]},
    {"value": 1, "children": [1]},
    {"title": "t"},
    {"title": "t", "year": 1},
    {"title": "t", "year": "1"},
    {"year": 1},
    {"name": "n"},
    {"name": "n", "sizes": [1, 2]},
    {"name": "n", "sizes": ["1"]},
    {"name": 1},
    {"a": {"name": "n"}},
    {"a": None},
    {"a": {"nam": "n"}},
    [{"a": [1, {"x": 1}]}],
    [{"a": [1, None]}],
    [{"a": [1, {"x": None}]}],
    [{"a": [1]}],
]
formats = jsonschema.FormatChecker(["date", "uuid"])


@formats.checks("date-time", ValueError)
def is_date_time(value: object) -> bool:
    return not isinstance(value, str) or ("T" in value and bool(datetime.fromisoformat(value)))


received_values: list[Any] = []


@functools.cache
def receiver_of(name: str) -> FunctionTool[..., Any]:
    """Return a tool with one parameter of a type, and the list of values it was called with."""

    async def function(value: Any) -> None:
        """Take a value."""
        received_values[:] = [value]

    function.__annotations__["value"] = {**SUBSET, **MORE}[name]
    return tool(function)


def run_to_end(work: Any) -> Any:
    """Return the result of a coroutine that never suspends."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    return end.value.value


def accepts(schema: dict[str, Any]) -> Callable[[Any], bool]:
    checker = jsonschema.Draft202012Validator(schema, format_checker=formats)
    return lambda value: bool(checker.is_valid(value))


@pytest.mark.parametrize("name", SUBSET)
def test_our_validator_and_the_jsonschema_library_agree(name: str) -> None:
    receiver = receiver_of(name)
    jsonschema.Draft202012Validator.check_schema(receiver.spec.parameters)
    fits = accepts(receiver.spec.parameters)
    for value in CORPUS:
        assert isinstance(receiver.parse({"value": value}), ParsedArguments) is fits({"value": value}), value


@pytest.mark.parametrize(
    "name", [name for name in SUBSET if name != "decimal"]
)  # pydantic's schema accepts any text there
def test_the_schema_of_pydantic_accepts_the_same_values(name: str) -> None:
    ours = receiver_of(name)
    theirs = close_objects(TypeAdapter(SUBSET[name]).json_schema())
    fits = accepts({"type": "object", "properties": {"value": theirs}, "$defs": theirs.pop("$defs", {})})
    for value in [
        value for value in CORPUS if (name, value) != ("decimal", "")
    ]:  # pydantic's pattern accepts the empty text
        assert isinstance(ours.parse({"value": value}), ParsedArguments) is fits({"value": value}), value


def close_objects(schema: Any) -> Any:
    """Return a schema that rejects unknown members of records, as ours do; pydantic's do so only by option."""
    if isinstance(schema, list):
        return [close_objects(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    new = {key: close_objects(part) for key, part in schema.items()}
    if "properties" in schema and schema.get("type") == "object":
        new.setdefault("additionalProperties", False)
    return new


@pytest.mark.parametrize("name", SUBSET)
def test_a_valid_value_can_be_converted(name: str) -> None:
    receiver = receiver_of(name)
    for value in CORPUS:
        parsed = receiver.parse({"value": value})
        if isinstance(parsed, ParsedArguments):
            result = run_to_end(receiver.call(FakeContext(), parsed.value))
            assert not isinstance(result, ToolResult), value


MORE: dict[str, Any] = {
    "time": time,
    "timedelta": timedelta,
    "bytes": bytes,
    "frozenset": frozenset[int],
    "keyed": dict[int, str],
    "coloured": dict[Color, date],
    "tagged": Cat | Dog,
    "mixed": list[int | float | str | Point | None],
}
ints = st.integers(-(2**63), 2**63 - 1)
texts = st.text()
flags = st.booleans()
floats = st.floats(allow_nan=False, allow_infinity=False)
points = st.builds(Point, ints, texts)
leaves = st.builds(Tree, ints, st.just([]))
days = timedelta(days=10_000)
INSTANCES: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": ints,
    "float": floats,
    "bool": flags,
    "optional": st.none() | ints,
    "union": ints | texts,
    "literal": st.sampled_from(["a", 1, True]),
    "enum": st.sampled_from(Color),
    "list": st.lists(ints),
    "set": st.sets(texts),
    "tuple": st.tuples(ints, texts),
    "tuples": st.lists(ints).map(tuple),
    "dict": st.dictionaries(texts, ints),
    "date": st.dates(),
    "datetime": st.datetimes(timezones=st.none() | st.just(UTC)),
    "uuid": st.uuids(),
    "path": st.text("abc/.", min_size=1).map(Path),
    "decimal": st.decimals(-(10**9), 10**9, allow_nan=False, allow_infinity=False),
    "dataclass": points,
    "recursive": st.recursive(leaves, lambda inner: st.builds(Tree, ints, st.lists(inner, max_size=3)), max_leaves=5),
    "typeddict": st.fixed_dictionaries({"title": texts}, optional={"year": ints}),
    "namedtuple": st.builds(Spot, ints, floats),
    "nested": st.lists(st.dictionaries(texts, st.tuples(ints, st.none() | points), max_size=2), max_size=2),
    "time": st.times(),
    "timedelta": st.timedeltas(-days, days),
    "bytes": st.binary(),
    "frozenset": st.frozensets(ints),
    "keyed": st.dictionaries(ints, texts),
    "coloured": st.dictionaries(st.sampled_from(Color), st.dates()),
    "tagged": st.builds(Cat, ints) | st.builds(Dog, flags),
    "mixed": st.lists(st.none() | ints | floats | texts | points),
}


@given(st.data())
@pytest.mark.parametrize("name", INSTANCES)
def test_any_instance_of_a_type_validates_and_comes_back(name: str, data: st.DataObject) -> None:
    value = data.draw(INSTANCES[name])
    receiver = receiver_of(name)
    plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=encode_unknown))
    arguments = receiver.parse({"value": plain})
    assert isinstance(arguments, ParsedArguments), arguments
    run_to_end(receiver.call(FakeContext(), arguments.value))
    assert received_values == [value] or are_equal(received_values[0], value)


def are_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal apart from JSON's notation of numbers and times."""
    if isinstance(right, float) and isinstance(left, int | float):
        return math.isclose(left, right)
    return repr(msgspec.to_builtins(left, enc_hook=encode_unknown, str_keys=True)) == repr(
        msgspec.to_builtins(right, enc_hook=encode_unknown, str_keys=True)
    )


@given(st.data())
@pytest.mark.parametrize(
    "name", ["int", "literal", "enum", "list", "date", "dataclass", "recursive", "typeddict", "tagged"]
)
def test_the_strict_dialect_accepts_every_instance_with_null_for_absent_members(name: str, data: st.DataObject) -> None:
    receiver = receiver_of(name)
    strict = strict_schema(receiver.spec.parameters)
    assert strict.lossless
    plain = msgspec.json.decode(msgspec.json.encode(data.draw(INSTANCES[name]), enc_hook=encode_unknown))
    filled = {"value": filled_with_null(plain, strict.schema["properties"]["value"], strict.schema)}
    jsonschema.validate(filled, strict.schema)
    assert isinstance(receiver.parse(filled), ParsedArguments)


def filled_with_null(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """Return a value as a strict model writes it: with every member of every object."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        fits = [option for option in schema["anyOf"] if option != {"type": "null"}]
        ending = str(value.get("type")) if isinstance(value, dict) else "?"
        tags = [option for option in fits if option.get("$ref", "").lower().endswith(ending)]
        return filled_with_null(value, (tags or fits)[0], root)
    if isinstance(value, list):
        return [filled_with_null(item, schema["items"], root) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: filled_with_null(value[name], part, root) if value.get(name) is not None else None
        for name, part in schema["properties"].items()
    }
