"""The GenX runtime on definitions of a folder: agents, tools, contexts and rules by name or reference."""

from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound
from vaka.genx import GenxRuntime, MatchState, MemoryOptions
from vaka.genx.definitions.agents import MatchDefinition, ReactDefinition
from vaka.genx.definitions.parser import parse_definition
from vaka.models.scripted import Scripted
from vaka.testing.models import ScriptedModel, call, say

FILES = {
    "agents/guide.yaml": """
        name: guide
        prompt: You show the way.
        tools:
          - $ref: tool:goodbye
            quit: true
        """,
    "agents/front.yaml": """
        type: match
        name: front
        rules: [{$ref: "rule:way"}]
        route: [{rules: [way], agent: {$ref: "agent:guide"}}]
        """,
    "rules/way.yaml": """
        name: way
        patterns: [show me the way]
        """,
    "contexts/style.yaml": """
        name: style
        prompt: Be brief.
        """,
    "tools/wave.yaml": """
        type: built-in
        name: goodbye
        """,
}


@vaka.tool(effect="read")
async def goodbye() -> str:
    """End the conversation."""
    return "waved"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(line[8:] for line in text.splitlines()), "utf-8")
    return tmp_path


def lines(**by_agent: list[dict[str, Any]]) -> Scripted:
    return ScriptedModel(*(line | {"agent": name} for name, of_agent in by_agent.items() for line in of_agent))


async def test_a_router_of_definitions_runs_until_its_agent_is_closed(folder: Path) -> None:
    model = lines(front=[say("way")], guide=[call("goodbye"), say("That way.")])
    async with runtime(model=model) as rt:
        genx = GenxRuntime(rt, folder, tools=[goodbye])
        front = await genx.new_match_agent("agent:front")
        assert isinstance(front.definition, MatchDefinition)
        assert front.definition == await genx.get_agent_def("front")
        events = await front.run_until_eof("Show me.")
        kinds = [(event.type.value, event.agent_def, event.phase) for event in events if not event.chunk]
        assert kinds == [
            ("tool_start", "guide", "tool"),
            ("tool_done", "guide", "tool"),
            ("eof", "front", ""),
        ]
        restored = await genx.restore_agent(f"state:{front.state_id}")
        assert isinstance(restored.state, MatchState)
        with pytest.raises(InvalidInput, match="'front' is not of type react"):
            await genx.new_react_agent("front")


async def test_tools_contexts_and_rules_are_found_by_name(folder: Path) -> None:
    async with runtime(model=ScriptedModel(say("Here."))) as rt:
        genx = GenxRuntime(rt, folder, tools=[goodbye])
        assert await genx.get_tool("tool:goodbye") is goodbye
        definition = await genx.get_tool_def("goodbye")
        assert await genx.create_tool_from_def(definition) is goodbye
        assert (await genx.get_rule("rule:way")).name == "way"
        builder = await genx.get_context_builder("style")
        assert [prompt.text for prompt in (await builder.build()).prompts] == ["Be brief."]
        guide = await genx.new_react_agent("guide")
        await guide.run_until_eof("Where?")
        context = await builder.build(guide.state, MemoryOptions(recent=1))
        assert [message.content for message in context.messages] == ["Here."]
        for method in (genx.get_tool_def, genx.get_agent_def, genx.get_context_builder, genx.get_rule):
            with pytest.raises(NotFound, match="there is no"):
                await method("missing")
        with pytest.raises(ConfigError, match="there is no tool 'goodby'; did you mean goodbye"):
            await genx.get_tool("goodby")
        assert await GenxRuntime(rt, folder, tools=[goodbye]).get_tool("Read")


async def test_a_definition_in_python_is_known_by_its_name_from_then_on() -> None:
    definition = parse_definition("agent", {"name": "guide", "prompt": "You show the way."})
    async with runtime(model=ScriptedModel(say("Here."), say("There."))) as rt:
        genx = GenxRuntime(rt)
        first = await genx.new_agent(definition)
        second = await genx.new_agent(definition)
        assert first.state_id != second.state_id
        assert isinstance(first.definition, ReactDefinition)
        await first.run_until_eof("Where?")
        assert (await (await genx.restore_agent(first.state_id)).format_history()).startswith("[user]: Where?")
        other = parse_definition("agent", {"name": "guide", "prompt": "Another one."})
        await genx.new_agent(agent(ScriptedModel(), name="helper"))
        for taken in (other, agent(ScriptedModel(), name="helper")):
            with pytest.raises(InvalidInput, match="there is another agent"):
                await genx.new_agent(taken)


async def test_a_folder_with_faults_is_refused_with_file_and_line(folder: Path) -> None:
    (folder / "agents" / "broken.yaml").write_text("name: broken\ntools: [{$ref: 'tool:none'}]\n", "utf-8")
    async with runtime() as rt:
        with pytest.raises(ConfigError, match=r"broken\.yaml:2"):
            GenxRuntime(rt, str(folder), tools=[goodbye])


async def test_a_state_whose_definition_is_gone_can_still_be_read(folder: Path) -> None:
    async with runtime(model=ScriptedModel(say("Here."))) as rt:
        guide = await GenxRuntime(rt, folder, tools=[goodbye]).new_agent("guide", state_id="s")
        await guide.run_until_eof("Where?")
        genx = GenxRuntime(rt)
        state = await genx.get_state("s")
        assert state is not None
        assert len(await state.load_recent()) == 2
        with pytest.raises(NotFound, match="there is no agent 'guide'"):
            await genx.restore_agent("s")
