"""Agents of a runtime with a project: memory in the prompt, skills, commands, child agents of files."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

import vaka
from tests.opened_files import opened_files
from tests.runtime.runtime_fixtures import agent, check_log, event_types, read_log, results_by_call, runtime, write
from vaka.config.options import Models, Workspace
from vaka.core.types.message import UserMessage, text_of
from vaka.project.content import ProjectSource
from vaka.runtime.options import Environment, Project
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say


def write_skill(folder: Path, name: str, body: str, head: str = "description: Reviews.") -> Path:
    return write(folder / f".claude/skills/{name}/SKILL.md", f"---\nname: {name}\n{head}\n---\n{body}")


async def run_in(
    folder: Path, model: Any, *prompts: str, tools: Any = (), trusted: bool = True, **options: Any
) -> list[Any]:
    """Run turns in one session and return the log."""
    store = MemoryStore()
    project = ProjectSource(trusted=trusted)
    async with runtime(
        store,
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=project),
        permissions=vaka.Permissions(mode="bypassPermissions"),
        **options,
    ) as rt:
        session = await rt.open(agent(model, *tools, instructions="Be brief."), id="s")
        for prompt in prompts or ("Go.",):
            await session.run(prompt)
    log = await read_log(store, "s")
    check_log(log)
    return log


def first_prompt(model: Any, number: int = 0) -> str:
    return next(text_of(m.content) for m in model.prompts[number].messages if isinstance(m, UserMessage))


def menu_of(model: Any, number: int = 0) -> dict[str, str]:
    return {spec.name: spec.description for spec in model.prompts[number].tools}


async def test_memory_rules_and_output_style_are_in_the_system_prompt_in_order(folder: Path) -> None:
    write(folder.parent / "home/.claude/CLAUDE.md", "Of the user.")
    write(folder / "CLAUDE.md", "Of the project.")
    write(folder / ".claude/rules/1-first.md", "First rule.")
    write(folder / ".claude/rules/typed.md", "---\npaths: '*.ts'\n---\nTyped rule.")
    write(folder / ".claude/output-styles/terse.md", "Be terse.")
    write(folder / ".claude/settings.json", '{"outputStyle": "terse"}')
    model = ScriptedModel(say("done"), say("done"))
    log = await run_in(folder, model, "One.", "Two.")
    system = model.prompts[0].system
    order = ("Be brief.", "Of the user.", "Of the project.", "First rule.", "Be terse.")
    places = [system.index(text) for text in order]
    assert places == sorted(places)
    assert "Typed rule." not in system
    assert model.prompts[1].system == system
    steps = [event.data.system for event in log if event.type == "step.started"]
    assert len(set(steps)) == 1


async def test_the_prompt_of_a_later_call_begins_with_the_bytes_of_the_one_before(folder: Path) -> None:
    write(folder / "CLAUDE.md", "Of the project.")
    write(folder / "sub/CLAUDE.md", "Of a nested folder.")
    write(folder / "sub/a.ts", "let a")
    write(folder / ".claude/rules/typed.md", "---\npaths: '**/*.ts'\n---\nTyped rule.")
    write(folder / ".claude/rules/1-first.md", "First rule.")
    write(folder / ".claude/commands/fix.md", "Fix it.")
    write(folder / ".claude/agents/mate.md", "---\nname: mate\ndescription: Helps.\n---\nYou help.")
    write(folder / ".claude/settings.json", '{"permissions": {"deny": ["Bash(rm:*)"]}}')
    write_skill(folder, "review", "Look.")
    clock = FakeClock()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Let time pass, so that all files are looked at again."""
        clock.advance(5)
        return "later"

    read = call("Read", file_path=str(folder / "sub/a.ts"))
    model = ScriptedModel(read, call("wait"), call("Skill", skill="review"), say("one"), call("wait"), say("two"))
    await run_in(folder, model, "One.", "Two.", tools=("Read", wait), environment=Environment(clock=clock))
    sent = [(encode(prompt.tools), prompt.system, [*map(encode, prompt.messages)]) for prompt in model.prompts]
    assert len(sent) == 6
    assert any(b"Typed rule." in message for message in sent[1][2])
    for before, after in pairwise(sent):
        assert after[:2] == before[:2]
        assert after[2][: len(before[2])] == before[2]


