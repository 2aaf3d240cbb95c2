"""Child agents given as data, and the tool Task: resume, models, usage, limits."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, event_types, read_log, results_by_call, runtime
from vaka.config.options import Commands, Models, Workspace
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage, text_of
from vaka.errors import InvalidInput
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, RecordingModel, ScriptedModel, call, calls, fail, say

RUNNER = vaka.SubAgent(name="runner", description="Runs errands.", instructions="You run.")


@vaka.tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@vaka.tool(effect="once")
async def change() -> str:
    """Change."""
    return "changed"


async def run_turns(model: Any, *prompts: str, subagents: Any = None, tools: Any = (), **options: Any) -> list[Any]:
    """Run turns in one session, each in a runtime of its own, and return the log."""
    store = MemoryStore()
    for prompt in prompts or ("Go.",):
        async with runtime(store, permissions=vaka.Permissions(mode="bypassPermissions"), **options) as rt:
            caller = agent(model, *tools, middleware=[subagents or vaka.SubAgents(RUNNER)])
            await (await rt.open(caller, id="s")).run(prompt)
    log = await read_log(store, "s")
    check_log(log)
    return log


def answers_with(text: str) -> Any:
    async def answer(prompt: Any) -> str:
        return text

    return answer


def prompts_of(model: Any, name: str) -> list[Any]:
    return [prompt for prompt in model.prompts if prompt.agent == name]


def conversation(prompt: Any) -> list[str]:
    """Return the texts of a prompt, in order."""
    texts: list[str] = []
    for message in prompt.messages:
        if isinstance(message, UserMessage | AssistantMessage):
            texts.append(text_of(message.content) or "+".join(c.name for c in getattr(message, "calls", ())))
        elif isinstance(message, ToolMessage):
            texts += [result.text for result in message.results]
    return texts


async def test_a_child_agent_of_data_has_its_own_instructions_and_the_tools_it_may_use() -> None:
    helpers = vaka.SubAgents(
        vaka.SubAgent(name="reader", description="Reads.", instructions="You read.", allowed_tools=["look"]),
        vaka.SubAgent(name="own", instructions="You change.", tools=[change]),
        vaka.SubAgent(name="careful", disallowed_tools=["change"]),
        vaka.Agent("whole", description="An agent.", instructions="Whole.", tools=[look]),
        general_purpose=False,
    )
    names = ["reader", "own", "careful", "whole"]
    model = ScriptedModel(
        calls(*(call("Task", prompt="Go.", subagent_type=name) for name in [*names, "general-purpose", ""])),
        say("done"),
        agents={name: [say(f"by {name}")] for name in names},
    )
    log = await run_turns(model, subagents=helpers, tools=(look, change))
    menu = next(spec.description for spec in model.prompts[0].tools if spec.name == "Task")
    assert menu.endswith("- reader: Reads.\n- own\n- careful\n- whole: An agent.")
    offered = {name: [spec.name for spec in prompts_of(model, name)[0].tools] for name in names}
    assert offered == {"reader": ["look"], "own": ["change"], "careful": ["look"], "whole": ["look"]}
    assert [prompts_of(model, name)[0].system for name in names] == ["You read.", "You change.", "", "Whole."]
    results = results_by_call(log)
    assert results["call_1"].text == "by reader\n\n[agent id: agent-1]"
    assert "there is no agent 'general-purpose'; there are: reader, own, careful, whole" in results["call_5"].text
    assert "name one of: reader, own, careful, whole" in results["call_6"].text


async def test_calls_of_task_in_one_answer_run_at_the_same_time() -> None:
    arrived = asyncio.Barrier(3)

    async def answer(prompt: Any) -> Any:
        if prompt.agent == "runner":
            await arrived.wait()
            return "together"
        if len(prompt.messages) > 1:
            return "done"
        return calls(*(call("Task", prompt=name, subagent_type="runner") for name in "ABC"))

    log = await run_turns(FunctionModel(answer))
    assert {result.text.partition("\n")[0] for result in results_by_call(log).values()} == {"together"}


async def test_a_child_agent_goes_on_with_its_conversation_also_in_another_process() -> None:
    model = ScriptedModel(
        call("Task", prompt="Look.", subagent_type="runner"),
        say("one"),
        call("Task", prompt="And now?", resume="agent-1"),
        say("two"),
        call("Task", prompt="Once more.", resume="agent-2"),
        say("three"),
        agents={"runner": [call("look"), say("I saw."), say("I know."), say("Still.")]},
    )
    log = await run_turns(model, "A.", "B.", "C.", tools=(look,))
    known = ["Look.", "look", "seen", "I saw.", "And now?"]
    assert conversation(prompts_of(model, "runner")[2]) == known
    assert conversation(prompts_of(model, "runner")[3]) == [*known, "I know.", "Once more."]
    assert prompts_of(model, "runner")[3].system == "You run."
    results = results_by_call(log)
    assert results["call_3"].text == "Still.\n\n[agent id: agent-3]"
    started = [event.data.after for event in log if event.type == "subagent.started"]
    assert started == ["", "agent-1", "agent-2"]


class RecordingEvents:
    """An event store that records from where it is read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.starts: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, session: Any, *, after: int = 0, upto: int | None = None) -> Any:
        self.starts.append(after)
        return self._inner.read(session, after=after, upto=upto)


