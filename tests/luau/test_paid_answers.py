"""Answers that cost money are in the log before a script receives them: a crash does not make it pay again."""

import asyncio
from collections import Counter
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import check_log, collect, log_writer, read_log, runtime
from vaka.config.options import NetworkAccess
from vaka.core.ports.model import Prompt
from vaka.core.ports.net import NetRequest, NetResponse
from vaka.core.types.message import text_of
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptLine

WAIT = "wait"
SCRIPT = """
function on_input(ctx, input)
    local value = (function() %s end)()
    ctx.emit({ text = `{value} {ctx.generate("default", "wait")}`, eof = true })
end
"""
STREAM = """
    local pieces = {}
    for piece in ctx.generate_stream("default", "paid") do table.insert(pieces, piece) end
    return table.concat(pieces)
"""
SCHEMA = '{ type = "object", properties = { a = { type = "number" } }, required = { "a" } }'


class PaidCalls:
    """Counts what is paid for: model calls by their last message, tool calls and requests by name."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self.waiting = asyncio.Event()
        self._hangs = hangs
        self.model = FunctionModel(self._answer)

    async def _answer(self, prompt: Prompt) -> ScriptLine:
        words = text_of(prompt.messages[-1].content)  # type: ignore[union-attr]  # the user's message
        self.counts[words] += 1
        if words == WAIT:
            self.waiting.set()
            if self._hangs:
                await asyncio.Event().wait()
        if words == "refused":
            return {"chunks": ["I ", "will not"], "stop": "refusal"}
        return {"chunks": ['{"a"', ": 1", "}"]} if "paid" in words else {"text": "done"}

    def make_agent(self, body: str) -> vaka.LuauAgent:
        @vaka.tool(effect="read")
        async def look() -> str:
            """Look at something."""
            self.counts["look"] += 1
            return "seen"

        helper = vaka.Agent("helper", model=self.model)
        return vaka.LuauAgent("buyer", SCRIPT % body, model=self.model, tools=[look, helper])

    def decide(self, url: str) -> Any:
        raise NotImplementedError

    def stream(self, request: NetRequest) -> Any:
        raise NotImplementedError

    async def send(self, request: NetRequest) -> NetResponse:
        self.counts[request.method] += 1
        return NetResponse(status=200, url=request.url)


async def run_until_crash(body: str) -> tuple[MemoryStore, Counter[str]]:
    """Run the script until it waits for its last answer; return what another process finds, and what was paid."""
    store, before = MemoryStore(), PaidCalls(hangs=True)
    async with runtime(store, network=NetworkAccess(client=before)) as rt:
        session = await rt.open(before.make_agent(body), id="s")
        await session.send("Go.")
        await before.waiting.wait()
        log = await read_log(store, "s")
        await session.interrupt()
    crashed = MemoryStore()
    await log_writer(crashed, "s", log)()
    return crashed, before.counts


@pytest.mark.parametrize(
    ("body", "paid"),
    [
        ('return ctx.generate("default", "paid")', "paid"),
        (f'return ctx.generate_json("default", "paid", {SCHEMA}).a', "paid"),
        (STREAM, "paid"),
        ('local agent = ctx.create_agent("helper") agent:send("paid") return agent:collect()', "paid"),
        ('return ctx.invoke("look", {})', "look"),
        ('return ctx.http.post("https://example.com/", {}).status', "POST"),
    ],
)
async def test_an_answer_that_was_paid_for_is_not_paid_for_again_after_a_crash(body: str, paid: str) -> None:
    store, counts = await run_until_crash(body)
    after = PaidCalls()
    async with runtime(store, network=NetworkAccess(client=after)) as rt:
        await collect((await rt.open(after.make_agent(body), id="s")).resume())
    check_log(await read_log(store, "s"))
    assert (counts[paid], after.counts) == (1, Counter({WAIT: 1}))


async def test_a_get_request_may_be_sent_again_after_a_crash() -> None:
    body = 'return ctx.http.get("https://example.com/").status'
    store, counts = await run_until_crash(body)
    after = PaidCalls()
    async with runtime(store, network=NetworkAccess(client=after)) as rt:
        await collect((await rt.open(after.make_agent(body), id="s")).resume())
    assert (counts["GET"], after.counts["GET"]) == (1, 1)


async def test_a_complete_answer_is_not_asked_for_again_though_the_script_has_received_a_part_of_it() -> None:
    body = """
        local pieces = {}
        for piece in ctx.generate_stream("default", "paid") do
            table.insert(pieces, piece)
            if #pieces == 1 then ctx.generate("default", "wait") end
        end
        return table.concat(pieces)
    """
    store, counts = await run_until_crash(body)
    after = PaidCalls()
    async with runtime(store) as rt:
        response = await (await rt.open(after.make_agent(body), id="s")).run("Again.")
    assert (counts["paid"], after.counts["paid"]) == (1, 1)  # the second time for the new input
    log: list[Any] = await read_log(store, "s")
    assert [event.data.text for event in log if event.type == "turn.completed"] == [response.text] * 2
    assert response.text == '{"a": 1} done'


async def test_a_refused_answer_in_pieces_is_refused_again_without_asking_the_model() -> None:
    body = """
        local ok, why = pcall(function() for piece in ctx.generate_stream("default", "refused") do end end)
        return why
    """
    store, counts = await run_until_crash(body)
    after = PaidCalls()
    async with runtime(store) as rt:
        log: list[Any] = await collect((await rt.open(after.make_agent(body), id="s")).resume())
    assert log[-1].data.text == "function: the model refused to answer done"
    assert (counts["refused"], after.counts) == (1, Counter({WAIT: 1}))
