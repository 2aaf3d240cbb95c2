"""A prompt as a request of OpenAI's Responses API. Pure.

The whole conversation goes along each time and nothing is kept at the provider, so that the log stays the only truth.
Of the options, ``seed``, ``top_k``, ``frequency_penalty`` and ``presence_penalty`` have no place on this wire and are
left out; ``stop`` has none either, and is refused, since an answer that goes on is another answer. A budget for
reasoning becomes the effort nearest to it. ``extra`` is merged over the body; its ``tools`` and ``include`` join ours.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Reasoning, Stored, Text
from vaka.core.types.errors import BadRequest
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models import history
from vaka.models.options import ModelOptions, merged, read
from vaka.models.strict import strict

WIRE = "responses"
"""The name under which this wire's own items are kept."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a function, or the name of an output, may be called."""
KEY = 64
"""Characters a cache key may have."""
MEDIA = (Image, Audio, Document)

Item: TypeAlias = dict[str, Any]

_JOINED = ("tools", "include")
_ASKED = frozenset({
    "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request",
})  # fmt: skip
_ENDINGS = {
    "application/pdf": "pdf", "text/plain": "txt", "text/markdown": "md", "text/csv": "csv", "text/html": "html",
    "application/json": "json",
}  # fmt: skip
_SOUNDS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav"}
_UNREASONING = ("gpt-4", "gpt-3.5", "chatgpt-", "gpt-5-chat")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server of this wire can do."""

    reasoning: Literal["encrypted", "plain", "none"] | None = None
    """How it hands out its reasoning to be sent back; by default as the name of the model tells for OpenAI's own."""
    tells_length: bool = True
    """Whether it says so when an answer has reached its length limit."""
    images: bool = True
    files: bool = True
    audio: bool = False
    media_results: bool = True
    """Whether the result of a call may have images and files; else they follow as words of the user."""
    items: bool = True
    """Whether it takes items of built-in tools back."""


LLAMA = Facts(reasoning="plain", tells_length=False, files=False, media_results=False, items=False)
"""llama.cpp's server."""


def to_request(model: str, prompt: Prompt, facts: Facts = Facts()) -> dict[str, Any]:
    """Return the body of the request for ``prompt``. Raises ``BadRequest`` for what this wire cannot say."""
    options = read(prompt.options)
    if any(options.stops):
        raise BadRequest(
            f"{model} takes no stop texts over the Responses API; leave 'stop' out, or use the model as openai-chat/…"
        )
    kind = facts.reasoning or ("encrypted" if _reasons(model) else "none")
    body: dict[str, Any] = {"model": model, "stream": True, "store": False}
    if prompt.system:
        body["instructions"] = prompt.system
    if kind == "encrypted":
        body["include"] = ["reasoning.encrypted_content"]
    body |= _tools(prompt, options)
    body |= _settings(prompt, options)
    body["input"] = _Writer(model, prompt.messages, facts, kind).items() or [_user([_text(".")])]
    return merged(body, options.extra, _JOINED)


def take(model: str, part: Image | Audio | Document, facts: Facts = Facts()) -> None:
    """Raise ``BadRequest`` for a part that the server cannot take."""
    _Writer(model, (), facts, "none").part(part)


def _reasons(model: str) -> bool:
    """Whether a model of OpenAI's reasons; one that does not refuses to be asked for it."""
    return not model.rpartition("/")[2].removeprefix("ft:").startswith(_UNREASONING)


def _tools(prompt: Prompt, options: ModelOptions) -> dict[str, Any]:
    choice, extra = prompt.tool_choice, bool(options.extra.get("tools"))
    if choice not in {"auto", "none", "required"} and choice not in [tool.name for tool in prompt.tools]:
        raise BadRequest(f"tool_choice is {choice!r}, but there is no such tool among {_names(prompt.tools)}")
    if not prompt.tools and not extra:
        if choice == "required":
            raise BadRequest("tool_choice is 'required', but there is no tool to call")
        return {}
    made: dict[str, Any] = {}
    if prompt.tools:
        made["tools"] = [_tool(tool) for tool in prompt.tools]
    if choice != "auto":
        named = choice not in {"none", "required"}
        made["tool_choice"] = {"type": "function", "name": choice} if named else choice
    if options.parallel_calls is not None:
        made["parallel_tool_calls"] = options.parallel_calls
    return made