async def test_resuming_reads_the_log_only_from_the_start_of_the_conversation() -> None:
    model = ScriptedModel(
        *[say("before")] * 3,
        call("Task", prompt="Go.", subagent_type="runner"),
        say("one"),
        call("Task", prompt="More.", resume="agent-1"),
        call("Task", prompt="More.", resume="agent-2"),
        say("two"),
        agents={"runner": [say("a"), say("b"), say("c")]},
    )
    store = MemoryStore()
    events: Any = RecordingEvents(store.events)
    store.events = events
    async with runtime(store) as rt:
        session = await rt.open(agent(model, middleware=[vaka.SubAgents(RUNNER)]), id="s")
        for prompt in "ABCDE":
            await session.run(prompt)
    started = next(event.seq for event in await read_log(store, "s") if event.type == "subagent.started")
    assert events.starts.count(started - 1) == 2
    assert conversation(prompts_of(model, "runner")[-1]) == ["Go.", "a", "More.", "b", "More."]


async def test_a_resumed_child_that_waits_for_a_person_goes_on_in_another_process() -> None:
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"),
        call("Task", prompt="Now.", resume="agent-1"),
        say("done"),
        agents={"runner": [say("ready"), call("change"), say("It is done.")]},
    )
    store = MemoryStore()
    caller = agent(model, change, middleware=[vaka.SubAgents(RUNNER)])
    async with runtime(store, permissions=vaka.Permissions(allow=["Task"], confirm=["change"], ask="suspend")) as rt:
        with pytest.raises(vaka.Suspended):
            await (await rt.open(caller, id="s")).run("Go.")
    async with runtime(store.open_handle(), permissions=vaka.Permissions(allow=["Task"], confirm=["change"])) as rt:
        [pending] = await rt.decisions()
        await rt.resolve(pending.id, "approve")
        async for _ in (await rt.open(caller, id="s")).resume():
            pass
    assert conversation(prompts_of(model, "runner")[-1]) == ["Go.", "ready", "Now.", "change", "changed"]
    assert results_by_call(await read_log(store, "s"))["call_2"].text == "It is done.\n\n[agent id: agent-2]"


async def test_a_child_agent_that_resumes_can_resume_its_own_children() -> None:
    inner = vaka.SubAgent(name="inner", instructions="Inner.")
    outer = vaka.SubAgent(name="outer", middleware=[vaka.SubAgents(inner)])
    model = ScriptedModel(
        call("Task", prompt="Out.", subagent_type="outer"),
        say("one"),
        call("Task", prompt="Out again.", resume="agent-1"),
        say("two"),
        call("Task", prompt="Not yours.", resume="agent-1/agent-1"),
        say("three"),
        agents={
            "outer": [
                call("Task", prompt="In.", subagent_type="inner"),
                say("o1"),
                call("Task", prompt="In again.", resume="agent-1/agent-1"),
                say("o2"),
            ],
            "inner": [say("i1"), say("i2")],
        },
    )
    log = await run_turns(model, "A.", "B.", "C.", subagents=vaka.SubAgents(outer))
    assert conversation(prompts_of(model, "inner")[1]) == ["In.", "i1", "In again."]
    assert results_by_call(log)["call_1.1"].text == "i1\n\n[agent id: agent-1/agent-1]"
    assert "there is no agent 'agent-1/agent-1' to resume" in results_by_call(log)["call_3"].text


async def test_an_agent_that_is_unknown_or_was_rewound_cannot_be_resumed() -> None:
    first = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"), say("one"), agents={"runner": [say("ran")]}
    )
    second = ScriptedModel(
        calls(call("Task", prompt="Go.", resume="agent-1"), call("Task", prompt="Go.", resume="../x")), say("two")
    )
    store = MemoryStore()
    for model in (first, second):
        async with runtime(store) as rt:
            session = await rt.open(agent(model, middleware=[vaka.SubAgents(RUNNER)]), id="s")
            await session.run("Go.")
            await session.rewind("1.1")
    texts = [result.text for result in results_by_call(await read_log(store, "s")).values()]
    assert "there is no agent 'agent-1' to resume; leave out resume to start a new one" in texts[1]
    assert "there is no agent '../x' to resume" in texts[2]