async def test_changed_files_reach_the_next_model_call(folder: Path) -> None:
    clock = FakeClock()
    write(folder / "CLAUDE.md", "Before.")

    @vaka.tool(effect="once")
    async def change() -> str:
        """Change the project."""
        clock.advance(2)
        write(folder / "CLAUDE.md", "After.")
        write(folder / ".claude/skills/new/SKILL.md", "---\nname: new\ndescription: New skill.\n---\nBody")
        write(folder / ".claude/output-styles/terse.md", "Be terse.")
        write(folder / ".claude/settings.json", '{"outputStyle": "terse"}')
        return "changed"

    model = ScriptedModel(call("change"), say("done"))
    await run_in(folder, model, tools=(change,), environment=Environment(clock=clock))
    assert "Before." in model.prompts[0].system
    assert "After." in model.prompts[1].system
    assert model.prompts[1].system.endswith("# Output style: terse\n\nBe terse.")
    assert "Skill" not in menu_of(model)
    assert "- new: New skill." in menu_of(model, 1)["Skill"]


async def test_settings_that_cannot_be_read_for_a_moment_change_nothing(folder: Path) -> None:
    clock = FakeClock()
    write(folder / ".claude/settings.json", "{}")
    write(folder / "CLAUDE.md", "Memory.")

    @vaka.tool(effect="once")
    async def change() -> str:
        """Break the settings."""
        clock.advance(2)
        write(folder / ".claude/settings.json", "{ half")
        return "changed"

    model = ScriptedModel(call("change"), say("done"))
    log = await run_in(folder, model, tools=(change,), environment=Environment(clock=clock))
    assert "Memory." in model.prompts[1].system
    assert any("settings.json:1: not JSON" in event.data.message for event in log if event.type == "log")


async def test_a_skill_is_named_in_the_menu_and_its_body_is_read_on_use(folder: Path) -> None:
    path = write_skill(folder, "review", "Look at $1 in ${CLAUDE_SKILL_DIR}.")
    write_skill(folder, "hidden", "B", "description: x\ndisable-model-invocation: true")
    uses = calls(call("Skill", skill="review", args="a.py"), call("Skill", command="hidden"))
    model = ScriptedModel(uses, say("done"))
    log = await run_in(folder, model)
    assert "Reviews." in menu_of(model)["Skill"]
    assert "hidden" not in menu_of(model)["Skill"]
    results = results_by_call(log)
    assert results["call_1"].text == f"Base folder of this skill: {path.parent}\n\nLook at a.py in {path.parent}."
    assert "there is no skill 'hidden'" in results["call_2"].text


async def test_the_body_of_a_skill_is_read_once_until_it_changes(folder: Path) -> None:
    path = write_skill(folder, "review", "Old body.")
    os.utime(path, (1_000_000_000, 1_000_000_000))

    @vaka.tool(effect="once")
    async def rewrite() -> str:
        """Rewrite the skill."""
        write_skill(folder, "review", "New body.")
        return "rewritten"

    uses = [call("Skill", skill="review", args=name) for name in "abc"]
    model = ScriptedModel(calls(*uses), call("rewrite"), uses[0], say("done"))
    with opened_files("SKILL.md") as opened:
        log = await run_in(folder, model, tools=(rewrite,))
        bodies = [result.text.splitlines()[2] for call, result in results_by_call(log).items() if call != "call_4"]
    assert bodies == ["Old body."] * 3 + ["New body."]
    assert opened.count(str(path)) <= 4  # the head and the body, before and after the change


