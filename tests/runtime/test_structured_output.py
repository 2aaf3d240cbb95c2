"""Structured output: the schema sent to the model, and the value parsed from its answer."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from inline_snapshot import snapshot

import vaka
from tests.runtime.runtime_fixtures import (
    check_log,
    collect_turn,
    event_types,
    log_writer,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.types.errors import InvalidInput, TurnError
from vaka.core.types.message import text_of
from vaka.runtime.structured_output import OutputSchema
from vaka.stores.memory import MemoryStore
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


def agent_with_output(output: Any, *answers: dict[str, Any], **more: Any) -> tuple[vaka.Agent[Any, Any], ScriptedModel]:
    """Return an agent whose answers are to be something, and its model."""
    name = more.pop("name", "a")
    model = ScriptedModel(*answers, agents={name: list(answers)})
    return vaka.Agent(name, model=model, output=output, **more), model


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


@dataclass
class Canoe:
    hulls: int

    def __post_init__(self) -> None:
        if not self.hulls:
            raise AssertionError("a canoe has a hull")


@pytest.mark.parametrize(
    ("output", "answer", "message"),
    [
        (Boat, "A boat.", "the answer is not JSON"),
        (Boat, '{"hulls": 2}', "the answer does not match the schema: .*'name'"),
        (Boat, '{"name": "a", "hulls": "two"}', "the answer does not match the schema: .*hulls"),
        (BoatModel, '{"name": "a", "hulls": 0}', "the answer does not match the schema|the answer cannot be used"),
        (Canoe, '{"hulls": 0}', "the answer cannot be used: a canoe has a hull"),
    ],
)
async def test_an_answer_that_does_not_match_is_an_error_with_its_text(output: Any, answer: str, message: str) -> None:
    boats, _ = agent_with_output(output, say(answer) | {"repeat": True})
    async with runtime() as rt:
        session = await rt.open(boats)
        with pytest.raises(TurnError, match=f"({message}).*asked again 2 times") as caught:
            await session.run("Which boat?")
    assert (caught.value.code, caught.value.result.text) == ("invalid_output", answer)


async def test_an_answer_that_does_not_match_is_shown_to_the_model_and_asked_again() -> None:
    boats, model = agent_with_output(Boat, say("A boat."), say('{"hulls": 2}'), say('{"name": "a"}'))
    async with runtime() as rt:
        response = await (await rt.open(boats)).run("Which boat?")
    assert (response.output, response.steps) == (Boat("a"), 3)
    texts = [[text_of(message.content) for message in prompt.messages] for prompt in model.prompts]  # type: ignore[union-attr]  # no results of tools
    assert texts[0] == ["Which boat?"]
    assert texts[1][1:] == snapshot(
        [
            "A boat.",
            """\
The answer is not JSON: there is text before the JSON; send exactly one JSON object and nothing else.
Answer again: with JSON that matches the schema, and nothing else.\
""",
        ]
    )
    assert texts[2][3:] == snapshot(
        [
            '{"hulls": 2}',
            """\
The answer does not match the schema: answer: 'name' is missing.
Answer again: with JSON that matches the schema, and nothing else.\
""",
        ]
    )


async def test_a_stream_fails_as_a_run_does_when_the_answer_does_not_match() -> None:
    boats, _ = agent_with_output(Boat, *[say("A boat.")] * 3)
    async with runtime() as rt:
        session = await rt.open(boats)
        async with session.stream("Which boat?") as turn:
            events = [event async for event in turn]
            with pytest.raises(TurnError, match="is not JSON"):
                _ = turn.response
    assert [event.type for event in events].count("output.rejected") == 2
    assert (events[-1].type, getattr(events[-1].data, "code", "")) == ("turn.failed", "invalid_output")


async def test_a_stream_of_text_raises_the_error_of_its_turn() -> None:
    boats, _ = agent_with_output(Boat, say("A boat."), limits=vaka.Limits(output_retries=0))
    async with runtime() as rt:
        session = await rt.open(boats)
        with pytest.raises(TurnError, match=r"is not JSON(?!.*asked again)"):
            [text async for text in session.stream_text("Which boat?")]


async def test_answers_that_were_rejected_stay_counted_after_a_crash() -> None:
    boats, _ = agent_with_output(Boat, *[say("A boat.")] * 3, say('{"name": "never asked for"}'))
    store = MemoryStore()
    async with runtime(store) as rt:
        with pytest.raises(TurnError):
            await (await rt.open(boats, id="s")).run("Which boat?")
    log = await read_log(store, "s")
    check_log(log)
    rejected = [n for n, event in enumerate(log, 1) if event.type == "output.rejected"]
    assert len(rejected) == 2
    for end in range(3, len(log)):
        again = MemoryStore()
        await log_writer(again, "s", log[:end])()
        async with runtime(again) as rt:
            with pytest.raises(TurnError, match="asked again 2 times"):
                await (await rt.open(boats, id="s")).resume().wait()
        after = await read_log(again, "s")
        check_log(after)
        assert event_types(after).count("output.rejected") == 2, end


async def test_the_answer_of_a_child_agent_is_checked_too() -> None:
    inner, _ = agent_with_output(Boat, say("A boat."), say('{"name": "a"}'), name="inner")
    outer = vaka.Agent("outer", model=ScriptedModel(call("inner", prompt="Which?"), say("done")), tools=[inner])
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(outer, id="s")).run("Go.")
    assert results_by_call(await read_log(store, "s"))["call_1"].text == '{"name": "a"}'


async def test_an_answer_that_a_middleware_writes_must_match_as_well() -> None:
    async def shout(turn: Any, outcome: Any) -> Any:
        return msgspec.structs.replace(outcome, text="BOAT!")

    loud = vaka.Middleware.from_functions("loud", after_agent=shout)
    boats, _ = agent_with_output(Boat, say('{"name": "a"}'), middleware=[loud])
    async with runtime() as rt:
        events = await collect_turn(await rt.open(boats))
    assert (events[-1].type, getattr(events[-1].data, "code", "")) == ("turn.failed", "invalid_output")


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
