"""``Agent``: a model, instructions, tools and limits. Plain data; it runs only inside a runtime."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeGuard, overload

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.prompt import build_messages
from vaka.core.ports.agent import AgentKind, BindableTool
from vaka.core.ports.model import Model
from vaka.core.ports.tool import Tool
from vaka.core.types.context import Compaction
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.keywords import fold_signatures, suggest_keywords
from vaka.core.types.limits import Limits
from vaka.core.types.message import Message
from vaka.core.types.tool import ToolChoice
from vaka.core.types.type_parameters import AgentOut_co, DefaultParameters, Deps, Deps_contra

if TYPE_CHECKING:
    from types import UnionType
    from typing import _SpecialForm  # pyright: ignore[reportPrivateUsage]  # the type that mypy gives to ``Literal``

    from typing_extensions import TypeForm

    UncheckedType: TypeAlias = Mapping[str, Any] | UnionType | _SpecialForm
    """An ``output`` whose class type checkers cannot tell: a JSON Schema, and for mypy ``Literal`` and the like."""


class Function(Protocol):
    """A function or method. Not a tool made of one: that has a type for its dependencies, which is compared."""

    @property
    def __code__(self) -> CodeType: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


InstructionsLike: TypeAlias = str | Callable[[Turn[Deps]], str | Awaitable[str]]
"""A system prompt, or a function (sync or async) that returns it for a turn."""

_DEFAULT_LIMITS = Limits()


class AgentOrigin(Protocol):
    """Where an agent comes from that was not made in code, such as a file with its definition."""

    def current_agent(self, agent: "Agent[Any, Any]", /) -> "Agent[Any, Any]":
        """Return ``agent`` as its origin defines it now, with what was changed in this copy of it."""
        ...

    def find_agent(self, name: str, /) -> "Agent[Any, Any] | None":
        """Return another agent of the same origin."""
        ...

    def own_files(self) -> Sequence[str]:
        """Return the files that define it, by their real paths; commands of the agent may not change them."""
        ...


@fold_signatures
class Agent(DefaultParameters, Generic[Deps_contra, AgentOut_co]):
    """The definition of an agent: a model, instructions, tools and limits.

    It is cheap to make, and many sessions may share it::

        agent = vaka.Agent("assistant", model="local", tools=["WebSearch"])
        response = await vaka.run(agent, "Is it raining in Hilo?")

    For type checkers, ``Agent[Deps, Out]`` has the class of its ``deps`` and
    the class of ``Response.output``, which is ``None`` for an agent without
    ``output``.
    """

    __slots__ = {  # help shows these texts
        "compaction": "When the context is compacted; ``None``: as the runtime does.",
        "description": "What the agent does, for an agent that has this one as a tool.",
        "instructions": "The system prompt, or a function of the turn that returns it.",
        "limits": "Bounds of one turn: steps, tokens, cost, time.",
        "middleware": "Behaviour around the turn, in order.",
        "model": "A model, or the name of one; ``None``: the model of the runtime.",
        "name": "The name in events, logs and approvals.",
        "options": "Options of the model, such as ``temperature``.",
        "origin": "Where the agent was loaded from; ``None``: it was made in code.",
        "output": "The type or JSON Schema of the answer; ``None``: a text.",
        "tool_choice": "``auto``, ``none``, ``required`` or the name of the tool to call first.",
        "tools": "Tools, functions, other agents, or names of built-in tools.",
    }

    @overload
    def __init__(
        self,
        name: str,
        *,
        model: "Model | str | None" = None,
        instructions: "InstructionsLike[Deps_contra]" = "",
        tools: Sequence["ToolLike[Deps_contra]"] = ...,
        middleware: Sequence[Middleware[Deps_contra]] = ...,
        limits: Limits | None = None,
        description: str = "",
        tool_choice: ToolChoice = "auto",
        options: Mapping[str, Any] | None = None,
        output: "TypeForm[AgentOut_co] | None" = None,
        compaction: "Compaction | bool | None" = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any, Any]",
        name: str,
        *,
        model: "Model | str | None" = None,
        instructions: "InstructionsLike[Any]" = "",
        tools: Sequence["ToolLike[Any]"] = ...,
        middleware: Sequence[Middleware[Any]] = ...,
        limits: Limits | None = None,
        description: str = "",
        tool_choice: ToolChoice = "auto",
        options: Mapping[str, Any] | None = None,
        output: "UncheckedType",
        compaction: "Compaction | bool | None" = None,
    ) -> None: ...

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every option
        self,
        name: str,
        *,
        model: "Model | str | None" = None,
        instructions: "InstructionsLike[Any]" = "",
        tools: "Sequence[ToolLike[Any]]" = (),
        middleware: Sequence[Middleware[Any]] = (),
        limits: Limits | None = None,
        description: str = "",
        tool_choice: ToolChoice = "auto",
        options: Mapping[str, Any] | None = None,
        output: Any = None,
        compaction: "Compaction | bool | None" = None,
    ) -> None:
        """Define an agent.

        Args:
            name: The name in events, logs and approvals.
            model: A model, or the name of one such as
                ``anthropic/claude-sonnet-5-5``; default: the runtime's model.
            instructions: The system prompt, or a function of the turn
                (``turn.deps``, ``turn.metadata``, ``turn.session``) that
                returns it, sync or async; it is called once at the start of
                each turn.
            tools: Tools, typed functions with a docstring, other agents, or
                names of built-in tools.
            middleware: Behaviour around the turn, in order.
            limits: Bounds of one turn: steps, tokens, cost, time.
            description: What the agent does, for an agent that has this one as
                a tool.
            tool_choice: ``auto``, ``none``, ``required`` or the name of the
                tool that must be called first.
            options: Options of the model, such as ``temperature``.
            output: The type or JSON Schema of the answer; the value is then
                ``Response.output``.
            compaction: When the context is compacted and what is kept;
                ``False``: never by itself; default: as the runtime does.

        Raises:
            TypeError: An argument is unknown or of the wrong kind.
        """
        self.name = _require(name, str, "name", "a str")
        self.model, self.instructions = model, instructions
        if not isinstance(instructions, str) and not callable(instructions):
            raise _wrong_kind("instructions", "a str or a function of the turn", instructions)
        if model is not None and not isinstance(model, str) and not hasattr(model, "stream"):
            raise _wrong_kind("model", "a model, the name of one, or None", model)
        self.tools: tuple[ToolLike[Any], ...] = tuple([_check_tool(tool) for tool in _items(tools, "tools")])
        self.middleware: tuple[Middleware[Any], ...] = tuple(
            [_require(each, Middleware, "middleware", "Middleware") for each in _items(middleware, "middleware")]
        )
        self.limits = _DEFAULT_LIMITS if limits is None else _require(limits, Limits, "limits", "Limits")
        self.description = _require(description, str, "description", "a str")
        self.tool_choice: ToolChoice = _require(tool_choice, str, "tool_choice", "a str")
        self.options: Mapping[str, Any] = {} if options is None else _require(options, Mapping, "options", "a mapping")
        self.output = output
        self.compaction = Compaction(enabled=compaction) if isinstance(compaction, bool) else compaction
        if self.compaction is not None:
            _require(self.compaction, Compaction, "compaction", "a Compaction or a bool")
        self.origin: AgentOrigin | None = None

    def use(self, *middleware: Middleware[Deps_contra]) -> None:
        """Add middleware. Turns that have begun keep what they had."""
        self.middleware = (*self.middleware, *middleware)

    def build_messages(self, events: Iterable[Event], path: AgentPath) -> tuple[Message, ...]:
        """Return the conversation of the agent.

        ``events`` are the events of its path in a log.
        """
        return build_messages(events, path)

    def as_tool(self, *, name: str = "", description: str = "") -> "AgentTool[Deps_contra]":
        """Return this agent as a tool for another one."""
        return AgentTool(self, name or self.name, description or self.description)

    def __repr__(self) -> str:
        """Return the name of the agent."""
        return f"Agent({self.name!r})"


class AgentTool(msgspec.Struct, Generic[Deps_contra], frozen=True):
    """An agent under the name and description by which another agent calls it."""

    agent: Agent[Deps_contra, Any]
    name: str
    description: str


ToolLike: TypeAlias = Tool[Deps] | BindableTool | Agent[Deps, Any] | AgentTool[Deps] | Function | partial[Any] | str
"""A value that can be given as a tool: a tool, a script, a typed function with a docstring, another agent, or the name
of a built-in tool such as ``"Read"``."""


def is_agent(value: object) -> TypeGuard[Agent[Any, Any]]:
    """Return whether a value is an agent."""
    return isinstance(value, Agent)


def is_agent_tool(value: object) -> TypeGuard[AgentTool[Any]]:
    """Return whether a value is an agent as a tool."""
    return isinstance(value, AgentTool)


def tool_name_of(tool: "ToolLike[Any]") -> str:
    """Return the name of a tool without building it."""
    if isinstance(tool, str):
        return tool
    spec = getattr(tool, "spec", None)
    name: object = spec.name if spec is not None else getattr(tool, "name", "") or getattr(tool, "__name__", "")
    return str(name)


def _require(value: Any, kind: Any, name: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong_kind(name, expected, value)
    return value


def _items(values: Any, name: str) -> Any:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise _wrong_kind(name, "a sequence", values)
    return values


def require_child(agent: Agent[Any, Any], model: "Model | str | None") -> None:
    """Raise ``ConfigError`` if the model of a child agent cannot answer it, as a script without lines for it."""
    check = getattr(model, "require_child", None)
    if check is not None and not isinstance(agent, AgentKind):
        check(agent.name)


def _check_tool(tool: Any) -> "ToolLike[Any]":
    child = tool.agent if is_agent_tool(tool) else tool
    if is_agent(child):
        require_child(child, child.model)
    if isinstance(tool, str | Agent | AgentTool) or callable(tool) or hasattr(tool, "spec"):
        return tool  # type: ignore[no-any-return]  # one of the kinds of ToolLike
    expected = "a tool, a function with a docstring, an Agent, or the name of a built-in tool"
    raise _wrong_kind("tools", f"a sequence whose items are each {expected}", tool)


def _wrong_kind(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {expected}, not {type(value).__name__}: {repr(value)[:80]}")
