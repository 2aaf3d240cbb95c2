"""The names that users of agentsdk know: requests and responses, and a runtime that runs them.

::

    async with Runtime(model="anthropic/claude-sonnet-5-5") as runtime:
        response = await runtime.run(Request(prompt="When do you close?", session_id="hours"))
        async for event in runtime.run_stream(Request(prompt="And tomorrow?", session_id="hours")): ...
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, cast

import msgspec

from vaka.agents.react import Agent
from vaka.core.types.event import Event
from vaka.core.types.message import Content, Part, as_content
from vaka.core.types.type_parameters import Out, Out_co
from vaka.runtime.options import ModeContext, OnBusy, PermissionRequest, TokenStats
from vaka.runtime.options import Response as _Response
from vaka.runtime.runtime import Runtime as _Runtime
from vaka.runtime.turn_stream import TurnStream

__all__ = [
    "ModeContext",
    "PermissionRequest",
    "Request",
    "Response",
    "Runtime",
    "TokenStats",
]


class Request(msgspec.Struct, Generic[Out_co], frozen=True, kw_only=True):
    """The input and settings of one turn, for ``Runtime.run`` and ``Runtime.run_stream``."""

    prompt: str | Content = ""
    """The input: a text, or content parts."""
    content_blocks: tuple[Part, ...] = ()
    """Content parts that follow the prompt."""
    agent: Agent[Any, Out_co] | None = None
    """The agent that answers; default: the agent of the runtime."""
    session_id: str = ""
    """The session to continue; default: a new one."""
    request_id: str = ""
    """Makes the request safe to repeat: a second request with the same id returns the turn of the first."""
    on_busy: OnBusy = "queue"
    """What the input does while another turn of the session runs."""
    metadata: Mapping[str, Any] = {}
    """Plain data for the first event of a new session; tools read it as ``context.metadata``."""
    mode: ModeContext | None = None
    """Where the request comes from; default: the mode of the runtime."""
    tags: Mapping[str, str] = {}
    """Labels that the metadata of a new session and the response repeat."""
    traits: tuple[str, ...] = ()
    """Traits of the session, for its metadata."""
    channels: tuple[str, ...] = ()
    """Channels of the session, for its metadata."""
    tool_whitelist: tuple[str, ...] = ()
    """Names of the tools that this turn may use, its child agents included; default: all tools of the agent."""
    model: str = ""
    """The tier or name of the model that answers; default: the model of the agent."""
    enable_prompt_cache: bool | None = None
    """Whether prompts are marked for the provider's cache; default: the setting of the agent or the runtime."""
    options: Mapping[str, Any] = {}
    """Model options of this turn; they take precedence over those of the agent."""

    def session_metadata(self, mode: ModeContext | None) -> dict[str, Any]:
        """Return the metadata of a new session: that of the request, with its mode, tags, traits and channels."""
        mode = self.mode or mode
        extra = {"tags": dict(self.tags), "traits": list(self.traits), "channels": list(self.channels)}
        named = {name: value for name, value in extra.items() if value}
        return {**self.metadata, **named, **({"mode": msgspec.to_builtins(mode)} if mode is not None else {})}

    @property
    def content(self) -> str | Content:
        """The prompt with the content blocks."""
        return (*as_content(self.prompt), *self.content_blocks) if self.content_blocks else self.prompt

    @property
    def model_options(self) -> dict[str, Any]:
        """The options of the input: model options, the cache setting and the tool whitelist."""
        cache = {} if self.enable_prompt_cache is None else {"cache": self.enable_prompt_cache}
        tools = {"tool_whitelist": sorted(set(self.tool_whitelist))} if self.tool_whitelist else {}
        return {**self.options, **cache, **tools}


class AgentsdkResponse(_Response[Out_co], Generic[Out_co], frozen=True, kw_only=True):
    """The result of one request: a ``vaka.Response`` with the id, the mode and the tags of the request."""

    request_id: str = ""
    """The ``request_id`` of the request, or the id that was generated for it."""
    mode: ModeContext | None = None
    """The mode of the request."""
    tags: Mapping[str, str] = {}
    """The tags of the request."""


class AgentsdkRuntime(_Runtime):
    """A ``vaka.Runtime`` that also runs requests: each opens or continues a session and runs one turn of it."""

    async def run(self, request: Request[Out]) -> AgentsdkResponse[Out]:
        """Run one turn and return its response. Raises ``TurnError`` when the turn ends without an answer."""
        turn = await self._start(request)
        response = await turn.wait()
        answered = {name: getattr(response, name) for name in response.__struct_fields__}
        mode = request.mode or self.options.mode
        return AgentsdkResponse(**answered, request_id=turn.key, mode=mode, tags=dict(request.tags))

    async def run_stream(self, request: Request[Any]) -> AsyncGenerator[Event]:
        """Run one turn and yield its events."""
        async with await self._start(request) as turn:
            async for event in turn:
                yield event

    async def _start(self, request: Request[Out]) -> TurnStream[Out]:
        session = await self.open(
            cast("Agent[Any, Out]", request.agent),
            id=request.session_id,
            metadata=request.session_metadata(self.options.mode),
        )
        return session.stream(
            request.content,
            on_busy=request.on_busy,
            key=request.request_id,
            model=request.model,
            options=request.model_options,
        )


Response = AgentsdkResponse
Runtime = AgentsdkRuntime
