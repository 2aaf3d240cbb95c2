"""Composite tools: steps of every kind, errors, rules, and a crash between steps."""

from itertools import accumulate
from typing import Annotated, Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    count_commits,
    log_writer,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.message import Image, ToolResult
from vaka.core.types.progress import ToolCompleted, ToolStarted
from vaka.genx.kinds.composite import CompositeTool, ToolStep
from vaka.genx.kinds.generator import GeneratorTool, TextProcessorTool
from vaka.runtime.options import policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


@vaka.tool(effect="read")
async def find(city: str) -> dict[str, Any]:
    """Find the weather."""
    return {"city": city, "degrees": 21.0, "days": ["sunny", "rain"]}


@vaka.tool
async def shout(text: Annotated[str, "What to say."]) -> str:
    """Say it loud."""
    return text.upper()


@vaka.tool
async def join(left: str, right: str) -> str:
    """Join."""
    return left + right


async def run(tool: Any, arguments: dict[str, Any], *more_tools: Any, model: Any = None, **options: Any) -> ToolResult:
    """Return the result of one call of a tool."""
    store = MemoryStore()
    model = model or ScriptedModel(call(tool.spec.name, **arguments), say("done"))
    async with runtime(store, **{"permissions": vaka.Permissions(mode="bypassPermissions"), **options}) as rt:
        await (await rt.open(agent(model, tool, *more_tools), id="s")).run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return results_by_call(log)["call_1"]


async def test_steps_of_every_kind_run_in_order_with_jq_between_them() -> None:
    cut = TextProcessorTool("cut", model="default", prompt="Cut.")
    inner = CompositeTool("inner", steps=[ToolStep("loud", shout), ToolStep("short", cut)])
    line = '"\\(.input.city): \\(.steps.weather.degrees|tostring), \\(.steps.weather.days|join("+"))"'
    helper = vaka.Agent("helper", instructions="Help.")
    script = vaka.LuauTool("function invoke(ctx, args) return { got = args.text, n = 1 } end", name="script")
    steps = [
        ToolStep("weather", find),
        ToolStep("poem", GeneratorTool("poet", model="default"), f"{{input: {line}}}"),
        ToolStep("inner", inner),
        ToolStep("ask", helper, "{prompt: .steps.inner}"),
        ToolStep("script", script, "{text: .steps.ask}"),
        ToolStep("last", "shout", '.steps.script.got + " " + (.steps.script.n | tostring)'),
    ]
    tool = CompositeTool("report", steps=steps, description="Report.")
    model = ScriptedModel(
        call("report", city="Aix"),
        say("done"),
        agents={"poet": [say("a poem")], "cut": [say('"poem"')], "helper": [say("fine")]},
    )
    result = await run(tool, {}, shout, model=model)
    assert result.text == "FINE 1"
    asked = {prompt.agent: prompt.messages[-1].content[0].text for prompt in model.prompts[1:-1]}  # type: ignore[union-attr]  # texts
    assert asked == {"poet": "Aix: 21, sunny+rain", "cut": "A POEM", "helper": "poem"}
    assert repr(tool) == "CompositeTool('report')"


async def test_the_model_sees_the_schema_of_the_first_step_and_the_caller_gets_the_native_result() -> None:
    @vaka.tool
    async def draw(city: str) -> Image:
        """Draw."""
        return Image(media_type="image/png", data="aGk=")

    tool = CompositeTool("map", steps=[ToolStep("find", find), ToolStep("draw", draw, ".steps.find | {city}")])
    result = await run(tool, {"city": "Aix"})
    assert isinstance(result.content[0], Image)
    invalid = await run(tool, {"town": "Aix"})
    assert (invalid.reason, "'town'" in invalid.text) == ("invalid_arguments", True)
    named = CompositeTool("n", steps=[ToolStep("a", "find")])
    assert (await run(named, {"city": "Aix"}, find)).value["city"] == "Aix"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ToolStep("b", "nothing"), "step b: get tool: there is no tool 'nothing'"),
        (ToolStep("b", shout, ".steps.a.x.y"), "step b: apply jq: jq expression"),
        (ToolStep("b", shout, "empty"), "step b: apply jq: jq expression returned no result"),
        (ToolStep("b", shout, "{loud: 1}"), "step b: invoke: "),
        (ToolStep("b", join, "[1]"), "step b: invoke: "),
    ],
)
async def test_a_step_that_fails_names_itself_and_what_failed(step: ToolStep, message: str) -> None:
    result = await run(CompositeTool("c", steps=[ToolStep("a", shout), step]), {"text": "hi"})
    assert result.failed
    assert result.text.startswith(message)


