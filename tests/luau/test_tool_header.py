"""A script declares its description, parameters and effect itself."""

from pathlib import Path

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, collect, results_by_call, runtime
from vaka.core.types.errors import InvalidInput
from vaka.testing.models import ScriptedModel, call, say

BODY = 'local words = require("words")\nfunction invoke(ctx, args) return `rain in {args.city}` end\n'
FIELDS = 'description = "Tell the weather.", params = { city = { type = "string" } }, effect = "read"'


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "source",
    [
        f"-- A comment.\ntool = {{ {FIELDS} }}\n{BODY}",
        f"{BODY}function describe() return {{ {FIELDS} }} end\n",
        f"return {{ {FIELDS}, invoke = function(ctx, args) return args.city end }}\n",
    ],
)
def test_a_script_declares_what_the_model_sees(source: str, trusted: bool) -> None:
    spec = vaka.LuauTool(source, name="weather", trusted=trusted).spec
    assert (spec.description, spec.effect) == ("Tell the weather.", "read")
    assert spec.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_arguments_of_the_tool_win_over_its_header_and_a_comment_describes_one_without() -> None:
    source = f"-- A comment.\ntool = {{ {FIELDS} }}\n{BODY}"
    spec = vaka.LuauTool(source, name="weather", description="Ask the sky.", params={}, effect="once").spec
    assert (spec.description, spec.effect, spec.parameters["properties"]) == ("Ask the sky.", "once", {})
    plain = vaka.LuauTool(f"-- A comment.\n{BODY}", name="weather").spec
    assert (plain.description, plain.effect) == ("A comment.", "resume")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("tool = 7", "must be a table with description, params and effect"),
        ('tool = { effect = "maybe" }', "effect must be one of read, idempotent, once, resume: Invalid .*'maybe'"),
        ('tool = { params = { "city" } }', "params must be a table of JSON Schemas by name, or one JSON Schema"),
        ("tool = { description = 7 }", "Expected `str`"),
        ("tool = { params = { city = 7 } }", "'city' must be a JSON Schema"),
        ("tool = {} while true do end", "out of time"),
    ],
)
def test_an_invalid_header_is_an_error(header: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        vaka.LuauTool(f"{header}\n{BODY}", name="weather")


async def test_a_tool_with_a_header_checks_its_arguments_and_runs(tmp_path: Path) -> None:
    (tmp_path / "weather.luau").write_text(f"tool = {{ {FIELDS} }}\n{BODY}", "utf-8")
    (tmp_path / "words.luau").write_text("return {}", "utf-8")
    tool = vaka.LuauTool(tmp_path / "weather.luau", libs=[tmp_path])
    model = ScriptedModel(call("weather"), call("weather", city="Hilo"), say("done"))
    async with runtime() as rt:
        results = results_by_call(await collect((await rt.open(agent(model, tool), id="s")).stream("Go.")))
    assert [results[f"call_{n}"].reason for n in (1, 2)] == ["invalid_arguments", ""]
    assert results["call_2"].text == "rain in Hilo"
