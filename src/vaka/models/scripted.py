"""A model that plays back a file: line n answers call n. For tests and demonstrations without a key."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.model import CallChunk, Chunk, Prompt, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import (
    AuthenticationFailed,
    ConfigError,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
)
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, Usage, UserMessage, text_of
from vaka.core.types.tokens import estimate_text_tokens

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_PIECES = 20
"""The number of chunks of a text, at most."""
RETRYABLE_STATUSES = frozenset({408, 409, 429})
"""Statuses below 500 after which the same request may succeed."""

ScriptLine: TypeAlias = Mapping[str, Any]
"""A line of the file, as data."""

_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_OneOrMore: TypeAlias = str | tuple[str, ...]


class _LineStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Call(_LineStruct, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class _Failure(_LineStruct, frozen=True, kw_only=True):
    status: Annotated[int, msgspec.Meta(ge=100, le=599)]
    message: str = "the script says so"
    retry_after: _Seconds | None = None


class _TokenCounts(_LineStruct, frozen=True, kw_only=True):
    input: _Count = 0
    output: _Count = 0
    cache_read: _Count = 0
    cache_write: _Count = 0
    reasoning: _Count = 0
    cost: _Seconds = 0.0


class _Expectation(_LineStruct, frozen=True, kw_only=True):
    last_user_contains: _OneOrMore = ()
    tools_include: _OneOrMore = ()
    messages_at_least: _Count = 0


class _Line(_LineStruct, frozen=True, kw_only=True):
    text: str | None = None
    chunks: tuple[str, ...] | None = None
    reasoning: str | None = None
    tool_calls: tuple[_Call, ...] = ()
    error: _Failure | None = None
    stall: _Seconds | None = None
    cut_after: _Count | None = None
    delay: _Seconds = 0.0
    usage: _TokenCounts | None = None
    stop: str | None = None
    expect: _Expectation = _Expectation()
    repeat: bool = False
    agent: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    context_window: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def has_answer(self) -> bool:
        return any(value is not None for value in (self.text, self.chunks, self.reasoning)) or bool(self.tool_calls)

    @property
    def is_cut(self) -> bool:
        """Whether the answer ends without its end marker."""
        return self.cut_after is not None or (self.stall is not None and not self.has_answer)


class _PlacedLine(msgspec.Struct, frozen=True):
    """A line and its file and number, for messages."""

    line: _Line
    place: str


class Scripted:
    """A model whose n-th call in a session is answered by line n of a file, or of ``source`` as data.

    Lines with ``"agent"`` serve the agent of that name; the others serve the root agent. Raises ``ConfigError`` at
    once when the lines are not well formed. A line with ``context_window`` alone sets the window of the model: a
    longer prompt raises ``ContextTooLong``.
    """

    def __init__(
        self,
        source: "str | PathLike[str] | Iterable[ScriptLine]",
        *,
        name: str = "scripted",
        clock: Clock | None = None,
    ) -> None:
        self.name, self._source = name, str(source) if isinstance(source, str | PathLike) else name
        lines = _read_file(Path(source)) if isinstance(source, str | PathLike) else enumerate(source, start=1)
        placed = [_parse_line(line, f"{self._source}:{number}") for number, line in lines]
        self.context_window = next((one.line.context_window for one in placed if one.line.context_window), None)
        self._lines_by_agent = _group_by_agent(one for one in placed if one.line.context_window is None)
        self._sleep: Callable[[float], Awaitable[None]] = clock.sleep if clock is not None else asyncio.sleep
        if isinstance(source, str | PathLike) and not self._lines_by_agent:
            raise ConfigError(f'{self._source}: no lines; write one for each model call, such as {{"text": "Hi."}}')

    def require_child(self, name: str) -> None:
        """Raise ``ConfigError`` if no line answers the child agent ``name``: all its calls would fail."""
        if name not in self._lines_by_agent:
            raise ConfigError(self._describe_missing_lines(name))

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Yield the answer of the line for this call. Raises ``ModelRefused`` when there is none."""
        placed = self._line_for(prompt)
        line = placed.line
        _check_expectation(placed, prompt)
        if self.context_window is not None and (tokens := _input_tokens(prompt)) > self.context_window:
            raise ContextTooLong(f"the prompt has {tokens} tokens, the window of {self.name} {self.context_window}")
        for seconds in (line.delay, line.stall or 0.0):
            if seconds:
                await self._sleep(seconds)
        for chunk in _line_chunks(line, prompt):
            await asyncio.sleep(0)  # let other tasks run between two chunks, as a network would
            yield chunk
        if line.error is not None:
            raise _error_of(line.error)
        if not line.is_cut:
            yield UsageChunk(_usage_of(line, prompt))
            yield StopChunk(line.stop or ("calls" if line.tool_calls else "end"))

    def _line_for(self, prompt: Prompt) -> _PlacedLine:
        lines = self._lines_by_agent.get(prompt.agent) if prompt.agent else None
        if lines is None and prompt.path:
            raise ModelRefused(self._describe_missing_lines(prompt.agent))
        lines = lines or self._lines_by_agent.get(None, [])
        if prompt.number <= len(lines):
            return lines[prompt.number - 1]
        if lines and lines[-1].line.repeat:
            return lines[-1]
        count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
        raise ModelRefused(
            f"scripted model {self._source} has {count} for agent {prompt.agent!r}, call {prompt.number} has none; "
            f'add a line or "repeat": true'
        )

    def _describe_missing_lines(self, agent: str) -> str:
        return f'scripted model {self._source} has no lines for agent {agent!r}; add lines with "agent": "{agent}"'


