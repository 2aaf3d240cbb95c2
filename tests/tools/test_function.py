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
    ("options", "said"),
    [
        ({}, "tool 'function' needs a docstring"),
        ({"description": "x", "effect": "twice"}, "effect 'twice' must be one of read, idempotent, once, resume"),
        ({"description": "x", "timeout": 0}, "timeout 0 must be above zero"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    def function() -> None: ...

    with pytest.raises(InvalidInput, match=said):
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
def test_names_are_made_fit_for_providers(name: str, expected: str) -> None:
    made = tool(lambda: None, name=name, description="x")
    assert made.spec.name.startswith(expected)
    assert len(made.spec.name) <= 64
    assert made.original_name == name
    assert made.name == tool(lambda: None, name=name, description="x").name


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
        """Greet somebody."""
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


@pytest.mark.parametrize(("made", "name", "said"), CALLABLES, ids=[row[1] + row[2] for row in CALLABLES])
async def test_every_kind_of_callable(made: FunctionTool[..., Any], name: str, said: str) -> None:
    assert made.name == name
    assert list(made.spec.parameters["properties"]) == ["name"]
    assert await made.call(FakeContext(), {"name": "Ann"}) == said


async def test_an_object_is_documented_by_its_call_or_its_class() -> None:
    assert tool(Counter()).spec.description == "Count on."
    assert await tool(Counter()).call(FakeContext(), {"number": 1}) == 2
    assert tool(Greeter("")).spec.description == "Greets people."


def test_the_methods_of_all_objects_share_one_plan() -> None:
    assert Greeter("a").greet.spec is Greeter("b").greet.spec
    assert Greeter("a").greet("x") == "a, x"


def test_a_class_is_a_tool_that_makes_one() -> None:
    class Made:
        """Make one."""

        def __init__(self, size: int) -> None:
            self.size = size

    assert tool(Made).spec.parameters["properties"] == {"size": {"type": "integer"}}


def test_a_function_is_always_the_same_tool() -> None:
    def function() -> None:
        """Do."""

    made = as_tool(function)
    assert as_tool(function) is made
    assert as_tool(made) is made
    assert as_tool(Counter().__call__) is not as_tool(Counter().__call__)
    copied = functools.wraps(function)(lambda: None)
    assert as_tool(copied) is not made


async def test_arguments_that_a_type_refuses_are_told_to_the_model() -> None:
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
async def test_data_that_was_never_checked_is_told_to_the_model_too(hint: Any, value: Any) -> None:
    def function(value: Any) -> None:
        """Take a value."""

    function.__annotations__["value"] = hint
    result = cast(ToolResult, await tool(function).call(FakeContext(), {"value": value}))
    assert (result.failed, result.reason) == (True, "invalid_arguments")


async def test_a_raw_schema_is_used_as_it_is_and_values_stay_plain() -> None:
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
async def test_what_is_yielded_is_shown_and_joined(function: Callable[[], Any]) -> None:
    context = FakeContext()
    assert await tool(function).call(context, {}) == "ab\ufffd"
    assert context.emitted == ["a", "b\ufffd"]


async def test_a_generator_in_a_thread_leaves_when_the_turn_stops() -> None:
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

    made: FunctionTool[..., Any] = tool(async_numbers) if asynchronous else tool(numbers)
    result = cast(ToolResult, await made.call(FakeContext(), {}))
    assert result.text.endswith("it yielded int; a tool that yields must yield text")


async def test_a_sync_function_may_return_something_to_await() -> None:
    async def answer() -> str:
        return "answer"

    @tool
    def function() -> Awaitable[str]:
        """Answer."""
        return answer()

    assert await function.call(FakeContext(), {}) == "answer"


async def test_output_is_validated_when_asked() -> None:
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
    def untold() -> Any:
        """Give anything."""

    with pytest.raises(InvalidInput, match="needs a return annotation"):
        _ = untold.spec


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
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
