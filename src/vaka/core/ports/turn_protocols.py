"""What middleware may do for a turn besides its eight points: four protocols, whose methods are all optional.

``ResultLimit`` and ``AnswerObserver`` are for the builder of an agent: every agent has one of each at most.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from vaka.core.ports.model import Prompt
from vaka.core.ports.tool import Tool
from vaka.core.types.context import CompactionRequest, ContextCompacted
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import ToolResult
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import MessageCompleted
from vaka.core.types.tool import Allow, Deny

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Turn_contra = TypeVar("Turn_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar

    Turn_contra = TypeVar("Turn_contra", contravariant=True)

Point: TypeAlias = Literal[
    "before_agent",
    "after_agent",
    "before_step",
    "after_step",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
]
ProtocolMethod: TypeAlias = Literal[
    "tools",
    "tools_for_step",
    "prompt_for_step",
    "opening_text",
    "shorten_context",
    "before_compaction",
    "after_compaction",
    "check_answer",
    "decide_approval",
]
Method: TypeAlias = Point | ProtocolMethod
POINTS: tuple[Point, ...] = get_args(Point)
METHODS: tuple[Method, ...] = (*POINTS, *get_args(ProtocolMethod))


def unknown_method(middleware: str, name: str) -> InvalidInput:
    """Return the error for a public coroutine method that no turn would call."""
    near = find_near_names(name, METHODS)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(METHODS)}."
    return InvalidInput(
        f"middleware {middleware!r}: no such point {name!r}; {hint} Begin the name of a helper with an underscore, or "
        "declare it in another base class"
    )


class ToolSource(Protocol[Turn_contra]):
    """Adds tools and text to the model calls of an agent, besides its own. A middleware may have any of the methods."""

    def tools(self) -> Sequence[Tool]:
        """Return tools that the agent always has."""
        return ()

    async def tools_for_step(self, turn: Turn_contra) -> Sequence[Tool]:
        """Return tools that the agent has from its next model call on; the same ones if none changed.

        Of two tools with one name, the agent's own wins, then the first.
        """
        return ()

    async def prompt_for_step(self, turn: Turn_contra) -> str:
        """Return a text that follows the instructions in the system prompt of the next model call."""
        return ""

    async def opening_text(self, turn: Turn_contra) -> str:
        """Return a text that precedes the instructions in the system prompt. Called once, at the start of a turn."""
        return ""


class ContextPolicy(Protocol[Turn_contra]):
    """Keeps the context of an agent within the window of its model, or observes compactions of the context.

    A policy informs the observers before a compaction, who may add instructions or refuse it, and after it.
    """

    async def shorten_context(self, turn: Turn_contra, *, refused: bool = False) -> Sequence[Body]:
        """Return the events that shorten the context before the next step; they are written with ``step.started``.

        ``refused``: the provider has refused the prompt for its length. If there are events, it is asked again, once.
        """
        return ()

    async def before_compaction(self, turn: Turn_contra, request: CompactionRequest) -> CompactionRequest:
        """See and change the request to compact the context: its instructions, or ``skip`` with a reason."""
        return request

    async def after_compaction(self, turn: Turn_contra, event: ContextCompacted) -> None:
        """See a compaction, before it is written."""
        return None  # noqa: RET501  # without a statement, type checkers take the method for an abstract one


class Continuation(Protocol[Turn_contra]):
    """Decides whether an agent that has given its final answer goes on."""

    async def check_answer(self, turn: Turn_contra, text: str) -> str:
        """See the final answer; the model reads a returned text and goes on, ``Limits.max_continuations`` times."""
        return ""


class Approver(Protocol[Turn_contra]):
    """Decides about calls instead of a person."""

    async def decide_approval(self, turn: Turn_contra, request: ApprovalRequested) -> Allow | Deny | None:
        """Decide about a call that a person would be asked about, or return ``None`` to have the person asked."""
        return None


class ResultLimit(Protocol[Turn_contra]):
    """Shows results that are too long for the model in part, and gives the agent a tool to read the rest."""

    def has_cut_texts(self, turn: Turn_contra) -> bool:
        """Whether the log says that a text of the conversation is shown in part."""
        ...

    def reading_tools(self, turn: Turn_contra) -> Sequence[Tool]:
        """Return the tools that are added once a text of the conversation is shown in part."""
        ...

    async def limit_result(self, turn: Turn_contra, tool: str, result: ToolResult) -> ToolResult:
        """Return the result of a call as the model gets it."""
        ...


class AnswerObserver(Protocol[Turn_contra]):
    """Sees each answer of the model with its prompt and its usage, and may defer events about them."""

    async def observe(
        self, turn: Turn_contra, sent: Prompt, answer: MessageCompleted, used: UsageRecorded, miss_price: float
    ) -> None:
        """See an answer whose events are deferred: the folded state is the state after the previous model call.

        ``miss_price`` is the price of a token that was not read from the cache of the provider.
        """
        ...
