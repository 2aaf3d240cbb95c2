"""Each prompt of a conversation begins with the one before, whatever middleware is used, and in whichever process."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import vaka
import vaka.middleware
from tests.runtime.runtime_fixtures import IDS, read_log
from vaka.config.options import Storage
from vaka.core.ports.model import Prompt
from vaka.core.types.message import UserMessage, text_of
from vaka.memory import SemanticMemory, TextMemory, WorkingMemory
from vaka.memory.semantic import ScopedMemory
from vaka.middleware import (
    Approval,
    CoolDown,
    Eviction,
    Logging,
    PatchToolCalls,
    RateLimit,
    Redaction,
    TodoList,
    ToolRetry,
    Trimming,
)
from vaka.models.embedders import HashingEmbedder
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import FunctionModel, call, calls, say
from vaka.tools.builtin import builtin_tools

SECRET = "hunter2-hunter2"
LONG = "A line of a long text. " * 2_000
MIDDLEWARE: dict[str, Callable[[], vaka.Middleware]] = {
    "Approval": lambda: Approval({"never": True}),
    "CoolDown": lambda: CoolDown({"broken": 5.0}),
    "Eviction": lambda: Eviction(3_000, input_tokens=3_000),
    "Logging": lambda: Logging(lambda record: None, content=True),
    "PatchToolCalls": PatchToolCalls,
    "RateLimit": lambda: RateLimit(rate=100.0),
    "Redaction": lambda: Redaction(personal=True),
    "SemanticMemory": lambda: SemanticMemory("global", threshold=-1.0, min_confidence=0.0),
    "TextMemory": lambda: TextMemory(namespace="team"),
    "TodoList": lambda: TodoList(builtin_tools(["TodoWrite"])[0], every=2),
    "ToolRetry": lambda: ToolRetry(times=1, pause=0.1),
    "Trimming": Trimming,
    "WorkingMemory": WorkingMemory,
}
"""Every middleware of ``vaka.middleware``."""
OTHER_NAMES = {"Allow", "Answer", "Ask", "Deny", "Reject", "CoolDownRule", "Review", "token_pattern"}
"""The names there that are not a middleware."""
PROTOCOLS = {"Approver", "ContextPolicy", "Continuation", "ToolSource"}
MEMORIES: dict[str, Callable[[], vaka.Middleware]] = {
    "TextMemory": lambda: TextMemory(namespace="shared"),
    "WorkingMemory": lambda: WorkingMemory(template="name:"),
    "SemanticMemory": lambda: SemanticMemory("global", messages=True),
}


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"grass {at}"


@vaka.tool(effect="read")
async def reveal() -> str:
    """Return a secret, an address and characters that cannot be encoded."""
    return f"{SECRET} kim@example.com \ud800 é"


@vaka.tool(effect="read")
async def much() -> list[str]:
    """Return much."""
    return [LONG, "end"]


@vaka.tool(effect="read")
async def broken() -> str:
    """Fail."""
    raise ValueError(f"no {SECRET}")


TODOS = [{"content": "Look.", "status": "pending", "activeForm": "Looking"}]
ANSWERS: dict[str, Any] = {
    "look": call("look", at=f"the {SECRET}"),
    "two": calls(call("look"), call("reveal")),
    "much": call("much"),
    "broken": call("broken"),
    "unknown": call("fly", high=1.5),
    "todos": call("TodoWrite", todos=TODOS),
    "child": call("Task", description="See", prompt="Look there.", subagent_type="child"),
    "thought": {"reasoning": f"Hm, {SECRET}.", **call("look")},
}
INPUTS = {"short": "Well?", "secret": f"My key is {SECRET}.", "long": LONG, "odd": "é\x00"}


class PlannedTurn(msgspec.Struct, frozen=True):
    """The input of a turn, what its model calls answer before the last one, and whether a new process begins."""

    text: str
    steps: tuple[str, ...]
    restarts: bool


TURNS = st.builds(
    PlannedTurn,
    text=st.sampled_from([*INPUTS]),
    steps=st.lists(st.sampled_from([*ANSWERS]), max_size=3).map(tuple),
    restarts=st.booleans(),
)


def make_agent(answer: Any, names: Sequence[str]) -> vaka.Agent:
    """Return the agent as a new process makes it: all its objects are new."""
    child = vaka.SubAgent(name="child", description="Sees.", instructions="See.", model=FunctionModel(answer))
    middleware = [(MIDDLEWARE | MEMORIES)[name]() for name in names]
    return vaka.Agent(
        "assistant",
        model=FunctionModel(answer),
        instructions=f"Be brief. Never say {SECRET}.",
        tools=[look, reveal, much, broken],
        middleware=[vaka.SubAgents(child), *middleware],
    )


async def run_turns(turns: Sequence[PlannedTurn], names: Sequence[str]) -> list[Prompt]:
    """Return the prompts of a conversation."""
    store = MemoryStore()
    clock = FakeClock(auto=True)
    prompts = list[Prompt]()
    planned: list[str] = []
    await ScopedMemory(store, HashingEmbedder(), "", clock=clock).add("Grass is green.")  # what SemanticMemory recalls

    async def answer(prompt: Prompt) -> Any:
        prompts.append(prompt)
        if prompt.path:
            return say(f"Seen by {prompt.path[-1]}, {SECRET}.")
        return ANSWERS[planned.pop(0)] if planned else say(f"Yes, {SECRET}.")

    runtime: Any = None
    try:
        for turn in turns:
            if runtime is None or turn.restarts:
                if runtime is not None:
                    await runtime.close()
                runtime = vaka.Runtime(
                    store=store,
                    environment=Environment(ids=IDS, clock=clock),
                    storage=Storage(secrets=(SECRET,)),
                    permissions=vaka.Permissions(mode="bypassPermissions"),
                )
            planned[:] = turn.steps
            session = await runtime.open(make_agent(answer, names), id="s")
            await session.run(INPUTS[turn.text])
    finally:
        if runtime is not None:
            await runtime.close()
    assert "cache.busted" not in [event.type for event in await read_log(store, "s")]
    return prompts


def check_prefixes(prompts: Sequence[Prompt]) -> None:
    """Check that each prompt of an agent begins with its prompt before, byte by byte."""
    before: dict[tuple[str, ...], Prompt] = {}
    for prompt in prompts:
        last = before.get(prompt.path)
        before[prompt.path] = prompt
        if last is None:
            continue
        assert prompt.system == last.system
        added = prompt.tools[len(last.tools) :]
        assert msgspec.json.encode(prompt.tools[: len(last.tools)]) == msgspec.json.encode(last.tools)
        assert [tool.name for tool in added] in ([], ["read_output"])  # once, for the first text that was cut
        messages = [msgspec.json.encode(message) for message in prompt.messages]
        shown = last.messages[:-1] if _ends_with_reminder(last) else last.messages
        assert messages[: len(shown)] == [msgspec.json.encode(message) for message in shown]


def _ends_with_reminder(prompt: Prompt) -> bool:
    """Whether the last message is one that only this prompt has."""
    last = prompt.messages[-1]
    return isinstance(last, UserMessage) and text_of(last.content).startswith("<system-reminder>")


def test_every_middleware_of_vaka_is_part_of_these_tests() -> None:
    names = {*vaka.middleware.__all__, "SemanticMemory", "TextMemory", "WorkingMemory"}
    assert {*MIDDLEWARE} == names - OTHER_NAMES - PROTOCOLS


@settings(max_examples=min(settings().max_examples, 200))  # each of them is several turns
@given(st.lists(TURNS, min_size=2, max_size=4), st.lists(st.sampled_from([*MIDDLEWARE, *MEMORIES]), unique=True))
async def test_a_prompt_begins_with_the_one_before_in_one_process_and_in_several(
    turns: list[PlannedTurn], names: list[str]
) -> None:
    check_prefixes(await run_turns(turns, names))


async def test_a_turn_that_goes_on_after_a_restart_keeps_its_system_prompt() -> None:
    @vaka.tool(effect="once")
    async def pay() -> str:
        """Pay."""
        return "paid"

    for instructions in ("Help.", ""):
        store, prompts = MemoryStore(), list[Prompt]()
        lines = [call("update_working_memory", memory="Help."), call("pay"), say("Done."), say("Yes.")]

        async def answer(prompt: Prompt, seen: list[Prompt] = prompts, lines: list[Any] = lines) -> Any:
            seen.append(prompt)
            return lines.pop(0)

        asked = vaka.Agent(
            "a",
            model=FunctionModel(answer),
            instructions=instructions,
            tools=[pay],
            middleware=[TextMemory(), WorkingMemory()],
        )
        async with vaka.Runtime(store=store, permissions=vaka.Permissions(confirm=("pay",))) as runtime:
            session = await runtime.open(asked, id="s")
            await session.update(owner="kim")
            async for event in session.stream("Pay."):
                if event.type == "approval.requested":
                    break
        async with vaka.Runtime(store=store.open_handle(), permissions=vaka.Permissions(confirm=("pay",))) as runtime:
            await runtime.memories.open_text(owner="kim").append_note("agent.md", "Likes tea.")
            [pending] = await runtime.decisions()
            await runtime.resolve(pending.id, "approve")
            session = await runtime.open(asked, id="s")
            assert [event async for event in session.resume()][-1].type == "turn.completed"
            await session.run("Ok?")
        assert [prompt.system for prompt in prompts[1:3]] == [prompts[0].system] * 2
        assert "Likes tea." in prompts[3].system  # the next turn sees both changes
        assert "<working_memory>\nHelp.\n" in prompts[3].system
