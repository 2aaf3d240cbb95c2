"""Routers: each conversation is compared by its whole sequence of events."""

from typing import Any

import vaka
from tests.runtime.runtime_fixtures import check_log, read_log, runtime
from vaka.core.types import progress
from vaka.core.types.control import StateChanged
from vaka.core.types.event import Event
from vaka.core.types.message import text_of
from vaka.core.types.monitor import ScriptAnswered
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

RULES = [
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


def outline(events: list[Event]) -> list[str]:
    """Return the events of a log that a router or its agents write, each as one line with its path."""
    lines = [(event, _line_of(event)) for event in events]
    return [f"{'/'.join(event.path) or '-'} {line}" for event, line in lines if line]


def _line_of(event: Event) -> str:
    match event.data:
        case progress.TurnStarted():
            return "turn"
        case ScriptAnswered(name="match", answer=found):
            return f"match {[rule for rule, _ in found]}"
        case progress.SubagentStarted(agent=agent, child=child, after=after, content=content):
            return f"{agent} {child} {f'after {after} ' if after else ''}<- {text_of(content)!r}"
        case progress.MessageCompleted(content=content) if text_of(content):
            return f"says {text_of(content)}"
        case progress.ToolStarted(call=made) if event.path:
            return f"calls {made.name}"
        case progress.SubagentCompleted(child=child, reason=reason):
            return f"end of {child}{f' ({reason})' if reason else ''}"
        case StateChanged(key="$router", value=value):
            return (
                "idle" if value is None else f"active {value['matches'][value.get('current_index', 0)]['agent_name']}"
            )
        case progress.TurnCompleted(text=text):
            return f"completed {text!r}"
        case progress.TurnFailed(code=code, message=message):
            return f"failed {code}: {message}"
        case progress.TurnInterrupted(text=text):
            return f"interrupted {text!r}"
        case _:
            return ""


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
    texts = [[text_of(message.content) for message in prompt.messages] for prompt in model.prompts if prompt.tools]
    assert texts[-1] == [
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
