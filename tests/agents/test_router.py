"""Routers: each conversation is compared by its whole sequence of events."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

import vaka
from tests.runtime.runtime_fixtures import check_log, read_log, runtime
from vaka.agents.match.router_state import RouterState
from vaka.core.types import progress
from vaka.core.types.control import StateChanged
from vaka.core.types.event import Event
from vaka.core.types.message import ToolMessage, text_of
from vaka.core.types.monitor import ScriptAnswered
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

AGENTS = ("booking", "player", "chat", "desk", "counter")
"""The agents of routes; a router calls them, which the start of the agent shows as well."""
RULES: list[dict[str, Any]] = [
    {"name": "book", "vars": {"city": {"label": "city"}}, "patterns": ["book a room in [city]"]},
    {"name": "music", "patterns": ["play music"]},
    {"name": "lost", "patterns": ["this rule has no route"]},
]


@vaka.tool
async def done() -> str:
    """End the conversation."""
    return "ok"


def booking(**more: Any) -> vaka.Agent:
    return vaka.Agent("booking", tools=[done], middleware=[vaka.QuitTools("done")], **more)


def router(*, default: vaka.Agent | None = None, name: str = "front", **more: Any) -> vaka.MatchAgent:
    routes = [vaka.Route(["book"], booking()), vaka.Route(["music"], vaka.Agent("player"))]
    return vaka.MatchAgent(name, rules=RULES, routes=routes, default=default, **more)


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


async def test_a_match_starts_an_agent_that_stays_until_another_rule_matches() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("book: city=Hilo"), say("what is this"), say("book"), say("music"), say("")],
            "booking": [say("Which day?"), say("Which bed?"), say("Again?")],
            "player": [say("Playing."), say("Louder.")],
        }
    )
    inputs = ["Book a room in Hilo.", "Monday.", "Book it!", "Play music.", "Louder!"]
    assert await run_conversation(router(), model, *inputs) == [
        "- turn",
        "- match ['book']",
        """- booking agent-1 <- 'Book a room in Hilo.\\n{"city":"Hilo"}'""",
        "agent-1 says Which day?",
        "- end of agent-1",
        "- active booking",
        "- completed 'Which day?'",
        "- turn",
        "- match []",
        "- booking agent-2 after agent-1 <- 'Monday.'",
        "agent-2 says Which bed?",
        "- end of agent-2",
        "- active booking",
        "- completed 'Which bed?'",
        "- turn",
        "- match ['book']",
        "- booking agent-3 after agent-2 <- 'Book it!'",
        "agent-3 says Again?",
        "- end of agent-3",
        "- active booking",
        "- completed 'Again?'",
        "- turn",
        "- match ['music']",
        "- player agent-4 <- 'Play music.'",
        "agent-4 says Playing.",
        "- end of agent-4",
        "- active player",
        "- completed 'Playing.'",
        "- turn",
        "- match []",
        "- player agent-5 after agent-4 <- 'Louder!'",
        "agent-5 says Louder.",
        "- end of agent-5",
        "- active player",
        "- completed 'Louder.'",
    ]
    last = [prompt for prompt in model.prompts if prompt.agent == "booking"][-1]
    assert [text_of(message.content) for message in last.messages if not isinstance(message, ToolMessage)] == [
        'Book a room in Hilo.\n{"city":"Hilo"}', "Which day?", "Monday.", "Which bed?", "Book it!"
    ]  # fmt: skip


async def test_several_intents_run_in_order_each_after_the_one_before_has_finished() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("book: city=Hilo\nmusic\nlost\nno rule"), say("nothing")],
            "booking": [say("Which day?"), call("done"), say("Booked.")],
            "player": [call("done"), say("Played.")],
        }
    )
    player = vaka.Agent("player", tools=[done], middleware=[vaka.QuitTools("done")])
    routes = [vaka.Route(["book"], booking()), vaka.Route(["music"], player)]
    who = vaka.MatchAgent("front", rules=RULES, routes=routes, model=model)
    assert await run_conversation(who, model, "Book a room in Hilo and play music.", "Monday.") == [
        "- turn",
        "- match ['book', 'music', 'lost']",
        """- booking agent-1 <- 'Book a room in Hilo and play music.\\n{"city":"Hilo"}'""",
        "agent-1 says Which day?",
        "- end of agent-1",
        "- active booking",
        "- completed 'Which day?'",
        "- turn",
        "- match []",
        "- booking agent-2 after agent-1 <- 'Monday.'",
        "agent-2 calls done",
        "agent-2 says Booked.",
        "- end of agent-2",
        "- player agent-3 <- 'Book a room in Hilo and play music.'",
        "agent-3 calls done",
        "agent-3 says Played.",
        "- end of agent-3",
        "- idle",
        "- completed 'Booked.\\n\\nPlayed.'",
    ]
