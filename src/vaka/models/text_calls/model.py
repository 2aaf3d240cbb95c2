"""Tool calls for models without function calling: describe tools in the system prompt, read calls from the text of the answer."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CostEstimator,
    Estimate,
    Model,
    Prompt,
    RetryChunk,
    StopChunk,
    TextChunk,
)
from vaka.core.types.errors import BadRequest, ModelUnavailable
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.compatibility import arguments_of, text_or_preview
from vaka.models.function_calls import FunctionCall, FunctionDefinition
from vaka.models.text_calls.scanner import CallScanner, FoundCall
from vaka.models.wrappers.model_wrapper import ModelWrapper

MAX_DEPTH = 6
"""Levels of nested parameters that are described."""

_CALL_INSTRUCTIONS = """\
You can call tools. To call one, write a JSON object in a fenced block of its own:

{example}

Write one such block for each call. "parameters" is an object and is always there, {{}} when there is nothing to say. \
End your answer after the calls: their results come in the next message, so never make one up. \
When you need no tool, answer without such a block."""


def render_tools(
    tools: Iterable[ToolSpec], *, include_parameters: bool = True, include_examples: bool = True,
    markdown: bool = True, group_by_category: bool = False,
) -> str:  # fmt: skip
    """Return what there is to know about ``tools``, as a text for a model.

    ``markdown`` gives headings and code marks, else plain lines; ``group_by_category`` puts tools of one origin
    together under its name.
    """
    tools = list(tools)
    groups: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        groups.setdefault(category_of(tool) if group_by_category else "", []).append(tool)
    blocks: list[str] = []
    for name in sorted(groups):
        if name:
            blocks.append(f"## {name}" if markdown else f"{name}:")
        for tool in groups[name]:
            lines = [f"### {tool.name}" if markdown else f"Tool {tool.name}", *filter(None, [tool.description.strip()])]
            if include_parameters:
                lines += _parameter_lines(tool.parameters, _code_span if markdown else str)
            if include_examples:
                lines += ["Example:", call_block(tool.name, _example_value(tool.parameters, tool.parameters))]
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def calling_instructions(tools: Sequence[ToolSpec], tool_text: str, *, required: str = "", single: bool = False) -> str:
    """Return how to call tools, which there are, and what must be called (``must``: any tool, or the name of one)."""
    said = [_CALL_INSTRUCTIONS.format(example=call_block("NAME", {"PARAMETER": "VALUE"}))]
    if single:
        said.append("Call one tool at a time.")
    if required:
        which = f"the tool {tools[0].name}" if len(tools) == 1 else "at least one tool"
        said.append(f"Your next answer must call {which}.")
    return "\n\n".join([*said, "The tools:", tool_text])


def call_block(name: str, parameters: Any) -> str:
    """Return a call in the form that a model is told to write."""
    return f"```json\n{msgspec.json.encode({'tool': name, 'parameters': parameters}).decode()}\n```"


def category_of(tool: ToolSpec) -> str:
    """Return where a tool belongs: its server, if its name says so (``mcp__SERVER__NAME``), else its layer."""
    parts = tool.name.split("__")
    return parts[1] if len(parts) > 2 and parts[0] == "mcp" else tool.layer


def write_calls_as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation whose calls and results are words; those of neighbours that one side says become one.

    What was shown stays apart from what was said later: a model that cannot see it reads a note, and refuses to answer
    only where it is shown in the very message that is to be answered.
    """
    names = {call.id: call.name for message in messages if isinstance(message, AssistantMessage)
             for call in message.calls}  # fmt: skip
    said: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            said.append(_answer_as_text(message))
            continue
        for content in _results_as_text(message, names) if isinstance(message, ToolMessage) else (message.content,):
            before = said[-1] if said else None
            if isinstance(before, UserMessage) and not _media_parts(before.content):
                said[-1] = UserMessage(content=(*_with_separator(before.content), *content))
            else:
                said.append(UserMessage(content=content))
    return tuple(said)


