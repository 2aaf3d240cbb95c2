"""Signatures of functions: parameters, context, docstrings and return types."""

import functools
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypedDict, cast

import msgspec
import pytest
from pydantic import BaseModel, Field

from tests.tools.context import FakeContext
from tests.tools.schema import deferred_annotations
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Image, Part, Text, ToolResult
from vaka.tools import tool


class MyContext(ToolContext):
    """A subclass of the context."""


async def test_the_context_is_passed_and_hidden_from_the_schema() -> None:
    contexts: list[Any] = []

    @tool
    def function(
        first: ToolContext,
        a: int,
        second: ToolContext | None,
        third: Annotated[ToolContext, "the context"],
        fourth: MyContext,
    ) -> None:
        """Take one number."""
        contexts.extend([first, second, third, fourth])

    context = FakeContext()
    assert list(function.spec.parameters["properties"]) == ["a"]
    await function.call(context, {"a": 1})
    assert contexts == [context] * 4


def test_star_args_are_an_error() -> None:
    @tool
    def function(*numbers: int) -> None:
        """Take numbers."""

    with pytest.raises(InvalidInput, match=r"tool 'function', parameter 'numbers': \*numbers has no name that"):
        _ = function.spec


async def test_star_star_kwargs_take_any_other_member() -> None:
    @tool
    def free(a: int, **rest: Any) -> Any:
        """Take what comes."""
        return {"a": a, **rest}

    @tool
    def counted(**rest: Annotated[int, Field(ge=1)]) -> Any:
        """Take numbers."""
        return rest

    assert free.spec.parameters["additionalProperties"] is True
    assert counted.spec.parameters["additionalProperties"] == {"type": "integer", "minimum": 1}
    assert await free.call(FakeContext(), {"a": 1, "b": [2]}) == {"a": 1, "b": [2]}
    assert await counted.call(FakeContext(), {"b": 2.0}) == {"b": 2}
    assert cast(Any, counted.parse({"b": "2"})).message == 'b: expected integer, got "2"'


async def test_positional_only_parameters_are_passed_by_position() -> None:
    @tool
    def function(context: ToolContext, a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
        """Take four."""
        return [a, b, c, d]

    assert await function.call(FakeContext(), {"a": 1, "d": 5}) == [1, 2, 3, 5]
    assert await function.call(FakeContext(), {"a": 1, "b": 0}) == [1, 0, 3, 4]


async def test_arguments_bound_by_a_partial_are_hidden() -> None:
    def fetch(token: str, path: str, *, base: str = "x", size: int = 1) -> str:
        """Fetch a path."""
        return f"{token} {base}/{path} {size}"

    fetcher = tool(functools.partial(functools.partial(fetch, "secret"), base="y"))
    assert fetcher.name == "fetch"
    assert list(fetcher.spec.parameters["properties"]) == ["path", "size"]
    assert fetcher.spec.description == "Fetch a path."
    assert await fetcher.call(FakeContext(), {"path": "p"}) == "secret y/p 1"
    assert "unknown 'base'" in cast(Any, fetcher.parse({"path": "p", "base": "z"})).message


async def test_annotations_may_be_strings() -> None:
    context = FakeContext()
    assert deferred_annotations.count.spec.parameters["required"] == ["leaf"]
    assert deferred_annotations.count.spec.parameters["$defs"]["Options"]["required"] == ["far"]
    assert await deferred_annotations.count.call(context, {"leaf": {"size": 1, "twigs": [{"size": 2}]}}) == 3
    assert context.emitted == ["counting"]


def test_a_name_imported_for_type_checkers_only_is_a_clear_error() -> None:
    with pytest.raises(InvalidInput, match=r"tool 'lost': the name 'Decimal' .* outside `if TYPE_CHECKING`"):
        _ = deferred_annotations.lost.spec


def test_an_annotation_that_is_not_a_type_is_an_error() -> None:
    @tool
    def function(a: int) -> None:
        """Take one."""

    function.function.__annotations__["a"] = "int +"
    with pytest.raises(InvalidInput, match=r"an annotation of .* cannot be read"):
        _ = function.spec


def test_a_method_without_its_object_is_an_error() -> None:
    class Thing:
        @tool
        def method(self) -> None:
            """Do."""

    with pytest.raises(InvalidInput, match="a method without its object"):
        _ = Thing.method.spec


def test_a_callable_without_a_signature_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="Python does not know its signature"):
        _ = tool(iter).spec


def test_unannotated_parameters_accept_any_value() -> None:
    @tool
    def function(a, b=1):  # type: ignore[no-untyped-def]  # people leave it out
        """Take two."""

    assert function.spec.parameters["properties"] == {"a": {}, "b": {"default": 1}}


def test_docstrings_fill_missing_descriptions() -> None:
    @tool
    def function(a: Annotated[int, "Said here."], b: int, c: int) -> None:
        """Add them.

        Args:
            a: Not this.
            b: The second.
            d: No such thing.
        """

    properties = function.spec.parameters["properties"]
    assert {name: part.get("description") for name, part in properties.items()} == {
        "a": "Said here.",
        "b": "The second.",
        "c": None,
    }
    assert function.spec.description == "Add them."


@dataclass
class Out:
    a: int
    b: Decimal = Decimal(0)


class Sparse(msgspec.Struct, omit_defaults=True):
    a: int
    b: int = 1


class Some(TypedDict, total=False):
    a: int


class Model(BaseModel):
    a: int = Field(default=1, serialization_alias="A")


def _number() -> int:
    return 1


def _stranger() -> complex:
    return 1j


def _part() -> list[Image]:
    return []


def _maybe() -> "Part | None":
    return None


def _result() -> ToolResult:
    raise NotImplementedError


def _stream() -> Generator[str, None, None]:
    yield ""


async def _async_stream() -> AsyncIterator[str]:
    yield ""


def _text() -> "Text | str":
    return ""


def _out() -> Out:
    return Out(1)


def _money() -> Annotated[Decimal, Field(ge=1)]:
    return Decimal(1)


def _sparse() -> Sparse:
    return Sparse(1)


def _some() -> Some:
    return {}


def _model() -> Model:
    return Model()


def _any() -> Any:
    return None


def _unsaid():  # type: ignore[no-untyped-def]  # people leave it out
    return None


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_number, {"type": "integer"}),
        (_stranger, None),
        (_part, None),
        (_maybe, None),
        (_result, None),
        (_text, None),
        (_any, None),
        (_unsaid, None),
        (_stream, {"type": "string"}),
        (_async_stream, {"type": "string"}),
        (_money, {"type": "string"}),
        (
            _out,
            {
                "$ref": "#/$defs/Out",
                "$defs": {
                    "Out": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                        "required": ["a", "b"],
                    }
                },
            },
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_output_schema_comes_from_the_return_annotation(function: Any, expected: Any) -> None:
    assert tool(function, description="Give something.").spec.output == expected


@pytest.mark.parametrize(
    ("function", "required"), [(_sparse, ["a"]), (_some, None), (_model, None)], ids=["sparse", "some", "model"]
)
def test_an_output_schema_requires_the_members_that_are_always_present(
    function: Any, required: list[str] | None
) -> None:
    output = tool(function, description="Give something.").spec.output
    assert output is not None
    assert next(iter(output["$defs"].values())).get("required") == required