async def test_a_resumed_child_keeps_its_folder_and_its_list_of_tasks(tmp_path: Any) -> None:
    (tmp_path / "inside").mkdir()
    todos = [{"content": "Sweep", "status": "pending", "activeForm": "Sweeping"}]
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"),
        say("one"),
        call("Task", prompt="Where?", resume="agent-1"),
        say("two"),
        agents={
            "runner": [
                calls(call("Bash", command="cd inside"), call("TodoWrite", todos=todos)),
                say("r1"),
                call("Bash", command="pwd"),
                say("r2"),
            ]
        },
    )
    log = await run_turns(
        model,
        "A.",
        "B.",
        tools=("Bash", "TodoWrite"),
        workspace=Workspace(cwd=str(tmp_path)),
        commands=Commands(sandbox="off"),
    )
    assert str(tmp_path / "inside") in results_by_call(log)["call_2.1"].text
    changed = [event.data.key for event in log if event.type == "state.changed"]
    assert {"todos/agent-1", "todos/agent-2"} <= set(changed)


async def test_an_agent_that_is_a_script_keeps_its_state_when_it_is_resumed(tmp_path: Any) -> None:
    script = tmp_path / "counter.luau"
    script.write_text(
        """function on_input(ctx, input)
            local state = ctx.agent.state
            state.heard = (state.heard or 0) + 1
            ctx.emit({ text = tostring(state.heard), eof = true })
        end""",
        encoding="utf-8",
    )
    counter = vaka.LuauAgent("counter", script, description="Counts.")
    tasks = [{"subagent_type": "counter"}, {"resume": "agent-1"}, {"resume": "agent-2"}]
    model = ScriptedModel(*(call("Task", prompt="Count.", **task) for task in tasks), say("done"))
    log = await run_turns(model, subagents=vaka.SubAgents(counter))
    assert [result.text.partition("\n")[0] for result in results_by_call(log).values()] == ["1", "2", "3"]


async def test_the_usage_of_children_counts_for_the_turn_and_is_told_apart_by_agent() -> None:
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner") | {"usage": {"input": 10, "output": 1}},
        say("done", usage={"input": 20, "output": 2}),
        agents={"runner": [say("ran", usage={"input": 300, "output": 30})]},
    )
    async with runtime() as rt:
        session = await rt.open(agent(model, middleware=[vaka.SubAgents(RUNNER)]), id="s")
        response = await session.run("Go.")
        stats = await rt.stats("s")
    assert (response.usage.input, response.usage.output) == (330, 33)
    assert {name: one.usage.input for name, one in stats.by_agent.items()} == {"assistant": 30, "runner": 300}


async def test_a_budget_of_the_caller_binds_its_children() -> None:
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"),
        say("done"),
        agents={"runner": [call("look") | {"usage": {"input": 90, "output": 20}}, say("never")]},
    )
    async with runtime() as rt:
        limits = vaka.Limits(max_tokens=100)
        caller = agent(model, look, middleware=[vaka.SubAgents(RUNNER)], limits=limits)
        response = await (await rt.open(caller, id="s")).run("Go.")
    assert (response.stop, response.limit) == ("limit", "tokens")
    assert len(prompts_of(model, "runner")) == 1


async def test_models_of_child_agents_come_from_the_call_the_agent_the_tier_or_the_caller() -> None:
    pool = {name: RecordingModel(FunctionModel(answers_with(name), name=name)) for name in ("low", "high")}
    children = vaka.SubAgents(
        vaka.SubAgent(name="plain"),
        vaka.SubAgent(name="mapped"),
        vaka.SubAgent(name="tiered", model="opus"),
        vaka.SubAgent(name="given", model=FunctionModel(answers_with("own"))),
    )
    wanted = [
        ("plain", ""),
        ("mapped", ""),
        ("tiered", ""),
        ("given", ""),
        ("tiered", "haiku"),
        ("plain", "high"),
        ("plain", "nix"),
        ("plain", "scripted:/etc/passwd"),
        ("plain", "mid"),
    ]
    tasks = [call("Task", prompt="Go.", subagent_type=name, model=model) for name, model in wanted]
    caller = ScriptedModel(calls(*tasks), say("done"), agents={"plain": [say("caller")] * 4})
    options: Any = {"models": Models(tiers=pool, subagents={"Mapped": "low"})}
    log = await run_turns(caller, subagents=children, **options)
    texts = [results_by_call(log)[f"call_{number}"].text.partition("\n")[0] for number in range(1, 10)]
    assert texts[:6] == ["caller", "low", "high", "own", "low", "high"]
    assert texts[6] == "ConfigError: there is no model 'nix'; use one of low, mid, high, or PROVIDER/NAME"
    assert "there is no model 'scripted:/etc/passwd'" in texts[7]
    assert texts[8] == "caller"
    selected = [event.data.reason for event in log if event.type == "model.selected"]
    assert any("tier 'mid' (asked for) is not in the pool" in reason for reason in selected)


