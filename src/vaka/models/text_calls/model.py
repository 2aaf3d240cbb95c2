"""Tool calls for models without function calling: tools in the system prompt, calls in the text of the answer."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

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
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.compatibility import Media, arguments_of, as_object, is_list, parts_and_calls, text_or_preview
from vaka.models.function_calls import FunctionCall, FunctionDefinition
from vaka.models.prefixes import PrefixMemo
from vaka.models.request_items import ItemFold, LaterMessageMatters
from vaka.models.schemas import resolve_reference
from vaka.models.text_calls.scanner import OPENING_TAG, CallScanner, FoundCall
from vaka.models.tool_lists import ToolListMemo
from vaka.models.wrappers.model_wrapper import ModelWrapper

COMPLETE_REASONS = ("end", "calls")
"""Stop reasons of an answer from which calls may be read."""
MAX_DEPTH = 6
"""Levels of nested parameters that are described."""

_log = logging.getLogger(__name__)

_CALL_INSTRUCTIONS = """\
You can call tools. To call one, write a JSON object in a fenced block of its own:

{example}

Write one such block for each call. "parameters" is an object and is always there, {{}} when there is nothing to say. \
End your answer after the calls: their results come in the next message, so never make one up. \
When you need no tool, answer without such a block."""


def render_tools(
    tools: Iterable[ToolSpec],
    *,
    include_parameters: bool = True,
    include_examples: bool = True,
    markdown: bool = True,
    group_by_category: bool = False,
) -> str:
    """Return a description of ``tools`` for a model.

    ``markdown`` adds headings and code marks; ``group_by_category`` groups tools under the names of their origins.
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
                members = list(_member_lines(tool.parameters, tool.parameters, "`{}`".format if markdown else str, 0))
                lines += ["Parameters:", *members] if members else ["Parameters: none"]
            if include_examples:
                lines += ["Example:", call_block(tool.name, _example_value(tool.parameters, tool.parameters))]
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def calling_instructions(tools: Sequence[ToolSpec], tool_text: str, *, required: str = "", single: bool = False) -> str:
    """Return the instructions for calling tools, and the tools; ``required``: an answer without a call is refused."""
    instructions = [_CALL_INSTRUCTIONS.format(example=call_block("NAME", {"PARAMETER": "VALUE"}))]
    if single:
        instructions.append("Call one tool at a time.")
    if required:
        which = f"the tool {tools[0].name}" if len(tools) == 1 else "at least one tool"
        instructions.append(f"Your next answer must call {which}.")
    return "\n\n".join([*instructions, "The tools:", tool_text])


def call_block(name: str, parameters: Any) -> str:
    """Return a call in the form of the instructions."""
    return f"```json\n{msgspec.json.encode({'tool': name, 'parameters': parameters}).decode()}\n```"


def category_of(tool: ToolSpec) -> str:
    """Return the MCP server of a tool (``mcp__SERVER__NAME``), else its layer."""
    parts = tool.name.split("__")
    return parts[1] if len(parts) > 2 and parts[0] == "mcp" else tool.layer