def _media_parts(content: Content) -> Content:
    return tuple(part for part in content if isinstance(part, Image | Audio | Document))


def _answer_as_text(message: AssistantMessage) -> AssistantMessage:
    if not message.calls:
        return message
    calls = {call.id: call for call in message.calls}
    content: list[Part] = []
    for part in message.content:
        if not isinstance(part, CallRef):
            content.append(part)
        elif part.id in calls:
            content.append(_call_text(calls.pop(part.id), first=not content))
    content += [_call_text(call, first=not (content or at)) for at, call in enumerate(calls.values())]
    return msgspec.structs.replace(message, content=tuple(content), calls=())


def _call_text(call: ToolCall, *, first: bool) -> Text:
    return Text(text=("" if first else "\n\n") + call_block(call.name, arguments_of(call)))


def _results_as_text(message: ToolMessage, names: dict[Any, str]) -> list[Content]:
    texts: list[str] = []
    media: list[Part] = []
    for result in message.results:
        shown = _media_parts(result.content)
        said = text_or_preview(result.content) or ("see above" if shown else "nothing")
        ended = "failed" if result.failed else "returned"
        texts.append(f"The tool {names.get(result.call, 'that was called')} {ended}:\n{said}")
        media += shown
    spoken: Content = (Text(text="\n\n".join(texts)),)
    return [tuple(media), spoken] if media else [spoken]


def _with_separator(content: Content) -> Content:
    """Return content that more follows: a part of nothing but blanks is something that some providers refuse."""
    if not content:
        return ()
    *others, last = content
    return (
        *others,
        msgspec.structs.replace(last, text=f"{last.text}\n\n") if isinstance(last, Text) and last.text else last,
    )


def _code_span(text: str) -> str:
    return f"`{text}`"


def _parameter_lines(schema: dict[str, Any], mark: Callable[[str], str]) -> list[str]:
    lines = list(_member_lines(schema, schema, mark, 0))
    return ["Parameters:", *lines] if lines else ["Parameters: none"]


def _member_lines(
    schema: dict[str, Any], root: dict[str, Any], mark: Callable[[str], str], depth: int
) -> Iterator[str]:
    required = schema.get("required", ())
    for name, given in _as_object(schema.get("properties")).items():
        member = _resolve_reference(given, root)
        facts = [_describe_type(member, root)]
        facts.append("required" if name in required else "optional")
        if "default" in member:
            facts.append(f"default {_to_json(member['default'])}")
        told = str(member.get("description", "")).strip()
        yield f"{'  ' * depth}- {mark(name)} ({', '.join(facts)})" + (f": {told}" if told else "")
        inner = member if "properties" in member else _resolve_reference(member.get("items"), root)
        if depth < MAX_DEPTH:
            yield from _member_lines(inner, root, mark, depth + 1)


def _describe_type(schema: dict[str, Any], root: dict[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(map(_to_json, schema.get("enum", [schema.get("const")])))
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_describe_type(_resolve_reference(option, root), root) for option in options))
    kinds = _type_names(schema, "any value")
    if kinds == ["array"] and _as_object(schema.get("items")):
        return f"array of {_describe_type(_resolve_reference(schema['items'], root), root)}"
    return " or ".join(kinds)