async def test_a_menu_of_500_skills_fits_its_budget_and_has_the_same_bytes_in_every_step(folder: Path) -> None:
    for number in range(500):
        write_skill(folder, f"skill-{number:03}", "Body", f"description: {'Does much work. ' * (number % 60)}")
    clock = FakeClock()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Wait for the next reading of the project."""
        clock.advance(5)
        return "waited"

    model = ScriptedModel(call("wait"), call("wait"), say("done"))
    log = await run_in(folder, model, tools=(wait,), environment=Environment(clock=clock))
    texts = [menu_of(model, number)["Skill"] for number in range(3)]
    lines = texts[0].splitlines()[1:]
    assert texts[0] == texts[1] == texts[2]
    assert len("\n".join(lines)) <= 15_000
    assert [line.partition(":")[0] for line in lines] == [f"- skill-{number:03}" for number in range(500)]
    assert len({event.data.tools for event in log if event.type == "step.started"}) == 1


async def test_a_prompt_that_names_a_command_is_replaced_by_its_text_and_other_text_stays(folder: Path) -> None:
    write(folder / ".claude/commands/git/fix.md", "Fix bug $1 with $2.\nAll: $ARGUMENTS")
    write(folder / ".claude/commands/plain.md", "Do it.")
    write(folder / "notes.txt", "The notes.")
    write(folder / ".claude/commands/notes.md", "Read @notes.txt and @missing.txt")
    model = ScriptedModel(*[say("done")] * 5)
    prompts = ("/git:fix 12 'two words'", "/plain now", "/etc/hosts is empty, why?", "/notes", "Use /plain here")
    await run_in(folder, model, *prompts)
    said = [text_of(m.content) for m in model.prompts[-1].messages if isinstance(m, UserMessage)]
    assert said[0] == "Fix bug 12 with two words.\nAll: 12 'two words'"
    assert said[1] == "Do it.\n\nArguments: now"
    assert said[2] == "/etc/hosts is empty, why?"
    assert "The notes." in said[3]
    assert said[3].endswith("@missing.txt")
    assert said[4] == "Use /plain here"


async def test_a_command_or_skill_that_a_prompt_calls_chooses_the_model_of_its_turn(folder: Path) -> None:
    own, high = (ScriptedModel(say(name, repeat=True), name=name) for name in ("own", "high"))
    for name, model in {"fast": "opus", "same": "inherit", "away": "mistral/x", "old": "claude-opus-4-1"}.items():
        write(folder / f".claude/commands/{name}.md", f"---\nmodel: {model}\n---\nDo it.")
    write_skill(folder, "think", "Think.", "description: Thinks.\nmodel: high")
    write(folder / ".claude/commands/poor.md", "---\nmodel: haiku\n---\nDo it.")
    prompts = ("/fast", "Go.", "/same", "/away", "/old", "/think", "/poor", "/unknown")
    log = await run_in(folder, own, *prompts, models=Models(tiers={"high": high}), environment=Environment(environ={}))
    answers = [event.data.text for event in log if event.type == "turn.completed"]
    assert answers == ["high", "own", "own", "own", "high", "high", "own", "own"]
    (warning,) = [event.data.message for event in log if event.type == "log"]
    assert "away.md: model 'mistral/x' is not used: " in warning


async def test_the_file_of_an_agent_names_its_mcp_servers_and_how_much_it_reasons(folder: Path) -> None:
    head = "---\nname: mate\ndescription: Helps.\neffort: high\ninitialPrompt: Hi.\nmcpServers: [ship log]\n---\n"
    write(folder / ".claude/agents/mate.md", head)
    tools = [vaka.tool(lambda: "", name=f"mcp__{name}__see", description="See.") for name in ("ship_log", "port")]
    model = ScriptedModel(call("Task", prompt="Help.", subagent_type="mate"), say("helped"), say("done"))
    await run_in(folder, model, tools=("Read", *tools))
    assert {"mcp__ship_log__see", "mcp__port__see", "Read"} <= menu_of(model).keys()
    assert {"mcp__ship_log__see", "Read"} <= menu_of(model, 1).keys()
    assert "mcp__port__see" not in menu_of(model, 1)
    assert [prompt.options.get("reasoning") for prompt in model.prompts] == [None, "high", None]


async def test_shell_blocks_of_a_command_run_only_if_they_are_allowed(folder: Path) -> None:
    blocks = "Now: !`echo hello` and !`touch made`"
    write(folder / ".claude/commands/state.md", f"---\nallowed-tools: Bash(echo:*)\n---\n{blocks}")
    for trusted, shown in ((True, "Now: hello and [touch made: not run"), (False, "Now: [echo hello: not run")):
        model = ScriptedModel(say("done"))
        store = MemoryStore()
        options: Any = (
            {"permissions": vaka.Permissions(mode="dontAsk", confirm=("Bash(echo:*)",))} if not trusted else {}
        )
        async with runtime(
            store,
            workspace=Workspace(cwd=str(folder)),
            project=Project(content=ProjectSource(trusted=trusted)),
            **options,
        ) as rt:
            await (await rt.open(agent(model, "Bash"), id="s")).run("/state")
        assert first_prompt(model).startswith(shown)
    assert not (folder / "made").exists()


async def test_the_model_can_use_commands_that_allow_it(folder: Path) -> None:
    write(folder / ".claude/commands/deploy.md", "Deploy to $1.")
    write(folder / ".claude/commands/secret.md", "---\ndisable-model-invocation: true\n---\nNo.")
    uses = calls(call("SlashCommand", command="/deploy prod"), call("SlashCommand", command="/secret"))
    model = ScriptedModel(uses, say("done"))
    log = await run_in(folder, model)
    assert "- /deploy: Deploy to $1." in menu_of(model)["SlashCommand"]
    assert results_by_call(log)["call_1"].text == "Deploy to prod."
    assert "there is no command '/secret'" in results_by_call(log)["call_2"].text


@vaka.tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@vaka.tool(effect="once")
async def change() -> str:
    """Change."""
    return "changed"


async def test_an_agent_of_a_file_runs_in_the_log_of_its_caller_with_its_own_prompt_and_tools(folder: Path) -> None:
    head = "name: helper\ndescription: Helps.\ntools: look\nmaxTurns: 5\nskills: review"
    write(folder / ".claude/agents/helper.md", f"---\n{head}\n---\nYou help.")
    write(folder / ".claude/skills/review/SKILL.md", "---\nname: review\ndescription: x\n---\nReview well.")
    helper = [call("look"), say("helped")]
    model = ScriptedModel(call("Task", prompt="Help.", subagent_type="helper"), say("done"), agents={"helper": helper})
    log = await run_in(folder, model, tools=(look, change))
    assert results_by_call(log)["call_1"].text == "helped\n\n[agent id: agent-1]"
    child = next(prompt for prompt in model.prompts if prompt.agent == "helper")
    assert child.system.startswith("You help.\n\n# Skill: review\n\nReview well.")
    assert [spec.name for spec in child.tools] == ["look"]
    assert "- helper: Helps." in menu_of(model)["Task"]
    assert event_types(log).count("subagent.started") == 1


async def test_the_tools_of_an_agent_are_found_by_alias_and_in_lower_case(folder: Path) -> None:
    heads = {"one": "tools: bash, Agent(two)", "two": "disallowedTools: bash, Agent", "three": "tools: []"}
    for name, head in heads.items():
        write(folder / f".claude/agents/{name}.md", f"---\nname: {name}\ndescription: D.\n{head}\n---\nYou help.")
    tasks = [call("Task", prompt="Go.", subagent_type=name) for name in heads]
    model = ScriptedModel(calls(*tasks), say("done"), agents={name: [say("done")] for name in heads})
    await run_in(folder, model, tools=("Bash", "Read"))
    found = {prompt.agent: sorted(spec.name for spec in prompt.tools) for prompt in model.prompts}
    assert (found["one"], found["two"], found["three"]) == (["Bash", "Task"], ["Read"], [])


async def test_child_agents_of_data_are_offered_with_those_of_files_and_replace_them(folder: Path) -> None:
    write(folder / ".claude/agents/helper.md", "---\ndescription: Of the file.\n---\nFile.")
    write(folder / ".claude/agents/other.md", "---\ndescription: Other.\n---\nOther.")
    given = vaka.SubAgents(vaka.SubAgent(name="helper", description="Given.", instructions="Given."))
    tasks = calls(call("Task", prompt="A.", subagent_type="helper"), call("Task", prompt="B.", subagent_type="other"))
    model = ScriptedModel(tasks, say("done"), agents={"helper": [say("h")], "other": [say("o")]})
    async with runtime(
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=ProjectSource()),
        permissions=vaka.Permissions(mode="bypassPermissions"),
    ) as rt:
        await (await rt.open(agent(model, look, middleware=[given]), id="s")).run("Go.")
    assert menu_of(model)["Task"].endswith("- helper: Given.\n- other: Other.\n- general-purpose: Has all tools.")
    systems = {prompt.agent: prompt.system for prompt in model.prompts}
    assert (systems["helper"], systems["other"]) == ("Given.", "Other.")


async def test_an_agent_that_names_a_claude_model_without_a_key_has_the_model_of_its_tier_or_caller(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    for name in ("claude-sonnet-4-20250514", "Claude Opus 4.5", "sonnet|opus|haiku"):
        write(folder / ".claude/agents/helper.md", f"---\nname: helper\ndescription: D.\nmodel: {name}\n---\nYou help.")
        task = call("Task", prompt="Go.", subagent_type="helper")
        model = ScriptedModel(task, say("done"), agents={"helper": [say("of the child")]})
        results = results_by_call(await run_in(folder, model))
        assert results["call_1"].text.startswith("of the child"), name
    write(folder / ".claude/agents/helper.md", "---\nname: helper\ndescription: D.\nmodel: gpt4\n---\nYou help.")
    model = ScriptedModel(call("Task", prompt="Go.", subagent_type="helper"), say("done"))
    assert "gpt4" in results_by_call(await run_in(folder, model))["call_1"].text


async def test_a_changed_body_of_an_agent_is_used_by_its_next_task(folder: Path) -> None:
    path = write(folder / ".claude/agents/helper.md", "---\ndescription: Helps.\n---\nBefore.")

    @vaka.tool(effect="once")
    async def rewrite() -> str:
        """Rewrite the agent."""
        write(path, "---\ndescription: Helps.\n---\nAfter.")
        return "rewritten"

    task = call("Task", prompt="Go.", subagent_type="helper")
    model = ScriptedModel(task, call("rewrite"), task, say("done"), agents={"helper": [say("a"), say("b")]})
    await run_in(folder, model, tools=(rewrite,))
    assert [prompt.system for prompt in model.prompts if prompt.agent == "helper"] == ["Before.", "After."]


async def test_the_tools_of_a_request_bind_its_child_agents_and_what_a_project_adds(folder: Path) -> None:
    write_skill(folder, "review", "Body")
    model = ScriptedModel(call("Task", prompt="Go."), say("done"), agents={"general-purpose": [say("ok")]})
    async with runtime(
        workspace=Workspace(cwd=str(folder)),
        project=Project(content=ProjectSource()),
        permissions=vaka.Permissions(mode="bypassPermissions"),
    ) as rt:
        session = await rt.open(agent(model, look, change))
        await session.run("Go.", options={"tool_whitelist": ["look", "Task"]})
    assert [sorted(spec.name for spec in prompt.tools) for prompt in model.prompts] == [["Task", "look"]] * 3


async def test_the_general_agent_has_all_tools_and_several_run_at_once(folder: Path) -> None:
    lines = [say("one"), say("two")]
    model = ScriptedModel(
        calls(call("Task", prompt="A."), call("Task", prompt="B."), call("Task", prompt="C.", subagent_type="nix")),
        say("done"),
        agents={"general-purpose": lines},
    )
    log = await run_in(folder, model, tools=(look, change))
    results = results_by_call(log)
    answers = {results[name].text.partition("\n")[0] for name in ("call_1", "call_2")}
    assert answers == {"one", "two"}
    assert "there is no agent 'nix'; there are: general-purpose" in results["call_3"].text
    child = next(prompt for prompt in model.prompts if prompt.agent == "general-purpose")
    assert {"look", "change", "Task"} <= {spec.name for spec in child.tools}


async def test_a_project_has_agents_that_explore_and_plan_and_names_ignore_case(folder: Path) -> None:
    tasks = [call("Task", prompt="Look.", subagent_type=name) for name in ("Explore", "plan", "x")]
    for plugin in ("one", "two"):
        write(folder / f".claude/plugins/{plugin}/.claude-plugin/plugin.json", f'{{"name": "{plugin}"}}')
        write(folder / f".claude/plugins/{plugin}/agents/x.md", "---\ndescription: X.\n---\nX.")
    lines = {"explore": [say("found")], "plan": [calls(call("look"), call("change")), say("planned")]}
    model = ScriptedModel(calls(*tasks), say("done"), agents=lines)
    log = await run_in(folder, model, tools=(look, change, "Read", "Bash"))
    results = results_by_call(log)
    assert results["call_1"].text.startswith("found")
    assert "name one of: one:x, two:x" in results["call_3"].text
    offered = {prompt.agent: {spec.name for spec in prompt.tools} for prompt in model.prompts}
    assert offered["explore"] == {"Read"}
    assert "this agent only reads" in results["call_2.2"].text


async def test_rules_match_the_whole_names_of_skills_and_commands_of_plugins(folder: Path) -> None:
    write(folder / ".claude/plugins/kit/.claude-plugin/plugin.json", '{"name": "kit"}')
    write(folder / ".claude/plugins/kit/skills/review/SKILL.md", "---\nname: review\ndescription: R.\n---\nSkill.")
    write(folder / ".claude/plugins/kit/commands/go.md", "Command.")
    uses = [call("Skill", skill="review"), call("Skill", command="/review"), call("SlashCommand", command="go now")]
    names = ["Skill(kit:review)", "SlashCommand(/kit:go:*)"]
    for rules, failed in (
        ({"permissions": vaka.Permissions(deny=names)}, True),
        ({"permissions": vaka.Permissions(allow=names, mode="dontAsk")}, False),
    ):
        model, store = ScriptedModel(calls(*uses), say("done")), MemoryStore()
        async with runtime(
            store, workspace=Workspace(cwd=str(folder)), project=Project(content=ProjectSource()), **rules
        ) as rt:
            await (await rt.open(agent(model), id="s")).run("Go.")
        results = results_by_call(await read_log(store, "s"))
        assert [result.failed for result in results.values()] == [failed] * 3, results


async def test_the_permission_mode_of_an_agent_only_narrows(folder: Path) -> None:
    write(folder / ".claude/agents/reader.md", "---\ndescription: Reads.\npermissionMode: plan\n---\nRead.")
    model = ScriptedModel(
        call("Task", prompt="Read.", subagent_type="reader"),
        say("done"),
        agents={"reader": [calls(call("look"), call("change")), say("read")]},
    )
    log = await run_in(folder, model, tools=(look, change))
    texts = {result.text for result in results_by_call(log).values()}
    assert "seen" in texts
    assert "this agent only reads (permissionMode: plan)" in texts


async def test_rules_and_nested_memory_of_a_file_follow_its_first_result(folder: Path) -> None:
    write(folder / "src/CLAUDE.md", "About src.")
    write(folder / "src/a.ts", "code")
    write(folder / ".claude/rules/typed.md", "---\npaths: 'src/**/*.ts'\n---\nTyped rule.")
    reads = [call("Read", file_path="src/a.ts"), call("Read", file_path=str(folder / "src/a.ts"))]
    model = ScriptedModel(*reads, say("done"))
    log = await run_in(folder, model, tools=("Read",))
    results = results_by_call(log)
    assert "About src." in results["call_1"].text
    assert "Typed rule." in results["call_1"].text
    assert "About src." not in results["call_2"].text


async def test_each_agent_is_given_the_memory_of_a_file(folder: Path) -> None:
    write(folder / "src/CLAUDE.md", "About src.")
    write(folder / "src/a.ts", "code")
    write(folder / ".claude/agents/helper.md", "---\nname: helper\ndescription: D.\n---\nYou help.")
    read = call("Read", file_path="src/a.ts")
    tasks = calls(*[call("Task", prompt="Go.", subagent_type="helper")] * 2)
    model = ScriptedModel(tasks, read, read, say("done"), agents={"helper": [read, say("done"), read, say("done")]})
    await run_in(folder, model, tools=("Read",))
    last = {prompt.agent: 0 for prompt in model.prompts}
    for prompt in model.prompts:
        last[prompt.agent] = max(last[prompt.agent], str(prompt.messages).count("About src."))
    assert last == {"assistant": 1, "helper": 1}


async def test_an_input_can_be_steered_into_a_turn_of_an_agent_with_a_project(folder: Path) -> None:
    write(folder / "CLAUDE.md", "Memory.")
    model = ScriptedModel(call("wait"), say("done"))
    store = MemoryStore()
    async with runtime(store, workspace=Workspace(cwd=str(folder)), project=Project(content=ProjectSource())) as rt:

        @vaka.tool(effect="read")
        async def wait() -> str:
            """Wait."""
            await session.send("Also this.", on_busy="steer")
            return "waited"

        session = await rt.open(agent(model, wait), id="s")
        await session.run("Go.")
    assert len(model.prompts) == 2
    said = [text_of(m.content) for m in model.prompts[-1].messages if isinstance(m, UserMessage)]
    assert said == ["Go.", "Also this."]
