"""Structured output: the schema sent to the model, and the value parsed from its answer."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

import vaka
from tests.runtime.runtime_fixtures import runtime
from vaka.core.types.errors import InvalidInput, TurnError
from vaka.runtime.structured_output import OutputSchema
from vaka.testing.models import ScriptedModel, call, say


@dataclass
class Boat:
    """A boat."""

    name: str
    hulls: int = 1


class BoatDict(TypedDict):
    name: str
    hulls: int


class BoatStruct(msgspec.Struct):
    name: str
    hulls: int = 1


class BoatModel(pydantic.BaseModel):
    name: str
    hulls: int = pydantic.Field(default=1, ge=1)


class Fleet(msgspec.Struct):
    boats: list[BoatStruct]
    flag: Literal["red", "blue"] | None = None


class Tree(msgspec.Struct):
    name: str
    below: "list[Tree]" = []


def agent_with_output(output: Any, *answers: dict[str, Any], **more: Any) -> tuple[vaka.Agent, ScriptedModel]:
    """Return an agent whose answers are to be something, and its model."""
    model = ScriptedModel(*answers)
    return vaka.Agent("a", model=model, output=output, **more), model


@pytest.mark.parametrize(
    ("output", "answer", "value"),
    [
        (Boat, '{"name": "Hōkūleʻa", "hulls": 2}', Boat("Hōkūleʻa", 2)),
        (BoatDict, '{"name": "a", "hulls": 2}', {"name": "a", "hulls": 2}),
        (BoatStruct, '{"name": "a"}', BoatStruct("a")),
        (BoatStruct, '```json\n{"name": "a", "hulls": null}\n```', BoatStruct("a")),
        (BoatModel, '{"name": "a", "hulls": 3}', BoatModel(name="a", hulls=3)),
        (Fleet, '{"boats": [{"name": "a"}], "flag": "red"}', Fleet([BoatStruct("a")], "red")),
        (Tree, '{"name": "a", "below": [{"name": "b"}]}', Tree("a", [Tree("b")])),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int, '{"value": 3}', 3),
        (BoatStruct | None, '{"value": null}', None),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": 1}', {"n": 1}),
    ],
)
async def test_an_answer_becomes_a_value_of_the_output_type(output: Any, answer: str, value: Any) -> None:
    boats, model = agent_with_output(output, say(answer))
    async with runtime() as rt:
        response = await (await rt.open(boats)).run("Which boat?")
    assert response.output == value
    assert type(response.output) is type(value)
    schema = model.prompts[0].options["output"]["schema"]
    assert schema.get("type") == "object" or "$ref" in schema or "anyOf" in schema


@pytest.mark.parametrize(
    ("output", "answer", "message"),
    [
        (Boat, "A boat.", "the answer is not JSON"),
        (Boat, '{"hulls": 2}', "the answer does not match the schema: .*'name'"),
        (Boat, '{"name": "a", "hulls": "two"}', "the answer does not match the schema: .*hulls"),
        (BoatModel, '{"name": "a", "hulls": 0}', "the answer does not match the schema|the answer cannot be used"),
    ],
)
async def test_an_answer_that_does_not_match_is_an_error_with_its_text(output: Any, answer: str, message: str) -> None:
    boats, _ = agent_with_output(output, say(answer))
    async with runtime() as rt:
        session = await rt.open(boats)
        with pytest.raises(TurnError, match=message) as caught:
            await session.run("Which boat?")
    assert (caught.value.code, caught.value.result.text) == ("invalid_output", answer)


async def test_tools_may_be_called_before_the_answer_and_a_limit_leaves_the_output_unset() -> None:
    @vaka.tool(effect="read")
    def look() -> str:
        """Look."""
        return "a boat"

    boats, _ = agent_with_output(Boat, call("look"), say('{"name": "a"}'), tools=[look])
    async with runtime() as rt:
        assert (await (await rt.open(boats)).run("Which boat?")).output == Boat("a")
    limited, _ = agent_with_output(Boat, call("look"), tools=[look], limits=vaka.Limits(max_steps=1))
    async with runtime() as rt:
        response = await (await rt.open(limited)).run("Which boat?")
    assert (response.stop, response.output) == ("limit", None)


async def test_the_options_of_an_agent_override_its_output_type() -> None:
    boats, model = agent_with_output(Boat, say('{"name": "a"}'), options={"output": {"type": "object"}, "seed": 1})
    async with runtime() as rt:
        await (await rt.open(boats)).run("Which boat?")
    assert model.prompts[0].options == {"output": {"type": "object"}, "seed": 1}


def test_an_output_type_that_json_cannot_express_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="output: "):
        OutputSchema(complex)
    with pytest.raises(InvalidInput, match="not a usable JSON Schema"):
        OutputSchema({"type": "nonsense"})
