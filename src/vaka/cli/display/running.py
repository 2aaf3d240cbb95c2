"""The running parts of a session: tool calls without a result, and child agents with their activity."""

from collections import deque
from collections.abc import Callable

from vaka.cli.display.plain_renderer import format_seconds
from vaka.cli.kit.render import as_printable, shorten
from vaka.cli.strings import translate
from vaka.core.types import control, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import ToolCall

MAX_OUTPUT_LINES = 5
"""Lines of the output of a running command that are shown."""
MAX_OUTPUT_LENGTH = 1000
"""Characters of one line of it."""
MAX_AGENT_LINES = 8
"""Child agents that are shown."""


class RunningCall:
    """A tool call without a result."""

    def __init__(self, call: ToolCall, path: tuple[str, ...], now: float) -> None:
        self.call = call
        self.path = path
        self.since = now
        self.started = False
        self.output: deque[str] = deque(maxlen=MAX_OUTPUT_LINES)
        self._lengths: dict[int, int] = {}
        self._partial = ""

    def add_output(self, body: progress.ToolOutputDelta | progress.MessageSnapshot) -> None:
        """Add printed text; a part that was added before is ignored."""
        length = self._lengths.get(body.block, 0)
        new = body.text[max(length - body.offset, 0) :]
        self._lengths[body.block] = max(length, body.offset + len(body.text))
        *lines, partial = (self._partial + new).split("\n")
        self.output.extend(_last_overprint(line) for line in lines[-10 * MAX_OUTPUT_LINES :] if line.strip())
        self._partial = _last_overprint(partial)

    def tail(self) -> list[str]:
        """Return the last lines of the output, the unfinished one included."""
        lines = [*self.output, *([self._partial] if self._partial.strip() else [])]
        return lines[-MAX_OUTPUT_LINES:]


def _last_overprint(line: str) -> str:
    """Return what a terminal would show of a line that is printed over itself, such as a progress bar, in part."""
    return line[-MAX_OUTPUT_LENGTH:].rstrip("\r").rpartition("\r")[2]


class RunningAgent:
    """A child agent that has not ended."""

    def __init__(self, name: str, now: float) -> None:
        self.name, self.since = name, now
        self.activity = "thinking"


class RunningAgents:
    """The child agents that are running, by their paths; each event of a child changes what it does."""

    def __init__(self, clock: Callable[[], float], summarize: Callable[[ToolCall], str]) -> None:
        """``summarize`` returns a call in one line."""
        self._clock, self._summarize = clock, summarize
        self._agents: dict[AgentPath, RunningAgent] = {}

    def __len__(self) -> int:
        return len(self._agents)

    def take(self, event: Event) -> None:
        body = event.data
        if isinstance(body, progress.SubagentStarted):
            self._agents[*event.path, body.child] = RunningAgent(body.agent, self._clock())
        elif isinstance(body, progress.SubagentCompleted):
            self._agents.pop((*event.path, body.child), None)
        elif event.path and (agent := self._agents.get(event.path)) is not None:
            agent.activity = self._activity_of(body) or agent.activity

    def _activity_of(self, body: Body) -> str:
        """Return what an agent does from this event on, ``""`` for the same as before."""
        if isinstance(body, progress.ToolStarted):
            return f"{as_printable(body.call.name, lines=False)} {shorten(self._summarize(body.call), 60)}"
        return _ACTIVITIES.get(type(body), "")

    def clear(self) -> None:
        self._agents.clear()

    def lines(self) -> list[str]:
        """Return a line for each agent, below the line of its parent."""
        shown = sorted(self._agents.items())
        lines = [
            f"{'  ' * len(path)}⇒ {as_printable(agent.name, lines=False)}: {agent.activity} · "
            f"{format_seconds(self._clock() - agent.since)}"
            for path, agent in shown[:MAX_AGENT_LINES]
        ]
        more = len(shown) - MAX_AGENT_LINES
        return [*lines, "  " + translate("… {count} more agents", count=more)] if more > 0 else lines


_ACTIVITIES: dict[type[Body], str] = {
    progress.StepStarted: "thinking",
    progress.ReasoningDelta: "reasoning",
    progress.TextDelta: "answering",
    progress.ToolCompleted: "thinking",
    progress.ToolFailed: "thinking",
    control.ApprovalRequested: "waiting for an answer",
    control.QuestionAsked: "waiting for an answer",
}
