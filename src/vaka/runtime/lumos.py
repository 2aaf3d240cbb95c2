"""``StreamingAgent``: run an agent with the messages and options of Lumosai, and stream Lumosai events."""

import copy
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.agents.react import Agent
from vaka.agents.routing import routers_of
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.ending import Response
from vaka.core.types.errors import InvalidInput, TurnError
from vaka.core.types.ids import JSON, MessageId, parse_session_id
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import AssistantMessage, Message, Text, UserMessage, as_content
from vaka.models.function_calls import parse_role
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session
from vaka.views.lumos import LumosEncoder, LumosEvent, StreamingConfig

if TYPE_CHECKING:
    from vaka.threads.processors import ThreadOptions

EARLIER_KEY = "lumos_messages"
"""The messages before the first turn of a session, in its metadata."""

Callback: TypeAlias = Callable[[dict[str, Any]], object | Awaitable[object]]


class LumosMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a conversation. ``role`` is ``system``, ``user``, ``assistant``, ``tool``, or another word."""

    role: str
    content: str
    name: str | None = None
    metadata: dict[str, Any] | None = None


MessagesLike: TypeAlias = "str | Sequence[LumosMessage | Mapping[str, Any]]"


class GenerateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one answer is generated; what is ``None`` is as the agent has it."""

    instructions: str | None = None
    """Replaces the instructions of the agent."""
    system_message: LumosMessage | None = None
    """Another form of ``instructions``."""
    context: tuple[LumosMessage, ...] = ()
    """Messages before the messages of the call."""
    context_window: int | None = None
    """The number of earlier messages that the model sees, the last ones; for a thread that exists it is used by
    ``generate_with_memory`` alone."""
    thread_id: str = ""
    """The session to continue; default: a new one."""
    resource_id: str = ""
    """Stored in the metadata of a new session."""
    run_id: str = ""
    """Makes the call safe to repeat in its thread."""
    max_steps: int | None = None
    tool_choice: str | dict[str, str] | None = None
    """``auto``, ``none``, ``required``, the name of a tool, or ``{"tool_name": NAME}``."""
    model: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    extra: dict[str, Any] = {}
    """Further options of the model."""

    @classmethod
    def parse(cls, options: "GenerateOptions | Mapping[str, Any] | None") -> "GenerateOptions":
        """Return options of a mapping. Raises ``InvalidInput`` for an unknown name or a value of the wrong type."""
        if isinstance(options, GenerateOptions):
            return options
        given = dict(options or {})
        unknown = next((name for name in given if name not in cls.__struct_fields__), None)
        if unknown is not None:
            near = find_near_names(unknown, cls.__struct_fields__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(cls.__struct_fields__)}"
            raise InvalidInput(f"there is no option {unknown!r}; {hint}")
        try:
            return msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the options cannot be used: {error}") from error

    @property
    def model_options(self) -> dict[str, Any]:
        """The options of the model."""
        given = {"temperature": self.temperature, "max_tokens": self.max_tokens, "stop": self.stop}
        return {**{name: value for name, value in given.items() if value is not None}, **self.extra}

    def apply_to(self, agent: Agent[Any, Any], system: Sequence[str]) -> Agent[Any, Any]:
        """Return the agent with these options, and with the texts of system messages after its instructions."""
        changed = copy.copy(agent)
        changed.middleware = (*agent.middleware, _EarlierMessages())
        replaced = self.system_message.content if self.system_message is not None else self.instructions
        if replaced is not None:
            changed.instructions = replaced
        if system:
            changed.middleware = (*changed.middleware, _SystemMessages("\n\n".join(system)))
        if self.max_steps is not None:
            changed.limits = msgspec.structs.replace(agent.limits, max_steps=self.max_steps)
        if self.tool_choice is not None:
            choice = self.tool_choice
            changed.tool_choice = choice if isinstance(choice, str) else choice.get("tool_name", "auto")
        return changed


class _EarlierMessages(Middleware):
    """Shows the model the messages that a session began with; they are in its metadata."""

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        stored = msgspec.convert(turn.metadata.get(EARLIER_KEY, []), list[LumosMessage])
        if not stored or turn.path:
            return prompt
        earlier = tuple(_to_message(number, message) for number, message in enumerate(stored))
        return msgspec.structs.replace(prompt, messages=(*earlier, *prompt.messages))