async def test_rules_apply_to_each_step() -> None:
    tool = CompositeTool("c", steps=[ToolStep("a", find), ToolStep("b", shout, "{text: .input.city}")])
    denied = await run(tool, {"city": "Aix"}, permissions=vaka.Permissions(deny=["shout"]))
    assert (denied.failed, denied.reason) == (True, "denied")
    assert denied.text.startswith("step b: invoke: ")


async def test_a_step_that_needs_an_approval_suspends_the_turn_and_continues_there() -> None:
    ran: list[str] = []

    @vaka.tool
    async def send(text: str) -> str:
        """Send."""
        ran.append(text)
        return text

    store = MemoryStore()
    steps = [ToolStep("a", send), ToolStep("b", shout, "{text: .steps.a}"), ToolStep("c", send, "{text: .steps.b}")]
    who = agent(ScriptedModel(call("all", text="hi"), say("done")), CompositeTool("all", steps=steps))
    policy = policy_from_rules(ask=["shout"])
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", policy=policy)) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(who, id="s")).run("Go.")
        [pending] = await rt.decisions()
        await rt.resolve(pending.id, "approve")
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", policy=policy)) as rt:
        await collect((await rt.open(who, id="s")).resume())
    log = await read_log(store, "s")
    check_log(log)
    assert (ran, results_by_call(log)["call_1"].text) == (["hi", "HI"], "HI")


async def test_after_a_crash_steps_with_a_result_do_not_run_again() -> None:
    ran: list[str] = []

    @vaka.tool
    async def send(text: str) -> str:
        """Send."""
        ran.append(text)
        return f"sent {text}"

    def parts() -> vaka.Agent:
        two = ToolStep("two", send, '{text: "\\(.steps.one) \\(now)"}')
        steps = [ToolStep("one", send), two, ToolStep("three", find, '{city: "x"}')]
        model = ScriptedModel(call("both", text="a"), say("done"))
        return agent(model, CompositeTool("both", steps=steps))

    store = MemoryStore()
    commits = count_commits(store).commits
    async with runtime(store, permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
        await (await rt.open(parts(), id="s")).run("Go.")
    log = await read_log(store, "s")
    assert len(ran) == 2
    for cut in list(accumulate(map(len, commits)))[:-1]:
        starts = [event.data.call for event in log[:cut] if isinstance(event.data, ToolStarted)]
        started = {call.id for call in starts if call.name == "send"}
        ended = {event.data.result.call for event in log[:cut] if isinstance(event.data, ToolCompleted)}
        if started - ended:
            continue  # it is not known whether that step has run
        ran.clear()
        crashed = MemoryStore()
        await log_writer(crashed, "s", log[:cut])()
        async with runtime(crashed, permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
            resumed: list[Any] = await collect((await rt.open(parts(), id="s")).resume())
        assert (resumed[-1].data.text, len(ran)) == ("done", 2 - len(started)), cut
        check_log(await read_log(crashed, "s"))
        assert results_by_call(await read_log(crashed, "s"))["call_1"].value["city"] == "x"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "composite tool: name is required"),
        ({"mode": "parallel"}, "invalid composite mode 'parallel'"),
        ({"steps": []}, "tool c: steps is required"),
        ({"steps": [ToolStep("", shout)]}, "tool c: step[0].id is required"),
        ({"steps": [ToolStep("a", shout), ToolStep("a", shout)]}, 'tool c: duplicate step id "a"'),
        ({"steps": [ToolStep("a", None)]}, "step a must have tool.$ref or inline tool"),
        ({"steps": [ToolStep("a", shout, ".[")]}, 'invalid jq expression ".["'),
    ],
)
def test_a_definition_that_is_not_valid_says_what_is_expected(options: dict[str, Any], message: str) -> None:
    given = {"name": "c", "steps": [ToolStep("a", shout)], **options}
    with pytest.raises(InvalidInput) as caught:
        CompositeTool(given.pop("name"), **given)
    assert message in str(caught.value)


async def test_two_different_tools_of_one_name_are_refused() -> None:
    other = GeneratorTool("shout", model="default")
    tool = CompositeTool("c", steps=[ToolStep("a", shout), ToolStep("b", other)])
    with pytest.raises(InvalidInput, match="two steps have different tools with the name 'shout'"):
        await run(tool, {"text": "hi"})


async def test_a_tool_that_is_in_many_steps_is_built_once() -> None:
    tool: Any = shout
    for level in range(64):  # 2**64 ways to the innermost tool
        tool = CompositeTool(f"level_{level}", steps=[ToolStep("first", tool), ToolStep("second", tool)])
    async with runtime(MemoryStore()) as rt:
        session = await rt.open(agent(ScriptedModel(say("Hi.")), tool))
        assert (await session.run("Hi.")).text == "Hi."
