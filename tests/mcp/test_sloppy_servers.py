"""A server that breaks the protocol loses the part that is broken, and nothing else."""

import json
import sys
from pathlib import Path

from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Permissions
from vaka.core.types.monitor import Logged
from vaka.runtime.options import Project
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

SERVER = Path(__file__).with_name("sloppy_server.py")
TEXTS = {
    "no_schema": "fine",
    "no_type": "fine",
    "no_content": '{"x":1}',
    "text_content": "words",
    "new_content": '{"type":"new","x":1}words',
    "null_result": "mcp__s__null_result: the server sent an answer that the protocol does not allow",
    "odd_error": "mcp__s__odd_error: the server sent an answer that the protocol does not allow",
    "own_error": "mcp__s__own_error: my own",
    "twice": "fine",
}


async def test_broken_tools_and_answers_of_a_server_do_not_cost_the_others() -> None:
    model = ScriptedModel(*(call(f"mcp__s__{name}") for name in TEXTS), say("Done."))
    store = MemoryStore()
    mcp = {"s": {"command": sys.executable, "args": [str(SERVER)]}}
    async with runtime(store, project=Project(mcp=mcp), permissions=Permissions(allow=["mcp__s"])) as rt:
        await (await rt.open(agent(model), id="s")).run("Go.")
    log = await read_log(store, "s")
    offered = {spec.name for spec in model.prompts[0].tools}
    assert {name.removeprefix("mcp__s__") for name in offered if name.startswith("mcp__")} == TEXTS.keys()
    assert dict(zip(TEXTS, (result.text for result in results_by_call(log).values()), strict=True)) == TEXTS
    warnings = [event.data.message for event in log if isinstance(event.data, Logged)]
    begin = "the tool {!r} of the MCP server 's' is left out: "
    assert sorted(warnings) == [
        begin.format("?") + "it has no name",
        begin.format("list_schema") + "its schema does not describe an object",
        begin.format("twice") + "it is listed twice",
        begin.format("wrong_schema") + 'not a usable JSON Schema: "much" is not of type "number"',
    ]


async def test_every_page_of_resources_and_templates_is_listed_once() -> None:
    model, store = ScriptedModel(call("ListMcpResources", server="s"), say("Done.")), MemoryStore()
    async with runtime(
        store,
        project=Project(mcp={"s": {"command": sys.executable, "args": [str(SERVER)]}}),
        permissions=Permissions(allow=["ListMcpResources"]),
    ) as rt:
        await (await rt.open(agent(model), id="s")).run("Go.")
    (result,) = results_by_call(await read_log(store, "s")).values()
    # The cursor of the first list is always the same, so it is followed once.
    assert [item["name"] for item in json.loads(result.text)] == ["a", "a", "first", "second"]
