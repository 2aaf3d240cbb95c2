"""The agent port: a kind of agent that replaces the loop of model calls, and the services the runtime offers it.

An agent without a kind is the loop: model call, tool calls, model call. A router, a script, a graph, a team or a
realtime agent is a kind: ``AgentKind.bind`` returns its ``AgentBody``, which runs the turns of the agent instead of the
loop. Everything around the loop stays: middleware, limits, budgets, permissions, interrupts and the log.

What a body may rely on, and what is expected of it:

- **Opened**: ``bind`` is called when the recipe of the agent is built, not once per session. One body runs the turns of
  many sessions at the same time, so it holds nothing that belongs to a session; that is in the log.
- **A turn**: the body is called once with the turn and returns its ``Ending``. The input is in the log or deferred to
  the next write. Every event that the body writes has the scope of the turn. An exception other than ``Suspended`` and
  ``StoreError`` ends the turn as failed, ``TurnStopped`` as interrupted, cancelled or at a limit.
- **Resumed**: after a crash, or after a decision for which the turn was suspended, the body is called again with the
  same turn. It continues from the log: it repeats no model call and no tool call whose result is there. The
  ``ScriptJournal`` does this for numbered requests.
- **Forked and rewound**: both are operations on the log, and a body is not informed of them. It reads earlier turns
  from the events and state values of the turn's log, which has the events of the live branch only.
- **Nested**: as a child or as a tool of another agent the turn has a path, and several turns of one conversation have
  several paths. A state value of the conversation has the path of the child that began it in its key.
- **Interrupted**: the task of the body is not cancelled by itself. A body awaits tool calls and model calls through the
  turn, which end with its stop signal, and wraps what it awaits besides in ``turn.stop.cancellable()``.
- **Closed**: a session whose agent is of a kind gets one last turn with empty content. What the body wants to end, it
  ends there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from vaka.core.ports.files import Files
from vaka.core.ports.model import Embedder, Model
from vaka.core.ports.net import Network
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.ending import Ending
from vaka.core.types.ids import JSON
from vaka.core.types.message import Content
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec

if TYPE_CHECKING:
    from vaka.core.ports.transformer import TransformerFactory

ToolArgumentParser: TypeAlias = Callable[["str | dict[str, Any]"], "ParsedArguments | InvalidArguments"]
"""Parses the arguments of a tool call."""


class SharedService(Protocol):
    """Something that the agents and tools of one runtime share, such as an engine for scripts."""

    async def close(self) -> None:
        """Free what it holds; called once, when the runtime is closed."""
        ...


S = TypeVar("S", bound=SharedService)
T_contra = TypeVar("T_contra", contravariant=True)


class RunnableAgent(Tool, Protocol):
    """An agent as a tool: a model calls it with a ``prompt``, a body may run it with any content."""

    async def run(self, context: ToolContext, content: Content) -> Ending:
        """Run the agent as a child of the tool call of ``context``, and return how it ended.

        When the call runs again after a crash, the child resumes from the log; a completed one does not run again.
        """
        ...


class AgentServices(Protocol):
    """The services of the runtime for a kind of agent and for a tool, for one agent."""

    @property
    def network(self) -> Network:
        """The network under the rules of the runtime."""
        ...

    @property
    def values(self) -> KeyValueStore:
        """The key-value store of the runtime, which all sessions share; a key begins with a prefix of its owner."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables that scripts and definitions may read: these and no others."""
        ...

    @property
    def user(self) -> str:
        """The user of sessions whose metadata names none."""
        ...

    @property
    def builtin_transformers(self) -> "Mapping[str, TransformerFactory]":
        """The transformers of vaka by name."""
        ...

    @property
    def transformers(self) -> "Mapping[str, TransformerFactory]":
        """The transformers of the runtime's options by name; only trusted code may open them."""
        ...

    def find_model(self, name: str, /) -> Model:
        """Return a model by name; ``default`` is the agent's own. Raises a ``VakaError`` when there is none."""
        ...

    def find_embedder(self, name: str, /) -> Embedder:
        """Return an embedder by name: ``hashing``, ``minilm``, or ``provider/model``. Raises ``ConfigError``."""
        ...

    def find_agent(self, name: str, config: JSON = None, /) -> "RunnableAgent | None":
        """Return an agent as a tool that takes a ``prompt``: one of the agent's tools, or a new one from ``config``."""
        ...

    def make_agent(self, name: str, /, **options: Any) -> Any:
        """Return a new agent for ``submit``; for ``options`` see ``vaka.Agent``."""
        ...

    async def submit(self, agent: Any, session: str, prompt: str, /, *, key: str, owner: str = "") -> None:
        """Store an input of another session, whose turn then runs in the background; a new session is created.

        The same ``key`` again changes nothing. Raises ``Closed`` when the runtime is being closed.
        """
        ...

    def build_tool(self, tool: Any, /) -> Tool:
        """Return what an agent may have as a tool, such as a function, another agent or a name, as a tool to call.

        Raises ``InvalidInput`` for an unknown name.
        """
        ...

    def open_value_files(self, values: KeyValueStore, prefix: str, /) -> Files:
        """Return a tree of files that is stored in values whose keys begin with ``prefix``."""
        ...

    async def find_lines(
        self, files: Files, folder: str, pattern: str, limit: int, /
    ) -> Sequence[tuple[str, int, str]]:
        """Return path, number and text of the lines below a folder that match a regular expression, up to a limit.

        Raises ``InvalidInput`` for a pattern that is not valid, or takes too long.
        """
        ...

    def argument_parser(self, schema: dict[str, Any], /) -> ToolArgumentParser:
        """Return a parser of tool arguments for a JSON Schema."""
        ...

    def find_schema_problem(self, schema: JSON, value: JSON, /) -> str:
        """Return why a value does not fit a JSON Schema, ``""`` when it fits."""
        ...

    def share(self, make: Callable[[], S], /) -> S:
        """Return the object of this runtime that ``make`` creates: the first call creates it, later ones return it.

        ``make`` is the key, so it must be the same function or class each time. The runtime closes the object.
        """
        ...


class AgentBody(Protocol[T_contra]):
    """Runs a turn of an agent in place of the loop; the contract is at the top of this module."""

    async def __call__(self, turn: T_contra, /) -> Ending:
        """Run a turn, or continue a turn that has begun in the log, and return how it ended."""
        ...


@runtime_checkable
class AgentKind(Protocol[T_contra]):
    """An agent whose turns a body runs. ``T_contra`` is the turn of the loop (``core.loop.context.Turn``)."""

    @property
    def needs_model(self) -> bool:
        """Whether a turn cannot run without a model; building the agent fails then if the runtime has none."""
        ...

    def bind(self, services: AgentServices, /) -> AgentBody[T_contra]:
        """Return the body of the agent's turns."""
        ...


M_co = TypeVar("M_co", covariant=True)


@runtime_checkable
class NeedsServices(Protocol[M_co]):
    """A middleware that needs services of the runtime. ``M_co`` is the middleware of the loop."""

    def with_services(self, services: AgentServices, /) -> M_co:
        """Return the middleware for one agent of a runtime; the original may be part of agents of other runtimes."""
        ...


class BindableTool(Protocol):
    """A tool that needs services of the runtime before it can be called."""

    @property
    def spec(self) -> ToolSpec: ...

    def bind(self, services: AgentServices, /) -> Tool: ...
