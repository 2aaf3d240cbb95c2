"""Record golden logs: python -m tests.golden.record NAME…

A recorded log is never changed: its state must stay the same for ever. Record under a new name instead, unless the
format has not been released yet.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

import vaka
from vaka.config.options import Workspace
from vaka.core.loop.prompt import build_messages
from vaka.core.session.snapshot import reopen
from vaka.core.session.snapshot import encode_state
from vaka.core.types.context import ContextCompacted
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import Suspended
from vaka.core.types.decode import decode
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.middleware import Ask
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock, FakeIds
from vaka.testing.crashes import fingerprint
from vaka.testing.models import ScriptedModel, call, calls, fail, say

FOLDER = Path(__file__).parent


class AskBeforeRemove(vaka.Middleware):
    async def before_tool(self, turn: Any, call: vaka.ToolCall) -> Any:
        return Ask(reason="it is gone then", rule="remove") if call.name == "remove" else call


@vaka.tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    return f"{at}: there"


@vaka.tool(effect="idempotent")
async def count(to: int) -> list[int]:
    """Count."""
    return list(range(1, to + 1))


@vaka.tool
async def remove(name: str) -> str:
    """Remove something."""
    return f"{name} is gone"


def agent(*answers: Any, children: Sequence[Any] = ()) -> vaka.Agent:
    helper = vaka.Agent("helper", instructions="Help.", tools=[look, remove], middleware=[AskBeforeRemove()])
    model = ScriptedModel(*answers, agents={"helper": list(children)})
    return vaka.Agent(
        "assistant",
        model=model,
        instructions="Be brief.",
        tools=[look, count, remove, helper],
        middleware=[AskBeforeRemove()],
    )


def runtime() -> vaka.Runtime:
    clock, ids = FakeClock(auto=True), FakeIds()
    return vaka.Runtime(
        store=MemoryStore(),
        permissions=vaka.Permissions(ask="suspend"),
        workspace=Workspace(cwd="/nowhere/app"),
        environment=Environment(clock=clock, ids=ids),
    )


async def _run_until_suspended(session: vaka.Session, prompt: str) -> tuple[str, ...]:
    """Run a turn until it is suspended; return the open decisions."""
    try:
        await session.run(prompt)
    except Suspended as suspended:
        return suspended.decisions
    raise AssertionError("the turn was not suspended")


async def _resume(session: vaka.Session) -> None:
    async with aclosing(session.resume()) as events:
        async for _ in events:
            pass


async def tools(rt: vaka.Runtime) -> str:
    """One call, then parallel ones, an unknown tool, bad arguments, and an answer with usage."""
    session = await rt.open(
        agent(
            call("look", at="the sea") | {"text": "Let me look.", "usage": {"input": 12, "output": 5, "cost": 0.25}},
            calls(call("look", at="a"), call("count", to=3), call("fly", to="Hilo"), call("count", to="many")),
            say("There it is.", reasoning="Two looks are enough.", usage={"input": 40, "output": 9, "reasoning": 4}),
        ),
        id="tools",
    )
    await session.run("What do you see? 🛶")
    return session.id


async def approval(rt: vaka.Runtime) -> str:
    """Two calls that need approval, one approved with an edit, one rejected; the turn is suspended in between."""
    session = await rt.open(
        agent(calls(call("remove", name="a"), call("look", at="b"), call("remove", name="c")), say("Half of it.")),
        id="approval",
    )
    first, second = await _run_until_suspended(session, "Remove a and c.")
    only, copy = "remove(name:a copy)", {"name": "a copy"}
    await rt.resolve(first, "approve", edit=copy, scope="session", rule=only, by="Kai")
    await rt.resolve(second, "reject", message="not that one", by="Kai")
    await _resume(session)
    return session.id


async def grants(rt: vaka.Runtime) -> str:
    """An approval for the session with a rule that a person wrote: it covers open and later calls that match."""
    both = calls(call("remove", name="a1"), call("remove", name="a2"))
    session = await rt.open(agent(both, call("remove", name="a3"), call("remove", name="b"), say("Gone.")), id="grants")
    first, _ = await _run_until_suspended(session, "Remove them.")
    await rt.resolve(first, "approve", scope="session", rule="remove(name:a*)", by="Kai")
    try:
        await _resume(session)
    except Suspended as waiting:
        await rt.resolve(waiting.decisions[0], "approve", by="Kai")
    await _resume(session)
    return session.id


async def child(rt: vaka.Runtime) -> str:
    """Two concurrent child agents with calls of their own, one of which needs approval."""
    session = await rt.open(
        agent(
            calls(call("helper", prompt="Look at one."), call("helper", prompt="Remove two.")),
            say("Both did it."),
            children=[call("look", at="one"), call("remove", name="two"), say("Done."), say("Done too.")],
        ),
        id="child",
    )
    for decision in await _run_until_suspended(session, "Get help, twice."):
        await rt.resolve(decision, "approve")
    await _resume(session)
    return session.id


async def branches(rt: vaka.Runtime) -> str:
    """Checkpoint, rewind, a turn, rewind to the branch that was left, compaction, a value, a failure, close."""
    lines = [call("look", at="one"), say("One."), say("Two."), say("Three."), say("Four.")]
    session = await rt.open(agent(*lines, fail(400, "no"), say("Six.")), id="branches")
    await session.run("First.")
    place = await session.checkpoint("after the first")
    await session.run("Second.")
    left = len([event async for event in rt.store.events.read(session.id)])
    await session.rewind("after the first")
    await session.run("Second, otherwise.")
    await session.rewind(f"{place.epoch}.{left}")
    await session.run("Third.")
    await rt._drivers.write(session.id, StateChanged(key="mood", value={"calm": True}))
    await rt._drivers.write(session.id, ContextCompacted(summary="They talked.", keep_from=left, before=90, after=9))
    await session.run("Fourth.")
    try:
        await session.run("Fifth.")
    except vaka.VakaError:
        pass
    await session.close("enough")
    return session.id


async def fork(rt: vaka.Runtime) -> str:
    """A fork of a suspended turn: the open calls are sealed."""
    lines = [calls(call("remove", name="a"), call("look", at="b")), say("Gone."), say("Ok.")]
    session = await rt.open(agent(*lines), id="origin")
    await _run_until_suspended(session, "Remove a.")
    copy = await session.fork(id="fork")
    await copy.run("Leave it then.")
    return copy.id


async def compaction(rt: vaka.Runtime) -> str:
    """Compactions by size: first references for long calls, then summaries, also inside a turn; then one by hand."""
    long = ["look " * 600 for _ in range(3)]
    lines = [line for at in (*long, *long) for line in (call("look", at=at), say(f"I saw {len(at)} letters."))]
    summary = {"summary": [say("<summary>They looked at long things.</summary>", repeat=True)]}
    model = ScriptedModel(*lines, agents=summary, context_window=5_000)
    who = vaka.Agent("assistant", model=model, tools=[look], compaction=vaka.Compaction(keep_tokens=300))
    session = await rt.open(who, id="compaction")
    for number in range(1, 7):
        await session.run(f"Look at number {number}.")
    await session.compact("the letters")
    return session.id


SCENARIOS: dict[str, Callable[[vaka.Runtime], Awaitable[str]]] = {
    "tools": tools,
    "approval": approval,
    "grants": grants,
    "child": child,
    "branches": branches,
    "fork": fork,
    "compaction": compaction,
}


def read_log(name: str) -> list[Event]:
    return [decode(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


async def interpret_log(events: Sequence[Event]) -> dict[str, Any]:
    """Return the state of a log, its messages as the model gets them, its index row and its fingerprint."""
    store, session = MemoryStore(), SessionId("golden")
    term = await store.events.claim(session)
    await store.events.append(session, events, head=0, term=term, release=True)
    opened = await reopen(store, session)
    info = await store.sessions.find(session)
    assert info is not None
    return {
        "state": msgspec.json.decode(encode_state(opened.state)),
        "messages": msgspec.to_builtins(build_messages(opened.window.events_at(()), ())),
        "row": {"status": info.status, "title": info.title, "inputs": info.inputs, "hash": info.hash},
        "fingerprint": fingerprint(events),
    }


async def record_log(name: str) -> None:
    async with runtime() as rt:
        session = SessionId(await SCENARIOS[name](rt))
        events = [event async for event in rt.store.events.read(session)]
    (FOLDER / f"{name}.jsonl").write_bytes(b"".join(event.stored + b"\n" for event in events))
    expected = msgspec.json.format(msgspec.json.encode(await interpret_log(events)), indent=1)
    (FOLDER / f"{name}.expected.json").write_bytes(expected + b"\n")


if __name__ == "__main__":
    for scenario in sys.argv[1:] or sys.exit(f"name one or more of: {', '.join(SCENARIOS)}"):
        asyncio.run(record_log(scenario))
