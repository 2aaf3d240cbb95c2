"""Generator and text processor tools: what the model is asked, and what the caller gets."""

from typing import Any

import pytest

from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Permissions
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import ToolResult
from vaka.core.types.monitor import UsageRecorded
from vaka.genx.kinds.generator import GeneratorTool, TextProcessorTool
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, fail, say

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def ask(
    tool: Any, arguments: dict[str, Any], *answers: Any, **limits: Any
) -> tuple[ToolResult, ScriptedModel, Any]:
    """Return the result of one call, the model, and the usage of the model's answers in the tool."""
    store, name = MemoryStore(), tool.spec.name
    model = ScriptedModel(call(name, **arguments), say("done"), agents={name: answers})
    async with runtime(store, permissions=Permissions(mode="bypassPermissions"), **limits) as rt:
        await (await rt.open(agent(model, tool), id="s")).run("Go.")
    log = await read_log(store, "s")
    usage = [event.data for event in log if isinstance(event.data, UsageRecorded) and event.data.agent == name]
    return results_by_call(log)["call_1"], model, usage


async def test_a_generator_asks_the_model_and_its_usage_is_recorded() -> None:
    tool = GeneratorTool(
        "poet", model="default", prompt="Rhyme.", context=["", "In German."], options={"temperature": 1}
    )
    result, model, usage = await ask(tool, {"input": "sea"}, say("See, Schnee."))
    assert result.text == "See, Schnee."
    prompt = model.prompts[1]
    assert (prompt.system, prompt.options, prompt.tools) == ("Rhyme.\n\nIn German.", {"temperature": 1}, ())
    assert [part.text for message in prompt.messages for part in message.content] == ["sea"]  # type: ignore[union-attr]  # texts
    assert [one.call for one in usage] == ["call_1"]
    assert (tool.spec.effect, repr(tool)) == ("read", "GeneratorTool('poet')")
    assert "'input'" in (await ask(tool, {"text": "sea"}))[0].text


async def test_json_answers_are_parsed_checked_and_asked_for_once_more() -> None:
    tool = GeneratorTool("count", model="default", mode="json_output", output_schema=SCHEMA)
    result, model, _ = await ask(tool, {"input": "two"}, say("Two!"), say('```json\n{"n": 2}\n```'))
    assert result.value == {"n": 2}
    assert model.prompts[1].options["output"] == {"schema": SCHEMA, "name": "output"}
    assert "JSON Schema" in model.prompts[1].system
    assert "That answer cannot be used" in model.prompts[2].messages[2].content[0].text  # type: ignore[union-attr]  # a text
    failed, _, usage = await ask(tool, {"input": "two"}, say('{"n": "2"}'), say("{}"))
    assert "did not answer with JSON that fits output_schema" in failed.text
    assert (failed.failed, len(usage)) == (True, 2)


async def test_a_text_processor_processes_its_content() -> None:
    tool = TextProcessorTool("short", model="default", prompt="Shorten.")
    result, model, _ = await ask(tool, {"content": "a long text"}, say("text"))
    assert (result.text, model.prompts[1].system) == ("text", "Shorten.")
    listed = TextProcessorTool(
        "list", model="default", prompt="List.", output_mode="json", output_schema={"type": "array"}
    )
    result, model, _ = await ask(listed, {"content": "a b"}, say('["a", "b"]'))
    assert (result.value, model.prompts[1].options) == (["a", "b"], {})


async def test_a_model_that_fails_or_is_unknown_fails_the_call() -> None:
    tool = GeneratorTool("poet", model="default")
    assert "broken" in (await ask(tool, {"input": "sea"}, fail(400, "broken")))[0].text
    result, _, _ = await ask(GeneratorTool("poet", model="nowhere/none"), {"input": "sea"})
    assert (result.failed, "nowhere" in result.text) == (True, True)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (GeneratorTool, {"name": ""}, "generator tool: name is required"),
        (GeneratorTool, {"model": ""}, "tool t: model is required"),
        (GeneratorTool, {"mode": "sing"}, "invalid generator mode 'sing'"),
        (GeneratorTool, {"mode": "json_output"}, "tool t: output_schema is required for json_output mode"),
        (GeneratorTool, {"mode": "json_output", "output_schema": {"type": "x"}}, "schema"),
        (TextProcessorTool, {"name": ""}, "text processor tool: name is required"),
        (TextProcessorTool, {"prompt": ""}, "tool t: prompt is required"),
        (TextProcessorTool, {"model": ""}, "tool t: model is required"),
        (TextProcessorTool, {"output_mode": "xml"}, "invalid text processor output mode 'xml'"),
        (TextProcessorTool, {"output_mode": "json"}, "tool t: output_schema is required for json output mode"),
    ],
)
def test_a_definition_that_is_not_valid_says_what_is_expected(kind: Any, options: dict[str, Any], message: str) -> None:
    given = {"name": "t", "model": "m", "prompt": "p", **options}
    with pytest.raises(InvalidInput) as caught:
        kind(given.pop("name"), **given)
    assert message in str(caught.value)