def _tool(tool: ToolSpec) -> Item:
    _check_name("tool", tool.name)
    form = strict(tool.parameters, nullable=True) if tool.strict else None
    return {
        "type": "function", "name": tool.name, "description": tool.description,
        "parameters": tool.parameters if form is None else form,
        "strict": form is not None, # where it is missing, strict is meant
    }  # fmt: skip


def _settings(prompt: Prompt, options: ModelOptions) -> dict[str, Any]:
    wanted = {
        "max_output_tokens": options.max_tokens, "temperature": options.temperature, "top_p": options.top_p,
        "reasoning": _effort(options), "text": _format(options), "metadata": options.metadata or None,
        "service_tier": options.service_tier or None, "safety_identifier": options.user or None,
        "prompt_cache_key": None if options.cache is False else _cache_key(prompt.session),
    }  # fmt: skip
    return {name: value for name, value in wanted.items() if value is not None}


def _effort(options: ModelOptions) -> dict[str, Any] | None:
    if options.effort is None:
        return None
    return {"effort": "none"} if options.effort == "none" else {"effort": options.effort, "summary": "auto"}


def _format(options: ModelOptions) -> dict[str, Any] | None:
    shape = options.shape
    if shape is None:
        return None
    _check_name("output", shape.name)
    exact = strict(shape.schema) if shape.strict else None
    made: Item = {
        "type": "json_schema", "name": shape.name, "schema": shape.schema if exact is None else exact,
        "strict": exact is not None,
    }  # fmt: skip
    if shape.description:
        made["description"] = shape.description
    return {"format": made}


def _cache_key(session: str) -> str | None:
    if len(session) > KEY:
        return hashlib.sha256(session.encode()).hexdigest()
    return session or None


class _Writer:
    """A conversation, about to be written down as items."""

    def __init__(self, model: str, messages: Sequence[Message], facts: Facts, kind: str) -> None:
        self._model, self._messages, self._facts, self._kind = model, messages, facts, kind
        self._ids = history.call_ids(messages)
        self._answered = {id for block in _own_blocks(messages) for id in _answers(block)}

    def items(self) -> list[Item]:
        """Return the conversation in this wire's words."""
        made: list[Item] = []
        for message in self._messages:
            if isinstance(message, UserMessage):
                made += self._asked(message.content)
            elif isinstance(message, AssistantMessage):
                made += self._said(message)
            else:
                made += self._results(message)
        return made

    def part(self, part: Image | Audio | Document) -> Item:
        """Return one part in this wire's words."""
        return self._media(part)

    def _asked(self, content: Content) -> list[Item]:
        parts = self._parts(content)
        return [_user(parts)] if parts else []

    def _said(self, message: AssistantMessage) -> list[Item]:
        calls = {call.id: call for call in message.calls}
        answer = _Answer(with_phase=self._kind == "encrypted")
        for part in message.content:
            if isinstance(part, Text):
                answer.texts.append(part.text)
            elif isinstance(part, Stored):
                answer.texts.append(part.preview)
            elif isinstance(part, Reasoning):
                self._own(part, answer)
            elif isinstance(part, CallRef):
                if part.id in calls:
                    answer.add(self._call(calls.pop(part.id)))
            else:
                raise history.cannot_take(self._model, part, "only the user and tools may show one")
        for call in calls.values():
            answer.add(self._call(call))
        return answer.whole()

    def _own(self, part: Reasoning, answer: "_Answer") -> None:
        """Put an item of the provider's own back in its place, unless nobody there would know it."""
        block: Any = history.own(part, WIRE)
        if not isinstance(block, dict):
            return
        item = cast("Item", block)
        if item.get("type") == "message":
            answer.begin(str(item.get("phase") or ""))
        elif self._takes(item):
            answer.add(item)

    def _takes(self, item: Item) -> bool:
        if item.get("type") == "reasoning":
            return bool(item.get({"encrypted": "encrypted_content", "plain": "content"}.get(self._kind, "")))
        if item.get("type") in _ASKED:  # a question to the client that it did not answer would be refused
            return self._facts.items and (item.get("call_id") or item.get("id")) in self._answered
        return self._facts.items

    def _call(self, call: ToolCall) -> Item:
        return {
            "type": "function_call", "call_id": self._ids[call.id], "name": history.called(call.name),
            "arguments": history.arguments_text(call),
        }  # fmt: skip

    def _results(self, message: ToolMessage) -> list[Item]:
        made = [
            {
                "type": "function_call_output", "call_id": self._ids.get(result.call, result.call),
                "output": self._output(result),
            }
            for result in message.results
        ]  # fmt: skip
        return made if self._facts.media_results else [*made, *self._shown(message)]

    def _output(self, result: ToolResult) -> str | list[Item]:
        media = any(isinstance(part, MEDIA) for part in result.content)
        if media and self._facts.media_results:
            return self._parts(result.content)
        words = history.words(result.content)
        if not words and result.failed:
            return f"The call failed ({result.reason})." if result.reason else "The call failed."
        return words or ("The result follows." if media else "")

    def _shown(self, message: ToolMessage) -> Iterator[Item]:
        for result in message.results:
            media = tuple(part for part in result.content if isinstance(part, MEDIA))
            if media:
                id = self._ids.get(result.call, result.call)
                yield _user([_text(f"The result of the call {id}:"), *self._parts(media)])

    def _parts(self, content: Content) -> list[Item]:
        made: list[Item] = []
        for part in content:
            if isinstance(part, MEDIA):
                made.append(self._media(part))
            elif text := history.words((part,)):
                made.append(_text(text))
        return made

    def _media(self, part: Image | Audio | Document) -> Item:
        if not part.data and not part.url:
            raise history.cannot_take(self._model, part, "it has neither data nor an address")
        if isinstance(part, Image) and self._facts.images:
            return {"type": "input_image", "image_url": history.data_url(part), "detail": "auto"}
        if isinstance(part, Document) and self._facts.files:
            return _file(part)
        if isinstance(part, Audio) and self._facts.audio:
            sound = _SOUNDS.get(history.media_type(part))
            if sound is None or not part.data:
                raise history.cannot_take(self._model, part, "it takes the bytes of MP3 and WAV only")
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": sound}}
        raise history.cannot_take(self._model, part)


