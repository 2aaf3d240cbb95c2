"""Tools from functions: names, specs, calls."""

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, cast

import pytest

from tests.tools.context import FakeContext
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Image, ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.tools import FunctionTool, as_tool, tool


async def test_a_function_becomes_a_tool_and_stays_a_function() -> None:
    @tool(effect="read")
    async def add(context: ToolContext, left: int, right: int = 1) -> int:
        """Add two numbers."""
        context.emit("adding")
        return left + right

    context = FakeContext()
    arguments = add.parse('{"left": 2}')
    assert isinstance(add, Tool)
    assert isinstance(arguments, ParsedArguments)
    assert await add.call(context, arguments.value) == 3
    assert await add(context, 1, 1) == 2
    assert context.emitted == ["adding", "adding"]
    assert add.spec is add.spec
    assert add.spec.effect == "read"
    assert add.spec.description == "Add two numbers."
    assert add.spec.timeout == 60.0
    assert add.spec.strict
    assert add.spec.parameters == {
        "type": "object",
        "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 1}},
        "required": ["left"],
        "additionalProperties": False,
    }
    assert repr(add) == "FunctionTool('add')"


def test_options_reach_the_spec() -> None:
    @tool(name="other", description="Said here.", effect="resume", poll=True)
    def function() -> None: ...

    assert (function.spec.name, function.spec.description) == ("other", "Said here.")
    assert (function.spec.effect, function.spec.timeout, function.spec.poll) == ("resume", None, True)
    assert tool(function, description="x", timeout=5).spec.timeout == 5
    assert tool(function, description="x", timeout=None).spec.timeout is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "tool 'function' needs a docstring"),
        ({"description": "x", "effect": "twice"}, "effect 'twice' must be one of read, idempotent, once, resume"),
        ({"description": "x", "timeout": 0}, "timeout 0 must be above zero"),
    ],
)
def test_invalid_options_of_a_tool_are_an_error_at_once(options: dict[str, Any], message: str) -> None:
    def function() -> None: ...

    with pytest.raises(InvalidInput, match=message):
        tool(function, **options)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fine-name_1", "fine-name_1"),
        ("my.tool name", "my_tool_name"),
        ("x" * 65, "x" * 55 + "_9537c5fd"),
        ("天气", "tool_"),
        ("\ud800", "tool_"),
    ],
)
def test_a_name_that_providers_reject_is_replaced(name: str, expected: str) -> None:
    wrapped = tool(lambda: None, name=name, description="x")
    assert wrapped.spec.name.startswith(expected)
    assert len(wrapped.spec.name) <= 64
    assert wrapped.original_name == name
    assert wrapped.name == tool(lambda: None, name=name, description="x").name


@dataclass
class Greeting:
    word: str