def write_calls_as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation with calls and results as text; adjacent user messages are merged.

    A message with media is not merged with a later message: a model without support for media reads a note in the place
    of earlier media, and refuses only media of the last message.
    """
    return tuple(_TextWriter(messages).write_all(messages))


class _TextWriter(ItemFold[Message]):
    """Writes messages with calls and results as text."""

    def __init__(self, messages: Sequence[Message] | None = None) -> None:
        self._names: dict[CallId, str] = {}
        super().__init__(messages)

    def learn_call(self, call: ToolCall) -> None:
        """Keep the name of a call."""
        self._names[call.id] = call.name

    def forget_call(self, call: CallId) -> None:
        """Forget the name of a call."""
        del self._names[call]

    def write(self, message: Message) -> None:
        """Write a message; one of the user is merged with that before it."""
        if isinstance(message, AssistantMessage):
            self.append(_answer_as_text(message))
            return
        added = _results_as_text(message, self._names) if isinstance(message, ToolMessage) else [message.content]
        for content in added:
            before = self.items[-1] if self.items else None
            if isinstance(before, UserMessage) and not _media_parts(before.content):
                self.replace_last(UserMessage(content=(*_with_separator(before.content), *content)))
            else:
                self.append(UserMessage(content=content))


def _media_parts(content: Content) -> Content:
    return tuple(part for part in content if isinstance(part, Media))


def _answer_as_text(message: AssistantMessage) -> AssistantMessage:
    if not message.calls:
        return message
    content: list[Part] = []
    for part in parts_and_calls(message):
        if isinstance(part, ToolCall):
            part = Text(text=("\n\n" if content else "") + call_block(part.name, arguments_of(part)))
        content.append(part)
    return msgspec.structs.replace(message, content=tuple(content), calls=())


def _results_as_text(message: ToolMessage, names: dict[Any, str]) -> list[Content]:
    texts: list[str] = []
    media: list[Part] = []
    for result in message.results:
        parts = _media_parts(result.content)
        output = text_or_preview(result.content) or ("see above" if parts else "nothing")
        outcome = "failed" if result.failed else "returned"
        texts.append(f"The tool {names.get(result.call, 'that was called')} {outcome}:\n{output}")
        media += parts
    text: Content = (Text(text="\n\n".join(texts)),)
    return [tuple(media), text] if media else [text]


def _with_separator(content: Content) -> Content:
    """Return content with a blank line at its end: some providers refuse a separate part that is only blanks."""
    last = content[-1] if content else None
    if isinstance(last, Text) and last.text:
        return (*content[:-1], msgspec.structs.replace(last, text=f"{last.text}\n\n"))
    return content


def _member_lines(
    schema: dict[str, Any], root: dict[str, Any], mark: Callable[[str], str], depth: int
) -> Iterator[str]:
    required = schema.get("required", ())
    for name, part in as_object(schema.get("properties")).items():
        member = _resolve_reference(part, root)
        facts = [_describe_type(member, root), "required" if name in required else "optional"]
        if "default" in member:
            facts.append(f"default {_to_json(member['default'])}")
        description = str(member.get("description", "")).strip()
        yield f"{'  ' * depth}- {mark(name)} ({', '.join(facts)})" + (f": {description}" if description else "")
        inner = member if "properties" in member else _resolve_reference(member.get("items"), root)
        if depth < MAX_DEPTH:
            yield from _member_lines(inner, root, mark, depth + 1)


def _describe_type(schema: dict[str, Any], root: dict[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(map(_to_json, schema.get("enum", [schema.get("const")])))
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_describe_type(_resolve_reference(option, root), root) for option in options))
    types = _type_names(schema, "any value")
    if types == ["array"] and as_object(schema.get("items")):
        return f"array of {_describe_type(_resolve_reference(schema['items'], root), root)}"
    return " or ".join(types)


def _example_value(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    """Return a small value that fits a schema, or nearly."""
    for values in (schema.get("examples"), [schema["default"]] if "default" in schema else None, schema.get("enum")):
        if values:
            return values[0]
    if "const" in schema:
        return schema["const"]
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _example_value(_resolve_reference(options[0], root), root, depth + 1) if depth < MAX_DEPTH else None
    kind = _type_names(schema, "object" if "properties" in schema else "string")[0]
    if kind == "array":
        items = _resolve_reference(schema.get("items"), root)
        return [_example_value(items, root, depth + 1)] if depth < MAX_DEPTH else []
    if kind == "object":
        members = as_object(schema.get("properties"))
        wanted = [name for name in schema.get("required", ()) if name in members] if depth < MAX_DEPTH else []
        return {name: _example_value(_resolve_reference(members[name], root), root, depth + 1) for name in wanted}
    return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(kind, "text")


def _type_names(schema: dict[str, Any], default: str) -> list[str]:
    types = schema.get("type") or default
    return [str(name) for name in (types if is_list(types) else [types])]


def _resolve_reference(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    for _ in range(MAX_DEPTH):
        ref = as_object(schema).get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/"):
            break
        schema = resolve_reference(root, ref)
    return as_object(schema)


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def parse_tool_calls(
    text: str, tools: Iterable[ToolSpec | FunctionDefinition | str], *, function_calling: bool = False
) -> list[FunctionCall]:
    """Return the calls in a complete answer, in order; never raises.

    Four forms are read: ``<tool_call>{"name": …, "arguments": …}</tool_call>`` for the names of ``tools``, at the
    beginning of a line and outside of code; fenced JSON blocks with ``tool`` and ``parameters``; ``Using the tool
    'NAME' with parameters: {…}``; ``NAME(…)`` for the names of ``tools``, with a JSON object or ``key=value`` in the
    parentheses. If a text has calls of several forms, only calls of the first form in this list are returned.
    ``repaired`` of a call describes repairs of its JSON.

    With ``function_calling`` the model calls tools by itself: nothing is returned, with a warning.
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
    """Tool calls for a model without function calling.

    The system prompt describes the tools and how to call them; earlier calls and results become text. Text is streamed
    as it arrives, except for what may begin a call; calls are read when the answer is complete, never from an answer
    that reached its length limit, was refused or was cut. If a required call is missing, ``ModelUnavailable`` is
    raised: another attempt may succeed.
    """

    def __init__(
        self,
        inner: Model,
        *,
        include_parameters: bool = True,
        include_examples: bool = True,
        markdown: bool = True,
        group_by_category: bool = False,
    ) -> None:
        super().__init__(inner)
        self._render = partial(
            render_tools,
            include_parameters=include_parameters,
            include_examples=include_examples,
            markdown=markdown,
            group_by_category=group_by_category,
        )
        self._written = PrefixMemo(_TextWriter)
        self._rendered: ToolListMemo[str] = ToolListMemo()
        if isinstance(inner, CostEstimator):
            estimate = inner.estimate
            self.estimate: Callable[[Prompt], Estimate] = lambda prompt: estimate(self.rewrite(prompt))

    def rewrite(self, prompt: Prompt) -> Prompt:
        """Return ``prompt`` as the inner model reads it, with tools and calls as text. Raises ``BadRequest``."""
        tools, required = _resolve_choice(prompt)
        system = prompt.system
        if tools:
            single, text = prompt.options.get("parallel_calls") is False, self._rendered.get(tools, self._render)
            instructions = calling_instructions(tools, text, required=required, single=single)
            system = f"{system}\n\n{instructions}" if system else instructions
        return msgspec.structs.replace(
            prompt,
            messages=self._write_messages(prompt),
            system=system,
            tools=(),
            tool_choice="auto",
            options={name: value for name, value in prompt.options.items() if name != "parallel_calls"},
        )

    def _write_messages(self, prompt: Prompt) -> tuple[Message, ...]:
        """Return ``write_calls_as_text(prompt.messages)``; messages that were returned before are the same objects."""
        try:
            kept = self._written.take(prompt)
        except LaterMessageMatters:
            return write_calls_as_text(prompt.messages)
        messages = tuple(kept.fold.items)
        self._written.put(prompt, kept)
        return messages

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the inner model's answer, with the calls in its text."""
        tools, required = _resolve_choice(prompt)
        reader = _AnswerReader(tools, prompt.number)
        async with aclosing(self._inner.stream(self.rewrite(prompt))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    text = reader.feed(chunk.text)
                    if text:
                        yield chunk if text == chunk.text else TextChunk(text)
                elif isinstance(chunk, StopChunk):
                    for last in reader.end(chunk):
                        yield last
                    if required and chunk.reason in COMPLETE_REASONS and not reader.has_calls:
                        raise ModelUnavailable(f"{self.name} had to call {required} and called none")
                    yield StopChunk("calls") if reader.has_calls and chunk.reason in COMPLETE_REASONS else chunk
                    return
                else:
                    reader = reader.observe(chunk)
                    yield chunk
        rest = reader.unshown_text()
        if rest:
            yield TextChunk(rest)


def _resolve_choice(prompt: Prompt) -> tuple[tuple[ToolSpec, ...], str]:
    """Return the tools that may be called, and a description of the tools that must be called."""
    choice = prompt.tool_choice
    if choice == "none" or (not prompt.tools and choice == "auto"):
        return (), ""
    if choice == "auto":
        return prompt.tools, ""
    chosen = prompt.tools if choice == "required" else tuple(tool for tool in prompt.tools if tool.name == choice)
    if not chosen:
        names = ", ".join(tool.name for tool in prompt.tools) or "none"
        raise BadRequest(f"tool_choice {choice!r} needs a tool to call; there are {names}")
    return chosen, "a tool" if choice == "required" else repr(choice)


class _AnswerReader:
    """Separates the text of one answer from its calls."""

    def __init__(self, tools: tuple[ToolSpec, ...], number: int) -> None:
        self._tools, self._number = tools, number
        self._scanner = CallScanner(tool.name for tool in tools) if tools else None
        self._shown_end = self._next_index = 0
        self.has_calls = False

    def feed(self, text: str) -> str:
        """Return the text that can be streamed so far."""
        scanner = self._scanner
        if scanner is None:
            return text
        scanner.feed(text)
        start, self._shown_end = self._shown_end, scanner.text_end
        return scanner.text(start, self._shown_end)

    def observe(self, chunk: Chunk) -> "_AnswerReader":
        """Return the reader after another chunk: a call that the model made by itself, or a new attempt."""
        if isinstance(chunk, RetryChunk):
            return _AnswerReader(self._tools, self._number + 1)
        if isinstance(chunk, CallChunk):
            self.has_calls, self._next_index = True, max(self._next_index, chunk.index + 1)
        return self

    def unshown_text(self) -> str:
        return self._scanner.text(self._shown_end) if self._scanner is not None else ""

    def end(self, stop: StopChunk) -> Iterator[Chunk]:
        """Yield the rest of the text, then the calls of a complete answer."""
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
    """Return the text from ``start`` on without the calls and the blanks before each."""
    texts: list[str] = []
    for found in calls:
        texts.append(scanner.text(start, found.start).rstrip(" \t\r\n\f\v"))
        start = found.end
    last = scanner.text(start)
    return "".join(texts) + (last if last.strip() or not calls else "")


class TaggedCalls(ModelWrapper):
    """Reads calls that a model wrote into its text, although the provider has function calling.

    Small models on local servers write ``<tool_call>{"name": "look", "arguments": {…}}</tool_call>``, which the server
    may pass on as text. Such a call counts if the request has a tool of that name, and the answer is complete; an
    answer with calls of its own keeps its text. Text is streamed as it arrives, up to the first tag.
    """

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the inner model's answer, with the calls in its text."""
        tools = () if prompt.tool_choice == "none" else prompt.tools
        reader = _TagReader(tools, prompt.number)
        async with aclosing(self._inner.stream(prompt)) as chunks:
            async for chunk in chunks:
                if not tools:
                    yield chunk
                elif isinstance(chunk, TextChunk):
                    text = reader.feed(chunk.text)
                    if text:
                        yield chunk if text == chunk.text else TextChunk(text)
                elif isinstance(chunk, StopChunk):
                    for last in reader.end(chunk):
                        yield last
                    yield StopChunk("calls") if reader.has_found else chunk
                    return
                else:
                    reader = reader.observe(chunk)
                    yield chunk
        if rest := reader.unshown_text():
            yield TextChunk(rest)


class _TagReader:
    """Separates the text of one answer from its calls in tags."""

    def __init__(self, tools: tuple[ToolSpec, ...], number: int) -> None:
        self._tools, self._number = tools, number
        self._texts: list[str] = []
        self._held = ""
        self._shown = 0
        self._is_tagged = self._has_own_calls = self.has_found = False

    def feed(self, text: str) -> str:
        """Return the text that can be streamed so far."""
        self._texts.append(text)
        held = self._held + text
        if self._is_tagged:
            self._held = held
            return ""
        end = held.find(OPENING_TAG)
        self._is_tagged = end >= 0
        if end < 0:
            sizes = range(min(len(OPENING_TAG) - 1, len(held)), 0, -1)
            end = len(held) - next((size for size in sizes if OPENING_TAG.startswith(held[-size:])), 0)
        self._held = held[end:]
        self._shown += end
        return held[:end]

    def observe(self, chunk: Chunk) -> "_TagReader":
        """Return the reader after another chunk: a call that the provider has read, or a new attempt."""
        if isinstance(chunk, RetryChunk):
            return _TagReader(self._tools, self._number + 1)
        self._has_own_calls = self._has_own_calls or isinstance(chunk, CallChunk)
        return self

    def unshown_text(self) -> str:
        return self._held

    def end(self, stop: StopChunk) -> Iterator[Chunk]:
        """Yield the rest of the text, then the calls of a complete answer."""
        if not self._is_tagged or self._has_own_calls or stop.reason not in COMPLETE_REASONS:
            if self._held:
                yield TextChunk(self._held)
            return
        scanner = CallScanner((tool.name for tool in self._tools), only_tagged=True)
        scanner.feed("".join(self._texts))
        scanner.end()
        calls = scanner.calls()
        text = _text_without_calls(scanner, self._shown, calls)
        if text:
            yield TextChunk(text)
        for at, found in enumerate(calls):
            yield CallChunk(at, found.name, found.arguments, f"call_{self._number}_{at + 1}", found.repaired)
        self.has_found = bool(calls)
