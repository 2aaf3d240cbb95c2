"""Classes as parameters: their schemas, and the values that reach the function."""

import dataclasses
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tests.tools.context import FakeContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.tools import FunctionTool, tool

T = TypeVar("T")


def make_receiver(hint: Any) -> tuple[FunctionTool[..., Any], list[Any]]:
    """Return a tool with one parameter of a type, and the list of values it was called with."""
    received: list[Any] = []

    def function(value: Any) -> None:
        """Take a value."""
        received.append(value)

    function.__annotations__["value"] = hint
    return tool(function), received


async def receive_value(hint: Any, data: Any) -> Any:
    """Return the value a function receives for JSON data, or the error message."""
    taker, received = make_receiver(hint)
    arguments = taker.parse({"value": data})
    if isinstance(arguments, InvalidArguments):
        return arguments.message
    result = await taker.call(FakeContext(), arguments.value)
    return result.text if isinstance(result, ToolResult) else received[0]


def defs_of(hint: Any) -> dict[str, Any]:
    defs: dict[str, Any] = make_receiver(hint)[0].spec.parameters["$defs"]
    return defs


@dataclass
class Point:
    """A point.

    Attributes:
        x: Across.
        y: Up.
    """

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    made: Path = field(default_factory=Path)
    seen: ClassVar[int] = 0
    hidden: int = field(default=3, init=False)


async def test_a_dataclass_is_read_as_an_object() -> None:
    assert defs_of(Point) == {
        "Point": {
            "description": "A point.",
            "type": "object",
            "properties": {
                "x": {"type": "integer", "description": "Across."},
                "y": {"type": "integer", "description": "Up.", "default": 0},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                "made": {"type": "string", "format": "path"},
            },
            "required": ["x"],
            "additionalProperties": False,
        }
    }
    assert await receive_value(Point, {"x": 1, "tags": ["a"]}) == Point(1, 0, ["a"])
    assert await receive_value(Point, {"x": 1, "z": 2, "yy": 1}) == (
        "value: unknown 'z'; unknown 'yy', did you mean 'y'?"
    )
    assert await receive_value(Point, {"y": 1}) == "value: 'x' is missing"


@dataclass
class Base:
    kind: InitVar[int]
    name: str = "n"
    total: int = field(init=False)

    def __post_init__(self, kind: int) -> None:
        if kind < 0:
            raise ValueError("kind is below zero")
        self.total = kind + 1


@dataclass(init=False)
class ByHand:
    a: int

    def __init__(self, a: int, *, b: str = "x") -> None:
        self.a = a


async def test_a_dataclass_with_inheritance_and_init_variables_is_read() -> None:
    assert list(defs_of(Base)["Base"]["properties"]) == ["kind", "name"]
    assert (await receive_value(Base, {"kind": 2})).total == 3
    assert await receive_value(Base, {"kind": -1}) == "the arguments of function cannot be used: kind is below zero"
    assert (await receive_value(ByHand, {"a": 2})).a == 2


@dataclass
class Node:
    value: int
    children: "list[Node]" = field(default_factory=list)
    parent: "Node | None" = None


