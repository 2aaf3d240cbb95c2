"""Streams read by the vendors' own clients, and requests validated by their types.

The clients are imported on first use: importing the three takes longer than importing vaka and all its tests.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any, cast

import httpx2
import msgspec
import pydantic


class VendorAnswer(msgspec.Struct, frozen=True):
    """An answer, of vaka or of a vendor's client."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, Any]]
    """Id, name and arguments as data."""
    stop: str
    input: int
    output: int


_STOPS = {
    "stop": "end",
    "tool_calls": "calls",
    "content_filter": "refusal",
    "end_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "max_output_tokens": "length",
}


def _stop_reason(reason: Any) -> str:
    word = str(getattr(reason, "value", reason))
    return _STOPS.get(word, word)


async def ask_chat(url: str) -> VendorAnswer:
    """Ask with OpenAI's client for Chat Completions."""
    import openai

    async with (
        openai.AsyncOpenAI(api_key="k", base_url=url + "/v1", max_retries=0) as client,
        client.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Hi."}], stream_options={"include_usage": True}
        ) as stream,
    ):
        try:
            whole = await stream.get_final_completion()
        except openai.LengthFinishReasonError as error:
            whole = cast("Any", error.completion)
    message, usage = whole.choices[0].message, whole.usage
    assert usage is not None
    calls = [
        (made.id, made.function.name, _decode_arguments(made.function.arguments)) for made in message.tool_calls or []
    ]
    refused = message.refusal or ""
    return VendorAnswer(
        text=(message.content or "") + refused,
        reasoning=getattr(message, "reasoning_content", None) or "",
        calls=calls,
        stop="refusal" if refused else _stop_reason(whole.choices[0].finish_reason),
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
    )


async def ask_responses(url: str) -> VendorAnswer:
    """Ask with OpenAI's client for Responses."""
    import openai

    async with (
        openai.AsyncOpenAI(api_key="k", base_url=url + "/v1", max_retries=0) as client,
        client.responses.stream(model="m", input="Hi.") as stream,
    ):
        whole: Any = None
        async for event in stream:
            if event.type in {"response.completed", "response.incomplete"}:
                whole = cast("Any", event).response
    items = [cast("Any", item) for item in whole.output]
    parts = [part for item in items if item.type == "message" for part in item.content]
    calls = [
        (item.call_id, item.name, _decode_arguments(item.arguments)) for item in items if item.type == "function_call"
    ]
    why = whole.incomplete_details.reason if whole.incomplete_details else None
    refused = any(part.type == "refusal" for part in parts)
    assert whole.usage is not None
    return VendorAnswer(
        text="".join(part.refusal if part.type == "refusal" else part.text for part in parts),
        reasoning="".join(part.text for item in items if item.type == "reasoning" for part in item.summary),
        calls=calls,
        stop=_stop_reason(why) if why else "refusal" if refused else "calls" if calls else "end",
        input=whole.usage.input_tokens,
        output=whole.usage.output_tokens,
    )


async def ask_messages(url: str) -> VendorAnswer:
    """Ask with Anthropic's client."""
    import anthropic

    async with (
        anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi."}]) as stream,
    ):
        whole = await stream.get_final_message()
    blocks = [cast("Any", block) for block in whole.content]
    usage = whole.usage
    return VendorAnswer(
        text="".join(block.text for block in blocks if block.type == "text"),
        reasoning="".join(block.thinking for block in blocks if block.type == "thinking"),
        calls=[(block.id, block.name, block.input) for block in blocks if block.type == "tool_use"],
        stop=_stop_reason(whole.stop_reason),
        output=usage.output_tokens,
        input=usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0),
    )


async def ask_gemini(url: str) -> VendorAnswer:
    """Ask with Google's client."""
    from google import genai
    from google.genai import types as google

    # Where aiohttp is installed the client would use it, with a subclass that aiohttp warns about.
    httpx_only = {"transport": httpx2.AsyncHTTPTransport()}
    client = genai.Client(api_key="k", http_options=google.HttpOptions(base_url=url, async_client_args=httpx_only))
    parts: list[google.Part] = []
    stop, usage = "", google.GenerateContentResponseUsageMetadata()
    try:
        async for chunk in await client.aio.models.generate_content_stream(model="m", contents="Hi."):
            for candidate in chunk.candidates or []:
                parts += (candidate.content.parts or []) if candidate.content else []
                stop = _stop_reason(candidate.finish_reason) if candidate.finish_reason else stop
            usage = chunk.usage_metadata or usage
    finally:
        await client.aio.aclose()
        client.close()
    calls = [
        (part.function_call.id or "", part.function_call.name or "", part.function_call.args)
        for part in parts
        if part.function_call
    ]
    return VendorAnswer(
        text="".join(part.text or "" for part in parts if not part.thought),
        reasoning="".join(part.text or "" for part in parts if part.thought),
        calls=calls,
        stop="calls" if calls and stop == "end" else stop,
        input=usage.prompt_token_count or 0,
        output=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    )


