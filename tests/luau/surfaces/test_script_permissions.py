"""Scripts inside a session: their requests are tool calls under the policy."""

from typing import Any

import vaka
from tests.luau.surfaces.surface_fixtures import FakeNetwork, make_services
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    event_types,
    log_writer,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.loop.subagent import open_script_journal, record_script_end
from vaka.core.ports.net import NetResponse
from vaka.core.ports.tool import ToolContext
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import SubagentCompleted, ToolStarted
from vaka.luau.host import surface_functions
from vaka.luau.host.http import http_tools
from vaka.luau.program import Program, main_source, prelude_source
from vaka.luau.scheduler import drive
from vaka.luau.vm import VmRunner
from vaka.runtime.options import Environment, policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say

ANSWER = NetResponse(status=200, body=b'{"x": 1}', url="http://host/a")
SOURCE = """
    function invoke(ctx)
        local got, sent, kept = ctx.parallel(
            function() return ctx.http.get("http://host/a").json.x end,
            function() return ctx.http.post("http://host/a", {body = {y = 2}}).status end,
            function() return ctx.http.put("http://host/a", {body = "z", idempotency_key = "k"}).status end)
        local ok, why = pcall(ctx.http.get, "http://unknown")
        return {got, sent, kept, why, ctx.generate("m", "Hi"), ctx.generate("m", "Ho"), ctx.invoke("look", {at = "b"})}
    end
"""


class ScriptSession:
    """An agent with one tool that runs the script, and a record of its effects."""

    def __init__(self, source: str = SOURCE) -> None:
        self.network = FakeNetwork({"http://host/a": ANSWER})
        self.program = Program(source, "script", preludes=(prelude_source(),), main=main_source(), trusted=True)
        self.model = ScriptedModel(
            call("script"), say("done"), agents={"script": [say("one", usage={"input": 2, "output": 1}), say("two")]}
        )
        self.usage: list[UsageRecorded] = []

    def agent(self) -> vaka.Agent:
        @vaka.tool(effect="read")
        async def look(at: str) -> str:
            """Look."""
            return f"seen {at}"

        @vaka.tool(effect="resume")
        async def script(context: ToolContext) -> Any:
            """Run the script."""
            tools = http_tools(self.network)
            async with open_script_journal(context, "script", self.program.digest, tools) as (nest, before):
                if before is not None:
                    return before.value
                services = make_services(
                    journal=nest,
                    network=self.network,
                    find_model=lambda _: self.model,
                    record_usage=self.usage.append,
                )
                script = VmRunner().open(self.program)
                values = await drive(script, surface_functions(services), nest, [{"mode": "tool"}, {}])
                await record_script_end(context, nest, "script", values[0])
                return values[0]

        return agent(self.model, look, script)


async def run_session(script_session: ScriptSession, prefix: list[Any] | None = None, **options: Any) -> list[Any]:
    """Run the script in a session, or resume it, and return the log."""
    store = MemoryStore()
    options = {"permissions": vaka.Permissions(ask="deny"), **options}
    async with runtime(store, environment=Environment(clock=FakeClock(auto=True)), **options) as rt:
        if prefix is not None:
            await log_writer(store, "s", prefix)()
        session = await rt.open(script_session.agent(), id="s")
        await collect(session.resume() if prefix else session.stream("Go."))
    log = await read_log(store, "s")
    check_log(log)
    return log


def script_outcome(log: list[Any]) -> Any:
    return next(event.data.value for event in log if isinstance(event.data, SubagentCompleted))


async def test_requests_are_tool_calls_with_their_effects() -> None:
    world = ScriptSession()
    log = await run_session(world)
    assert script_outcome(log) == [1, 200, 200, "no server at 'http://unknown'", "one", "two", "seen b"]
    effects = {event.data.call.name: event.data.effect for event in log if isinstance(event.data, ToolStarted)}
    assert effects == {
        "script": "resume",
        "http": "read",
        "http_send": "once",
        "http_send_keyed": "idempotent",
        "look": "read",
    }
    keyed = next(sent for sent in world.network.sent if sent.method == "PUT")
    assert keyed.headers == (("Idempotency-Key", "k"),)
    assert [(cost.agent, cost.usage.input) for cost in world.usage] == [("script", 2), ("script", 1)]
    assert [prompt.number for prompt in world.model.prompts if prompt.agent == "script"] == [1, 2]


async def test_a_script_receives_the_denial_of_a_rule() -> None:
    source = """
        function invoke(ctx)
            local ok, why = pcall(ctx.http.post, "http://host/a")
            local put = __builtin.http{url = "http://host/a", method = "PUT"}
            return {ok, why, ctx.http.get("http://host/a").status, put}
        end
    """
    world = ScriptSession(source)
    ok, why, status, returned = script_outcome(
        await run_session(world, permissions=vaka.Permissions(ask="deny", policy=policy_from_rules(deny=["http_send"])))
    )
    assert (ok, status) == (False, 200)
    assert why == "http_send is not allowed here"
    assert (returned["status"], returned["err"]) == (0, why)
    assert [sent.method for sent in world.network.sent] == ["GET"]


async def test_a_script_that_is_interrupted_anywhere_sends_nothing_twice() -> None:
    log = await run_session(ScriptSession())
    for cut in range(3, len(log)):
        world, prefix = ScriptSession(), log[:cut]
        after = await run_session(world, prefix)
        assert event_types(after)[-1] == "turn.completed", cut
        begun = {event.data.call.name for event in prefix if isinstance(event.data, ToolStarted)}
        posted = [sent for sent in world.network.sent if sent.method == "POST"]
        assert not ("http_send" in begun and posted), cut
        lost = [why for why in results_by_call(after).values() if why.reason == "outcome_unknown"]
        if not lost and "script.answered" in event_types(prefix):
            assert script_outcome(after) == script_outcome(log), cut