def _example_value(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    """Return a small value that fits a schema, or nearly."""
    for given in (schema.get("examples"), [schema["default"]] if "default" in schema else None, schema.get("enum")):
        if given:
            return given[0]
    if "const" in schema:
        return schema["const"]
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _example_value(_resolve_reference(options[0], root), root, depth + 1) if depth < MAX_DEPTH else None
    kind = _type_names(schema, "object" if "properties" in schema else "string")[0]
    if kind == "array":
        return (
            [_example_value(_resolve_reference(schema.get("items"), root), root, depth + 1)]
            if depth < MAX_DEPTH
            else []
        )
    if kind == "object":
        members = _as_object(schema.get("properties"))
        wanted = [name for name in schema.get("required", ()) if name in members] if depth < MAX_DEPTH else []
        return {name: _example_value(_resolve_reference(members[name], root), root, depth + 1) for name in wanted}
    return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(kind, "text")


def _type_names(schema: dict[str, Any], otherwise: str) -> list[str]:
    """Return the types a schema names, at least one."""
    given: Any = schema.get("type") or otherwise
    several = cast("list[Any]", given)
    return [str(kind) for kind in several] if isinstance(given, list) else [str(given)]


def _resolve_reference(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(MAX_DEPTH):
        ref = _as_object(schema).get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            break
        schema = _as_object(root.get("$defs")).get(ref.removeprefix("#/$defs/"))
    return _as_object(schema)


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


__all__ = ["TextCalls", "parse_tool_calls", "render_tools"]

COMPLETE_REASONS = ("end", "calls")
"""Ends of an answer from which calls may be read."""

_log = logging.getLogger(__name__)


def parse_tool_calls(
    text: str, tools: Iterable[ToolSpec | FunctionDefinition | str], *, function_calling: bool = False
) -> list[FunctionCall]:
    """Return the calls in a whole answer, in order; never raises, whatever the text.

    Three forms are read: fenced JSON blocks with ``tool`` and ``parameters``; ``Using the tool 'NAME' with parameters:
    {…}``; ``NAME(…)`` for the names of ``tools``, with a JSON object or ``key=value`` in the parentheses. Where a text
    has calls of several forms, only those of the first are meant. ``repaired`` of a call says what was mended.

    With ``function_calling`` the model calls tools by itself: then nothing in its text is a call, and nothing is
    returned, with a warning.
    """
    if function_calling:
        _log.warning("function calling is active: calls are not read from text")
        return []
    scanner = CallScanner(tool if isinstance(tool, str) else tool.name for tool in tools)
    scanner.feed(text)
    scanner.end()
    return [
        FunctionCall(id=f"call_{number}", name=found.name, arguments=found.arguments, repaired=found.repaired)
        for number, found in enumerate(scanner.calls(), start=1)
    ]


class TextCalls(ModelWrapper):
    """A model without function calling that can call tools all the same.

    The system prompt says which tools there are and how to call them; earlier calls and results become words. Of the
    answer, text is shown as it arrives, except what may be the beginning of a call; calls are read when the answer is
    whole, never from one that reached its length limit, was refused or was cut. If a call is required and there is
    none, ``ModelUnavailable`` is raised: another try may do better.
    """

    def __init__(
        self, inner: Model, *, include_parameters: bool = True, include_examples: bool = True, markdown: bool = True,
        group_by_category: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._parameters, self._examples = include_parameters, include_examples
        self._markdown, self._grouped = markdown, group_by_category
        if isinstance(inner, CostEstimator):
            estimate = inner.estimate
            self.estimate: Callable[[Prompt], Estimate] = lambda prompt: estimate(self.rewrite(prompt))

    def rewrite(self, prompt: Prompt) -> Prompt:
        """Return ``prompt`` as the model inside sees it: everything in words. Raises ``BadRequest``."""
        tools, must = _resolve_choice(prompt)
        system = prompt.system
        if tools:
            told = calling_instructions(
                tools, self._render_tools(tools), required=must, single=prompt.options.get("parallel_calls") is False
            )
            system = f"{system}\n\n{told}" if system else told
        return msgspec.structs.replace(
            prompt, messages=write_calls_as_text(prompt.messages), system=system, tools=(), tool_choice="auto",
            options={name: value for name, value in prompt.options.items() if name != "parallel_calls"},
        )  # fmt: skip

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, with the calls that its text holds."""
        tools, must = _resolve_choice(prompt)
        reading = _AnswerReader(tools, prompt.number)
        async with aclosing(self._inner.stream(self.rewrite(prompt))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    shown = reading.feed(chunk.text)
                    if shown:
                        yield chunk if shown == chunk.text else TextChunk(shown)
                elif isinstance(chunk, StopChunk):
                    for read in reading.end(chunk):
                        yield read
                    if must and chunk.reason in COMPLETE_REASONS and not reading.has_calls:
                        raise ModelUnavailable(f"{self.name} had to call {must} and called none")
                    yield StopChunk("calls") if reading.has_calls and chunk.reason in COMPLETE_REASONS else chunk
                    return
                else:
                    reading = reading.observe(chunk)
                    yield chunk
        rest = reading.unshown_text()
        if rest:
            yield TextChunk(rest)

    def _render_tools(self, tools: tuple[ToolSpec, ...]) -> str:
        return render_tools(
            tools, include_parameters=self._parameters, include_examples=self._examples, markdown=self._markdown,
            group_by_category=self._grouped,
        )  # fmt: skip


def _resolve_choice(prompt: Prompt) -> tuple[tuple[ToolSpec, ...], str]:
    """Return the tools that may be called, and what must be."""
    choice = prompt.tool_choice
    if choice == "none" or (not prompt.tools and choice == "auto"):
        return (), ""
    if choice == "auto":
        return prompt.tools, ""
    chosen = prompt.tools if choice == "required" else tuple(tool for tool in prompt.tools if tool.name == choice)
    if not chosen:
        there = ", ".join(tool.name for tool in prompt.tools) or "none"
        raise BadRequest(f"tool_choice {choice!r} needs a tool to call; there are {there}")
    return chosen, "a tool" if choice == "required" else repr(choice)


class _AnswerReader:
    """One answer as it comes in."""

    def __init__(self, tools: tuple[ToolSpec, ...], number: int) -> None:
        self._tools, self._number = tools, number
        self._scanner = CallScanner(tool.name for tool in tools) if tools else None
        self._shown_end = self._next_index = 0
        self.has_calls = False
        """Whether the answer has a call."""

    def feed(self, text: str) -> str:
        """Take more text; return what can be shown of all that has come."""
        scanner = self._scanner
        if scanner is None:
            return text
        scanner.feed(text)
        start, self._shown_end = self._shown_end, scanner.text_end
        return scanner.text(start, self._shown_end)

    def observe(self, chunk: Chunk) -> "_AnswerReader":
        """Take what is no text: calls the model made by itself, or the news that everything begins anew."""
        if isinstance(chunk, RetryChunk):
            return _AnswerReader(self._tools, self._number + 1)
        if isinstance(chunk, CallChunk):
            self.has_calls, self._next_index = True, max(self._next_index, chunk.index + 1)
        return self

    def unshown_text(self) -> str:
        """Return what was not shown yet."""
        return self._scanner.text(self._shown_end) if self._scanner is not None else ""

    def end(self, stop: StopChunk) -> Iterator[Chunk]:
        """Yield what is left of the text, then the calls, if the answer is whole."""
        scanner = self._scanner
        if scanner is None:
            return
        calls: list[FoundCall] = []
        if stop.reason in COMPLETE_REASONS:
            scanner.end()
            calls = scanner.calls()
        text = _text_without_calls(scanner, self._shown_end, calls)
        if text:
            yield TextChunk(text)
        for at, found in enumerate(calls, start=self._next_index):
            id = f"call_{self._number}_{at + 1}"
            yield CallChunk(at, found.name, found.arguments, id, found.repaired)
        self.has_calls = self.has_calls or bool(calls)


def _text_without_calls(scanner: CallScanner, start: int, calls: list[FoundCall]) -> str:
    """Return the text from ``start`` on without the calls, each with the blanks before it."""
    texts: list[str] = []
    for found in calls:
        texts.append(scanner.text(start, found.start).rstrip(" \t\r\n\f\v"))
        start = found.end
    last = scanner.text(start)
    return "".join(texts) + (last if last.strip() or not calls else "")
