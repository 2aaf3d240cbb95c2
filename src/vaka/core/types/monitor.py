"""Monitor events: what an operator watches."""

from typing import Literal, TypeAlias

from vaka.core.types.event import Custom, Monitor
from vaka.core.types.ids import JSON, CallId, Digest, MessageId
from vaka.core.types.message import Usage

__all__ = [
    "OPEN_OUTCOMES",
    "SCRIPT_END",
    "BudgetWarning",
    "BustCause",
    "CacheBusted",
    "Custom",
    "ErrorReported",
    "HookRan",
    "Logged",
    "McpChanged",
    "ModelFailed",
    "ModelSelected",
    "Notice",
    "ScriptAnswered",
    "ScriptCalled",
    "UsageRecorded",
]

SCRIPT_END = "end"
"""The name of the last ``script.answered`` of a script."""
OPEN_OUTCOMES = (None, "input", "closed")
"""The answers of the last ``script.answered`` of a script that accepts another input."""


class UsageRecorded(Monitor, tag="usage"):
    """What one model call cost."""

    model: str
    usage: Usage
    agent: str = ""
    call: CallId | None = None
    """The tool call that called the model; ``None`` for a step of the agent."""
    number: int = 0
    """The number of the model call among the calls of ``agent`` on the live branch; 0 for a step."""
    first_ms: int = 0
    """Milliseconds from the request to the first piece of the answer; 0 if it was not measured."""


class ModelSelected(Monitor, tag="model.selected"):
    """Which model answers, and why."""

    model: str
    tier: str = ""
    reason: str = ""


class ModelFailed(Monitor, tag="model.failed"):
    """One try at a model call failed; ``retried`` when the same step tries again."""

    model: str
    code: str
    message: str
    agent: str = ""
    message_id: MessageId | None = None
    retried: bool = False
    call: CallId | None = None
    """The tool call that called the model; ``None`` for a step of the agent."""
    number: int = 0
    """The number of the model call among the calls of ``agent`` on the live branch; 0 for a step."""


class HookRan(Monitor, tag="hook.ran"):
    """A shell hook has run."""

    event: str
    command: str
    status: int
    duration_ms: int = 0
    output: str = ""


class BudgetWarning(Monitor, tag="budget.warning"):
    """A budget is nearly used up."""

    budget: str
    used: float
    limit: float


BustCause: TypeAlias = Literal["", "model", "tools", "system", "compaction", "messages", "expired"]


class CacheBusted(Monitor, tag="cache.busted"):
    """A provider had cached the beginning of a conversation, and a model call did not read it from the cache."""

    part: str
    """The first part of the prompt that changed: ``model``, ``tools``, ``system`` or ``messages``; ``""`` for none."""
    tokens: int = 0
    """The tokens of the prompt that would have been read from the cache."""
    cause: BustCause = ""
    """The part, or ``compaction``, or ``expired``: the provider no longer had the prompt. Older logs have none."""
    added: tuple[str, ...] = ()
    """The names of the tools, or the model, that the prompt before did not have."""
    removed: tuple[str, ...] = ()
    """The names of the tools, or the model, that only the prompt before had."""
    changed: tuple[str, ...] = ()
    """The names of the tools with another description or other parameters."""
    cost: float = 0.0
    """The additional cost of these tokens without the cache, in US dollars; 0 if the price is not known."""
    idle: int = 0
    """Seconds since the call before."""
    agent: str = ""
    model: str = ""


class McpChanged(Monitor, tag="mcp.changed"):
    """An MCP server came, went, or changed its tools."""

    server: str
    change: str
    detail: JSON = None


class Logged(Monitor, tag="log"):
    """A line for the operator."""

    level: Literal["debug", "info", "warning", "error"]
    message: str
    detail: JSON = None


Notice: TypeAlias = ModelSelected | CacheBusted | Logged
"""The events a model may add to the log during a call."""


class ErrorReported(Monitor, tag="error"):
    """Something went wrong that did not end the turn."""

    code: str
    message: str
    phase: Literal["model", "tool", "system", "lifecycle"] = "system"


class ScriptCalled(Monitor, tag="script.called"):
    """A script asks for something whose beginning must be known: a tool's call, or a model's answer."""

    number: int
    name: str
    digest: Digest
    """The digest of the arguments."""
    call: CallId | None = None
    """The tool call made for the request."""
    model: int = 0
    """The number of the model call among the calls of its agent, on the live branch."""


class ScriptAnswered(Monitor, tag="script.answered"):
    """A script was told something: the answer to request ``number``, in the order it was told.

    Number 0 is its start: ``digest`` is then that of everything it is made of.
    """

    number: int
    name: str
    digest: Digest
    answer: JSON = None
    error: str = ""
    """The message of the error raised in the script instead of an answer."""
    call: CallId | None = None
    """The tool call whose result is the answer, which is then not repeated here."""
    blob: Digest | None = None
    """The answer, when it is large."""
    at: int = 0
    """The script's clock from here on, in milliseconds since 1970."""
