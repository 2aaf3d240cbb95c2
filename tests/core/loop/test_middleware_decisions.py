"""Middleware that decides about calls and ends, and adds tools and text to the next model call."""

from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    event_types,
    log_writer,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.types.message import UserMessage, text_of
from vaka.core.types.progress import StepStarted, ToolStarted
from vaka.core.types.tool import PROTECTED_LAYER, Layer
from vaka.middleware import Allow, Approver, Ask, Continuation, Deny, ToolSource
from vaka.policy.policy import LayeredPolicy
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say

RULES = LayeredPolicy([Layer(name="flag", ask=("look",), deny=("secret",))])


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


@vaka.tool(effect="read")
async def secret() -> str:
    """Read a secret."""
    return "secret"


def middleware_at(point: str, function: Any, name: str = "mine") -> vaka.Middleware:
    return vaka.Middleware.from_functions(name, **{point: function})


def approver(function: Any) -> vaka.Middleware:
    class Judge(vaka.Middleware, Approver):
        async def decide_approval(self, turn: Any, request: Any) -> Any:
            return await function(turn, request)

    return Judge()


def continuation(function: Any) -> vaka.Middleware:
    class Checks(vaka.Middleware, Continuation):
        async def check_answer(self, turn: Any, text: str) -> str:
            return str(await function(turn, text))

    return Checks()


async def run_denying(model: Any, *middleware: Any, tools: Any = (look, secret)) -> tuple[list[Any], dict[str, str]]:
    """Run a turn under ``RULES`` where no person can be asked; return the log and the texts of the results."""
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="deny")) as rt:
        await (await rt.open(agent(model, *tools, middleware=middleware), id="s")).run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return log, {id: result.text for id, result in results_by_call(log).items()}


async def test_an_allow_of_before_tool_answers_the_ask_of_a_rule_but_no_denial() -> None:
    async def decide(turn: Any, given: Any) -> Any:
        return Allow(arguments={"at": "moon"} if given.name == "look" else None)

    model = ScriptedModel(calls(call("look", at="sun"), call("secret")), say("done"))
    log, texts = await run_denying(model, middleware_at("before_tool", decide))
    assert texts["call_1"] == "seen moon"
    assert "secret" in texts["call_2"]
    started = [event.data.call.arguments for event in log if isinstance(event.data, ToolStarted)]
    assert started == [{"at": "moon"}]


async def test_an_ask_of_middleware_wins_over_an_allow_and_is_asked_with_the_changed_arguments() -> None:
    async def allow(turn: Any, given: Any) -> Any:
        return Allow()

    async def ask(turn: Any, given: Any) -> Any:
        return Ask("sure?", arguments={"at": "moon"})

    store = MemoryStore()
    who = agent(
        ScriptedModel(call("look", at="sun"), say("done")),
        look,
        middleware=[middleware_at("before_tool", ask, "asks"), middleware_at("before_tool", allow, "allows")],
    )
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        with pytest.raises(vaka.Suspended) as suspended:
            await (await rt.open(who, id="s")).run("Go.")
        (pending,) = suspended.value.decisions
        requests: list[Any] = [event.data for event in await read_log(store, "s") if event.type == "approval.requested"]
        assert [request.call.arguments for request in requests] == [{"at": "moon"}]
        await rt.resolve(pending, "approve")
        assert (await (await rt.open(who, id="s")).resume().wait()).text == "done"
    assert results_by_call(await read_log(store, "s"))["call_1"].text == "seen moon"


async def test_an_approver_decides_instead_of_a_person_only_when_one_would_be_asked() -> None:
    asked: list[str] = []

    async def decide(turn: Any, request: Any) -> Any:
        asked.append(request.call.arguments["at"])
        answers = {"a": Allow(), "b": Deny("not b"), "c": Allow(arguments={"at": "moon"})}
        return answers.get(request.call.arguments["at"])

    model = ScriptedModel(calls(*(call("look", at=name) for name in "abcd"), call("secret")), say("done"))
    _, texts = await run_denying(model, approver(decide))
    assert asked == ["a", "b", "c", "d"]
    assert texts["call_1"] == "seen a"
    assert texts["call_2"] == "not b"
    assert texts["call_3"] == "seen moon"
    assert texts["call_4"].endswith("no person can be asked here, so it was not run")


async def test_a_question_about_a_protected_path_is_not_answered_by_middleware() -> None:
    class Protected(LayeredPolicy):
        def judge(self, call: Any, spec: Any, path: Any) -> Any:
            return Ask("that file is protected", layer=PROTECTED_LAYER)

    async def allow(turn: Any, given: Any) -> Any:
        return Allow()

    store = MemoryStore()
    middleware = [middleware_at("before_tool", allow), approver(allow)]
    async with runtime(store, permissions=vaka.Permissions(policy=Protected([]), ask="deny")) as rt:
        who = agent(ScriptedModel(call("look"), say("done")), look, middleware=middleware)
        response = await (await rt.open(who, id="s")).run("Go.")
    assert response.denied == ("call_1",)


async def test_an_approver_of_a_parent_also_decides_for_its_children() -> None:
    async def refuse(turn: Any, request: Any) -> Any:
        return Deny(f"not at depth {len(turn.path)}")

    child = agent(ScriptedModel(agents={"child": [call("look"), say("child done")]}), look, name="child")
    _log, texts = await run_denying(
        ScriptedModel(call("child", prompt="Look."), say("done")),
        approver(refuse),
        tools=(child,),
    )
    assert "not at depth 1" in texts.values()
    assert texts["call_1"] == "child done"