CLIENTS: dict[str, Callable[[str], Awaitable[VendorAnswer]]] = {
    "chat": ask_chat,
    "responses": ask_responses,
    "anthropic": ask_messages,
    "gemini": ask_gemini,
}


def anthropic_message(http: httpx2.Client) -> Any:
    """Return the message that Anthropic's client reads over a connection."""
    import anthropic

    with (
        anthropic.Anthropic(api_key="k", http_client=http) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]) as stream,
    ):
        return stream.get_final_message()


def chat_completion(chunks: Iterable[bytes]) -> Any:
    """Return the completion that OpenAI's client assembles from the JSON of its chunks."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(event_type("chat").validate_json(chunk))
    return state.current_completion_snapshot


@cache
def event_type(wire: str) -> pydantic.TypeAdapter[Any]:
    """Return the vendor's type for one event of a stream."""
    if wire == "chat":
        from openai.types.chat import ChatCompletionChunk

        return pydantic.TypeAdapter(ChatCompletionChunk)
    if wire == "responses":
        from openai.types.responses import ResponseStreamEvent

        return pydantic.TypeAdapter(ResponseStreamEvent)
    if wire == "anthropic":
        from anthropic.types import RawMessageStreamEvent

        return pydantic.TypeAdapter(RawMessageStreamEvent)
    from google.genai.types import GenerateContentResponse

    return pydantic.TypeAdapter(GenerateContentResponse)


@cache
def request_type(wire: str) -> pydantic.TypeAdapter[Any]:
    """Return the vendor's type for the body of a request."""
    if wire == "chat":
        from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

        return pydantic.TypeAdapter(CompletionCreateParamsStreaming)
    if wire == "responses":
        from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

        return pydantic.TypeAdapter(ResponseCreateParamsStreaming)
    if wire == "anthropic":
        from anthropic.types.message_create_params import MessageCreateParamsStreaming

        return pydantic.TypeAdapter(MessageCreateParamsStreaming)
    return _generate_content_type()


def _generate_content_type() -> pydantic.TypeAdapter[Any]:
    from google.genai import types as google

    class GenerateContent(pydantic.BaseModel):
        """The body of generateContent, of the parts their client makes it of."""

        model_config = pydantic.ConfigDict(extra="forbid", alias_generator=pydantic.alias_generators.to_camel)

        contents: list[google.Content]
        system_instruction: google.Content | None = None
        tools: list[google.Tool] | None = None
        tool_config: google.ToolConfig | None = None
        generation_config: google.GenerationConfig | None = None
        safety_settings: list[google.SafetySetting] | None = None
        service_tier: str | None = None
        labels: dict[str, str] | None = None

    return pydantic.TypeAdapter(GenerateContent)


REMOVED_FIELDS = {"anthropic": ("temperature", "top_p", "top_k")}
"""What their types no longer know, since the newest models do not take it; older ones do."""


def check_event(wire: str, data: Any) -> None:
    """Hold an event to the vendor's type for it: their clients themselves let anything pass."""
    event_type(wire).validate_python(data)


def check_request(wire: str, body: dict[str, Any]) -> None:
    """Hold a request to the vendor's types: everything in it has a place there, and is what belongs in it."""
    if wire == "gemini":
        _check_gemini(body)
        return
    adapter = request_type(wire)
    read = _read_iterables(adapter.dump_python(adapter.validate_python(body), warnings="none"))
    assert read == {key: value for key, value in body.items() if key not in REMOVED_FIELDS.get(wire, ())}


def _check_gemini(body: dict[str, Any]) -> None:
    adapter = request_type("gemini")
    read = adapter.dump_python(adapter.validate_python(body), mode="json", by_alias=True, exclude_unset=True)
    assert _normalize_base64(read) == _normalize_base64(body)


def _normalize_base64(value: Any) -> Any:
    """Base64 is written with two alphabets."""
    if isinstance(value, str):
        return value.replace("-", "+").replace("_", "/").rstrip("=")
    if isinstance(value, dict):
        return {key: _normalize_base64(each) for key, each in value.items()}
    return [_normalize_base64(each) for each in value] if isinstance(value, list) else value


def _read_iterables(value: Any) -> Any:
    """Iterables of theirs are read when someone looks."""
    if isinstance(value, dict):
        return {key: _read_iterables(each) for key, each in value.items()}
    if isinstance(value, str | bytes | int | float) or value is None:
        return value
    return [_read_iterables(each) for each in value]


def _decode_arguments(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments
