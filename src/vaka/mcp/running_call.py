"""A running call of a tool: its time limit, and what its server asks the person or the model meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import McpError
from vaka.core.types.ids import JSON
from vaka.core.types.message import AssistantMessage, UserMessage
from vaka.mcp.definition import McpServer

TOOL_TIMEOUT = 60.0
"""Seconds without a result or a report of progress, for servers that set no other limit."""
MAX_EXTENSIONS = 10
"""Reports of progress extend the time of a call, up to so many times its limit."""

MAX_SAMPLES = 20
"""How often a server may ask the model during one call, so that one in a loop does not spend without an end."""

_T = TypeVar("_T")


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a server to the person during a call: a form of plain values, or a visit of a page."""

    message: str
    schema: Mapping[str, Any] = {}
    url: str = ""


class SamplingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a server for the model of the agent that calls it."""

    messages: tuple[UserMessage | AssistantMessage, ...]
    system: str = ""
    max_tokens: int = 0


Answers: TypeAlias = dict[str, "str | int | float | bool | list[str] | None"]


class CallHandlers:
    """Functions for reports of progress and questions during a request to a server."""

    def __init__(
        self,
        progress: Callable[[float, float | None, str], None] | None = None,
        ask: Callable[[Elicitation], Awaitable[Answers | None]] | None = None,
        session: str = "",
        sample: Callable[[SamplingRequest], Awaitable[str]] | None = None,
    ) -> None:
        self._progress = progress
        self.ask = ask
        self.session = session
        self.sample = sample

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._progress is not None:
            self._progress(progress, total, message or "")


async def ask_person(context: ToolContext, server: str, asked: Elicitation) -> Answers | None:
    """Ask the person what a server wants to know, field by field; ``None`` when it is not answered."""
    heading = f"The MCP server {server!r} asks: {asked.message}"
    if asked.url:
        text = f"{heading}\nIt wants you to open {asked.url}"
        return {} if await context.ask(text, options=("done", "decline")) == "done" else None
    fields = asked.schema.get("properties")
    required = cast("list[str]", asked.schema.get("required") or [])
    answers: Answers = {}
    if not isinstance(fields, dict) or not fields:
        return {} if await context.ask(heading, options=("accept", "decline")) == "accept" else None
    for name, field in cast("dict[str, dict[str, Any]]", fields).items():
        text, options = _describe_field(name, field, optional=name not in required)
        answer = await context.ask(f"{heading}\n{text}", options=options)
        if answer is None or answer == "decline":
            return None
        if answer == "" and "default" in field:
            answers[name] = field["default"]
        elif answer != "" or name in required:
            answers[name] = _read_answer(answer, field)
    return answers


def _describe_field(name: str, field: dict[str, Any], *, optional: bool) -> tuple[str, Sequence[str]]:
    title, about = str(field.get("title") or name), str(field.get("description") or "")
    options = [str(choice) for choice in _choices_of(field)]
    if field.get("type") == "boolean":
        options = ["true", "false"]
    notes = [str(field.get("type", "string")), *(["may be empty"] if optional else [])]
    if "default" in field:
        notes.append(f"default: {field['default']}")
    return f"{title}{f': {about}' if about else ''} ({', '.join(notes)}; or answer: decline)", options


def _choices_of(field: dict[str, Any]) -> list[Any]:
    inner = cast("dict[str, Any]", field.get("items") or field)
    if "enum" in inner:
        listed: list[Any] = [*inner["enum"]]
        return listed
    titled = cast("list[dict[str, Any]]", inner.get("oneOf") or inner.get("anyOf") or [])
    return [choice["const"] for choice in titled if "const" in choice]


def _read_answer(answer: JSON, field: dict[str, Any]) -> Any:
    """Return an answer in the type of its field; what does not fit is passed on, for the server to refuse."""
    kind = field.get("type")
    if kind == "array":
        given: list[Any] = [*answer] if isinstance(answer, list) else str(answer).split(",")
        return [word.strip() if isinstance(word, str) else word for word in given if word not in ("", " ")]
    if not isinstance(answer, str):
        return str(answer) if kind == "string" else answer
    text = answer.strip()
    if kind == "boolean" and text.lower() in ("true", "yes", "y", "false", "no", "n"):
        return text.lower() in ("true", "yes", "y")
    try:
        return int(text) if kind == "integer" else float(text) if kind == "number" else answer
    except ValueError:
        return answer


class RunningToolCall:
    """The time limit of a call, which progress extends and questions suspend."""

    def __init__(self, server: McpServer, context: ToolContext, *, may_ask: bool) -> None:
        self._server = server
        self._context = context
        self._may_ask = may_ask
        self.limit = server.tool_timeout or TOOL_TIMEOUT
        self.bound: asyncio.Timeout | None = None
        self._loop = asyncio.get_running_loop()
        self._last_end = self._loop.time() + self.limit * MAX_EXTENSIONS
        self._task = asyncio.current_task()
        self._questions: set[asyncio.Task[Any]] = set()
        self.model: Model | None = None
        self._samples = 0
        self.handlers = CallHandlers(self.report, self.ask, context.session, self.sample)
        self._open = True

    def report(self, progress: float, total: float | None, message: str) -> None:
        if self._questions or not self._open:
            return
        self._reschedule(min(self._loop.time() + self.limit, self._last_end))
        done = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        self._context.emit(f"[{done}] {message}\n" if message else f"[{done}]\n")

    async def ask(self, asked: Elicitation) -> Answers | None:
        """Ask the person in a task of this call: the library's own tasks must not be cancelled one by one."""
        if not self._may_ask:
            return None
        return await self._run_aside(ask_person(self._context, self._server.name, asked))

    async def sample(self, asked: SamplingRequest) -> str:
        """Ask the model, at the cost of the turn. Raises ``McpError`` if the server may not."""
        if self.model is None:
            raise McpError("this server may not ask the model")
        if self._samples == MAX_SAMPLES:
            raise McpError(f"this call has asked the model {MAX_SAMPLES} times, and may not ask again")
        self._samples += 1
        options = {"max_tokens": asked.max_tokens} if asked.max_tokens else {}
        prompt = Prompt(messages=asked.messages, system=asked.system, options=options)
        answer = await self._run_aside(self._context.ask_model(self.model, prompt))
        if answer is None:
            raise McpError("the call has ended")
        return answer

    async def _run_aside(self, work: "Coroutine[Any, Any, _T]") -> "_T | None":
        self._reschedule(None)
        question = asyncio.create_task(work)
        self._questions.add(question)
        await asyncio.wait([question])
        self._questions.discard(question)
        if not question.cancelled():
            self._reschedule(self._loop.time() + self.limit)
            return question.result()
        if self._open and self._task is not None:
            self._task.cancel()  # the turn is suspended: this call runs again when there is an answer
        return None

    async def close(self) -> None:
        """Withdraw open questions."""
        self._open = False
        for question in self._questions:
            question.cancel()
        if self._questions:
            await asyncio.wait(self._questions)

    def _reschedule(self, when: float | None) -> None:
        if self.bound is not None and not self.bound.expired() and self._open:
            self.bound.reschedule(when)
