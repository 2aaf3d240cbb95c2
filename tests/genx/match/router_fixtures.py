"""A router with two agents, and the log of a conversation as an outline: one line for each event."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

import vaka
from tests.runtime.runtime_fixtures import check_log, read_log, runtime
from vaka.core.types import progress
from vaka.core.types.control import SessionReverted, StateChanged
from vaka.core.types.event import Event
from vaka.core.types.message import text_of
from vaka.core.types.monitor import ScriptAnswered
from vaka.genx import MatchAgent, QuitTools, Route
from vaka.genx.match.offline import OfflineMatcher
from vaka.genx.match.router_state import RouterState
from vaka.genx.match.rules import parse_rule
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel

AGENTS = ("booking", "player", "chat", "desk", "counter", "one", "two", "office", "clerk", "singer")
"""The agents of routes; a router calls them, which the start of the agent shows as well."""
RULES: list[dict[str, Any]] = [
    {"name": "book", "vars": {"city": {"label": "city"}}, "patterns": ["book a room in [city]"]},
    {"name": "music", "patterns": ["play music"]},
    {"name": "lost", "patterns": ["this rule has no route"]},
]


@vaka.tool(effect="read")
async def done() -> str:
    """End the conversation."""
    return "ok"


def booking() -> vaka.Agent:
    return vaka.Agent("booking", tools=[done], middleware=[QuitTools("done")])


def router(*, default: vaka.Agent | None = None, name: str = "front", **more: Any) -> MatchAgent:
    routes = [Route(["book"], booking()), Route(["music"], vaka.Agent("player"))]
    return MatchAgent(name, rules=RULES, routes=routes, default=default, **more)


def _active_agent(body: StateChanged) -> str:
    if not body.key.endswith("$router"):
        return ""
    state = body.value and msgspec.convert(body.value, RouterState)
    return f"active {state.current.agent_name}" if state else "idle"


def _after(earlier: str) -> str:
    return f"after {earlier} " if earlier else ""


_LINES: dict[type, Callable[[Any], str]] = {
    progress.TurnStarted: lambda body: "turn",
    progress.TurnResumed: lambda body: "resumed",
    ScriptAnswered: lambda body: f"match {[rule for rule, _ in body.answer]}" if body.name == "match" else "",
    progress.SubagentStarted: lambda body: (
        f"{body.agent} {body.child} {_after(body.after)}<- {text_of(body.content)!r}"
    ),
    progress.MessageCompleted: lambda body: text_of(body.content) and f"says {text_of(body.content)}",
    progress.ToolStarted: lambda body: f"calls {body.call.name}",
    progress.SubagentCompleted: lambda body: f"end of {body.child}{body.reason and f' ({body.reason})'}",
    StateChanged: _active_agent,
    SessionReverted: lambda body: "rewound",
    progress.TurnCompleted: lambda body: f"completed {body.text!r}{body.limit and f' at {body.limit}'}",
    progress.TurnFailed: lambda body: f"failed {body.code}: {body.message}",
    progress.TurnInterrupted: lambda body: f"interrupted {body.text!r}",
}


def outline(events: Iterable[Event], agents: Collection[str] = AGENTS) -> list[str]:
    """Return what a router and its agents write to a log, each event as one line with its path."""
    lines: list[str] = []
    for event in events:
        body = event.data
        line = _LINES.get(type(body), lambda body: "")(body)
        if line and not (isinstance(body, progress.ToolStarted) and body.call.name in agents):
            lines.append(f"{'/'.join(event.path) or '-'} {line}")
    return lines


async def run_conversation(who: vaka.Agent, model: ScriptedModel | None, *inputs: str) -> list[str]:
    """Run a conversation and return the outline of its log."""
    store = MemoryStore()
    async with runtime(store, **({"model": model} if model else {})) as rt:
        session = await rt.open(who, id="s")
        for text in inputs:
            await session.run(text)
    log = await read_log(store, "s")
    check_log(log)
    return outline(log)


def offline() -> OfflineMatcher:
    return OfflineMatcher([parse_rule(rule) for rule in RULES])
