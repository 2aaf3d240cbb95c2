"""What an agent does next: a pure function of its progress in the turn. ``steps.py`` performs its answers.

The progress of an agent is what the log says of it, with the events that wait for the next write and with what was
checked in memory. A resumed turn reads it from the log and goes on with the same function.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias, final

import msgspec

from vaka.core.types.ending import Ending
from vaka.core.types.errors import Rejected
from vaka.core.types.event import Body
from vaka.core.types.limits import Limits
from vaka.core.types.progress import (
    AgentContinued,
    MessageCompleted,
    OutputRejected,
    StepCompleted,
    StepStarted,
    ToolCalled,
    ToolCompleted,
    ToolFailed,
    ToolStarted,
)
from vaka.core.types.state import OpenCall

Phase: TypeAlias = Literal["ready", "prepared", "asking", "answered", "finished", "done"]
PHASES: dict[Phase, str] = {
    "ready": "no step is open",
    "prepared": "before_step has run",
    "asking": "the step has begun",
    "answered": "the model has answered",
    "finished": "the step is over, its answer had no calls",
    "done": "the answer was checked",
}


class StepProgress(msgspec.Struct, frozen=True):
    """Where an agent is in its turn."""

    phase: Phase
    step: int = 0
    """The number of the last step that has begun."""
    calls: tuple[OpenCall, ...] = ()
    """The calls of the last answer that have no result."""
    has_called: bool = False
    """Whether the last answer had calls."""
    limit: str = ""
    """The name of a limit that was reached."""
    refused: str = ""
    """The tool that a person refused without a message: the person is to speak next."""
    is_loaded: bool = True
    """Whether this process has loaded the tools and the system prompt of the step: another one may have begun it."""
    events: Sequence[Body] = ()
    """The events of ``before_step``, to be written with ``step.started``."""


class Action(msgspec.Struct):
    """A part of a step. The loop raises if it leads to a phase that is not declared, or changes no progress."""

    leads_to: ClassVar[dict[Phase, str]] = {}
    """The phases after it, and what decides between them."""
    events: ClassVar[tuple[type[Body], ...]] = ()
    """The events that it writes or defers."""


class LoadStep(Action):
    """Load the tools and the system prompt of a step that another process has begun."""

    leads_to = {"asking": "", "answered": ""}


class PrepareStep(Action):
    """Load the tools and the system prompt, run ``before_step``, and look at the budgets."""

    leads_to = {"prepared": ""}


class BeginStep(Action):
    """Write the start of a step, with the inputs that join it."""

    leads_to = {"asking": ""}
    events = (StepStarted,)


class CallModel(Action):
    """Stream the answer of the model, and defer it with its calls."""

    leads_to = {"answered": ""}
    events = (MessageCompleted, ToolCalled)


class RunCalls(Action):
    """Run the calls of the answer, each to its result."""

    leads_to = {"answered": ""}
    events = (ToolStarted, ToolCompleted, ToolFailed)


class FinishStep(Action):
    """Run ``after_step`` if there were calls, and defer the end of the step."""

    leads_to = {"ready": "the answer had calls", "finished": "it had none"}
    events = (StepCompleted,)


class CheckAnswer(Action):
    """Look for waiting inputs, check the type of the output, and ask middleware."""

    leads_to = {"ready": "an input waits, or the answer is not accepted", "done": "it is accepted"}
    events = (OutputRejected, AgentContinued)


@final
class End(Action):
    """End the run of the agent. The loop adds the last text."""

    ending: Ending = Ending()


_LOAD_STEP = LoadStep()
_RUN_CALLS = RunCalls()
_FINISH_STEP = FinishStep()
_USUAL_ACTIONS: dict[Phase, Action] = {
    "ready": PrepareStep(),
    "prepared": BeginStep(),
    "asking": CallModel(),
    "answered": _FINISH_STEP,
    "finished": CheckAnswer(),
    "done": End(),
}


def next_action(progress: StepProgress, limits: Limits) -> Action:
    """Return what an agent does next."""
    match progress.phase:
        case "asking" | "answered" if not progress.is_loaded:
            return _LOAD_STEP
        case "answered":
            return _RUN_CALLS if progress.calls else _FINISH_STEP
        case "prepared" if limits.reached_steps(progress.step):
            return End(Ending(limit="steps"))
        case "ready" | "prepared" if progress.limit:
            return End(Ending(limit=progress.limit))
        case "ready" | "asking" if progress.refused:
            note = f"a person refused {progress.refused} and said nothing more"
            return End(Ending(kind="interrupted", code=Rejected.code, message=note))
        case phase:
            return _USUAL_ACTIONS[phase]