async def test_rules_name_agents_also_where_a_call_leaves_the_name_out_or_resumes_one() -> None:
    start = call("Task", prompt="Go.", subagent_type="RUNNER")
    first = ScriptedModel(start, say("one"), agents={"runner": [say("ran")]})
    unnamed, named = {"prompt": "More.", "resume": "agent-1"}, {"subagent_type": "runner"}
    second = ScriptedModel(
        *[say("unused")] * 2,
        calls(
            call("Task", prompt="Go."),
            call("Task", **unnamed),
            call("Task", **unnamed, **named),
            call("Task", **unnamed, subagent_type="general-purpose"),
            start,
        ),
        say("two"),
    )
    store = MemoryStore()
    for model, deny in ((first, ()), (second, ("Task(general-purpose)", "Task(runner)"))):
        async with runtime(store, permissions=vaka.Permissions(deny=deny, mode="dontAsk", allow=["Task"])) as rt:
            await (await rt.open(agent(model, middleware=[vaka.SubAgents(RUNNER)]), id="s")).run("Go.")
    log = await read_log(store, "s")
    results = results_by_call(log)
    assert results["call_1"].text.startswith("ran")
    assert all(results[f"call_{number}"].failed for number in range(2, 7))
    assert "name it too: subagent_type='runner'" in results["call_3"].text
    assert event_types(log).count("subagent.started") == 1


async def test_two_calls_can_continue_the_same_agent_at_the_same_time() -> None:
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"),
        calls(call("Task", prompt="East.", resume="agent-1"), call("Task", prompt="West.", resume="agent-1")),
        say("done"),
        agents={"runner": [say("ready"), say("looked"), say("looked")]},
    )
    await run_turns(model)
    known = sorted(conversation(prompt) for prompt in prompts_of(model, "runner")[1:])
    assert known == [["Go.", "ready", "East."], ["Go.", "ready", "West."]]


async def test_an_agent_can_be_resumed_in_a_fork_of_its_session() -> None:
    first = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"), say("one"), agents={"runner": [say("ran")]}
    )
    again = [call("Task", prompt="More.", resume="agent-1"), say("two")]
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(agent(first, middleware=[vaka.SubAgents(RUNNER)]), id="s")).run("A.")
        fork = await rt.fork("s", id="f")
    model = ScriptedModel(*[say("unused")] * 2, *again, agents={"runner": [say("unused"), say("more")]})
    async with runtime(store) as rt:
        await (await rt.open(agent(model, middleware=[vaka.SubAgents(RUNNER)]), id=str(fork))).run("B.")
    assert conversation(prompts_of(model, "runner")[0]) == ["Go.", "ran", "More."]


async def test_the_mode_dont_ask_refuses_what_would_need_an_approval() -> None:
    child = vaka.SubAgent(name="quiet", permission_mode="dontAsk")
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="quiet"),
        say("done"),
        agents={"quiet": [call("change"), say("refused")]},
    )
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(allow=["Task"], confirm=["change"])) as rt:
        await (await rt.open(agent(model, change, middleware=[vaka.SubAgents(child)]), id="s")).run("Go.")
    log = await read_log(store, "s")
    assert "this agent does not ask" in results_by_call(log)["call_1.1"].text
    assert "approval.requested" not in event_types(log)


async def test_an_agent_that_stopped_at_an_error_names_its_id_and_can_be_resumed() -> None:
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"),
        call("Task", prompt="Again.", resume="agent-1"),
        say("ok"),
        agents={"runner": [call("look"), fail(400, "no"), say("Now it works.")]},
    )
    log = await run_turns(model, tools=(look,))
    assert results_by_call(log)["call_1"].failed
    assert results_by_call(log)["call_1"].text.endswith("[agent id: agent-1]")
    assert conversation(prompts_of(model, "runner")[-1]) == ["Go.", "look", "seen", "Again."]


def test_child_agents_need_names_of_their_own() -> None:
    with pytest.raises(InvalidInput, match="two child agents are named 'runner'"):
        vaka.SubAgents(RUNNER, RUNNER)
    with pytest.raises(InvalidInput, match="at least one agent"):
        vaka.SubAgents(general_purpose=False)
