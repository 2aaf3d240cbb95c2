"""A middleware asks a model: its usage is recorded, and bounded by the budget of the turn."""

import vaka
from tests.core.loop.test_ask_model import (
    CHEAP_USAGE,
    EXPENSIVE_USAGE,
    PricedModel,
    question_prompt,
    usage_events,
)
from tests.runtime.runtime_fixtures import agent, check_log, read_log, results_by_call, runtime
from vaka.core.loop.context import Turn
from vaka.core.ports.model import Prompt
from vaka.core.types.ending import Outcome
from vaka.core.types.message import AssistantMessage, ToolCall, ToolResult, Usage
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


async def test_a_model_call_of_a_middleware_is_recorded_under_its_own_agent() -> None:
    other = ScriptedModel(agents={"judge": [say("harmless") | CHEAP_USAGE]})

    class Judge(vaka.Middleware):
        async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
            verdict = await turn.ask_model(other, question_prompt("Is it?", "judge"))
            return prompt if verdict == "harmless" else question_prompt("no")

    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("done") | CHEAP_USAGE), middleware=[Judge()]), id="s")
        response = await session.run("Go.")
    log = await read_log(store, "s")
    assert [(body.agent, body.call, body.number) for body in usage_events(log)] == [
        ("judge", None, 1),
        ("assistant", None, 0),
    ]
    assert response.usage == Usage(input=20, output=10, cost=0.02)


async def test_a_model_call_in_after_model_is_bounded_by_the_rest_of_the_budget() -> None:
    other = PricedModel(agents={"judge": [say("harmless") | CHEAP_USAGE]})

    class Judge(vaka.Middleware):
        async def after_model(self, turn: Turn, message: AssistantMessage) -> AssistantMessage:
            assert await turn.ask_model(other, question_prompt("Is it?", "judge")) == "harmless"
            return message

    limits, spent = vaka.Limits(max_tokens=300), {"usage": {"input": 100, "output": 20}}
    async with runtime(MemoryStore()) as rt:
        session = await rt.open(agent(PricedModel(say("done") | spent), middleware=[Judge()], limits=limits), id="s")
        response = await session.run("Go.")
    assert (response.text, response.stop) == ("done", "end")
    assert [prompt.options for prompt in other.prompts] == [{"max_tokens": 80}]


async def test_results_are_sealed_when_the_budget_has_no_room_for_a_model_call_in_after_tool() -> None:
    other = PricedModel(agents={"judge": [say("never")]})
    done = list[str]()
    store = MemoryStore()

    class Judge(vaka.Middleware):
        async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
            await turn.ask_model(other, question_prompt("Is it?", "judge"))
            return result

    @vaka.tool
    async def send(to: str) -> str:
        """Send a letter."""
        done.append(to)
        return "sent"

    both = calls(call("send", to="Ann"), call("send", to="Bob")) | EXPENSIVE_USAGE
    async with runtime(store) as rt:
        who = agent(ScriptedModel(both, say("never")), send, middleware=[Judge()], limits=vaka.Limits(max_tokens=200))
        response = await (await rt.open(who, id="s")).run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    assert (response.stop, response.limit, other.prompts, sorted(done)) == ("limit", "tokens", [], ["Ann", "Bob"])
    assert {result.reason for result in results_by_call(log).values()} == {"sealed"}
    assert all(
        "It had returned; what it returned was not passed on" in found.text for found in results_by_call(log).values()
    )


async def test_a_turn_ends_at_the_limit_when_the_budget_has_no_room_for_a_model_call_in_after_agent() -> None:
    other = PricedModel(agents={"judge": [say("never")]})

    class Judge(vaka.Middleware):
        async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
            await turn.ask_model(other, question_prompt("Is it?", "judge"))
            return outcome

    async with runtime(MemoryStore()) as rt:
        limits = vaka.Limits(max_tokens=200)
        who = agent(ScriptedModel(say("done") | EXPENSIVE_USAGE), middleware=[Judge()], limits=limits)
        response = await (await rt.open(who, id="s")).run("Go.")
    assert (response.stop, response.limit, response.text, other.prompts) == ("limit", "tokens", "done", [])