async def test_a_recursive_class_is_read() -> None:
    node = defs_of(Node)["Node"]
    assert node["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert node["properties"]["parent"]["anyOf"][0] == {"$ref": "#/$defs/Node"}
    assert await receive_value(Node, {"value": 1, "children": [{"value": 2}]}) == Node(1, [Node(2)])
    assert await receive_value(Node, {"value": 1, "children": [{"value": "2"}]}) == (
        'value.children[0].value: expected integer, got "2"'
    )


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: "Page[T] | None" = None


async def test_a_generic_class_is_read_with_its_arguments() -> None:
    assert defs_of(Page[int])["Page_int"]["properties"]["items"] == {"type": "array", "items": {"type": "integer"}}
    assert defs_of(Page[int])["Page_int"]["properties"]["next"]["anyOf"][0] == {"$ref": "#/$defs/Page_int"}
    assert await receive_value(Page[date], {"items": ["2024-01-02"]}) == Page([date(2024, 1, 2)])
    assert await receive_value(Page, {"items": [1]}) == Page([1])


class Movie(TypedDict):
    """A film."""

    title: str
    year: NotRequired[int]
    seen: date | None


class Loose(TypedDict, total=False):
    a: Required[int]
    b: str


class Later(typing_extensions.TypedDict):
    a: typing_extensions.ReadOnly[int]
    b: typing_extensions.NotRequired["int"]


async def test_a_typed_dict_is_read_as_an_object() -> None:
    movie = defs_of(Movie)["Movie"]
    assert movie["required"] == ["title"]
    assert movie["properties"]["year"] == {"type": "integer"}
    assert await receive_value(Movie, {"title": "A", "seen": "2024-01-02"}) == {"title": "A", "seen": date(2024, 1, 2)}
    assert await receive_value(Movie, {"title": "A"}) == {"title": "A", "seen": None}
    assert defs_of(Loose)["Loose"]["required"] == ["a"]
    assert defs_of(Later)["Later"]["required"] == ["a"]


class Spot(NamedTuple):
    x: int
    when: date = date(2024, 1, 1)


class Chain(NamedTuple):
    rest: "Chain | None"


async def test_a_named_tuple_is_an_array() -> None:
    assert make_receiver(Spot)[0].spec.parameters["properties"]["value"] == {
        "type": "array",
        "prefixItems": [{"type": "integer", "title": "x"}, {"type": "string", "format": "date", "title": "when"}],
        "minItems": 1,
        "maxItems": 2,
    }
    assert await receive_value(Spot, [1, "2024-01-02"]) == Spot(1, date(2024, 1, 2))
    assert await receive_value(Spot, [1]) == Spot(1)
    assert await receive_value(Chain, [[None]]) == Chain(Chain(None))


@attrs.define
class Box:
    """A box."""

    width: int
    _depth: int = 2
    labels: list[str] = attrs.Factory(list)
    height: int = attrs.field(default=1, init=False)


async def test_an_attrs_class_is_read_as_an_object() -> None:
    assert defs_of(Box)["Box"]["properties"] == {
        "width": {"type": "integer"},
        "depth": {"type": "integer", "default": 2},
        "labels": {"type": "array", "items": {"type": "string"}, "default": []},
    }
    assert await receive_value(Box, {"width": 1, "depth": 5}) == Box(1, 5)


class Cat(msgspec.Struct, tag="cat", frozen=True):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog", frozen=True, rename="camel"):
    good_boy: bool
    tags: list[str] = msgspec.field(default_factory=list)
    age: int | msgspec.UnsetType = msgspec.UNSET


class Flat(msgspec.Struct, array_like=True):
    a: int


async def test_tagged_structs_keep_their_discriminator() -> None:
    taker, _ = make_receiver(Cat | Dog | None)
    assert taker.spec.parameters["properties"]["value"] == {
        "anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}, {"type": "null"}],
        "discriminator": {"propertyName": "type", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
    }
    assert defs_of(Dog)["Dog"] == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["dog"]},
            "goodBoy": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "age": {"type": "integer"},
        },
        "required": ["type", "goodBoy"],
        "additionalProperties": False,
    }
    assert await receive_value(Cat | Dog, {"type": "dog", "goodBoy": True}) == Dog(good_boy=True)
    assert await receive_value(Cat | Dog, {"type": "cat"}) == Cat()
    assert (
        await receive_value(Cat | Dog, {"type": "cat", "lives": "many"}) == 'value.lives: expected integer, got "many"'
    )
    with pytest.raises(InvalidInput, match="array_like"):
        defs_of(Flat)


class Address(BaseModel):
    city: str = Field(description="Where.", min_length=1)
    zip_code: str | None = Field(None, alias="zip")


class Person(BaseModel):
    """A person."""

    model_config = ConfigDict(extra="forbid")

    name: str
    born: date
    address: Address
    friends: list["Person"] = []


async def test_pydantic_models_are_described_and_built_by_pydantic() -> None:
    found = defs_of(Person)
    assert set(found) == {"Person", "Address"}
    assert found["Person"]["properties"]["address"] == {"$ref": "#/$defs/Address"}
    assert found["Address"]["properties"]["city"] == {"description": "Where.", "minLength": 1, "type": "string"}
    person = await receive_value(Person, {"name": "A", "born": "2000-01-02", "address": {"city": "X", "zip": "1"}})
    assert person == Person(name="A", born=date(2000, 1, 2), address=Address(city="X", zip="1"))
    assert await receive_value(list[Address], [{"city": ""}]) == 'value[0].city: "" is shorter than 1 character'


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    radius: float


class Square(BaseModel):
    kind: Literal["square"] = "square"
    side: float


async def test_pydantic_unions_keep_their_discriminator() -> None:
    taker, _ = make_receiver(Annotated[Circle | Square, Field(discriminator="kind", description="Shape.")])
    value = taker.spec.parameters["properties"]["value"]
    assert value["discriminator"]["mapping"] == {"circle": "#/$defs/Circle", "square": "#/$defs/Square"}
    assert value["description"] == "Shape."
    assert await receive_value(Circle | Square | None, {"kind": "square", "side": 1}) == Square(side=1)
    assert await receive_value(Circle | Square | None, None) is None
    assert await receive_value(Circle | int, 3) == 3