def _read_file(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the data of each line that is not blank, with its number."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"scripted model {path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"scripted model {path} is larger than {MAX_FILE_BYTES // 1024 // 1024} MB")
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{path}:{number}: not JSON: {error}") from error


def _parse_line(raw: Any, place: str) -> _PlacedLine:
    if not isinstance(raw, Mapping):
        raise ConfigError(f'{place}: a line must be an object, such as {{"text": "Hi."}}')
    try:
        line = msgspec.convert(raw, _Line)
        msgspec.json.encode(line)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"{place}: {_describe_unknown_key(str(error)) or error}") from error
    conflict = _find_conflict(line)
    if conflict:
        raise ConfigError(f"{place}: {conflict}")
    return _PlacedLine(line, place)


_KEY_OWNERS = {None: _Line, "error": _Failure, "usage": _TokenCounts, "expect": _Expectation, "tool_calls": _Call}


def _describe_unknown_key(error: str) -> str:
    """Return what msgspec says of an unknown key, with the nearest known one; ``""`` for another error."""
    unknown = re.match(r"Object contains unknown field `([^`]*)`(?: - at `\$\.(\w+).*`)?$", error)
    if unknown is None:
        return ""
    known = _KEY_OWNERS[unknown[2]].__struct_fields__
    near = find_near_names(unknown[1], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
    return f"unknown key {unknown[1]!r}{f' in {unknown[2]!r}' if unknown[2] else ''}; {hint}"


def _find_conflict(line: _Line) -> str:
    """Return why the keys of a line do not go together, ``""`` if they do."""
    if line.text is not None and line.chunks is not None:
        return "'text' and 'chunks' exclude each other; keep one"
    if line.cut_after is not None and line.text is None and line.chunks is None:
        return "'cut_after' needs 'chunks' to count"
    if line.context_window is not None:
        return "'context_window' must be alone in its line" if line.has_answer or line.error else ""
    if not line.has_answer and line.error is None and line.stall is None:
        return "the line has no answer; give it text, chunks, reasoning, tool_calls, error or stall"
    return ""


def _group_by_agent(lines: Iterable[_PlacedLine]) -> dict[str | None, list[_PlacedLine]]:
    """Return the lines of each agent, the root's under ``None``."""
    groups: dict[str | None, list[_PlacedLine]] = {}
    for placed in lines:
        group = groups.setdefault(placed.line.agent, [])
        if group and group[-1].line.repeat:
            raise ConfigError(f'{group[-1].place}: "repeat" is for the last line of an agent; {placed.place} follows')
        group.append(placed)
    return groups


def _check_expectation(placed: _PlacedLine, prompt: Prompt) -> None:
    """Raise ``ModelRefused`` when the prompt is not what the line expects."""
    failure = next(_failed_expectations(placed.line.expect, prompt), None)
    if failure is not None:
        raise ModelRefused(f"scripted model {placed.place} expected {failure}")


def _failed_expectations(expected: _Expectation, prompt: Prompt) -> Iterator[str]:
    last = next((text_of(m.content) for m in reversed(prompt.messages) if isinstance(m, UserMessage)), None)
    for text in _as_sequence(expected.last_user_contains):
        if last is None or text not in last:
            excerpt = last if last is None or len(last) <= 200 else last[:200] + "…"
            actual = "there is none" if last is None else f"it is {excerpt!r}"
            yield f"a last user message that contains {text!r}; {actual}"
    names = [tool.name for tool in prompt.tools]
    for name in _as_sequence(expected.tools_include):
        if name not in names:
            yield f"a tool {name!r}; there are {', '.join(names) if names else 'none'}"
    if len(prompt.messages) < expected.messages_at_least:
        yield f"at least {expected.messages_at_least} messages; there are {len(prompt.messages)}"


def _as_sequence(texts: _OneOrMore) -> Sequence[str]:
    return (texts,) if isinstance(texts, str) else texts


def _line_chunks(line: _Line, prompt: Prompt) -> Iterator[Chunk]:
    for piece in _split_text(line.reasoning or ""):
        yield ReasoningChunk(piece)
    chunks = line.chunks if line.chunks is not None else _split_text(line.text or "")
    yield from (TextChunk(piece) for piece in chunks[: line.cut_after])
    if line.cut_after is not None:
        return
    for index, call in enumerate(line.tool_calls):
        id = call.id or f"scripted-{prompt.number}-{index + 1}"
        yield CallChunk(index=index, name=call.name, arguments=_arguments_json(call), id=id)


def _split_text(text: str) -> Sequence[str]:
    """Split a text between words, into at most ``MAX_PIECES`` pieces."""
    words: list[str] = re.findall(r"\S+\s*|\s+", text)
    size = -(-len(words) // MAX_PIECES) or 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def _arguments_json(call: _Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()


def _error_of(failure: _Failure) -> ModelError:
    if failure.status >= 500 or failure.status in RETRYABLE_STATUSES:
        return ModelUnavailable(
            f"{failure.message} (status {failure.status})", retry_after=failure.retry_after, status=failure.status
        )
    message = f"{failure.message} (status {failure.status})"
    if failure.status in {401, 403}:
        return AuthenticationFailed(f"authentication failed: {message}", status=failure.status)
    return ModelRefused(message, status=failure.status)


def _usage_of(line: _Line, prompt: Prompt) -> Usage:
    """Return the usage of the line, or an estimate."""
    if line.usage is not None:
        return Usage(**msgspec.structs.asdict(line.usage))
    text = line.text if line.text is not None else "".join(line.chunks or ())
    calls = sum(len(call.name) + len(_arguments_json(call)) for call in line.tool_calls)
    reasoning = len(line.reasoning or "")
    return Usage(
        input=_input_tokens(prompt),
        output=estimate_text_tokens(len(text) + calls + reasoning),
        reasoning=estimate_text_tokens(reasoning),
    )


def _input_tokens(prompt: Prompt) -> int:
    input = len(prompt.system) + sum(_characters_of(message) for message in prompt.messages)
    return estimate_text_tokens(input + sum(len(tool.name) + len(tool.description) for tool in prompt.tools))


def _characters_of(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return sum(len(result.text) for result in message.results)
    size = len(text_of(message.content))
    if isinstance(message, AssistantMessage):
        size += sum(len(call.name) + len(call.raw or msgspec.json.encode(call.arguments)) for call in message.calls)
    return size