class _Answer:
    """The items of one answer of the assistant."""

    def __init__(self, *, with_phase: bool) -> None:
        self.texts: list[str] = []
        self._with_phase, self._phase = with_phase, ""
        self._items: list[Item] = []

    def begin(self, phase: str) -> None:
        """Say that a message of this phase begins."""
        self._end_text()
        self._phase = phase

    def add(self, item: Item) -> None:
        """Put an item after what was said."""
        self._end_text()
        self._items.append(item)

    def whole(self) -> list[Item]:
        """Return the items; reasoning that nothing came of would be refused."""
        self._end_text()
        while self._items and self._items[-1].get("type") == "reasoning":
            self._items.pop()
        return self._items

    def _end_text(self) -> None:
        text, self.texts = "".join(self.texts), []
        if text:
            item = {"type": "message", "role": "assistant", "content": text}
            self._items.append(item | {"phase": self._phase} if self._phase and self._with_phase else item)
            self._phase = ""


def _own_blocks(messages: Sequence[Message]) -> Iterator[Item]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            for part in message.content:
                block: Any = history.own(part, WIRE) if isinstance(part, Reasoning) else None
                if isinstance(block, dict):
                    yield cast("Item", block)


def _answers(block: Item) -> list[Any]:
    """Return the question that an item answers, if it does."""
    kind = str(block.get("type"))
    if kind == "mcp_approval_response":
        return [block.get("approval_request_id")]
    return [block.get("call_id") or block.get("id")] if kind.endswith("_output") else []


def _file(part: Document) -> Item:
    if part.url and not part.url.startswith("data:"):
        return {"type": "input_file", "file_url": part.url}
    name = part.name or f"document.{_ENDINGS.get(history.media_type(part), 'bin')}"
    return {"type": "input_file", "filename": name, "file_data": history.data_url(part)}


def _user(parts: list[Item]) -> Item:
    return {"type": "message", "role": "user", "content": parts}


def _text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadRequest(f"the {what} name {name!r} must be 1 to 64 of A-Z, a-z, 0-9, _ and -")


def _names(tools: Sequence[ToolSpec]) -> str:
    return ", ".join(repr(tool.name) for tool in tools) or "none at all"