async def test_a_continuation_continues_the_agent_and_is_capped() -> None:
    answers: list[str] = []

    async def go_on(turn: Any, text: str) -> str:
        answers.append(text)
        return f"Not yet, {text}."

    store = MemoryStore()
    model = ScriptedModel(*(say(f"answer {n}") for n in range(9)))
    limits = vaka.Limits(max_continuations=3)
    async with runtime(store) as rt:
        who = agent(model, middleware=[continuation(go_on)], limits=limits)
        response = await (await rt.open(who, id="s")).run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    assert response.text == "answer 3"
    assert answers == ["answer 0", "answer 1", "answer 2"]
    assert event_types(log).count("agent.continued") == 3
    asked = [text_of(m.content) for m in model.prompts[-1].messages if isinstance(m, UserMessage)]
    assert asked == ["Go.", "Not yet, answer 0.", "Not yet, answer 1.", "Not yet, answer 2."]


async def test_a_turn_cut_anywhere_is_continued_as_often_as_an_uncut_one() -> None:
    async def go_on(turn: Any, text: str) -> str:
        return "More." if text != "answer 2" else ""

    who = agent(ScriptedModel(*(say(f"answer {n}") for n in range(3))), middleware=[continuation(go_on)])
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(who, id="s")).run("Go.")
    log = await read_log(store, "s")
    for end in range(3, len(log)):
        again = MemoryStore()
        await log_writer(again, "s", log[:end])()
        async with runtime(again) as rt:
            assert (await (await rt.open(who, id="s")).resume().wait()).text == "answer 2"
        after = await read_log(again, "s")
        check_log(after)
        assert event_types(after).count("agent.continued") == 2, end


async def test_a_continuation_of_a_child_continues_the_child() -> None:
    async def go_on(turn: Any, text: str) -> str:
        return "More." if text == "short" else ""

    child = agent(
        ScriptedModel(agents={"child": [say("short"), say("long")]}),
        name="child",
        middleware=[continuation(go_on)],
    )
    log, texts = await run_denying(ScriptedModel(call("child", prompt="Write."), say("done")), tools=(child,))
    assert texts["call_1"] == "long"
    assert event_types(log).count("agent.continued") == 1


class Source(vaka.Middleware, ToolSource):
    """Adds tools and a text that the test changes."""

    def __init__(self) -> None:
        self.added: tuple[Any, ...] = ()
        self.text = ""

    async def tools_for_step(self, turn: Any) -> Any:
        return self.added

    async def prompt_for_step(self, turn: Any) -> str:
        return self.text


async def test_tools_and_text_of_middleware_reach_the_next_model_call_and_the_tools_can_be_called() -> None:
    source = Source()

    @vaka.tool(effect="read")
    async def connect() -> str:
        """Connect."""
        source.added, source.text = (look, connect), "There is a tool to look."
        return "connected"

    model = ScriptedModel(call("connect"), call("look", at="sea"), say("done"), say("again"))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, connect, instructions="Be brief.", middleware=[source]), id="s")
        assert (await session.run("Go.")).text == "done"
        await session.run("Again.")
    log = await read_log(store, "s")
    assert results_by_call(log)["call_2"].text == "seen sea"
    assert [[spec.name for spec in prompt.tools] for prompt in model.prompts] == [
        ["connect"],
        *[["connect", "look"]] * 3,
    ]
    systems = [prompt.system for prompt in model.prompts]
    assert systems == ["Be brief.", *["Be brief.\n\nThere is a tool to look."] * 3]
    assert model.prompts[1].tools is model.prompts[3].tools
    digests = [(event.data.system, event.data.tools) for event in log if isinstance(event.data, StepStarted)]
    assert len(set(digests)) == 2


async def test_a_turn_resumed_with_an_open_call_of_an_added_tool_runs_it() -> None:
    source = Source()
    source.added = (look,)
    who = agent(ScriptedModel(call("look", at="sea"), say("done")), middleware=[source])
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(who, id="s")).run("Go.")
    log = await read_log(store, "s")
    for end in range(event_types(log).index("tool.started") + 1, len(log)):
        again = MemoryStore()
        await log_writer(again, "s", log[:end])()
        async with runtime(again) as rt:
            assert (await (await rt.open(who, id="s")).resume().wait()).text == "done"
        assert results_by_call(await read_log(again, "s"))["call_1"].text == "seen sea", end


async def test_an_added_tool_does_not_replace_a_tool_of_the_agent_and_obeys_the_whitelist() -> None:
    @vaka.tool(name="look", effect="read")
    async def other() -> str:
        """Look elsewhere."""
        return "other"

    source = Source()
    source.added = (other, secret)
    model = ScriptedModel(call("look"), say("done"), say("done"))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, look, middleware=[source]), id="s")
        await session.run("Go.")
        await session.run("Go.", options={"tool_whitelist": ["look"]})
    assert results_by_call(await read_log(store, "s"))["call_1"].text == "seen "
    assert {spec.name for spec in model.prompts[0].tools} == {"look", "secret"}
    assert {spec.name for spec in model.prompts[2].tools} == {"look"}
