"""Agents that files define: built by name, with tools of every kind, and read again when a file changes."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    check_log,
    read_log,
    results_by_call,
    runtime,
    write,
)
from vaka.config.options import NetworkAccess, Storage, Workspace
from vaka.core.ports.net import NetRequest, NetResponse, NetVerdict
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import text_of
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import ToolCompleted
from vaka.genx import MatchAgent
from vaka.genx.definitions.builder import DefinitionSources
from vaka.genx.definitions.catalog import AgentCatalog
from vaka.genx.prompt_layers import ConversationMemory
from vaka.runtime.definition_parts import RuntimeParts
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools import ToolTraits
from vaka.tools.function import sanitize_name

PLAIN_SERVER = Path(__file__).parents[2] / "mcp" / "plain_server.py"
QUIT = sanitize_name("完成")
WEATHER = """
tool = { description = "Tells the weather.", params = { city = { type = "string" } }, effect = "read" }
function invoke(ctx, args) return "sunny in " .. args.city end
"""


@vaka.tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def write_project(folder: Path) -> None:
    """Write a project with a react agent, tools of several kinds, a context and a model."""
    write(
        folder / "agents/guide.yaml",
        """
        type: react
        description: Guides visitors.
        prompt: You are a guide.
        context_layers: [{$this: .prompt}, {$ref: "context:house"}, Be brief., {$env: CITY}, {$mem: {recent: 4}}]
        generator: {$ref: "generator:small"}
        tools:
          - $ref: tool:weather
          - $ref: tool:add
          - {$ref: "tool:goodbye", quit: true}
          - {name: ask_poet, type: agent, description: Asks the poet., agent: {$ref: "agent:poet"}}
          - name: Read
    """,
    )
    write(folder / "agents/poet.json", '{"name": "poet", "prompt": "You rhyme.", "generator": {"model": "tiny"}}')
    write(folder / "tools/weather.yaml", "name: weather\nlua_file: scripts/weather.luau\n")
    write(folder / "tools/goodbye.yaml", "name: goodbye\nlua: function invoke(ctx, args) return 'bye' end\n")
    write(folder / "scripts/weather.luau", WEATHER)
    write(folder / "contexts/house.yaml", "prompt: The house is old.\n")
    write(folder / "models/small.yaml", "model: tiny\ntemperature: 0.5\n")


def use_model(model: Any, agents: Any, name: str) -> vaka.Agent:
    """Return an agent that asks a scripted model, as a program would give it one."""
    agent: vaka.Agent = agents[name]
    agent.model = model
    return agent


async def test_an_agent_has_the_prompt_model_options_and_tools_of_its_definition(folder: Path) -> None:
    write_project(folder)
    agents = vaka.load_agents(folder, tools=[add], variables={"CITY": "Lisbon"})
    assert (sorted(agents), len(agents), "poet" in agents) == (["guide", "poet"], 2, True)
    assert (agents["guide"].model, agents["guide"].options) == ("tiny", {"temperature": 0.5})
    (memory,) = [one for one in agents["guide"].middleware if isinstance(one, ConversationMemory)]
    assert memory.recent == 4
    model = ScriptedModel(call("weather", city="Lisbon"), call("add", a=1, b=2), call("goodbye"), say("Farewell."))
    store = MemoryStore()
    async with runtime(
        store, permissions=vaka.Permissions(mode="bypassPermissions"), workspace=Workspace(cwd=str(folder))
    ) as rt:
        session = await rt.open(use_model(model, agents, "guide"), id="s")
        assert (await session.run("Hello.")).text == "Farewell."
        with pytest.raises(vaka.TurnError, match="agent: closed"):
            await session.run("Again.")
    prompt = model.prompts[0]
    assert prompt.system == "You are a guide.\n\nThe house is old.\n\nBe brief.\n\nLisbon"
    assert [spec.name for spec in prompt.tools] == ["weather", "add", "goodbye", "ask_poet", "Read"]
    assert {spec.name: spec.layer for spec in prompt.tools} == {
        "weather": "definition",
        "add": "code",
        "goodbye": "definition",
        "ask_poet": "code",
        "Read": "builtin",
    }
    log = await read_log(store, "s")
    check_log(log)
    assert [text_of(result.content) for result in results_by_call(log).values()] == ["sunny in Lisbon", "3", "bye"]


async def test_a_changed_file_counts_from_the_next_turn_on_and_a_broken_one_does_not(folder: Path) -> None:
    write_project(folder)
    agents = vaka.load_agents(folder, tools=[add])
    model = ScriptedModel(say("1"), say("2"), say("3"), call("weather", city="Rome"), say("4"))
    store = MemoryStore()
    async with runtime(
        store, permissions=vaka.Permissions(mode="bypassPermissions"), workspace=Workspace(cwd=str(folder))
    ) as rt:
        session = await rt.open(use_model(model, agents, "guide"), id="s")
        await session.run("One.")
        write(folder / "contexts/house.yaml", "prompt: The house is new, and large.\n")
        await session.run("Two.")
        write(folder / "agents/guide.yaml", "type: react\ntools: [{$ref: 'tool:wether'}]\n")
        await session.run("Three.")
        write_project(folder)
        write(folder / "scripts/weather.luau", WEATHER.replace("sunny", "rain"))
        await session.run("Four.")
    assert [prompt.system.split("\n\n")[1] for prompt in model.prompts] == [
        "The house is old.",
        "The house is new, and large.",
        "The house is new, and large.",
        "The house is old.",
        "The house is old.",
    ]
    log = await read_log(store, "s")
    (warning,) = [event.data.message for event in log if isinstance(event.data, Logged)]
    assert "the agents stay as they were" in warning
    assert "agents/guide.yaml:2: agent guide: tool 'wether' not found; did you mean 'weather'?" in warning
    (result,) = results_by_call(log).values()
    assert text_of(result.content) == "rain in Rome"


async def test_an_untrusted_folder_runs_scripts_in_the_worker_and_the_mode_asks(folder: Path) -> None:
    write_project(folder)
    write(folder / "agents/guide.yaml", "tools: [{$ref: 'tool:weather'}]\n")
    agents = vaka.load_agents(folder, trusted=False)
    (weather,) = agents["guide"].tools
    assert isinstance(weather, vaka.LuauTool)
    assert not weather.source.trusted
    model = ScriptedModel(call("weather", city="Rome"), say("Asked."))
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(ask="deny"), workspace=Workspace(cwd=str(folder))) as rt:
        response = await (await rt.open(use_model(model, agents, "guide"), id="s")).run("Go.")
    assert response.denied == ("call_1",)
    (result,) = results_by_call(await read_log(store, "s")).values()
    assert "weather: no rule matches; it may change something, and the mode default asks" in text_of(result.content)
    model = ScriptedModel(call("weather", city="Rome"), say("Allowed."))
    async with runtime(
        store, permissions=vaka.Permissions(ask="deny", allow=("weather",)), workspace=Workspace(cwd=str(folder))
    ) as rt:
        await (await rt.open(use_model(model, agents, "guide"), id="t")).run("Go.")
    (result,) = results_by_call(await read_log(store, "t")).values()
    assert text_of(result.content) == "sunny in Rome"


@pytest.mark.parametrize(
    ("tool", "agent"),
    [
        ("name: call\ntype: http\nendpoint: https://example.com/{id}?key=${TOKEN}\n", ""),
        ("name: call\ntype: http\nendpoint: https://example.com/\nheaders: {X-Key: $TOKEN}\n", ""),
        ("name: call\ntype: http\nendpoint: https://example.com/\nauth: {type: bearer, token: '${TOKEN}'}\n", ""),
        ("name: call\n", "context_layers: [{$env: TOKEN}]\n"),
        ("name: call\n", "prompt: 'Use ${TOKEN}.'\n"),
        ("name: call\n", "generator: {model: m, extra: {key: ['${TOKEN:-x}']}}\n"),
        ("name: call\nlua: return 1\ndescription: '${TOKEN}'\n", ""),
    ],
    ids=["endpoint", "header", "auth", "layer", "prompt", "extra", "description"],
)
def test_definitions_of_an_untrusted_folder_cannot_read_variables(folder: Path, tool: str, agent: str) -> None:
    write(folder / "agents/caller.yaml", f"name: caller\ntools: [{{$ref: 'tool:call'}}]\n{agent}")
    write(folder / "tools/call.yaml", tool)
    agents = vaka.load_agents(folder, trusted=False, tools=[add], variables={"TOKEN": "secret-value"})
    with pytest.raises(ConfigError, match=r"the variable TOKEN of the environment, which only a trusted folder may do"):
        agents["caller"]


async def test_tools_of_every_kind_run_on_one_path_and_agents_call_each_other(folder: Path) -> None:
    write(
        folder / "agents/chief.yaml",
        """
        tools:
          - {name: digest, type: text_processor, prompt: Shorten., model: default}
          - {name: idea, type: generator, prompt: Be bold., context_layers: [{$this: .name}], model: default}
          - name: twice
            type: composite
            steps:
              - {id: one, tool: {$ref: "tool:add"}}
              - {id: two, tool: {name: add}, input_jq: "{a: .steps.one, b: 5}"}
          - {name: poem, type: agent, agent: {$ref: "agent:poet"}}
          - name: plan
            lua: function invoke(ctx) local a = ctx.create_agent("poet") a:send("Sea.") return a:collect() end
    """,
    )
    write(folder / "agents/poet.yaml", "prompt: You rhyme.\n")
    model = ScriptedModel(
        call("digest", content="A long text."),
        call("idea", input="Think."),
        call("twice", a=1, b=2),
        call("poem", prompt="On trees."),
        call("plan"),
        say("Done."),
        agents={"digest": [say("Short.")], "idea": [say("Fly.")], "poet": [say("Trees, breeze."), say("Sea, free.")]},
    )
    store = MemoryStore()
    agents = vaka.load_agents(folder, tools=[add])
    async with runtime(
        store, permissions=vaka.Permissions(mode="bypassPermissions"), workspace=Workspace(cwd=str(folder))
    ) as rt:
        assert (await (await rt.open(use_model(model, agents, "chief"), id="s")).run("Go.")).text == "Done."
    log = await read_log(store, "s")
    check_log(log)
    own = [event.data.result for event in log if isinstance(event.data, ToolCompleted) and not event.path]
    assert [text_of(result.content) for result in own] == ["Short.", "Fly.", "8", "Trees, breeze.", "Sea, free."]
    systems = {prompt.agent: prompt.system for prompt in model.prompts}
    assert systems == {"chief": "", "digest": "Shorten.", "idea": "Be bold.\n\nidea", "poet": "You rhyme."}


async def test_texts_have_the_values_of_variables_that_the_program_names(folder: Path) -> None:
    write(
        folder / "agents/guide.yaml",
        """
        description: Knows ${CITY}.
        prompt: "You know ${CITY} and ${RIVER:-no river}. ${KEY} $${CITY} ${not a name} $CITY"
        generator: {model: "${MODEL}", extra: {user: ["${CITY}", 3]}}
        tools: [{$ref: tool:ask}]
    """,
    )
    write(
        folder / "agents/layered.yaml",
        "prompt: '[${CITY}]'\ncontext_layers: [{$this: .prompt}, 'L ${CITY}', {$ref: context:house}]\n",
    )
    write(folder / "contexts/house.yaml", "prompt: C ${CITY}\n")
    write(folder / "tools/ask.yaml", "type: generator\ndescription: In ${CITY}.\nprompt: P ${CITY}\nmodel: ${MODEL}\n")
    write(folder / "models/small.yaml", "model: tiny\ntop_k: 2\n")
    key = "key-of-the-river"
    variables = {"CITY": "Lisbon", "RIVER": "", "KEY": key, "MODEL": "small"}
    agents = vaka.load_agents(folder, tools=[add], variables=variables)
    guide = agents["guide"]
    assert (guide.description, guide.model) == ("Knows Lisbon.", "tiny")
    assert guide.options == {"top_k": 2, "extra": {"user": ["Lisbon", 3]}}
    ask: Any = guide.tools[0]
    assert ask.spec.description == "In Lisbon."
    model = ScriptedModel(say("Hello."), say("Hello."))
    store = MemoryStore()
    async with runtime(store, storage=Storage(secrets=(key,)), workspace=Workspace(cwd=str(folder))) as rt:
        await (await rt.open(use_model(model, agents, "guide"), id="s")).run("Go.")
        await (await rt.open(use_model(model, agents, "layered"))).run("Go.")
    first, second = (prompt.system for prompt in model.prompts)
    assert first.startswith("You know Lisbon and no river. ")
    assert first.endswith(" ${CITY} ${not a name} $CITY")
    assert key not in first
    assert key not in repr(await read_log(store, "s"))
    assert second == "[Lisbon]\n\nL Lisbon\n\nC Lisbon"


def test_a_variable_without_a_value_is_an_error_that_names_the_file_and_the_ways_out(folder: Path) -> None:
    write(folder / "agents/a.yaml", "prompt: You know ${CITY}.\n")
    with pytest.raises(ConfigError) as raised:
        vaka.load_agents(folder, variables={"OTHER": "x"})["a"]
    assert str(raised.value) == (
        f"{folder}/agents/a.yaml:1: prompt reads the variable CITY, which is not set or which definitions may not "
        "read; name it with --env CITY or in the setting script_env; $${CITY} writes ${CITY} itself"
    )


async def test_a_changed_included_file_counts_from_the_next_turn_on_and_is_guarded(folder: Path) -> None:
    write(folder / "agents/base.yaml", "prompt: {$include: parts/prompt.md}\ntools: [{name: Write}]\n")
    write(folder / "agents/a.yaml", "extends: base\ndescription: A\n")
    agents = vaka.load_agents(folder, tools=[add])
    with pytest.raises(ConfigError, match=r"base\.yaml:1: \$include: 'parts/prompt\.md' not found"):
        agents["a"]
    write(folder / "agents/parts/prompt.md", "First.")
    arguments = {"file_path": str(folder / "agents/parts/prompt.md"), "content": "Mine."}
    model = ScriptedModel(say("1"), say("2"), call("Write", **arguments), say("3"))
    async with runtime(
        permissions=vaka.Permissions(ask="deny", mode="acceptEdits"), workspace=Workspace(cwd=str(folder))
    ) as rt:
        session = await rt.open(use_model(model, agents, "a"))
        await session.run("Go.")
        write(folder / "agents/parts/prompt.md", "Second.")
        await session.run("Go.")
        assert [prompt.system for prompt in model.prompts] == ["First.", "Second."]
        response = await session.run("Change yourself.")
    assert len(response.denied) == 1
    assert (folder / "agents/parts/prompt.md").read_text() == "Second."


def test_an_untrusted_folder_does_not_include_files_outside_of_its_definitions(folder: Path) -> None:
    write(folder / "agents/a.yaml", "prompt: {$include: ../notes.md}\n")
    write(folder / "notes.md", "private")
    with pytest.raises(ConfigError, match=r"a\.yaml:1: \$include: '\.\./notes\.md' is not inside of a folder of def"):
        vaka.load_agents(folder, trusted=False)["a"]
    assert vaka.load_agents(folder)["a"].instructions == "private"


def test_names_that_do_not_exist_and_cycles_are_errors_with_file_and_line(folder: Path) -> None:
    write(folder / "agents/guide.yaml", "name: guide\n\ntools:\n  - $ref: tool:wether\n")
    write(folder / "agents/one.yaml", "tools: [{name: two, type: agent, agent: {$ref: 'agent:two'}}]\n")
    write(folder / "agents/two.yaml", "tools: [{name: one, type: agent, agent: {$ref: 'agent:one'}}]\n")
    for number in range(100):
        inner = f"tools: [{{name: next, type: agent, agent: {{$ref: 'agent:deep{number + 1}'}}}}]"
        write(folder / f"agents/deep{number}.yaml", f"prompt: Deep.\n{inner if number < 99 else ''}\n")
    write(folder / "agents/notes.yaml", "shopping: [milk]\n")
    write(folder / "agents/__init__.py", "")
    write(folder / "tools/weather.yaml", "name: weather\nlua: function invoke() end\n")
    agents = vaka.load_agents(folder)
    assert "notes" not in agents
    with pytest.raises(ConfigError, match=r"agents/guide.yaml:4: agent guide: tool 'wether' not found; did you"):
        agents["guide"]
    with pytest.raises(ConfigError, match=r"agents/one.yaml:1: the references form a cycle: agent 'one' → agent 'two'"):
        agents["one"]
    with pytest.raises(ConfigError, match=r"deep64.yaml:1: agent deep0 refers to definitions more than 64 deep"):
        agents["deep0"]
    assert agents["deep40"].name == "deep40"
    with pytest.raises(KeyError, match=r"there is no agent 'giude'; did you mean guide\?"):
        agents["giude"]
    with pytest.raises(ConfigError, match="there is no such folder"):
        vaka.load_agents(folder / "missing")


async def test_a_router_of_definitions_hands_inputs_to_the_agents_of_its_rules(folder: Path) -> None:
    write(
        folder / "agents/front.yaml",
        """
        type: match
        rules: [{$ref: "rule:book"}, {name: chat, patterns: [how are you]}]
        route:
          - {rules: [book], agent: {$ref: "agent:booking"}}
          - {rules: [chat], agent: {name: chatty, prompt: Be kind.}}
        default: {$ref: "agent:counter"}
    """,
    )
    quits = "tools: [{name: 完成, type: agent, quit: true, agent: {name: closer, prompt: Close.}}]"
    write(folder / "agents/booking.yaml", f"prompt: You book.\n{quits}\n")
    write(folder / "agents/counter.yaml", "lua: function run(ctx) ctx.emit({text = 'Which?', eof = true}) end\n")
    write(folder / "rules/book.yaml", "name: book\nvars: {city: {label: city}}\npatterns: ['book a room in [city]']\n")
    model = ScriptedModel(
        agents={
            "front": [say("nothing"), say("book: city=Rome"), say("nothing")],
            "booking": [call(QUIT, prompt="Close."), say("Booked.")],
            "closer": [say("Closed.")],
        }
    )
    agents = vaka.load_agents(folder)
    async with runtime(workspace=Workspace(cwd=str(folder))) as rt:
        session = await rt.open(use_model(model, agents, "front"), id="s")
        assert (await session.run("Hm.")).text == "Which?"
        assert (await session.run("Book a room in Rome.")).text == "Booked."
        assert (await session.run("Hm.")).text == "Which?", "an agent that has finished gets no more input"
    assert isinstance(agents["front"], MatchAgent)


def test_models_are_named_by_generators_by_other_generators_and_by_the_settings(folder: Path) -> None:
    write(folder / "models/small.yaml", "model: openai/mini\ntemperature: 0.5\nmax_tokens: 9\n")
    write(folder / "agents/inline.yaml", "prompt: P\ngenerator: {model: small, temperature: 1.0}\n")
    write(folder / "agents/named.yaml", "prompt: P\ngenerator: {$ref: 'generator:fast'}\n")
    write(folder / "agents/unset.yaml", "prompt: P\n")
    write(folder / "agents/slash.yaml", "prompt: P\ngenerator: {$ref: 'generator:openai/big'}\n")
    write(folder / "agents/filed.yaml", "prompt: P\ngenerator: {$ref: 'generator:corp'}\n")
    write(folder / "models/corp.yaml", "schema: openai/chat/v1\nmodels: [{name: corp, model: corp-1}]\n")
    write(folder / "models/tiny.yaml", "model: small\nmax_tokens: 5\n")
    write(folder / "models/loop.yaml", "model: loop\n")
    write(folder / "agents/chain.yaml", "prompt: P\ngenerator: {$ref: 'generator:tiny'}\n")
    write(folder / "agents/loop.yaml", "prompt: P\ngenerator: {$ref: 'generator:loop'}\n")
    catalog = AgentCatalog(folder, DefinitionSources(parts=RuntimeParts(), models=frozenset({"fast"})))
    found = {name: (agent.model, agent.options) for name, agent in catalog.items()}
    assert found == {
        "chain": ("openai/mini", {"max_tokens": 5, "temperature": 0.5}),
        "loop": ("loop", {}),
        "inline": ("openai/mini", {"max_tokens": 9, "temperature": 1.0}),
        "named": ("fast", {}),
        "unset": (None, {}),
        "slash": ("openai/big", {}),
        "filed": ("corp", {}),
    }


async def test_http_tools_read_named_variables_and_the_mode_judges_them(folder: Path) -> None:
    write(folder / "agents/caller.yaml", "tools: [{$ref: 'tool:look'}, {$ref: 'tool:send'}]\n")
    write(
        folder / "tools/look.yaml",
        """
        type: http
        endpoint: https://example.com/{id}?all=1
        query: {key: "${TOKEN}", q: "{text} $$"}
        timeout: 3
        params: {id: {type: string}, text: {type: string}}
    """,
    )
    write(folder / "tools/send.yaml", "type: http\nmethod: POST\nendpoint: https://example.com/\nquery: {a: b c}\n")
    sent: list[str] = []

    class Echo:
        def decide(self, url: str) -> NetVerdict:
            return NetVerdict(url=url, host="example.com", port=443)

        async def send(self, request: NetRequest) -> NetResponse:
            sent.append(request.url)
            return NetResponse(url=request.url, status=200, headers=(), body=b'{"ok": true}')

    network: Any = Echo()
    model = ScriptedModel(call("look", id="7", text="a b"), call("send"), say("Done."))
    agents = vaka.load_agents(folder, variables={"TOKEN": "t"})
    assert agents.notes == ()
    async with runtime(
        permissions=vaka.Permissions(ask="deny"),
        network=NetworkAccess(client=network),
        workspace=Workspace(cwd=str(folder)),
    ) as rt:
        response = await (await rt.open(use_model(model, agents, "caller"))).run("Go.")
    assert sent == ["https://example.com/7?all=1&key=t&q=a%20b%20%24"]
    assert response.denied == ("call_2",), "a request that sends something is not allowed by the mode"
    write(folder / "tools/look.yaml", "type: http\nendpoint: https://example.com/${OTHER}\n")
    fresh = vaka.load_agents(folder)
    assert fresh["caller"].name == "caller"
    assert "the variable OTHER, which is not set" in fresh.notes[0]


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("type: lua\nlua: function run( end", "agents/a.yaml:1: a.luau:"),
        ("tools: [{name: add}, {$ref: 'tool:add'}]", "two tools are named 'add'"),
        ("tools: [{name: nothing_like_it}]", "there is no tool 'nothing_like_it'; there are "),
        (
            "type: match\nrules: [{name: x,patterns: [y]}]\nroute: [{rules: [x],agent: {name: b, tools: [{name: q}]}}]",
            "there is no tool 'q'",
        ),
    ],
)
def test_definitions_that_cannot_be_used_are_errors_that_name_the_file(folder: Path, agent: str, expected: str) -> None:
    write(folder / "agents/a.yaml", f"{agent}\n")
    with pytest.raises(ConfigError, match=re.escape(expected)) as raised:
        vaka.load_agents(folder, tools=[add])["a"]
    assert str(raised.value).startswith(f"{folder}/agents/a.yaml:1: ")


def test_a_broken_definition_is_not_replaced_by_a_tool_with_its_name(folder: Path) -> None:
    write(folder / "tools/Read.yaml", "type: http\n")
    write(folder / "agents/a.yaml", "tools: [{$ref: Read}]\n")
    agents = vaka.load_agents(folder)
    with pytest.raises(ConfigError, match=r"a.yaml:1: the tool 'Read' cannot be used: .*endpoint is required"):
        agents["a"]


def test_an_untrusted_folder_cannot_read_a_file_as_a_model(folder: Path) -> None:
    write(folder / "agents/reader.yaml", "prompt: P\ngenerator: {model: 'scripted:/etc/passwd'}\n")
    with pytest.raises(ConfigError, match=r"reader\.yaml:1: the model 'scripted:/etc/passwd' reads a file"):
        vaka.load_agents(folder, trusted=False)["reader"]
    assert vaka.load_agents(folder)["reader"].model == "scripted:/etc/passwd"


async def test_an_agent_that_is_gone_stays_for_open_sessions(folder: Path) -> None:
    write(folder / "agents/one.yaml", "prompt: One.\n")
    agents = vaka.load_agents(folder)
    model, store = ScriptedModel(say("1"), say("2")), MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(use_model(model, agents, "one"), id="s")
        await session.run("Go.")
        (folder / "agents/one.yaml").unlink()
        assert (await session.run("Go.")).text == "2"
    (warning,) = [event.data.message for event in await read_log(store, "s") if isinstance(event.data, Logged)]
    assert warning.endswith("there is no agent 'one'; no agent is defined")


async def test_a_router_with_the_model_offline_matches_without_a_model(folder: Path) -> None:
    write(folder / "agents/echo.yaml", "lua: function run(ctx) ctx.emit({text = ctx.recv().text}) end\n")
    write(
        folder / "agents/toy.yaml",
        """
        type: match
        generator: {model: offline}
        rules: [{name: sing, patterns: [sing a song]}]
        route: [{rules: [sing], agent: {$ref: "agent:echo"}}]
    """,
    )
    async with runtime(workspace=Workspace(cwd=str(folder))) as rt:
        session = await rt.open(vaka.load_agents(folder)["toy"])
        assert (await session.run("Please sing a song!")).text == "Please sing a song!"
        assert (await session.run("Fly!")).text == ""


async def test_an_agent_has_only_the_tools_of_servers_that_it_names(folder: Path) -> None:
    write(folder / "agents/one.yaml", "tools: [{$ref: 'tool:mcp__p__echo'}, {name: mcp__p__pid}, {name: add}]\n")
    write(folder / "agents/boss.yaml", "tools: [{name: ask, type: agent, agent: {$ref: 'agent:one'}}]\n")
    agents = vaka.load_agents(folder, tools=[add])
    lines = [call("mcp__p__echo", text="hi"), call("mcp__p__fail"), say("Done.")]
    model, store = ScriptedModel(call("ask", prompt="Go."), say("Good."), agents={"one": lines}), MemoryStore()
    server = {"p": {"command": sys.executable, "args": [str(PLAIN_SERVER)]}}
    async with runtime(store, project=Project(mcp=server), permissions=vaka.Permissions(allow=["mcp__p"])) as rt:
        assert (await (await rt.open(use_model(model, agents, "boss"), id="s")).run("Go.")).text == "Good."
    offered = {prompt.agent: [spec.name for spec in prompt.tools] for prompt in model.prompts}
    assert offered == {"boss": ["ask"], "one": ["add", "mcp__p__echo", "mcp__p__pid"]}
    results = [text_of(result.content) for result in results_by_call(await read_log(store, "s")).values()]
    assert results == ["hi", "this agent does not have the tool mcp__p__fail", "Done."]


async def test_a_tool_that_declares_its_files_cannot_change_the_definition_of_its_agent_without_a_question(
    folder: Path,
) -> None:
    @vaka.tool(traits=ToolTraits(writes=True, paths=("source", "target")))
    def copy_file(source: str, target: str) -> str:
        """Copy a file."""
        return "copied"

    write(folder / "agents/dev.yaml", "tools: [{name: copy_file}]\n")
    agents = vaka.load_agents(folder, tools=[copy_file])
    lines = [call("copy_file", source="a", target=target) for target in ("agents/dev.yaml", "agents/notes.txt")]
    model, store = ScriptedModel(*lines, say("Done.")), MemoryStore()
    agent = use_model(model, agents, "dev")
    async with runtime(
        store, permissions=vaka.Permissions(ask="deny"), workspace=Workspace(cwd=str(folder)), agent=agent
    ) as rt:
        response = await (await rt.open(id="s")).run("Go.")
    assert response.denied == ("call_1",)


async def test_an_agent_cannot_change_its_own_definition_without_a_question(folder: Path) -> None:
    write(folder / "agents/dev.yaml", "tools: [{name: Write}, {name: Bash}]\n")
    agents = vaka.load_agents(folder)
    lines = [
        call("Write", file_path=path, content="name: x\n")
        for path in ("agents/dev.yaml", f"{folder}/tools/../tools/new.yaml", "agents/notes.txt")
    ]
    command = call("Bash", command="echo 'prompt: Mine.' > agents/dev.yaml; echo free > agents/free.txt")
    model, store = ScriptedModel(*lines, command, say("Done.")), MemoryStore()
    agent = use_model(model, agents, "dev")
    async with runtime(
        store,
        permissions=vaka.Permissions(ask="deny", mode="bypassPermissions"),
        workspace=Workspace(cwd=str(folder)),
        agent=agent,
    ) as rt:
        response = await (await rt.open(id="s")).run("Go.")
    assert response.denied == ("call_1", "call_2")
    results = results_by_call(await read_log(store, "s"))
    assert "agents/dev.yaml defines this agent or its tools" in text_of(results["call_1"].content)
    assert (folder / "agents/dev.yaml").read_text() == "tools: [{name: Write}, {name: Bash}]\n"
    assert (folder / "agents/free.txt").read_text() == "free\n"