class _SystemMessages(Middleware, ToolSource):
    """Adds the system messages of a call to the instructions of its agent."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def prompt_for_step(self, turn: Turn) -> str:
        return "" if turn.path else self._text


def _to_message(number: int, message: LumosMessage) -> Message:
    role = parse_role(message.role)
    if role == "assistant":
        return AssistantMessage(id=MessageId(f"earlier_{number}"), content=as_content(message.content))
    if role == "user":
        return UserMessage(content=as_content(message.content))
    return UserMessage(content=as_content(f"{message.name or role}: {message.content}"))


def _read_messages(messages: MessagesLike) -> tuple[list[LumosMessage], list[str], list[LumosMessage]]:
    """Return the earlier messages, the texts of system messages, and the messages of the user to answer."""
    if isinstance(messages, str):
        return [], [], [LumosMessage(role="user", content=messages)]
    try:
        given = [
            message if isinstance(message, LumosMessage) else msgspec.convert(message, LumosMessage)
            for message in messages
        ]
    except msgspec.ValidationError as error:
        raise InvalidInput(f"a message cannot be read: {error}; it needs 'role' and 'content'") from error
    system = [message.content for message in given if parse_role(message.role) == "system"]
    spoken = [message for message in given if parse_role(message.role) != "system"]
    start = len(spoken)
    while start and parse_role(spoken[start - 1].role) == "user":
        start -= 1
    if start == len(spoken):
        raise InvalidInput("the last message must be one of the user; there is nothing to answer")
    return spoken[:start], system, spoken[start:]


class StreamingAgent:
    """An agent of a runtime whose answers are streams of Lumosai events.

    ``messages`` is a text, or a conversation that ends with a message of the user. The messages before it are the
    beginning of a new session and are stored in its metadata; a thread that exists keeps its own conversation, and only
    the messages at the end are added to it.
    """

    def __init__(self, runtime: Runtime, agent: Agent[Any, Any], config: StreamingConfig | None = None) -> None:
        self.runtime = runtime
        self.agent = agent
        self.config = config or StreamingConfig()

    async def execute_streaming(
        self, messages: MessagesLike, options: "GenerateOptions | Mapping[str, Any] | None" = None
    ) -> AsyncGenerator[LumosEvent]:
        """Run one turn and yield its events; a turn without an answer ends in ``Error`` and ``AgentStopped``.

        Raises ``InvalidInput`` for messages or options that cannot be used, and ``Suspended`` when only the decision of
        a person can continue the turn.
        """
        chosen = GenerateOptions.parse(options)
        earlier, system, prompt = _read_messages(messages)
        session = await self._open(chosen, earlier, system)
        mode = "function_calling" if self.agent.tools else "direct"
        encoder = LumosEncoder(self.config, routers=routers_of(self.agent), streaming_mode=mode)
        parts = tuple(Text(text=message.content) for message in prompt)
        turn = session.stream(parts, key=chosen.run_id, model=chosen.model, options=chosen.model_options)
        async with turn:
            async for event in turn:
                for number, lumos_event in enumerate(encoder.encode(event)):
                    if number and lumos_event.data.get("simulated"):
                        await self._wait_between_pieces()
                    yield lumos_event

    async def execute_with_callbacks(
        self,
        messages: MessagesLike,
        options: "GenerateOptions | Mapping[str, Any] | None" = None,
        *,
        on_step_finish: Callback | None = None,
        on_finish: Callback | None = None,
    ) -> dict[str, JSON]:
        """Run one turn and return its result with ``response``, ``steps``, ``usage`` and ``metadata``.

        ``on_step_finish`` is called with each step, ``on_finish`` with the result; both may be async. Raises
        ``TurnError`` for a turn without an answer.
        """
        result: dict[str, JSON] = {}
        async for event in self.execute_streaming(messages, options):
            if event.type == "StepComplete" and on_step_finish is not None:
                await _call(on_step_finish, event.data["step"])
            elif event.type == "GenerationComplete":
                result = event.data["result"]
            elif event.type == "Error":
                raise TurnError(event.data["error"], code=event.data["code"])
        if on_finish is not None:
            await _call(on_finish, result)
        return result

    async def generate_with_memory(
        self,
        messages: MessagesLike,
        thread_id: str,
        options: "GenerateOptions | Mapping[str, Any] | None" = None,
        *,
        memory: "ThreadOptions | None" = None,
    ) -> Response:
        """Run one turn in a thread that exists, as ``Threads.generate_with_memory`` does, and return its response.

        Unless ``memory`` is given, ``context_window`` of the options is the number of earlier messages that the model
        sees. A ``resource_id`` must name the owner of the thread. Raises ``InvalidInput`` for messages other than the
        user's new ones: the thread has the earlier messages.
        """
        chosen = GenerateOptions.parse(options)
        earlier, system, prompt = _read_messages(messages)
        if earlier or chosen.context:
            raise InvalidInput("give only the messages of the user to answer; the thread has those before them")
        limits = {"context_limit": chosen.context_window} if chosen.context_window is not None else None
        return await self.runtime.threads.generate_with_memory(
            chosen.apply_to(self.agent, system),
            thread_id,
            tuple(Text(text=each.content) for each in prompt),
            limits if memory is None else memory,
            resource_id=chosen.resource_id or None,
            key=chosen.run_id,
            model=chosen.model,
            options=chosen.model_options,
        )

    async def _open(self, options: GenerateOptions, earlier: list[LumosMessage], system: list[str]) -> Session[Any]:
        agent = options.apply_to(self.agent, system)
        metadata: dict[str, Any] = {"resource_id": options.resource_id} if options.resource_id else {}
        shown = [*options.context, *earlier]
        if options.context_window is not None:
            shown = shown[max(len(shown) - options.context_window, 0) :]
        if options.thread_id and await self.runtime.store.sessions.find(parse_session_id(options.thread_id)):
            return await self.runtime.open(agent, id=options.thread_id)
        if shown:
            metadata[EARLIER_KEY] = msgspec.to_builtins(shown)
        return await self.runtime.open(agent, id=options.thread_id, metadata=metadata)

    async def _wait_between_pieces(self) -> None:
        if self.config.text_delta_delay_ms:
            await self.runtime.env.clock.sleep(self.config.text_delta_delay_ms / 1000)


async def _call(callback: Callback, value: dict[str, Any]) -> None:
    returned = callback(value)
    if inspect.isawaitable(returned):
        await returned