class Greeter:
    """Greets people."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def __call__(self, name: str) -> str:
        return f"{self.word} {name}"

    @tool
    def greet(self, name: str) -> str:
        """Greet a person."""
        return f"{self.word}, {name}"

    def plain(self, name: str) -> str:
        """Greet plainly."""
        return f"{self.word}. {name}"

    @tool
    @staticmethod
    def bye(name: str) -> str:
        """Say goodbye."""
        return f"Bye {name}"

    @tool
    @classmethod
    def kind(cls, name: str) -> str:
        """Say what it is."""
        return f"{cls.__name__} {name}"


class Counter:
    def __call__(self, number: int) -> int:
        """Count on."""
        return number + 1


CALLABLES: list[tuple[Any, str, str]] = [
    (tool(Greeter("Hello")), "Greeter", "Hello Ann"),
    (Greeter("Hello").greet, "greet", "Hello, Ann"),
    (tool(Greeter("Hello").plain), "plain", "Hello. Ann"),
    (Greeter.bye, "bye", "Bye Ann"),
    (Greeter("").bye, "bye", "Bye Ann"),
    (Greeter("").kind, "kind", "Greeter Ann"),
    (Greeter.kind, "kind", "Greeter Ann"),
    (tool(functools.partial(Greeter("Hi"))), "Greeter", "Hi Ann"),
]


@pytest.mark.parametrize(("wrapped", "name", "message"), CALLABLES, ids=[row[1] + row[2] for row in CALLABLES])
async def test_every_kind_of_callable_becomes_a_tool(wrapped: FunctionTool[..., Any], name: str, message: str) -> None:
    assert wrapped.name == name
    assert list(wrapped.spec.parameters["properties"]) == ["name"]
    assert await wrapped.call(FakeContext(), {"name": "Ann"}) == message


async def test_an_object_is_documented_by_its_call_or_its_class() -> None:
    assert tool(Counter()).spec.description == "Count on."
    assert await tool(Counter()).call(FakeContext(), {"number": 1}) == 2
    assert tool(Greeter("")).spec.description == "Greets people."


def test_the_methods_of_all_objects_share_one_definition() -> None:
    assert Greeter("a").greet.spec is Greeter("b").greet.spec
    assert Greeter("a").greet("x") == "a, x"


def test_a_class_is_a_tool_with_the_parameters_of_its_constructor() -> None:
    class Made:
        """Make one."""

        def __init__(self, size: int) -> None:
            self.size = size

    assert tool(Made).spec.parameters["properties"] == {"size": {"type": "integer"}}


def test_a_function_is_always_the_same_tool() -> None:
    def function() -> None:
        """Do."""

    wrapped = as_tool(function)
    assert as_tool(function) is wrapped
    assert as_tool(wrapped) is wrapped
    assert as_tool(Counter().__call__) is not as_tool(Counter().__call__)
    copied = functools.wraps(function)(lambda: None)
    assert as_tool(copied) is not wrapped


async def test_arguments_that_a_type_rejects_are_a_failed_result() -> None:
    @tool
    def function(when: date, data: bytes) -> str:
        """Take a date."""
        return f"{when} {data!r}"

    context = FakeContext()
    assert await function.call(context, {"when": "2024-01-02", "data": "aGk="}) == "2024-01-02 b'hi'"
    result = cast(ToolResult, await function.call(context, {"when": "2024-01-02", "data": "*"}))
    assert (result.failed, result.reason, result.call) == (True, "invalid_arguments", "c1")
    assert "cannot be used: Invalid base64" in result.text
    missing = cast(ToolResult, await function.call(context, {"when": "2024-01-02"}))
    assert "'data' is missing" in missing.text


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list[int], 5),
        (tuple[int, int], [1]),
        (dict[str, int], []),
        (dict[Literal["a"], int], {"b": 1}),
        (Literal["a"], "b"),
        (Literal[1], True),
        (Greeting, []),
        (Greeting, {"word": "a", "more": 1}),
        (int | list[int], "x"),
        (int, 1.5),
    ],
    ids=str,
)
async def test_unvalidated_data_of_a_wrong_type_is_a_failed_result(hint: Any, value: Any) -> None:
    def function(value: Any) -> None:
        """Take a value."""

    function.__annotations__["value"] = hint
    result = cast(ToolResult, await tool(function).call(FakeContext(), {"value": value}))
    assert (result.failed, result.reason) == (True, "invalid_arguments")


async def test_a_schema_in_the_options_is_used_unchanged_with_plain_values() -> None:
    schema: dict[str, Any] = {"properties": {"when": {"type": "string", "minLength": 3}, "n": {"type": "integer"}}}

    @tool(parameters=schema)
    def function(context: ToolContext, when: date, n: complex = 1) -> Any:
        """Take a date."""
        return [when, n]

    schema["properties"]["when"]["minLength"] = 100
    assert function.spec.parameters == {
        "type": "object",
        "properties": {"when": {"type": "string", "minLength": 3}, "n": {"type": "integer"}},
    }
    assert await function.call(FakeContext(), {"when": "2024-01-02"}) == ["2024-01-02", 1]
    assert function.parse({"whn": "2024"}) == InvalidArguments("arguments: unknown 'whn', did you mean 'when'?")
    with pytest.raises(InvalidInput, match="the JSON Schema of an object"):
        _ = tool(function, parameters={"type": "string"}).spec


def _pieces() -> Iterator[str]:
    """Give pieces."""
    yield "a"
    yield "b\ud800"


async def _async_pieces() -> AsyncIterator[str]:
    """Give pieces."""
    yield "a"
    yield "b\ud800"


def _returns_pieces() -> Iterator[str]:
    """Give pieces."""
    return _pieces()


def _returns_async_pieces() -> AsyncIterator[str]:
    """Give pieces."""
    return _async_pieces()


@pytest.mark.parametrize("function", [_pieces, _async_pieces, _returns_pieces, _returns_async_pieces])
async def test_yielded_text_is_emitted_and_joined(function: Callable[[], Any]) -> None:
    context = FakeContext()
    assert await tool(function).call(context, {}) == "ab\ufffd"
    assert context.emitted == ["a", "b\ufffd"]


async def test_a_generator_in_a_thread_is_closed_when_the_turn_stops() -> None:
    context, closed = FakeContext(), list[str]()

    @tool
    def function() -> Iterator[str]:
        """Give pieces without end."""
        try:
            while True:
                yield "x"
                context.stopping = True
        finally:
            closed.append("closed")

    assert await function.call(context, {}) == "xx"
    assert closed == ["closed"]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_only_text_can_be_yielded(asynchronous: bool) -> None:
    def numbers() -> Iterator[int]:
        """Give numbers."""
        yield 1

    async def async_numbers() -> AsyncIterator[int]:
        """Give numbers."""
        yield 1

    wrapped: FunctionTool[..., Any] = tool(async_numbers) if asynchronous else tool(numbers)
    result = cast(ToolResult, await wrapped.call(FakeContext(), {}))
    assert result.text.endswith("it yielded int; a tool that yields must yield text")


async def test_a_sync_function_may_return_an_awaitable() -> None:
    async def answer() -> str:
        return "answer"

    @tool
    def function() -> Awaitable[str]:
        """Answer."""
        return answer()

    assert await function.call(FakeContext(), {}) == "answer"


async def test_output_is_validated_with_validate_output() -> None:
    @tool(validate_output=True)
    def function(good: bool) -> dict[str, int]:
        """Give numbers."""
        return {"a": 1} if good else cast(Any, {"a": "one"})

    assert await function.call(FakeContext(), {"good": True}) == {"a": 1}
    result = cast(ToolResult, await function.call(FakeContext(), {"good": False}))
    assert result.failed
    assert result.text == 'function ran, but its result does not match its return type: a: expected integer, got "one"'

    @tool(validate_output=True)
    def pictured() -> int:
        """Give a picture after all."""
        return cast(int, [Image(data="aGk=")])

    assert await pictured.call(FakeContext(), {}) == (Image(data="aGk="),)

    @tool(validate_output=True)
    def unannotated() -> Any:
        """Give anything."""

    with pytest.raises(InvalidInput, match="needs a return annotation"):
        _ = unannotated.spec


def test_importing_tools_loads_no_heavy_library() -> None:
    code = (
        "import sys, vaka.tools\n"
        "@vaka.tools.tool\n"
        "def function(a: int) -> int:\n"
        "    'Do.'\n"
        "assert function.spec.strict\n"
        "heavy = {'jsonschema_rs', 'pydantic', 'yaml', 'httpx2', 'click', 'attrs', 'annotated_types'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert process.stdout.strip() == "[]"