class Wrapped(BaseModel):
    circle: Circle


def test_a_model_that_occurs_twice_is_defined_once() -> None:
    @tool
    def function(a: Wrapped, b: Circle, c: list[Circle]) -> None:
        """Take three."""

    assert set(function.spec.parameters["$defs"]) == {"Wrapped", "Circle"}


def other_address() -> type:
    @dataclass
    class Address:
        street: str

    return Address


def test_two_classes_with_one_name_get_two_definitions() -> None:
    @tool
    def function(a: Any, b: Address, c: Person) -> None:
        """Take three."""

    function.function.__annotations__["a"] = other_address()
    found = function.spec.parameters["$defs"]
    assert found["Address"]["properties"] == {"street": {"type": "string"}}
    assert "city" in found["Address_2"]["properties"]
    assert "city" in found["Address_3"]["properties"]
    assert found["Person"]["properties"]["address"] == {"$ref": "#/$defs/Address_3"}


def test_a_discriminator_follows_renamed_classes() -> None:
    @dataclass
    class Circle:
        name: str

    @tool
    def function(a: Any, b: Annotated["Circle | Square", Field(discriminator="kind")]) -> None:
        """Take two."""

    function.function.__annotations__["a"] = Circle
    assert function.spec.parameters["properties"]["b"]["discriminator"]["mapping"] == {
        "circle": "#/$defs/Circle_2",
        "square": "#/$defs/Square",
    }


@pydantic.dataclasses.dataclass
class Checked:
    a: Annotated[int, Field(gt=1)]


class Stranger:
    """A class that is not a record."""


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


class Wrong(BaseModel):
    a: Annotated[int, AfterValidator(_even)]


async def test_pydantic_dataclasses_validators_and_types_are_supported() -> None:
    assert await receive_value(Checked, {"a": 2}) == Checked(a=2)
    assert await receive_value(Annotated[int, AfterValidator(_even)], 2) == 2
    said = "the arguments of function cannot be used: Value error, must be even"
    assert await receive_value(Annotated[int, AfterValidator(_even)], 3) == said
    assert (
        await receive_value(Wrong, {"a": 1}) == "the arguments of function cannot be used: a: Value error, must be even"
    )
    assert str(await receive_value(pydantic.AnyUrl, "http://a.example/")) == "http://a.example/"
    taker, _ = make_receiver(Annotated[Circle, "Round."])
    assert taker.spec.parameters["properties"]["value"] == {"$ref": "#/$defs/Circle", "description": "Round."}


class Odd(BaseModel):
    run: Callable[[], int]


def test_a_type_that_pydantic_cannot_describe_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="tool 'function': pydantic has no schema for Odd"):
        defs_of(Odd)
    with pytest.raises(InvalidInput, match="parameter 'value': pydantic cannot describe Stranger"):
        defs_of(Annotated[Stranger, AfterValidator(_even)])


async def test_a_pydantic_field_may_be_the_default() -> None:
    received: list[Any] = []

    @tool
    def function(a: int = Field(ge=1), b: int = Field(5, description="Second."), c=Field(7)) -> None:  # type: ignore[no-untyped-def]  # people leave it out
        """Take two."""
        received.append((a, b, c))

    assert function.spec.parameters["properties"] == {
        "a": {"type": "integer", "minimum": 1},
        "b": {"type": "integer", "description": "Second.", "default": 5},
        "c": {"default": 7},
    }
    assert function.spec.parameters["required"] == ["a"]
    await function.call(FakeContext(), {"a": 1})
    assert received == [(1, 5, 7)]


def test_members_of_records_may_be_annotated() -> None:
    @dataclasses.dataclass
    class Query:
        text: Annotated[str, "What to look for."]
        count: Annotated[int, Field(ge=1, le=9)] = 3

    assert defs_of(Query)["Query"]["properties"] == {
        "text": {"type": "string", "description": "What to look for."},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
    }


async def test_a_value_that_fits_several_classes_becomes_the_one_whose_members_it_has() -> None:
    @dataclass
    class A:
        a: int

    @dataclass
    class B:
        a: int
        b: int

    assert await receive_value(A | B, {"a": 1, "b": 2}) == B(1, 2)
    assert await receive_value(A | B, {"a": 1}) == A(1)
    assert isinstance(make_receiver(A | B)[0].parse({"value": {"c": 1}}), InvalidArguments)
    assert isinstance(make_receiver(A | B)[0].parse({"value": {"a": 1}}), ParsedArguments)
