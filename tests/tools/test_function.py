"""Tools from functions: names, specs, calls."""

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, cast

import pytest

from tests.tools.context import FakeContext
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.core.types.tool import Arguments, Problem
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
    assert isinstance(arguments, Arguments)
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
    assert function.parse({"whn": "2024"}) == Problem("arguments: unknown 'whn', did you mean 'when'?")
    with pytest.raises(InvalidInput, match="the JSON Schema of an object"):
        _ = tool(function, parameters={"type": "string"}).spec


async def test_a_sync_function_runs_in_a_daemon_thread_with_the_callers_context_variables() -> None:
    variable = contextvars.ContextVar("variable", default="")
    threads: list[threading.Thread] = []

    @tool
    def function() -> str:
        """Look around."""
        threads.append(threading.current_thread())
        value = variable.get()
        variable.set("changed")
        return value

    variable.set("mine")
    assert await function.call(FakeContext(), {}) == "mine"
    assert variable.get() == "mine"
    assert threads[0] is not threading.main_thread()
    assert threads[0].daemon
    assert threads[0].name == "tool function"


async def test_cancelling_leaves_the_thread_to_itself() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def function() -> str:
        """Hang."""
        begun.set()
        release.wait()
        ended.set()
        return "late"

    task = asyncio.create_task(cast(Any, function.call(FakeContext(), {})))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set()
    release.set()
    await asyncio.to_thread(ended.wait)


async def test_cancelling_reaches_an_async_function() -> None:
    begun = asyncio.Event()
    seen: list[str] = []

    @tool
    async def function() -> None:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("left")

    task = asyncio.create_task(cast(Any, function.call(FakeContext(), {})))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["left"]


HANGING = """
import asyncio, threading
from tests.tools.context import FakeContext
from vaka.tools import tool

begun = threading.Event()

@tool
def hang():
    "Hang."
    begun.set()
    threading.Event().wait()

async def main():
    task = asyncio.create_task(hang.call(FakeContext(), {}))
    while not begun.is_set():
        await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
"""


def test_a_hung_thread_does_not_keep_the_process() -> None:
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)


async def test_a_thread_that_ends_after_its_loop_is_gone_says_nothing() -> None:
    begun, release = threading.Event(), threading.Event()
    heard: list[Any] = []

    @tool
    def function() -> None:
        """Hang."""
        begun.set()
        release.wait()

    @tool
    def quick() -> str:
        """Be quick."""
        return "quick"

    async def inner() -> None:
        task = asyncio.create_task(cast(Any, function.call(FakeContext(), {})))
        await asyncio.to_thread(begun.wait)
        task.cancel()

    def hook(args: threading.ExceptHookArgs) -> None:
        heard.append(args.exc_value)

    before, threading.excepthook = threading.excepthook, hook
    try:
        await asyncio.to_thread(asyncio.run, inner())
        release.set()
        assert await asyncio.gather(*(quick.call(FakeContext(), {}) for _ in range(12))) == ["quick"] * 12
    finally:
        threading.excepthook = before
    assert heard == []


async def test_many_at_once_each_have_a_thread() -> None:
    meeting = threading.Barrier(20)

    @tool
    def function() -> int:
        """Wait for the others."""
        meeting.wait()
        return threading.get_ident()

    idents = await asyncio.gather(*(function.call(FakeContext(), {}) for _ in range(20)))
    assert len(set(cast(Any, idents))) == 20
    again = await asyncio.gather(*(function.call(FakeContext(), {}) for _ in range(20)))
    assert set(cast(Any, idents)) & set(cast(Any, again))


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), StopIteration(), KeyError("k"), InvalidInput("y")],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_function_raises_reaches_the_caller(error: Exception) -> None:
    @tool
    def function() -> None:
        """Fail."""
        raise error

    @tool
    async def waiting() -> None:
        """Fail."""
        raise error

    wanted = RuntimeError if isinstance(error, StopIteration) else type(error)
    for failing in (function, waiting):
        with pytest.raises(wanted):
            await failing.call(FakeContext(), {})


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
async def test_a_thread_cannot_end_the_loop(error: BaseException) -> None:
    @tool
    def function() -> None:
        """End everything."""
        raise error

    with pytest.raises(RuntimeError, match="the tool ended with"):
        await function.call(FakeContext(), {})


async def test_an_async_function_cannot_exit() -> None:
    @tool
    async def function() -> None:
        """End everything."""
        sys.exit(3)

    with pytest.raises(RuntimeError, match=r"the tool called exit\(3\)"):
        await function.call(FakeContext(), {})


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
    assert result.text == 'function ran, but its result is not what it promises: a: expected integer, got "one"'

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
