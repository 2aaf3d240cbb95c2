"""A turn of a session that is compacted again and again costs the same, early and late: calls are counted."""

import gc
import sys
from typing import Any

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.core.ports.model import Prompt
from vaka.core.types.message import ToolMessage
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, call, say

SPAN = 30
"""Turns that are counted, in which the context is compacted."""


@vaka.tool(effect="read")
async def read_page() -> str:
    """Return a page of text."""
    return "a line of output that a tool has printed\n" * 20


async def answer(prompt: Prompt) -> Any:
    if prompt.agent == "summary":
        return say("a word " * 100)
    return say("done") if isinstance(prompt.messages[-1], ToolMessage) else call("read_page")


async def count_calls(session: vaka.Session, turns: int) -> int:
    """Return how many functions, of Python and of C, some turns call."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(count)
    try:
        for _ in range(turns):
            await session.run("hi")
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


async def test_a_turn_costs_the_same_after_hundreds_of_turns_and_many_compactions() -> None:
    store, model = MemoryStore(), FunctionModel(answer)
    model.context_window = 4_000  # type: ignore[attr-defined]  # the window of a model is optional
    async with runtime(store) as rt:
        session = await rt.open(agent(model, read_page), id="s")
        for _ in range(60):
            await session.run("hi")
        early = await count_calls(session, SPAN)
        for _ in range(200):
            await session.run("hi")
        late = await count_calls(session, SPAN)
    assert late <= 1.15 * early
    assert [event.type for event in await read_log(store, "s")].count("context.compacted") > 10
