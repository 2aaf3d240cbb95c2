"""Draw the states of an agent and of a tool call into docs/design.md: ``python -m scripts.loop_pictures``.

Both pictures follow from the code: the first from ``next_action``, asked about every progress, and from what the
actions declare; the second from the signatures of the methods of ``CallBatch``, and from ``state_in_log``.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from msgspec import structs

from vaka.core.loop.actions import PHASES, Action, End, LoadStep, Phase, StepProgress, next_action
from vaka.core.loop.calls import (
    Asked,
    CallBatch,
    Done,
    Lost,
    OpenState,
    Permitted,
    Requested,
    Returned,
    Started,
    state_in_log,
)
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.event import Body
from vaka.core.types.ids import MessageId
from vaka.core.types.limits import Limits
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.state import OpenCall, call_id

PAGE = Path(__file__).resolve().parents[1] / "docs" / "design.md"
BOX = 12
"""The inner width of a box."""
TAGS = {body: name for name, body in BODY_TYPES.items()}
_CALL = OpenCall(call=ToolCall(id=call_id((), 1), name="tool"), path=(), message=MessageId("m"), step=1, number=1)
_CASES: dict[str, Callable[[StepProgress], StepProgress]] = {
    "": lambda progress: progress,
    "the last step is used": lambda progress: structs.replace(progress, step=2),
    "a limit is reached": lambda progress: structs.replace(progress, limit="tokens"),
    "a person refused a call": lambda progress: structs.replace(progress, refused="tool"),
    "calls have no result": lambda progress: structs.replace(progress, calls=(_CALL,)),
    "another process began the step": lambda progress: structs.replace(progress, is_loaded=False),
}
"""What a progress may have besides its phase."""


class Edge(NamedTuple):
    """A way out of a state."""

    source: str
    target: str
    by: str
    """The action or method that takes it."""
    reason: str = ""
    events: Sequence[type[Body]] = ()


def format_events(events: Sequence[type[Body]]) -> str:
    """Return the names of events in brackets."""
    return f"  [{', '.join(TAGS[body] for body in events)}]" if events else ""


def find_agent_edges() -> Iterator[Edge]:
    """Ask ``next_action`` about each phase in each case, and yield the ways that its answers take."""
    for phase in PHASES:
        usual: Action | None = None
        for case, change in _CASES.items():
            action = next_action(change(StepProgress(phase, 1)), Limits(max_steps=2))
            if usual is None or action != usual:
                yield from _edges_of(phase, action, case)
            usual = usual or action


def _edges_of(phase: Phase, action: Action, case: str) -> Iterator[Edge]:
    if isinstance(action, End):
        yield Edge(phase, "end", "", case)
    text = _first_line(action)
    for target, condition in action.leads_to.items():
        if target == phase or not isinstance(action, LoadStep):  # it is for two phases, and changes neither
            yield Edge(phase, target, f"{type(action).__name__}: {text}", condition or case, action.events)


def find_call_edges() -> Iterator[Edge]:
    """Yield the ways between the states of a call: a method takes one state and returns another one."""
    for name, method in inspect.getmembers(CallBatch, inspect.isfunction):
        hints = get_type_hints(method)
        source = hints.get("state")
        if name[0] != "_" and inspect.isclass(source) and issubclass(source, OpenState):
            text = _first_line(method).partition(": ")[2]
            for target in get_args(hints["return"]) or (hints["return"],):
                yield Edge(source.__name__, target.__name__, f"{name}: {text}", "", target.events)


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "")


def find_resumed_states() -> Iterator[str]:
    """Yield a line for each state that the log may have of a call when a turn is resumed."""
    found: dict[str, list[str]] = {}
    for effect in ("read", "idempotent", "resume", "once"):
        for phase in ("called", "started", "returned"):
            result = ToolResult(call=_CALL.call.id) if phase == "returned" else None
            open_call = structs.replace(_CALL, phase=phase, effect=effect, result=result)
            state = type(state_in_log(open_call, None)).__name__
            found.setdefault(f"tool.{phase}", []).append(f"{effect} ▶ {state}")
    for event, states in found.items():
        targets = {line.split(" ▶ ")[1] for line in states}
        if len(targets) == 1:
            yield f"{event:14} ──▶ {targets.pop()}"
        else:
            for target in sorted(targets):
                effects = ", ".join(line.split(" ▶ ")[0] for line in states if line.endswith(target))
                yield f"{event:14} ──▶ {target}  (effect {effects})"


def draw(states: Sequence[tuple[str, str]], edges: Iterable[Edge], last: str) -> Iterator[str]:
    """Yield the lines of a picture: each state as a box with its ways out; the way to the next box goes down."""
    known = list(edges)
    names = [name for name, _ in states]
    for index, (name, text) in enumerate(states):
        following = names[index + 1] if index + 1 < len(names) else last
        out = [edge for edge in known if edge.source == name]
        down = next((edge for edge in out if edge.target == following), None)
        yield f"┌{'─' * BOX}┐"
        yield f"│{name:^{BOX}}│  {text}"
        yield f"└{'──┬' if out else '───'}{'─' * (BOX - 3)}┘"
        groups = dict.fromkeys(edge.by for edge in out if down is None or edge.by != down.by)
        for by in [*groups, down.by] if down is not None else groups:
            yield from _draw_group([edge for edge in out if edge.by == by], down)
        if down is not None:
            is_shared = all(tuple(edge.events) == tuple(down.events) for edge in out if edge.by == down.by)
            yield f"   ▼  {down.reason}{'' if is_shared else format_events(down.events)}".rstrip()


def _draw_group(edges: Sequence[Edge], down: Edge | None) -> Iterator[str]:
    """Yield the lines of one action: what it does and writes, and where it leads besides the next box."""
    is_shared = len({tuple(edge.events) for edge in edges}) == 1
    if edges[0].by:
        yield f"   │  {edges[0].by}{format_events(edges[0].events) if is_shared else ''}"
    for edge in edges:
        written = "" if is_shared else format_events(edge.events)
        if edge is not down:
            yield f"   ├─{f' {edge.reason} ─' if edge.reason else '─'}▶ {edge.target}{written}"


def draw_agent() -> str:
    """Return the picture of the states of an agent."""
    return "\n".join([*draw(list(PHASES.items()), find_agent_edges(), "end"), "  end"])


def draw_call() -> str:
    """Return the picture of the states of a call."""
    kinds: list[type[Any]] = [Requested, Asked, Permitted, Started, Returned, Done]
    edges = list(find_call_edges())
    states = [(kind.__name__, _first_line(kind)) for kind in kinds]
    lost = draw([(Lost.__name__, _first_line(Lost))], edges, "")
    found = ["", "When a turn is resumed, the last event of a call in the log says in which state it goes on:", ""]
    return "\n".join([*draw(states, edges, ""), "", *lost, *found, *find_resumed_states()])


PICTURES: dict[str, Callable[[], str]] = {"agent": draw_agent, "call": draw_call}


def insert_pictures(page: str, pictures: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with the pictures at their marks."""
    for name, make in pictures.items():
        head = f"<!-- picture: {name} -->\n```text\n"
        before, mark, rest = page.partition(head)
        _, end, after = rest.partition("\n```\n")
        if not mark or not end:
            raise SystemExit(f"{PAGE.name} must have a mark for the picture {name!r}")
        page = f"{before}{head}{make()}{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(insert_pictures(PAGE.read_text("utf-8"), PICTURES), "utf-8")
